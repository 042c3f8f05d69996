package payhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/proof"
)

// prefixes and iamActions are the names of IAM for packages and operations of the SDK that have other names (AWS,
// "Actions, resources, and condition keys" in the Service Authorization Reference, and for PartiQL
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-iam.html).
var (
	prefixes   = map[string]string{"eventbridge": "events", "cloudwatchlogs": "logs"}
	iamActions = map[string][]string{
		// S3 tells only callers with s3:ListBucket that an object is missing (AWS, "GetObject" in the S3 API
		// reference).
		"s3:GetObject":                   {"s3:GetObject", "s3:ListBucket"},
		"s3:ListObjectsV2":               {"s3:ListBucket"},
		"s3:ListObjectVersions":          {"s3:ListBucketVersions"},
		"lambda:Invoke":                  {"lambda:InvokeFunction"},
		"dynamodb:ExecuteStatement":      {"dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate"},
		"dynamodb:BatchExecuteStatement": {"dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate"},
		"sts:GetCallerIdentity":          nil, // needs no permission
	}
)

// actions returns the actions of calls, such as dynamodb.PutItem, without those that are not made.
func actions(calls, not []string) []string {
	var all []string
	for _, call := range calls {
		service, operation, _ := strings.Cut(call, ".")
		if prefix, ok := prefixes[service]; ok {
			service = prefix
		}
		action := service + ":" + operation
		if others, ok := iamActions[action]; ok {
			all = append(all, others...)
		} else {
			all = append(all, action)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(a string) bool { return slices.Contains(not, a) })
}

// callsOf returns the calls of a client with an interface. The input of each names its service.
func callsOf(client reflect.Type) []string {
	var all []string
	for m := range client.Methods() {
		all = append(all, strings.TrimSuffix(strings.TrimPrefix(m.Type.In(1).String(), "*"), "Input"))
	}
	return all
}

// parameter is the ARN of the parameter with the access token.
const parameter = "arn:AWS::Partition:ssm:AWS::Region:AWS::AccountId:parameter/payhook/Bank/token"

// calls are those of a client, and the actions that it does not need.
type calls struct {
	client reflect.Type
	not    []string
}

// clients are the interfaces of the clients that each function is given, by the resource that it calls with them, and
// the actions that it does not need.
var clients = map[string]map[string]calls{
	"Webhook": {
		"Ledger":      {reflect.TypeFor[dynamodb.LedgerAPI](), []string{"dynamodb:Query"}},
		"Keys":        {reflect.TypeFor[dynamodb.KeysAPI](), nil},
		"Bus":         {reflect.TypeFor[eventbridge.PutAPI](), nil},
		"LargeEvents": {reflect.TypeFor[s3.PutAPI](), nil},
		// It parks, stores and keeps proofs, and reads none of them.
		"Parking":      {reflect.TypeFor[s3.PutAPI](), nil},
		"Evidence":     {reflect.TypeFor[s3.PutAPI](), nil},
		"Token/Secret": {reflect.TypeFor[tokenstore.SecretReadAPI](), nil},
		parameter:      {reflect.TypeFor[tokenstore.ParameterReadAPI](), nil},
	},
	"Redrive": {
		"Ledger": {reflect.TypeFor[dynamodb.LedgerAPI](), nil},
		"Bus":    {reflect.TypeFor[eventbridge.FindAPI](), nil},
		"LargeEvents": {reflect.TypeFor[interface {
			s3.PutAPI
			s3.ListAPI
		}](), nil},
		"Parking": {reflect.TypeFor[s3.API](), nil}, // it lists to distinguish a missing object
	},
	"Token": {
		"Token/Secret":      {reflect.TypeFor[tokenstore.SecretAPI](), nil},
		parameter:           {reflect.TypeFor[tokenstore.ParameterAPI](), nil},
		"Token/Credentials": {reflect.TypeFor[tokenstore.SecretReadAPI](), nil},
	},
}

// A call that somebody adds has a permission, and a permission has a call. The end-to-end test of infra/local removes
// each permission, and shows on which folders of a bucket it is needed.
func TestEachFunctionHasThePermissionsOfItsClients(t *testing.T) {
	forRejected := map[string]any{"keyEndpointAuth": "bearer", "storeRejected": "1h", "evidence": "1d"}
	for store, other := range map[string]string{"secret": parameter, "parameter": "Token/Secret"} {
		with := map[string]any{"tokenStore": store}
		maps.Copy(with, someSubnets)
		tm, all := payhook(t, mtls("both"), forRejected, with), map[string]map[string]calls{}
		for function, resources := range clients {
			all[function] = maps.Clone(resources)
			delete(all[function], other)
			checkPermissions(t, tm, function, all[function])
		}
		resources := maps.Clone(all["Webhook"])
		for _, same := range []string{"Ledger", "Bus", "LargeEvents", "Parking"} {
			resources[same] = all["Redrive"][same]
		}
		checkPermissions(t, payhook(t, forRejected, with), "Redrive", resources)
	}
}

func checkPermissions(t *testing.T, tm *template, function string, resources map[string]calls) {
	t.Helper()
	want := map[string][]string{ // of Lambda itself
		function + "/Logs": {"logs:CreateLogStream", "logs:PutLogEvents"},
		"*": {"ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface",
			"ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:UnassignPrivateIpAddresses"}}
	for resource, c := range resources {
		want[resource] = actions(callsOf(c.client), c.not)
	}
	got := map[string][]string{}
	for arn, allowed := range tm.grants(t, function+"/Role") {
		resource, _, _ := strings.Cut(arn, ".")
		got[resource] = append(got[resource], allowed...)
		slices.Sort(got[resource])
		got[resource] = slices.Compact(got[resource])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-what it calls +what it may do)\n%s", function, diff)
	}
}

// The folders of the permissions are those of the objects.
func TestPermissionsNameTheFoldersOfProofs(t *testing.T) {
	for folder, reason := range map[string]proof.Reason{acceptedFolder: proof.Accepted, invalidFolder: proof.Invalid,
		conflictFolder: proof.Conflict, rejectedFolder: proof.Rejected} {
		if !strings.HasPrefix(reason.Folder(1), folder) {
			t.Errorf("%s is not the folder of what is %s", folder, reason)
		}
	}
	// A rule without the folder of its lock would hide proofs of another setting that are locked for longer.
	if got := proof.Accepted.Folder(7); got != acceptedFolder+"7/" {
		t.Errorf("the rule that deletes proofs after 7 days is not that of %s", got)
	}
	for folder, decision := range map[string]proof.Decision{replayedFolder: proof.Replayed,
		dismissedFolder: proof.Dismissed} {
		if folder != string(decision)+"/" {
			t.Errorf("%s is not the folder of what is %s", folder, decision)
		}
	}
}

// caller is a program outside the stack, or a part of one.
type caller struct {
	files   []string       // patterns of the files with its calls
	clients []reflect.Type // the interfaces of the clients of shared/aws
	not     []string       // the actions that it does not need
}

// samples have a policy.json, by folder.
var samples = map[string]caller{
	"events/consumer": {[]string{"events/consumer/*.go"}, []reflect.Type{reflect.TypeFor[s3.GetAPI]()}, nil},
	"events/client":   {[]string{"events/client/*.go"}, tokenAPIs, nil},
}

// commands are the files of the program payhook, by the names in the Sids of its policy.json.
var commands = map[string]caller{
	"EveryCommand": {[]string{"infra/stack/connect.go"}, nil, nil},
	"Status": {[]string{program + "status*.go", program + "logs.go", readSettings, "infra/stack/resources.go"},
		[]reflect.Type{reflect.TypeFor[dynamodb.LedgerReadAPI](), reflect.TypeFor[s3.ListAPI]()}, nil},
	"Explain": {[]string{program + "explain*.go"},
		append([]reflect.Type{reflect.TypeFor[s3.GetAPI](), reflect.TypeFor[s3.ListAPI]()}, tokenAPIs...), nil},
	"Operate": {[]string{program + "commands.go", program + "parked.go", program + "show.go", program + "contents.go",
		program + "decide.go", program + "keys.go", readSettings},
		append([]reflect.Type{reflect.TypeFor[dynamodb.LedgerReadAPI](), reflect.TypeFor[dynamodb.KeysInspectAPI](),
			reflect.TypeFor[s3.GetAPI](), reflect.TypeFor[s3.ListAPI]()}, tokenAPIs...), nil},
	"Evidence": {[]string{program + "evidence*.go"}, []reflect.Type{reflect.TypeFor[dynamodb.LedgerReadAPI]()},
		[]string{"dynamodb:Query", "s3:ListBucket"}},
	"Logs": {[]string{program + "logs.go", program + "reconcile.go", program + "evidence_read.go", readSettings},
		[]reflect.Type{reflect.TypeFor[dynamodb.LedgerReadAPI](), reflect.TypeFor[s3.GetAPI](),
			reflect.TypeFor[s3.ListAPI]()}, []string{"dynamodb:Query"}},
}

const (
	program      = "infra/cmd/payhook/commands/"
	readSettings = program + "deployed.go"
)

var tokenAPIs = []reflect.Type{
	reflect.TypeFor[tokenstore.SecretReadAPI](),
	reflect.TypeFor[tokenstore.ParameterReadAPI](),
}

// askWithToken is the statement of those who may use the access token.
const askWithToken = "AskWithToken"

// Each name has statements in policy.json, whose Sids have it: at the beginning, or after And in those of several
// names. They have the actions of the calls in its files, and each file of the program has a name.
func TestPoliciesOfProgramsHaveTheActionsOfTheirCalls(t *testing.T) {
	sids := statements(t, "infra/cmd/payhook/policy.json")
	unknown := maps.Clone(sids)
	left := filesOf(t, program+"*.go")
	for name, c := range commands {
		mine := sids.naming(name)
		if slices.Contains([]string{"Explain", "Operate"}, name) {
			mine[askWithToken] = sids[askWithToken]
		}
		maps.DeleteFunc(unknown, func(sid string, _ []string) bool { return mine[sid] != nil })
		checkActions(t, name, c, mine.actions())
		files := filesOf(t, c.files...)
		left = slices.DeleteFunc(left, func(file string) bool { return slices.Contains(files, file) })
	}
	for sid := range unknown {
		t.Errorf("%s: no command has this name", sid)
	}
	if len(left) > 0 {
		t.Errorf("add to commands: %q", left)
	}
	for folder, c := range samples {
		checkActions(t, folder, c, statements(t, folder+"/policy.json").actions())
	}
}

// sids are the actions of the statements of a policy.
type sids map[string][]string

func statements(t *testing.T, file string) sids {
	t.Helper()
	var policy struct {
		Statement []struct {
			Sid    string
			Action any
		}
	}
	if err := json.Unmarshal(readFile(t, filepath.Join("..", "..", file)), &policy); err != nil {
		t.Fatal(err)
	}
	// GetObject with a version has an action of its own, and with another it shows the lock.
	ofGet := strings.NewReplacer("GetObjectVersion", "GetObject", "GetObjectRetention", "GetObject")
	all := sids{}
	for _, s := range policy.Statement {
		for _, action := range list(s.Action) {
			all[s.Sid] = append(all[s.Sid], ofGet.Replace(fmt.Sprint(action)))
		}
	}
	return all
}

// naming returns the statements whose Sids have a name.
func (s sids) naming(name string) sids {
	named, has := maps.Clone(s), func(part string) bool { return strings.HasPrefix(part, name) }
	maps.DeleteFunc(named, func(sid string, _ []string) bool {
		return !slices.ContainsFunc(strings.Split(sid, "And"), has)
	})
	return named
}

// actions returns the sorted actions of statements, each once.
func (s sids) actions() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(s))...))))
}

// filesOf returns the files of patterns, without tests.
func filesOf(t *testing.T, patterns ...string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, no files", pattern, err)
		}
		all = append(all, files...)
	}
	return slices.DeleteFunc(all, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
}

var made = regexp.MustCompile(`&(\w+\.\w+)Input\{`)

func checkActions(t *testing.T, name string, c caller, allowed []string) {
	t.Helper()
	var calls []string
	for _, file := range filesOf(t, c.files...) {
		text := string(readFile(t, file))
		for _, found := range made.FindAllStringSubmatch(text, -1) {
			calls = append(calls, found[1])
		}
		if len(c.clients) == 0 && strings.Contains(text, `"payhook.example/shared/aws/`) {
			t.Errorf("%s uses the clients of shared/aws, and %s has none", file, name)
		}
	}
	for _, client := range c.clients {
		calls = append(calls, callsOf(client)...)
	}
	if diff := cmp.Diff(actions(calls, c.not), allowed, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: correct the statements in policy.json whose Sids have its name (-what it calls +what it "+
			"may do)\n%s", name, diff)
	}
}

// The titles of the lines in the picture of README.md are what a function may do, as FUNCTION: RESOURCE ACTION, ….
func TestTheArchitectureShowsEveryPermission(t *testing.T) {
	tm := payhook(t, map[string]any{"evidence": "7y"})
	var want, got []string
	for _, path := range functions {
		function := strings.TrimSuffix(path, "/Function")
		for arn, actions := range tm.grants(t, function+"/Role") {
			resource, _, _ := strings.Cut(arn, ".")
			for _, action := range actions {
				if resource != function+"/Logs" {
					want = append(want, fmt.Sprint(function, " ", resource, " ", action))
				}
			}
		}
	}
	titles := regexp.MustCompile(`<title>(\w+): (.+?)</title>`)
	for _, title := range titles.FindAllStringSubmatch(string(readFile(t, "architecture.svg")), -1) {
		for use := range strings.SplitSeq(title[2], ", ") {
			got = append(got, title[1]+" "+use)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("architecture.svg (-template +picture)\n%s", diff)
	}
}
