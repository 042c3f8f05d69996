package acceptance

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The policy limits every permission to the names or the tag of runs, except for calls that AWS
// does not limit. It has the actions of all calls, and no other action. The end-to-end tests
// have these permissions; this test is for the calls that the emulator does not need.
func TestPolicyHasTheActionsOfARun(t *testing.T) {
	text, err := os.ReadFile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Statement []struct {
			Sid              string
			Action, Resource any
			Condition        any
		}
	}
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, s := range policy.Statement {
		for _, action := range list(s.Action) {
			allowed[action] = true
		}
		condition, _ := json.Marshal(s.Condition)
		if slices.Contains([]string{"Deploy", "FindStacks", "ReadQueries"}, s.Sid) ||
			strings.Contains(string(condition), "aws:ResourceTag/"+RunTag) {
			continue
		}
		for _, r := range list(s.Resource) {
			if lower := strings.ToLower(r); !strings.Contains(lower, ":payhookacceptance-") &&
				!strings.Contains(lower, "/payhookacceptance-") {
				t.Errorf("%s is for %s", s.Sid, r)
			}
		}
	}
	needed := map[string]bool{
		"s3:DeleteObjectVersion": true,                              // DeleteObjects with versions
		"kms:Decrypt":            true, "kms:GenerateDataKey": true, // with encryption=cmk
		"sts:AssumeRole": true, // of the CDK
		"dynamodb:Scan":  true, // ledger.Inspector
		"s3:GetObject":   true, // parking.Store, claimcheck.Resolve
		"s3:ListBucket":  true, // parking.Store
	}
	needed["secretsmanager:GetSecretValue"] = true // token.Reader
	for _, pattern := range []string{"*.go", "../local/scenario/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				addCalls(t, file, needed)
			}
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
}

// list returns a text or a list of texts as a list.
func list(value any) (all []string) {
	if text, ok := value.(string); ok {
		return []string{text}
	}
	for _, one := range value.([]any) {
		all = append(all, one.(string))
	}
	return all
}

// prefixes are the IAM prefixes of packages of the SDK that have another name.
var prefixes = map[string]string{"eventbridge": "events", "cloudwatchlogs": "logs"}

// actions are the actions of operations that have another name (AWS, "Actions, resources, and
// condition keys" in the Service Authorization Reference). "" needs no permission.
var actions = map[string]string{
	"lambda:Invoke": "lambda:InvokeFunction", "s3:ListObjectVersions": "s3:ListBucketVersions",
	"s3:DeleteObjects": "s3:DeleteObject", "sqs:DeleteMessageBatch": "sqs:DeleteMessage", "sts:GetCallerIdentity": "",
}

// addCalls adds the actions of the calls of AWS in a file: those whose inputs it makes.
func addCalls(t *testing.T, name string, needed map[string]bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	sdk := map[string]bool{}
	for _, imported := range file.Imports {
		path, _ := strconv.Unquote(imported.Path.Value)
		if service, ok := strings.CutPrefix(path, "github.com/aws/aws-sdk-go-v2/service/"); ok {
			sdk[service] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if s, ok := literal.Type.(*ast.SelectorExpr); ok {
			x, isName := s.X.(*ast.Ident)
			operation, isInput := strings.CutSuffix(s.Sel.Name, "Input")
			if isName && isInput && sdk[x.Name] {
				action := x.Name + ":" + operation
				if prefix := prefixes[x.Name]; prefix != "" {
					action = prefix + ":" + operation
				}
				if other, ok := actions[action]; ok {
					action = other
				}
				if action != "" {
					needed[action] = true
				}
			}
		}
		return true
	})
}
