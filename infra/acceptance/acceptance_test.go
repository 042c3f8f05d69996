package acceptance

import (
	"errors"
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
	passed := &scenario.Check{What: "a|b", Expected: "x", Got: "x", Right: true}
	for _, test := range []struct {
		checks []*scenario.Check
		err    error
		right  bool
		words  []string
	}{
		{[]*scenario.Check{passed, {Measured: true, Right: true}, {NotShown: "a reason"}}, nil, true,
			[]string{"1 passed, 0 wrong, 1 measured, 1 not shown", `| passed | a\|b | x | x |`, "a reason"}},
		{[]*scenario.Check{passed, {What: "c", Got: "y"}}, nil, false, []string{"1 wrong", "**wrong** | c |"}},
		{[]*scenario.Check{passed}, errors.New("it failed"), false, []string{"it failed"}},
		{nil, nil, false, []string{"not as expected"}},
	} {
		var r Report
		if test.checks != nil {
			r.Sections = []scenario.Section{{Title: "T", Checks: test.checks}}
		}
		r.conclude(test.err)
		text := r.Markdown()
		for _, word := range test.words {
			if r.Right != test.right || !strings.Contains(text, word) {
				t.Errorf("right: %t, and %q is not in\n%s", r.Right, word, text)
			}
		}
	}
}

func TestSearchFindsTheLimit(t *testing.T) {
	for _, limit := range []int{10, 11, 500, 998, 999} {
		got, err := search(10, 1000, func(size int) (bool, error) { return size <= limit, nil })
		if err != nil || got != limit {
			t.Errorf("%d, %v, want %d", got, err, limit)
		}
	}
	if _, err := search(10, 1000, func(int) (bool, error) { return false, nil }); err == nil {
		t.Error("a size that is not accepted is the limit")
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
	f := flags{settings: map[string]string{}}
	for _, text := range []string{"stackName=x", "baseUrl=https://a", "nothing=1", "x"} {
		if err := f.addSetting(text); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
	for text, want := range map[string][2]bool{ // in an account, on the emulator
		"": {true, true}, "authentication=both": {}, "domainName=a.example": {},
		"authentication=both domainName=a.example hostedZoneId=Z": {true, false},
		"domainName=a.example hostedZoneId=Z":                     {true, false},
	} {
		f := flags{settings: map[string]string{}}
		for pair := range strings.FieldsSeq(text) {
			if err := f.addSetting(pair); err != nil {
				t.Fatal(err)
			}
		}
		for i, emulated := range []bool{false, true} {
			if got := f.check(emulated) == nil; got != want[i] {
				t.Errorf("%q, emulated: %t: accepted: %t", text, emulated, got)
			}
		}
	}
}
