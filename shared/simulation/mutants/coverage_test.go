package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
