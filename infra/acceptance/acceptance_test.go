package acceptance

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"payhook.example/infra/local/scenario"
)

func TestStackOfARunHasItsNameAndTag(t *testing.T) {
	const id = "abcd2345"
	for _, test := range []struct{ name, tag, value, run string }{
		{prefix + id, RunTag, id, id},
		{prefix + id + "-Service", RunTag, id, id},
		{prefix + id, RunTag, "other", ""},
		{prefix + id + "x", RunTag, id, ""},
		{"Payhook", RunTag, id, ""},
		{"Payhook", RunTag, "", ""},
		{prefix + id, "other", id, ""},
	} {
		if got := runID(types.Stack{StackName: &test.name,
			Tags: []types.Tag{{Key: &test.tag, Value: aws.String(test.value)}}}); got != test.run {
			t.Errorf("%+v is of the run %q", test, got)
		}
	}
}

func TestReportIsRightOnlyIfSomethingWasShown(t *testing.T) {
	passed := &scenario.Check{What: "a", Expected: "x", Got: "x", Right: true}
	for _, test := range []struct {
		checks []*scenario.Check
		err    error
		right  bool
		words  []string
	}{
		{[]*scenario.Check{passed, {NotShown: "a reason", Got: "not shown: a reason"}}, nil, true,
			[]string{"result: as expected.", "ok  a", "-   ", "not shown: a reason"}},
		{[]*scenario.Check{passed, {What: "c", Got: "y"}}, nil, false,
			[]string{"result: not as expected.", "WRONG  c"}},
		{[]*scenario.Check{passed}, errors.New("it failed"), false, []string{"it failed"}},
		{nil, nil, false, []string{"not as expected"}},
	} {
		var r Report
		if test.checks != nil {
			r.Parts = []scenario.Section{{Title: "T", Checks: test.checks}}
		}
		r.conclude(test.err)
		var text bytes.Buffer
		if err := r.print(&text); err != nil {
			t.Fatal(err)
		}
		for _, word := range test.words {
			if r.Right != test.right || !strings.Contains(text.String(), word) {
				t.Errorf("right: %t, and %q is not in\n%s", r.Right, word, &text)
			}
		}
	}
}

// Without it, CloudFormation would leave these resources after a run, or not delete the stack.
func TestEverythingCanBeDeletedWithItsStack(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"x.template.json": `"DeletionPolicy": "Retain", "DeletionPolicy": "RetainExceptOnCreate",
			"DeletionProtectionEnabled": true`,
		"manifest.json": `"terminationProtection": true`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := deletable(folder); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || strings.Contains(string(got), "Retain") || strings.Contains(string(got), "true") {
			t.Errorf("%v, %s", err, got)
		}
	}
}

func TestValuesAreComparedExactly(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"1234567890.10", "1.2345678901e9", true}, {"9007199254740993", "9007199254740992", false},
		{"-0", "0", true}, {`"a"`, `"\u0061"`, true}, {`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		{`{"a":null}`, `{}`, false}, {"1", `"1"`, false}, {"{", "{", false},
	} {
		if got := sameValue(test.a, test.b); got != test.same {
			t.Errorf("%s and %s: the same: %t", test.a, test.b, got)
		}
	}
}

func TestSettingsThatCannotBeDeployedAreRejected(t *testing.T) {
	for text, want := range map[string][3]bool{ // accepted at all, in an account, on the emulator
		"stackName=x": {}, "baseUrl=https://a": {}, "nothing=1": {}, "x": {},
		"successStatus=202":                   {true, true, true},
		"domainName=a.example":                {true, false, false},
		"domainName=a.example hostedZoneId=Z": {true, true, false},
		"evidence=1d":                         {true, true, true},
		"evidence=1d evidenceLock=compliance": {true, false, false},
	} {
		f, got := flags{settings: map[string]string{}}, [3]bool{true, true, true}
		for pair := range strings.FieldsSeq(text) {
			got[0] = got[0] && f.addSetting(pair) == nil
		}
		got[1], got[2] = got[0] && f.check(false) == nil, got[0] && f.check(true) == nil
		if got != want {
			t.Errorf("%q: accepted: %v, want %v", text, got, want)
		}
	}
}
