package main

import (
	"path/filepath"
	"testing"
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
				t.Error("the name is taken")
			}
			names[m.name] = true
			if _, err := m.apply(root); err != nil {
				t.Error(err)
			}
			if m.old == m.new || len(m.by) == 0 {
				t.Error("changes nothing, or nothing is tested")
			}
		})
	}
}

func TestTheInnermostTestThatFailedIsTheKiller(t *testing.T) {
	out := "--- FAIL: TestA (1.00s)\n    --- FAIL: TestA/one (0.50s)\n        --- FAIL: TestA/one/two (0.50s)\n--- FAIL: TestB (0.00s)\n"
	if got := killer(out); got != "TestA/one/two" {
		t.Errorf("got %q", got)
	}
	if got := killer("panic: boom"); got != "a panic" {
		t.Errorf("got %q", got)
	}
}
