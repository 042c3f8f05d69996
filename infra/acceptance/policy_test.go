package acceptance

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// statement is a statement of policy.json.
type statement struct {
	Sid              string
	Action, Resource any
	Condition        map[string]any
}

func statements(t *testing.T) []statement {
	t.Helper()
	text, err := os.ReadFile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct{ Statement []statement }
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	return policy.Statement
}

func (s statement) actions() []string { return list(s.Action) }

func list(value any) (all []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			all = append(all, one.(string))
		}
	}
	return all
}

// Every permission of the policy is limited to the names or the tag of runs, except what
// only lists and reads metrics, which AWS does not limit.
func TestThePolicyIsForRunsOnly(t *testing.T) {
	for _, s := range statements(t) {
		resources, _ := json.Marshal(s.Resource)
		switch {
		case slices.Contains([]string{"Deploy", "FindWhatIsLeft", "ReadMetrics"}, s.Sid):
		case s.Condition != nil:
			if text, _ := json.Marshal(s.Condition); !strings.Contains(string(text), "aws:ResourceTag/"+RunTag) {
				t.Errorf("%s has the condition %s", s.Sid, text)
			}
		case len(list(s.Resource)) == 0:
			t.Errorf("%s is for %s", s.Sid, resources)
		default:
			for _, r := range list(s.Resource) {
				if !strings.Contains(strings.ToLower(r), ":payhookacceptance-") &&
					!strings.Contains(strings.ToLower(r), "/payhookacceptance-") {
					t.Errorf("%s is for %s", s.Sid, r)
				}
			}
		}
	}
	for _, s := range statements(t) {
		if slices.Contains(s.actions(), "kms:ScheduleKeyDeletion") && s.Condition == nil {
			t.Error("the key of somebody else can be deleted")
		}
	}
}

// prefixes are the IAM prefixes of packages of the SDK that have another name.
var prefixes = map[string]string{"eventbridge": "events", "cloudwatchlogs": "logs", "resourcegroupstaggingapi": "tag"}

// actionsOf are the actions of operations that have another name (AWS, "Actions, resources, and
// condition keys" in the Service Authorization Reference). "" needs no permission.
var actionsOf = map[string]string{
	"lambda:Invoke": "lambda:InvokeFunction", "s3:ListObjectVersions": "s3:ListBucketVersions",
	"s3:DeleteObjects": "s3:DeleteObject", "sqs:DeleteMessageBatch": "sqs:DeleteMessage", "sts:GetCallerIdentity": "",
}

// further are the actions that calls need as well, and those of calls in shared packages.
var further = []string{
	"events:TagResource",            // CreateEventBus with tags
	"s3:DeleteObjectVersion",        // DeleteObjects with versions
	"kms:Decrypt",                   // of secrets, tables and buckets with encryption=cmk
	"kms:GenerateDataKey",           // likewise
	"sts:AssumeRole",                // of the CDK
	"dynamodb:Query",                // ledger.Inspector
	"s3:GetObject",                  // parking.Store, claimcheck.Resolve
	"s3:ListBucket",                 // parking.Store
	"secretsmanager:GetSecretValue", // token.Reader
}

// The policy has the action of each call of a run, and no other action.
func TestThePolicyHasTheActionsOfAllCalls(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	// What a Deployment does.
	files = append(files, "../local/checks.go", "../local/consumer.go", "../local/queues.go")
	needed := map[string]bool{}
	for _, action := range further {
		needed[action] = true
	}
	for _, name := range files {
		for call := range callsIn(t, name) {
			if action, other := actionsOf[call]; !other {
				needed[call] = true
			} else if action != "" {
				needed[action] = true
			}
		}
	}
	allowed := map[string]bool{}
	for _, s := range statements(t) {
		for _, action := range s.actions() {
			allowed[action] = true
		}
	}
	for action := range needed {
		if !allowed[action] {
			t.Errorf("a run needs %s, and the policy does not have it", action)
		}
	}
	for action := range allowed {
		if !needed[action] {
			t.Errorf("the policy has %s, and no run needs it", action)
		}
	}
	if len(needed) < 30 {
		t.Errorf("only these calls were found: %q", slices.Sorted(maps.Keys(needed)))
	}
}

// callsIn returns the calls of AWS in a file, as service:Operation: those whose inputs it makes.
func callsIn(t *testing.T, name string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	sdk := map[string]string{} // IAM prefixes, by the names of imports
	for _, imported := range file.Imports {
		path, _ := strconv.Unquote(imported.Path.Value)
		service, ok := strings.CutPrefix(path, "github.com/aws/aws-sdk-go-v2/service/")
		if ok && imported.Name == nil && !strings.Contains(service, "/") {
			prefix := service
			if other := prefixes[service]; other != "" {
				prefix = other
			}
			sdk[service] = prefix
		}
	}
	calls := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if s, ok := literal.Type.(*ast.SelectorExpr); ok {
			x, isName := s.X.(*ast.Ident)
			operation, isInput := strings.CutSuffix(s.Sel.Name, "Input")
			if isName && isInput && sdk[x.Name] != "" {
				calls[sdk[x.Name]+":"+operation] = true
			}
		}
		return true
	})
	return calls
}
