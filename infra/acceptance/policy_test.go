package acceptance

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
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
		Statement []map[string]json.RawMessage
	}
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile(`"[^"]+"`)
	allowed := map[string]bool{}
	for _, s := range policy.Statement {
		for _, action := range quoted.FindAllString(string(s["Action"]), -1) {
			allowed[strings.Trim(action, `"`)] = true
		}
		if slices.Contains([]string{`"Deploy"`, `"FindStacks"`}, string(s["Sid"])) ||
			strings.Contains(string(s["Condition"]), "aws:ResourceTag/"+RunTag) {
			continue
		}
		for _, r := range quoted.FindAllString(string(s["Resource"]), -1) {
			if !regexp.MustCompile(`(?i)[:/]payhookacceptance-`).MatchString(r) {
				t.Errorf("%s is for %s", s["Sid"], r)
			}
		}
	}
	needed := map[string]bool{
		"kms:Decrypt": true, "kms:GenerateDataKey": true, // with encryption=cmk
		"sts:AssumeRole": true,                        // of the CDK
		"s3:GetObject":   true, "s3:ListBucket": true, // proof.Get
		"dynamodb:BatchGetItem":         true, // ledger.Find
		"secretsmanager:GetSecretValue": true, // token.Reader
		"s3:DeleteObjectVersion":        true, // DeleteObjects with versions
		"s3:BypassGovernanceRetention":  true, // DeleteObjects of evidence
		"s3:GetObjectVersion":           true, // evidence.Scan
	}
	addCalls(t, needed)
	sorted := func(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
	if diff := gocmp.Diff(sorted(needed), sorted(allowed)); diff != "" {
		t.Errorf("a run needs (-), and the policy has (+):\n%s", diff)
	}
}

// addCalls adds the actions of the calls of AWS: of those whose inputs are made here.
func addCalls(t *testing.T, needed map[string]bool) {
	t.Helper()
	// Actions that are not named as their operations (AWS, "Actions, resources, and condition keys"
	// in the Service Authorization Reference).
	actions := map[string]string{
		"lambda:Invoke": "lambda:InvokeFunction", "s3:ListObjectVersions": "s3:ListBucketVersions",
		"s3:DeleteObjects": "s3:DeleteObject", "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
	}
	for _, pattern := range []string{"*.go", "../checks/*.go", "../deployment/resources.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range regexp.MustCompile(`&(\w+)\.(\w+)Input\{`).FindAllStringSubmatch(string(text), -1) {
				action := call[1] + ":" + call[2]
				// AWS allows everybody to ask for the own identity.
				if !strings.HasSuffix(file, "_test.go") && call[2] != "GetCallerIdentity" {
					needed[cmp.Or(actions[action], action)] = true
				}
			}
		}
	}
}
