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

// statements returns those of a policy by their Sids, each member as JSON.
func statements(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	var policy struct {
		Statement []map[string]json.RawMessage
	}
	if err == nil {
		err = json.Unmarshal(text, &policy)
	}
	if err != nil {
		t.Fatal(err)
	}
	bySid := map[string]map[string]string{}
	for _, s := range policy.Statement {
		members := map[string]string{}
		for name, value := range s {
			members[name] = string(value)
		}
		bySid[strings.Trim(members["Sid"], `"`)] = members
	}
	return bySid
}

// texts returns the texts in JSON that is a text or a list of texts.
func texts(value string) (all []string) {
	for _, quoted := range regexp.MustCompile(`"[^"]+"`).FindAllString(value, -1) {
		all = append(all, strings.Trim(quoted, `"`))
	}
	return all
}

// The policy limits every permission to the names or the tag of runs, except for calls that AWS
// does not limit. It has the actions of all calls, and no other action. The end-to-end tests
// have these permissions; this test is for the calls that the emulator does not need.
func TestPolicyHasTheActionsOfARun(t *testing.T) {
	allowed := map[string]bool{}
	for sid, s := range statements(t, "policy.json") {
		for _, action := range texts(s["Action"]) {
			allowed[action] = true
		}
		if sid == "Deploy" || sid == "FindStacks" || strings.Contains(s["Condition"], "aws:ResourceTag/"+RunTag) {
			continue
		}
		for _, r := range texts(s["Resource"]) {
			if !regexp.MustCompile(`(?i)[:/]payhookacceptance-`).MatchString(r) {
				t.Errorf("%s is for %s", sid, r)
			}
		}
	}
	needed := map[string]bool{
		"kms:Decrypt": true, "kms:GenerateDataKey": true, // with encryption=cmk
		"sts:AssumeRole":                true,                           // of the CDK
		"secretsmanager:GetSecretValue": true, "ssm:GetParameter": true, // token.Reader
		"s3:DeleteObjectVersion":       true, // DeleteObjects with versions
		"s3:BypassGovernanceRetention": true, // DeleteObjects of evidence
	}
	commands := statements(t, "../cmd/payhook/policy.json")
	for _, sid := range []string{"EveryCommand", "Operate", "OperateReplay", "Evidence", "StatusAndOperate",
		"StatusAndOperateAndEvidenceAndLogsReconcile", "StatusAndOperateAndLogsReconcile", "EvidenceAndLogsReconcile",
		"StatusAndExplainAndOperateAndLogsReconcile"} {
		if commands[sid] == nil {
			t.Errorf("the policy of the commands has no %s", sid)
		}
		for _, action := range texts(commands[sid]["Action"]) {
			needed[action] = true
		}
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
