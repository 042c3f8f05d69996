package payhook

import (
	"encoding/json"
	"fmt"
	"go/constant"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	gopackages "golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

// resources lists the resources of the calls of a package, by the
// function of the package that makes them or leads to them. The name "" stands
// for all other functions. Resources are written as the template's tests write
// them: Ledger.Arn is the ARN of the resource Ledger.
//
// The actions that a Lambda function needs are not listed anywhere: the test derives them
// from the calls that its program can reach.
var resources = map[string]map[string][]string{
	"ledger": {
		"":                  {"Ledger.Arn"},
		"Ledger.query":      {"Ledger.Arn/index/pending"},
		"Inspector.Backlog": {"Ledger.Arn/index/pending"},
	},
	"keys":       {"": {"Keys.Arn"}},
	"bus":        {"": {"Bus.Arn"}},
	"claimcheck": {"": {"Claims.Arn/events/*"}},
	"parking": {
		"Store.Park":         {"Parking.Arn/parked/*", "Parking.Arn/event/*", "Parking.Arn/delivery/*"},
		"Store.Get":          {"Parking.Arn/parked/*"},
		"Store.MarkReplayed": {"Parking.Arn/replayed/*"},
		"Store.Dismiss":      {"Parking.Arn/dismissed/*"},
		"Store.Decision":     {"Parking.Arn/replayed/*", "Parking.Arn/dismissed/*"},
		"Store.list":         {"Parking.Arn"},
		"Store.Capture":      {"Parking.Arn/captured/*"},
		"Store.Keep":         {"Records.Arn/accepted/*"},
		"Store.Captured":     {"Parking.Arn/captured/*"},
	},
	"token": {
		"bearer":          {"Token/Secret.Id"},
		"Refresher.store": {"Token/Secret.Id"},
		"credentials":     {"Token/Credentials.Id"},
	},
	"deployment": {"": {"the stack"}},
	"logs":       {"": {"Webhook/Logs", "Redrive/Logs", "Token/Logs"}},
	"listen": {
		"temporary.create":      {"temporary rules"},
		"temporary.createQueue": {"temporary queues"},
		"temporary.receive":     {"temporary queues"},
		"temporary.remove":      {"temporary rules"},
		"temporary.removeQueue": {"temporary queues"},
		// AWS, "Actions, resources, and condition keys for Amazon EventBridge" in the
		// Service Authorization Reference: ListRules has no resource.
		"temporary.removeExpired": {"*"},
	},
	"operate":  {"": {"Redrive/Alias"}},
	"evidence": {"scan": {"Evidence.Arn"}, "read": {"Evidence.Arn/*"}},
	// GetMetricData has no resource. The names of alarms are not known before the call.
	"status": {"": {"*"}, "alarmNames": {"the stack"}},
}

// services are the IAM prefixes of the SDK's packages.
var services = map[string]string{
	"dynamodb": "dynamodb", "s3": "s3", "eventbridge": "events", "secretsmanager": "secretsmanager",
	"lambda": "lambda", "cloudformation": "cloudformation", "sts": "sts",
	"cloudwatchlogs": "logs", "cloudwatch": "cloudwatch", "sqs": "sqs",
}

// unrestricted are the actions that need no permission (AWS, "GetCallerIdentity" in
// the STS API reference), or whose permissions are those of their statements.
var unrestricted = map[string]bool{"sts:GetCallerIdentity": true, "dynamodb:BatchExecuteStatement": true}

// statements are the actions of the statements of PartiQL, by how they begin (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-iam.html).
var statements = map[string]string{
	"INSERT INTO ": "dynamodb:PartiQLInsert", "UPDATE ": "dynamodb:PartiQLUpdate",
	"DELETE FROM ": "dynamodb:PartiQLDelete", "SELECT ": "dynamodb:PartiQLSelect",
}

// actions are the IAM actions of the operations whose action has another name
// (AWS, "Actions, resources, and condition keys" in the Service Authorization
// Reference).
var actions = map[string]string{
	"s3:ListObjectsV2":      "s3:ListBucket",
	"s3:ListObjectVersions": "s3:ListBucketVersions",
	"s3:HeadObject":         "s3:GetObject",
	"lambda:Invoke":         "lambda:InvokeFunction",
}

const sdk = "github.com/aws/aws-sdk-go-v2/service/"

// programs is the folder of the commands.
const programs = "./infra/cmd/payhook/"

// load parses and type-checks this project's packages once.
var load = sync.OnceValues(func() (map[string]*ssa.Package, error) {
	found, err := gopackages.Load(&gopackages.Config{
		Mode: gopackages.NeedName | gopackages.NeedFiles | gopackages.NeedCompiledGoFiles | gopackages.NeedImports |
			gopackages.NeedTypes | gopackages.NeedTypesSizes | gopackages.NeedSyntax | gopackages.NeedTypesInfo,
		Dir: "../..",
	}, "./functions/...", "./shared/...", programs+"operate", programs+"logs", programs+"listen",
		programs+"status", programs+"evidence", programs+"cli", "./infra/deployment")
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
	}
	program, built := ssautil.Packages(found, ssa.InstantiateGenerics)
	program.Build()
	byPath := map[string]*ssa.Package{}
	for i, p := range found {
		byPath[p.PkgPath] = built[i]
	}
	return byPath, nil
})

// reach is what can be called from some functions: those functions of this
// project, with their callers, and what they call of AWS.
type reach struct {
	program *ssa.Program
	callers map[*ssa.Function]map[*ssa.Function]bool
	actions map[*ssa.Function]map[string]bool

	todo    []*ssa.Function
	invokes []invoke
	live    []types.Type // concrete types that are converted to an interface
}

// invoke is a call of an interface's method.
type invoke struct {
	caller *ssa.Function
	on     *types.Interface
	method *types.Func
}

// reached follows all calls from a package's main, or from the functions that
// are named. A call of an interface's method leads to that method of every type
// that is converted to an interface on the way. A function that is only
// mentioned counts as called.
func reached(t *testing.T, path string, names ...string) *reach {
	t.Helper()
	loaded, err := load()
	if err != nil {
		t.Fatal(err)
	}
	p := loaded[path]
	if p == nil {
		t.Fatalf("no package %s", path)
	}
	r := &reach{p.Prog, map[*ssa.Function]map[*ssa.Function]bool{}, map[*ssa.Function]map[string]bool{}, nil, nil, nil}
	if len(names) == 0 {
		names = []string{"init", "main"}
	}
	for _, name := range names {
		typeName, method, isMethod := strings.Cut(name, ".")
		f := p.Func(name)
		if isMethod {
			f = p.Prog.LookupMethod(types.NewPointer(p.Type(typeName).Type()), p.Pkg, method)
		}
		if f == nil {
			t.Fatalf("%s has no function %s", path, name)
		}
		r.add(nil, f)
	}
	for len(r.todo) > 0 {
		f := r.todo[0]
		r.todo = r.todo[1:]
		r.visit(f)
	}
	return r
}

func (r *reach) add(caller, f *ssa.Function) {
	if r.callers[f] == nil {
		r.callers[f] = map[*ssa.Function]bool{}
		r.todo = append(r.todo, f)
	}
	r.callers[f][caller] = true
}

func (r *reach) act(f *ssa.Function, action string) {
	if r.actions[f] == nil {
		r.actions[f] = map[string]bool{}
	}
	r.actions[f][action] = true
}

func (r *reach) visit(f *ssa.Function) {
	for _, block := range f.Blocks {
		for _, instruction := range block.Instrs {
			for _, operand := range instruction.Operands(nil) {
				if text, ok := (*operand).(*ssa.Const); ok {
					r.read(f, text)
				}
				if called, ok := (*operand).(*ssa.Function); ok {
					r.add(f, called)
					r.look(f, called.Signature)
					for _, argument := range called.TypeArgs() {
						r.mention(f, argument)
					}
				}
			}
			if v, ok := instruction.(ssa.Value); ok {
				r.mention(f, v.Type())
			}
			switch i := instruction.(type) {
			case ssa.CallInstruction:
				if c := i.Common(); c.IsInvoke() {
					r.invoke(invoke{f, c.Value.Type().Underlying().(*types.Interface), c.Method})
				}
			case *ssa.MakeInterface:
				r.convert(i.X.Type())
				r.handOver(f, i.Type())
			case *ssa.ChangeInterface:
				r.handOver(f, i.Type())
			}
		}
	}
}

// handOver counts all methods of a foreign interface as
// called, because its users call them.
func (r *reach) handOver(f *ssa.Function, to types.Type) {
	named, ok := types.Unalias(to).(*types.Named)
	if !ok || named.Obj().Pkg() == nil || strings.HasPrefix(named.Obj().Pkg().Path(), "payhook.example/") {
		return
	}
	on := named.Underlying().(*types.Interface)
	for method := range on.Methods() {
		r.invoke(invoke{f, on, method})
	}
}

func (r *reach) invoke(call invoke) {
	if slices.Contains(r.invokes, call) {
		return
	}
	r.invokes = append(r.invokes, call)
	r.look(call.caller, call.method.Signature())
	for _, concrete := range r.live {
		r.resolve(call, concrete)
	}
}

func (r *reach) convert(concrete types.Type) {
	if slices.ContainsFunc(r.live, func(known types.Type) bool { return types.Identical(known, concrete) }) {
		return
	}
	r.live = append(r.live, concrete)
	for _, call := range r.invokes {
		r.resolve(call, concrete)
	}
}

func (r *reach) resolve(call invoke, concrete types.Type) {
	if !types.Implements(concrete, call.on) {
		return
	}
	if method := r.program.MethodSets.MethodSet(concrete).Lookup(call.method.Pkg(), call.method.Name()); method != nil {
		if f := r.program.MethodValue(method); f != nil {
			r.add(call.caller, f)
		}
	}
}

// look records the action of a call if it is a call of AWS: such a function has a
// parameter like *dynamodb.PutItemInput.
func (r *reach) look(caller *ssa.Function, called *types.Signature) {
	for parameter := range called.Params().Variables() {
		name, path, ok := nameOf(parameter.Type())
		operation, isInput := strings.CutSuffix(name, "Input")
		service, isSDK := strings.CutPrefix(path, sdk)
		if !ok || !isInput || !isSDK {
			continue
		}
		prefix, known := services[service]
		if !known {
			prefix = "unknown service " + service
		}
		action := prefix + ":" + operation
		if other, ok := actions[action]; ok {
			action = other
		}
		if !unrestricted[action] {
			r.act(caller, action)
		}
	}
}

// read records the action of a text if it is a statement of PartiQL.
func (r *reach) read(f *ssa.Function, text *ssa.Const) {
	if text.Value == nil || text.Value.Kind() != constant.String {
		return
	}
	for begin, action := range statements {
		if strings.HasPrefix(constant.StringVal(text.Value), begin) {
			r.act(f, action)
		}
	}
}

// mention records that a function distinguishes a missing object from a denied request:
// S3 does so only for callers that can list the bucket (AWS, "GetObject" in the S3
// API reference).
func (r *reach) mention(f *ssa.Function, t types.Type) {
	if name, path, ok := nameOf(t); ok && path == sdk+"s3/types" && (name == "NoSuchKey" || name == "NotFound") {
		r.act(f, "s3:ListBucket")
	}
}

// nameOf returns the name and the package of a type behind its pointers.
func nameOf(t types.Type) (name, path string, ok bool) {
	for {
		pointer, is := types.Unalias(t).(*types.Pointer)
		if !is {
			break
		}
		t = pointer.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return "", "", false
	}
	return named.Obj().Name(), named.Obj().Pkg().Path(), true
}

// grants returns the actions that the reached calls need, by resource.
func (r *reach) grants(t *testing.T) map[string][]string {
	t.Helper()
	needed := map[string][]string{}
	for f, made := range r.actions {
		on := map[string]bool{}
		r.locate(t, f, map[*ssa.Function]bool{}, on)
		for action := range made {
			for where := range on {
				switch {
				case action == "s3:ListBucket":
					where, _, _ = strings.Cut(where, "/")
				// It names the version (AWS, "GetObject" in the S3 API reference).
				case action == "s3:GetObject" && packageOf(f) == "evidence":
					action = "s3:GetObjectVersion"
				}
				if !slices.Contains(needed[where], action) {
					needed[where] = append(needed[where], action)
				}
			}
		}
	}
	for _, actions := range needed {
		slices.Sort(actions)
	}
	return needed
}

// locate collects the resources that f is called on: those of f, or those of its
// callers within its package.
func (r *reach) locate(t *testing.T, f *ssa.Function, seen map[*ssa.Function]bool, on map[string]bool) {
	t.Helper()
	if seen[f] {
		return
	}
	seen[f] = true
	where, name := packageOf(f), functionName(f)
	if named, ok := resources[where][name]; ok {
		for _, one := range named {
			on[one] = true
		}
		return
	}
	for caller := range r.callers[f] {
		if caller != nil && packageOf(caller) == where {
			r.locate(t, caller, seen, on)
			continue
		}
		rest, ok := resources[where][""]
		if !ok {
			t.Errorf("%s.%s calls AWS, and it is not known on which resource", where, name)
		}
		for _, one := range rest {
			on[one] = true
		}
	}
}

// packageOf returns the last element of the path of a function's package.
func packageOf(f *ssa.Function) string {
	for f.Parent() != nil {
		f = f.Parent()
	}
	path := ""
	switch {
	case f.Pkg != nil:
		path = f.Pkg.Pkg.Path()
	case f.Object() != nil && f.Object().Pkg() != nil:
		path = f.Object().Pkg().Path()
	}
	return path[strings.LastIndex(path, "/")+1:]
}

// functionName returns a function's name, as in Ledger.Due.
func functionName(f *ssa.Function) string {
	if receiver := f.Signature.Recv(); receiver != nil {
		name, _, _ := nameOf(receiver.Type())
		return name + "." + f.Name()
	}
	return f.Name()
}

// needs returns the actions that a function of Lambda needs, by resource.
func needs(t *testing.T, function string) map[string][]string {
	t.Helper()
	needed := reached(t, "payhook.example/functions/"+function).grants(t)
	if len(needed) == 0 {
		t.Fatalf("the function %s reaches no call of AWS", function)
	}
	return needed
}

func TestEveryResourceOfTheCallTableIsUsed(t *testing.T) {
	used := map[string]bool{}
	programs := map[string][]string{operatePackage: {"Commands"}, logsPackage: {"Command"},
		listenPackage: {"Command"}, statusPackage: {"Command"}, evidencePackage: {"Command"}}
	for _, name := range []string{"webhook", "redrive", "token"} {
		programs["payhook.example/functions/"+name] = nil
	}
	for path, functions := range programs {
		for f := range reached(t, path, functions...).callers {
			used[packageOf(f)+" "+functionName(f)] = true
			used[packageOf(f)+" "] = true
		}
	}
	for where, functions := range resources {
		for _, name := range slices.Sorted(maps.Keys(functions)) {
			if !used[where+" "+name] {
				t.Errorf("the table has %s, which nothing reaches", fmt.Sprintf("%s.%s", where, name))
			}
		}
	}
}

const (
	evidencePackage = "payhook.example/infra/cmd/payhook/evidence"
	operatePackage  = "payhook.example/infra/cmd/payhook/operate"
	logsPackage     = "payhook.example/infra/cmd/payhook/logs"
	listenPackage   = "payhook.example/infra/cmd/payhook/listen"
	statusPackage   = "payhook.example/infra/cmd/payhook/status"
)

// documented are the policies for programs outside the stack, by their files,
// with the document that links to them and what of their program needs them.
var documented = map[string]struct {
	document  string
	path      string
	functions []string
	without   []string // resources of the calls that this program does not use
}{
	"infra/cmd/payhook/operate/policy.json": {"infra/cmd/payhook/README.md", operatePackage, []string{"Commands"}, nil},
	"infra/cmd/payhook/logs/policy.json":    {"infra/cmd/payhook/README.md", logsPackage, []string{"Command"}, nil},
	"infra/cmd/payhook/status/policy.json":  {"infra/cmd/payhook/README.md", statusPackage, []string{"Command"}, nil},
	"infra/cmd/payhook/evidence/policy.json": {"infra/cmd/payhook/README.md", evidencePackage, []string{"Command"},
		nil},
	"infra/cmd/payhook/listen/policy.json": {"infra/cmd/payhook/README.md", listenPackage, []string{"Command"},
		[]string{"Redrive/Logs", "Token/Logs"}},
	"events/consumer/policy.json": {"events/README.md", "payhook.example/shared/claimcheck", []string{"Resolve"},
		nil},
	"events/client/policy.json": {"events/README.md", "payhook.example/shared/token",
		[]string{"Reader.TokenContext"}, nil},
}

// placeholders are the placeholders in the documented policies for names that differ
// in each account.
var placeholders = strings.NewReplacer(
	"arn:aws:dynamodb:<Region>:<Account>:table/<LedgerTable>", "Ledger.Arn",
	"arn:aws:dynamodb:<Region>:<Account>:table/<KeysTable>", "Keys.Arn",
	"arn:aws:s3:::<ParkingBucket>", "Parking.Arn",
	"arn:aws:s3:::<ClaimBucket>", "Claims.Arn",
	"arn:aws:s3:::<EvidenceBucket>", "Evidence.Arn",
	"arn:aws:lambda:<Region>:<Account>:function:<RedriveFunction>", "Redrive/Alias",
	"arn:aws:cloudformation:<Region>:<Account>:stack/<Stack>/*", "the stack",
	"arn:aws:logs:<Region>:<Account>:log-group:<WebhookLogs>:*", "Webhook/Logs",
	"arn:aws:logs:<Region>:<Account>:log-group:<RedriveLogs>:*", "Redrive/Logs",
	"arn:aws:logs:<Region>:<Account>:log-group:<TokenLogs>:*", "Token/Logs",
	"arn:aws:events:<Region>:<Account>:rule/<EventBusName>/payhook-listen-*", "temporary rules",
	"arn:aws:sqs:<Region>:<Account>:payhook-listen-*", "temporary queues",
	"arn:aws:events:<Region>:<Account>:event-bus/<EventBusName>", "Bus.Arn",
	"<TokenSecret>", "Token/Secret.Id",
)

func TestDocumentedPoliciesAllowExactlyTheCalls(t *testing.T) {
	for file, program := range documented {
		document, err := os.ReadFile(filepath.Join("..", "..", program.document))
		if err != nil {
			t.Fatal(err)
		}
		link, err := filepath.Rel(filepath.Dir(program.document), file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(document), "]("+filepath.ToSlash(link)+")") {
			t.Errorf("%s does not link to %s", program.document, file)
		}
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		var policy struct {
			Statement []struct {
				Effect           string
				Action, Resource any
			}
		}
		if err := json.Unmarshal(text, &policy); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		allowed := map[string][]string{}
		for _, s := range policy.Statement {
			if s.Effect != "Allow" {
				t.Errorf("%s: %s", file, s.Effect)
			}
			for _, resource := range list(s.Resource) {
				on := placeholders.Replace(resource.(string))
				for _, action := range list(s.Action) {
					allowed[on] = append(allowed[on], action.(string))
				}
			}
		}
		for _, actions := range allowed {
			slices.Sort(actions)
		}
		needed := reached(t, program.path, program.functions...).grants(t)
		for _, resource := range program.without {
			if needed[resource] == nil {
				t.Errorf("%s: no call uses %s in any case", file, resource)
			}
			delete(needed, resource)
		}
		if diff := cmp.Diff(needed, allowed); diff != "" {
			t.Errorf("%s (-what it calls +what it may do)\n%s", file, diff)
		}
	}
}
