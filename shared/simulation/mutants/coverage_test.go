package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The tests of a program run its main function in a process of their own.
func TestMainIsRunByTheTestsOfItsProgram(t *testing.T) {
	blocks := map[string][]block{
		"functions/a/main.go":  {{position{1, 1}, position{9, 1}, false}},
		"functions/a/other.go": {{position{1, 1}, position{9, 1}, false}},
	}
	for _, test := range []struct {
		pkg, file string
		want      bool
	}{
		{"./functions/a", "functions/a/main.go", true},
		{"./functions/a", "functions/a/other.go", false},
		{"./functions/b", "functions/a/main.go", false},
	} {
		s := step{pkg: test.pkg, blocks: blocks}
		if got := s.finds(test.file, position{2, 1}); got != test.want {
			t.Errorf("%s finds %s: %v", test.pkg, test.file, got)
		}
	}
}

// Only tests that run the code of a mutant are run on it: those of its own package
// first, then the fastest.
func TestOnlyTestsThatRunTheCodeAreRunOnAMutant(t *testing.T) {
	const text = "package a\n\nvar limit = 3\n\nfunc f() {\n\tg()\n}\n\nfunc h() {}\n"
	profile := func(f, h string) map[string][]block {
		blocks, err := parseProfile("mode: set\nm/shared/a/a.go:5.10,7.2 1 " + f + "\nm/shared/a/a.go:9.10,9.12 0 " +
			h + "\n")
		if err != nil {
			t.Fatal(err)
		}
		return blocks
	}
	steps := []step{
		{pkg: "./slow", took: time.Minute, blocks: profile("1", "1")},
		{pkg: "./quick", took: time.Second, args: "-run TestX", blocks: profile("1", "0")},
		{pkg: "./shared/a", took: 2 * time.Second, blocks: profile("1", "0")},
		{pkg: "./elsewhere", blocks: map[string][]block{"shared/b/b.go": {{position{1, 1}, position{99, 1}, true}}}},
	}
	own, quick, slow := "./shared/a -timeout 1m20s", "./quick -run TestX -timeout 1m10s", "./slow -timeout 4m0s"
	for old, want := range map[string][]string{
		"g()": {own, quick, slow},
		"{}":  {slow},
		"3":   {own, quick, slow}, // in no function
	} {
		c := candidate{mutant{file: "shared/a/a.go", old: old}, strings.Index(text, old)}
		if diff := cmp.Diff(want, stepsFor(steps, c, []byte(text))); diff != "" {
			t.Errorf("%s: %s", old, diff)
		}
	}
}
