// Mutants breaks Payhook on purpose, one realistic bug at a time, and runs the
// tests on each: a proof that nothing is wrong is worth what its tests notice.
//
//	go run ./shared/histories/mutants              all of them
//	go run ./shared/histories/mutants lease due    those whose names hold one of the words
//
// Every mutant is a small patch in mutants.go. It is compiled in place of the
// file with go test -overlay; nothing in the source tree changes. The program
// prints which test killed which mutant, and fails if one survives, or if a
// patch no longer applies.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

// verdict is what became of a mutant.
type verdict struct {
	mutant
	by   string // the test that killed it; "" if it survived
	took time.Duration
	err  error // it could not be tried
}

func run(ctx context.Context, words []string) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool {
		return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(m.name, w) })
	})
	if len(chosen) == 0 {
		return errors.New("no mutant has such a name")
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)

	start := time.Now()
	verdicts := make([]verdict, len(chosen))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, m := range chosen {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			v := try(ctx, root, filepath.Join(temp, fmt.Sprint(i)), m)
			verdicts[i] = v
			fmt.Fprintf(os.Stderr, "%4.0fs  %-50s %s\n", time.Since(start).Seconds(), m.name, v.text())
		})
	}
	wg.Wait()

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "mutant\tkilled by\tseconds")
	alive := 0
	for _, v := range verdicts {
		if v.err != nil || v.by == "" {
			alive++
		}
		fmt.Fprintf(table, "%s\t%s\t%.1f\n", v.name, v.text(), v.took.Seconds())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Printf("%d of %d killed in %.0f s\n", len(verdicts)-alive, len(verdicts), time.Since(start).Seconds())
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted")
	}
	if alive > 0 {
		return fmt.Errorf("%d are alive", alive)
	}
	return nil
}

func (v verdict) text() string {
	switch {
	case v.err != nil:
		return "ERROR: " + v.err.Error()
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

// apply returns the text of m's file with m in it.
func (m mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s holds the text to be replaced %d times", m.file, n)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
}

// try runs the tests on a mutant until one fails.
func try(ctx context.Context, root, temp string, m mutant) (v verdict) {
	v.mutant = m
	start := time.Now()
	defer func() { v.took = time.Since(start) }()
	text, err := m.apply(root)
	if err != nil {
		v.err = err
		return v
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, filepath.FromSlash(m.file)): temp + ".go"}})
	if err != nil {
		v.err = err
		return v
	}
	if err := errors.Join(os.WriteFile(temp+".go", text, 0o600), os.WriteFile(temp+".json", overlay, 0o600)); err != nil {
		v.err = err
		return v
	}
	for _, by := range m.by {
		args := []string{"test", "-overlay", temp + ".json", "-vet=off", "-failfast", "-timeout", timeLimit.String(), by}
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
		case err == nil:
			continue
		case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
			v.err = fmt.Errorf("does not compile: %s", bytes.TrimSpace(out))
			return v
		}
		v.by = strings.TrimPrefix(by, "./") + " " + killer(string(out))
		return v
	}
	return v
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
	if strings.Contains(out, "panic: test timed out") {
		return cmp.Or(name, "time limit")
	}
	return cmp.Or(strings.TrimSuffix(name, "/#00"), "a panic")
}
