// Mutants changes Payhook, one mistake at a time, and runs the tests on each mutant.
//
//	go run ./shared/simulation/mutants                        the listed mutants and 40 random ones
//	go run ./shared/simulation/mutants lease due              listed mutants whose names contain a word
//	go run ./shared/simulation/mutants -random 200 -seed 7    the listed mutants and 200 random ones
//	go run ./shared/simulation/mutants -listed=false -random -1 shared/bus/bus.go
//
// A listed mutant is a small patch in mutants.go: a mistake that somebody could
// make. All of them must be killed. A random mutant is generated from the code of the
// packages that implement the guarantees: a changed condition, boundary, constant or
// order of arguments, a removed statement or return, an option that is not passed on.
// 95 % of them must be killed; the others are listed. Mutants that change nothing
// relevant are in equivalent.go, with the reason.
//
// A mutant is compiled in place of its file with go test -overlay; nothing in
// the source tree changes. The program prints which test killed which mutant. The test
// must fail twice, since one that fails at random has found nothing. The program fails
// if a listed mutant survives or no longer applies, or if too many random mutants
// survive. The tests of the template and the end-to-end tests take no part in
// the random ones.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// timeLimit is the time limit for the tests of one mutant. It kills mutants that make
// tests hang.
const timeLimit = 4 * time.Minute

// candidate is a mutant to try.
type candidate struct {
	mutant
	at int // offset of old in the file, in bytes; listed for a listed mutant
}

// listed is the place of a listed mutant, whose text occurs once in its file.
const listed = -1

// concurrency is how many runs of go test there are at once.
const concurrency = 2

// verdict is the result of a mutant.
type verdict struct {
	candidate
	by   string // the test that killed it; "" if it survived
	took time.Duration
	err  error // why it could not be tried
}

// target is the percentage of the random mutants that must be killed.
const target = 95

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	withListed := flags.Bool("listed", true, "try the listed mutants")
	random := flags.Int("random", 0, "number of random mutants; -1: all; default 40, or 0 with names")
	seed := flags.Uint64("seed", 1, "seed that chooses the random mutants")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "random" })
	if !given && flags.NArg() == 0 {
		*random = 40
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	named := func(c candidate) bool {
		return flags.NArg() == 0 || slices.ContainsFunc(flags.Args(),
			func(w string) bool { return strings.Contains(c.name, w) })
	}
	var chosen []candidate
	if *withListed {
		for _, m := range mutants {
			if c := (candidate{m, listed}); named(c) {
				chosen = append(chosen, c)
			}
		}
	}
	if *random != 0 {
		sources, err := load(ctx, root)
		if err != nil {
			return err
		}
		all, err := generate(ctx, sources)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(c candidate) bool { return !named(c) })
		some, err := choose(ctx, sources, all, *random, *seed)
		if err != nil {
			return err
		}
		if len(some) > 0 {
			fmt.Fprintln(os.Stderr, "measuring what each package's tests run")
			steps, err := measure(ctx, root, temp)
			if err != nil {
				return err
			}
			for i, c := range some {
				text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(c.file)))
				if err != nil {
					return err
				}
				some[i].by = stepsFor(steps, c, text)
			}
		}
		chosen = append(chosen, some...)
	}
	if len(chosen) == 0 {
		return errors.New("no mutant has a name that contains one of the words")
	}
	start := time.Now()
	verdicts := make([]verdict, len(chosen))
	var g errgroup.Group
	g.SetLimit(concurrency)
	for i, c := range chosen {
		g.Go(func() error {
			v := try(ctx, root, filepath.Join(temp, fmt.Sprint(i)), c)
			verdicts[i] = v
			fmt.Fprintf(os.Stderr, "%4.0fs  %d of %d  %-50s %s\n", time.Since(start).Seconds(), i+1, len(chosen),
				c.name, v.text())
			return nil
		})
	}
	_ = g.Wait()

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "mutant\tkilled by\tseconds")
	var tried, killed [2]int // of the listed and of the random ones
	for _, v := range verdicts {
		kind := 0
		if v.at != listed {
			kind = 1
		}
		tried[kind]++
		if v.err == nil && v.by != "" {
			killed[kind]++
		}
		fmt.Fprintf(table, "%s\t%s\t%.1f\n", v.name, v.text(), v.took.Seconds())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	if tried[0] > 0 {
		fmt.Printf("listed: %d of %d killed\n", killed[0], tried[0])
	}
	if tried[1] > 0 {
		fmt.Printf("random, seed %d: %d of %d killed (%.1f %%)\n", *seed, killed[1], tried[1],
			100*float64(killed[1])/float64(tried[1]))
	}
	fmt.Printf("in %.0f s\n", took)
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted")
	}
	var problems []error
	if killed[0] < tried[0] {
		problems = append(problems, fmt.Errorf("%d of the listed mutants survive", tried[0]-killed[0]))
	}
	if 100*killed[1] < target*tried[1] {
		problems = append(problems, fmt.Errorf("fewer than %d %% of the random mutants are killed", target))
	}
	return errors.Join(problems...)
}

func (v verdict) text() string {
	switch {
	case v.err != nil:
		return "ERROR: " + v.err.Error()
	case v.by == "" && len(v.mutant.by) == 0:
		return "SURVIVED: no test runs it"
	case v.by == "":
		return "SURVIVED"
	}
	return v.by
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("no module here: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// apply returns the text of c's file with c in it.
func (c candidate) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(c.file)))
	if err != nil {
		return nil, err
	}
	at := c.at
	if at == listed {
		if n := bytes.Count(text, []byte(c.old)); n != 1 {
			return nil, fmt.Errorf("%s holds the text to be replaced %d times", c.file, n)
		}
		at = bytes.Index(text, []byte(c.old))
	}
	if !bytes.HasPrefix(text[at:], []byte(c.old)) {
		return nil, fmt.Errorf("%s was changed during the run", c.file)
	}
	return slices.Concat(text[:at], []byte(c.new), text[at+len(c.old):]), nil
}

// try runs the tests on a mutant until one fails.
func try(ctx context.Context, root, temp string, m candidate) (v verdict) {
	v.candidate = m
	start := time.Now()
	defer func() { v.took = time.Since(start) }()
	text, err := m.apply(root)
	if err != nil {
		v.err = err
		return v
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root,
		filepath.FromSlash(m.file)): temp + ".go"}})
	if err != nil {
		v.err = err
		return v
	}
	if err := errors.Join(os.WriteFile(temp+".go", text, 0o600),
		os.WriteFile(temp+".json", overlay, 0o600)); err != nil {
		v.err = err
		return v
	}
	for _, by := range m.by {
		args := append([]string{"test", "-overlay", temp + ".json", "-vet=off", "-failfast", "-timeout",
			timeLimit.String()}, strings.Fields(by)...)
		if by == histories {
			// Single faults and random histories find them; pairs only take longer.
			args = append(args, "-run", "TestNoSingleFault|TestRandomHistories", "-seeds", "5000")
		}
		c := exec.CommandContext(ctx, "go", args...)
		c.Dir = root
		out, err := c.CombinedOutput()
		switch {
		case ctx.Err() != nil:
			v.err = ctx.Err()
			return v
		case err == nil && m.at == listed && bytes.Contains(out, []byte("[no tests to run]")):
			v.err = fmt.Errorf("no test runs with %q", by)
			return v
		case err == nil:
			continue
		case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
			v.err = fmt.Errorf("does not compile: %s", bytes.TrimSpace(out))
			return v
		}
		name := killer(string(out))
		if top, _, _ := strings.Cut(name, "/"); strings.HasPrefix(top, "Test") && !timedOut(out) {
			// A test that fails at random finds nothing.
			c := exec.CommandContext(ctx, "go", append(args, "-count=1", "-run", "^"+top+"$")...)
			c.Dir = root
			if c.Run() == nil {
				continue
			}
		}
		v.by = failedPackage(string(out), by) + " " + name
		return v
	}
	return v
}

func timedOut(out []byte) bool { return bytes.Contains(out, []byte("panic: test timed out")) }

var failedAt = regexp.MustCompile(`(?m)^FAIL\t[^/\s]+/(\S+)`)

// failedPackage returns the first package of a step that failed.
func failedPackage(out, step string) string {
	if m := failedAt.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return strings.TrimPrefix(step, "./")
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// killer returns the name of the test that failed, the innermost one.
func killer(out string) string {
	name := ""
	for _, m := range failed.FindAllStringSubmatch(out, -1) {
		if name != "" && !strings.HasPrefix(m[1], name+"/") {
			break
		}
		name = m[1]
	}
	if timedOut([]byte(out)) {
		return cmp.Or(name, "time limit")
	}
	return cmp.Or(strings.TrimSuffix(name, "/#00"), "a panic")
}
