package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryMutantStillApplies(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			if names[m.name] {
				t.Error("another mutant has this name")
			}
			names[m.name] = true
			if _, err := (candidate{m, listed}).apply(root); err != nil {
				t.Error(err)
			}
			if m.old == m.new || len(m.by) == 0 {
				t.Error("changes nothing, or has no test")
			}
		})
	}
}

func TestAListedMutantWithoutATestIsAnError(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	m := mutant{"test", "shared/rfc9562/rfc9562.go", "package rfc9562", "package rfc9562 ",
		[]string{"./shared/rfc9562 -run TestThatDoesNotExist"}}
	if v := try(t.Context(), root, filepath.Join(t.TempDir(), "m"), candidate{m, listed}); v.err == nil {
		t.Errorf("got %+v", v)
	}
}

func TestTheKillerIsTheInnermostFailedTest(t *testing.T) {
	out := "--- FAIL: TestA (1.00s)\n    --- FAIL: TestA/one (0.50s)\n        --- FAIL: TestA/one/two (0.50s)\n--- " +
		"FAIL: TestB (0.00s)\n"
	if got := killer(out); got != "TestA/one/two" {
		t.Errorf("got %q", got)
	}
	if got := killer("panic: boom"); got != "a panic" {
		t.Errorf("got %q", got)
	}
}

func generated(t *testing.T) ([]source, []candidate) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	all, err := generate(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	return sources, all
}

func TestEveryEquivalentMutantIsStillGenerated(t *testing.T) {
	_, all := generated(t)
	names := map[string]bool{}
	for _, c := range all {
		if names[c.name] {
			t.Errorf("two mutants have the name %s", c.name)
		}
		names[c.name] = true
	}
	for name, reason := range equivalent {
		if !names[name] {
			t.Errorf("%s is no longer generated: remove it from the list", name)
		}
		if reason == "" {
			t.Errorf("%s has no reason", name)
		}
	}
}

// Every kind of mutant in the package comment is generated, and a seed always chooses
// the same mutants.
func TestTheGeneratorMakesEveryKindOfMutant(t *testing.T) {
	sources, all := generated(t)
	kinds := map[string]int{}
	for _, c := range all {
		_, rest, _ := strings.Cut(c.name, ": ")
		kind, _, _ := strings.Cut(rest, ": ")
		kinds[kind]++
	}
	for _, kind := range []string{
		"negated", "never true", "always true", "< is <=", "== is !=", "&& is ||", "left side alone",
		"removed", "nil for an error", "break for continue", "swapped arguments", "constant", "option is zero",
	} {
		if kinds[kind] == 0 {
			t.Errorf("there is no mutant of the kind %q", kind)
		}
	}
	t.Logf("%d mutants: %v", len(all), kinds)
	first, err := choose(t.Context(), sources, all, 5, 3)
	if err != nil {
		t.Fatal(err)
	}
	again, err := choose(t.Context(), sources, all, 5, 3)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again, cmp.AllowUnexported(candidate{}, mutant{})); diff != "" {
		t.Errorf("a seed chose different mutants:\n%s", diff)
	}
}
