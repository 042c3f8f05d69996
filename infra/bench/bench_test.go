package main

import (
	"os"
	"strings"
	"testing"
)

func TestTheFunctionsAreBuiltAsForADeployment(t *testing.T) {
	text, err := os.ReadFile("../payhook/build.go")
	if err != nil {
		t.Fatal(err)
	}
	quoted := `"` + strings.Join(buildArguments, `", "`) + `"`
	if !strings.Contains(string(text), quoted) {
		t.Errorf("infra/payhook/build.go builds with other arguments than %s", quoted)
	}
}

// One round has every row, and each is what it says.
func TestEveryRowIsWhatItSays(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the functions")
	}
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("no CPU times: ", err)
	}
	b, err := newBench(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	all := kinds
	defer func() { kinds = all }()
	kinds = nil
	for _, k := range all {
		k.count = 2
		kinds = append(kinds, k)
	}
	if err := b.deliveries(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.firsts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, samples := range b.report {
		l := b.report.line(name[0], name[1])
		if l[took] <= 0 || l[cpu] <= 0 || l[memory] <= 0 || len(samples) < 2 {
			t.Errorf("%s: %v", name, l)
		}
		if name[1] == empty && (l[calls] > 0 || l[logged] > 0) || name[1] == webhook && l[logged] == 0 {
			t.Errorf("%s: %v", name, l)
		}
	}
	for row, want := range map[string]sample{
		"1 event":    {30, 0, 3}, // record, publish, mark
		"100 events": {30, 0, 18},
		"forged":     {},
		"later, TLS": {30, 0, 3},
	} {
		if l := b.report.line(row, webhook); l[took] < want[took] || l[calls] != want[calls] {
			t.Errorf("%s: %v", row, l)
		}
	}
	if l := b.report.line("first, new key, 1 event", webhook); l[connections] < 1 {
		t.Errorf("first: %v", l)
	}
}
