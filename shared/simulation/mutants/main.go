// Mutants breaks Payhook on purpose, one realistic bug at a time, and runs the
// tests on each: a proof that nothing is wrong is worth what its tests notice.
//
//	go run ./shared/simulation/mutants                        the listed ones, and 40 random ones
//	go run ./shared/simulation/mutants lease due              the listed ones whose names hold one of the words
//	go run ./shared/simulation/mutants -random 200 -seed 7    the listed ones, and others
//	go run ./shared/simulation/mutants -listed=false -random -1 shared/bus/bus.go
//
// A listed mutant is a small patch in mutants.go: a mistake that somebody could
// make. Each must be killed. A random mutant is made from the code of the
// packages that hold the guarantees: a changed condition, boundary, constant or
// order of arguments, a removed statement or return, an option that is not
// passed on. Of these, 95 % must be killed; the rest is listed, to be looked at.
// Those that change nothing that matters are in equivalent.go, with the reason.
//
// A mutant is compiled in place of its file with go test -overlay; nothing in
// the source tree changes. The program prints which test killed which mutant; it
// has to fail twice, since a test that fails by chance has found nothing.
// It fails if a listed one survives or no longer applies, or if too many random
// ones survive. The tests of the template and the end-to-end tests take no part in
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
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
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

// timeLimit is how long the tests of one mutant may take; a mutant that makes
// them hang is killed by it.
const timeLimit = 4 * time.Minute

// candidate is a mutant that is tried.
type candidate struct {
	mutant
	at int // where old stands in the file, in bytes; listed for a listed mutant
}

// listed is the place of a listed mutant, whose text occurs once in its file.
const listed = -1

// verdict is what became of a mutant.
type verdict struct {
	candidate
	by   string // the test that killed it; "" if it survived
	took time.Duration
	err  error // it could not be tried
}

// target is how many percent of the random mutants must be killed.
const target = 95

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	withListed := flags.Bool("listed", true, "try the listed mutants")
	random := flags.Int("random", 0, "try so many random mutants; -1 for all that there are; 40 if nothing is named")
	seed := flags.Uint64("seed", 1, "chooses the random mutants")
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
		return errors.New("no mutant has such a name")
	}
	start := time.Now()
	verdicts := make([]verdict, len(chosen))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, c := range chosen {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			v := try(ctx, root, filepath.Join(temp, fmt.Sprint(i)), c)
			verdicts[i] = v
			fmt.Fprintf(os.Stderr, "%4.0fs  %d of %d  %-50s %s\n", time.Since(start).Seconds(), i+1, len(chosen),
				c.name, v.text())
		})
	}
	wg.Wait()

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
		return nil, fmt.Errorf("%s was changed meanwhile", c.file)
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
			// Single faults and chance find them; pairs would only take longer.
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
			// A test that fails by chance finds nothing.
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

// failedPackage returns the first package that failed, out of a step.
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
