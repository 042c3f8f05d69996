package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// step is one run of go test, and the code of the guarded packages that it runs. A
// mutant in other code is not tried with it.
type step struct {
	pkg  string        // "./shared/keys"
	args string        // of go test, after the package; "" for all tests
	took time.Duration // by the tests, without a mutant
	// blocks are those of each file that the step links, by the file's path from the
	// top of the module.
	blocks map[string][]block
}

// block is a part of a file without a branch, from the coverage profile.
type block struct {
	from, to position
	run      bool
}

type position struct{ line, column int } // the column in bytes; both from 1

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.column, q.column))
}

// historySteps are the steps of the simulation. The random histories find most mutants
// and are the fastest. Pairs of faults only take longer.
var historySteps = []string{
	"-run TestRandomHistories|TestARotationOfKeys|TestNothingIsLost -seeds 5000",
	"-run TestNoSingleFault",
}

// excluded are the packages whose tests are not run: the end-to-end tests, those of the
// template, which take minutes, and those of this program.
var excluded = []string{"./infra", "./infra/payhook", "./infra/local", "./infra/acceptance/service", "./events/consumer",
	histories + "/mutants"}

// measure runs all tests once, without a mutant, and returns the steps. The go command
// caches the results, so only the first run is slow.
func measure(ctx context.Context, root, temp string) ([]step, error) {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}",
		"./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	// Fewer histories run almost the same code.
	steps := []step{{pkg: histories, args: historySteps[0] + " -seeds 1000"}}
	for path := range strings.FieldsSeq(string(out)) {
		_, folder, _ := strings.Cut(path, "/")
		if pkg := "./" + folder; pkg != histories && !slices.Contains(excluded, pkg) {
			steps = append(steps, step{pkg: pkg})
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrency)
	for i := range steps {
		g.Go(func() error {
			return steps[i].measure(ctx, root, filepath.Join(temp, fmt.Sprintf("%d.cover", i)))
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	measured := steps[0]
	steps = steps[1:]
	for i, args := range historySteps {
		steps = append(steps, step{histories, args, 5*measured.took + time.Duration(i), measured.blocks})
	}
	return steps, nil
}

// passed is the line of a top-level test in the output of go test -v, which the go
// command repeats for a cached result.
var passed = regexp.MustCompile(`(?m)^--- PASS: \S+ \(([0-9.]+)s\)`)

func (s *step) measure(ctx context.Context, root, profile string) error {
	args := append([]string{"test", "-v", "-vet=off", "-covermode=set", "-coverpkg", strings.Join(guarded, ","),
		"-coverprofile", profile}, s.fields()...)
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = root
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %s fails without a mutant: %w", s.pkg, killer(string(out)), err)
	}
	for _, m := range passed.FindAllSubmatch(out, -1) {
		seconds, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return err
		}
		s.took += time.Duration(seconds * float64(time.Second))
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	s.blocks, err = parseProfile(string(text))
	return err
}

// parseProfile reads a coverage profile (package golang.org/x/tools/cover describes
// the format). A block that several packages run occurs several times.
func parseProfile(text string) (map[string][]block, error) {
	blocks := map[string][]block{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "mode:") {
			continue
		}
		file, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		_, path, inModule := strings.Cut(file, "/")
		var b block
		var statements, count int
		if n, _ := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.from.line, &b.from.column, &b.to.line, &b.to.column,
			&statements, &count); !ok || !inModule || n != 6 {
			return nil, fmt.Errorf("coverage profile: %q", line)
		}
		b.run = count > 0
		blocks[path] = append(blocks[path], b)
	}
	return blocks, nil
}

// finds reports whether the tests of s can find a mutant at a position of a file:
// whether they run its block. Code in no block, such as a package variable or the
// expression of a case, may be run by every step that links the file. So may main.go of a
// program by its own tests.
func (s *step) finds(file string, at position) bool {
	blocks, linked := s.blocks[file]
	inside := false
	for _, b := range blocks {
		if b.from.compare(at) <= 0 && at.compare(b.to) < 0 {
			if b.run {
				return true
			}
			inside = true
		}
	}
	// The tests of a program run its main function in a process of their own, of which
	// there is no profile.
	ofProgram := filepath.Base(file) == "main.go" && "./"+filepath.ToSlash(filepath.Dir(file)) == s.pkg
	return linked && (!inside || ofProgram)
}

func (s *step) fields() []string { return append([]string{s.pkg}, strings.Fields(s.args)...) }

// stepsFor returns the steps that can find a mutant in a text: the tests of its own
// package, then the others, the fastest first.
func stepsFor(steps []step, c candidate, text []byte) []string {
	before := text[:c.at]
	at := position{1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')}
	own := "./" + filepath.ToSlash(filepath.Dir(c.file))
	steps = slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return !s.finds(c.file, at) })
	slices.SortStableFunc(steps, func(a, b step) int {
		if (a.pkg == own) != (b.pkg == own) {
			if a.pkg == own {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.took, b.took)
	})
	var by []string
	for _, s := range steps {
		// A mutant may make tests hang.
		limit := min(timeLimit, time.Minute+10*s.took).Round(time.Second)
		by = append(by, strings.Join(append(s.fields(), "-timeout", limit.String()), " "))
	}
	return by
}
