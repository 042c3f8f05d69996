package local

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/infra/stack"
)

func TestAToolThatIsIncompleteNamesMakeClean(t *testing.T) {
	top := t.TempDir()
	cdk := &CDK{Top: top, State: t.TempDir()}
	for name, script := range map[string]string{"missing": "", "complete": "echo 'deny: a'; exit 1",
		"without a file": "echo \"Error: Cannot find module 'a'\"; exit 1"} {
		file := filepath.Join(top, "infra", "node_modules", ".bin", "cdk")
		if script != "" {
			writeScript(t, file, script)
		}
		err := cdk.run(t.Context(), "log", top)
		named := err != nil && strings.Contains(err.Error(), "make clean")
		if err == nil || named != (name != "complete") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, script := range []string{"", "echo \"ModuleNotFoundError: No module named 'ministack'\"; exit 1"} {
		if script != "" {
			writeScript(t, filepath.Join(top, ".local", "venv", "bin", "python"), script)
		}
		if _, err := StartEmulator(t.Context(), top, t.TempDir(), nil); err == nil ||
			!strings.Contains(err.Error(), "make clean") {
			t.Errorf("%q: %v", script, err)
		}
	}
}

func writeScript(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// The time of the test is that of the bubble, so it does not wait.
// transport answers every request.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTheEmulatorMayTakeMinutesToStart(t *testing.T) {
	before := stack.Direct.Transport
	defer func() { stack.Direct.Transport = before }()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		stack.Direct.Transport = transport(func(*http.Request) (*http.Response, error) {
			if time.Since(start) < 4*time.Minute {
				return nil, errors.New("refused")
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		e := &Emulator{Endpoint: "http://127.0.0.1:1", group: &group{exited: make(chan error)}}
		if err := e.awaitReady(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAnUnusableCacheOfGoIsNamed(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root can write everywhere")
	}
	modules, builds, locked := t.TempDir(), t.TempDir(), t.TempDir()
	for _, name := range []string{filepath.Join(modules, "cache", "download"), builds, locked} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{modules, locked} {
		if err := os.Chmod(name, 0o500); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(name, 0o700)
	}
	for _, c := range []struct {
		modules, builds string
		works           bool
	}{{modules, builds, true}, {modules, locked, false}, {locked, builds, false}, {locked + "/a", builds, false},
		{builds + "/a", builds + "/b", true}} {
		cmd := exec.CommandContext(t.Context(), "./check", "go")
		cmd.Env = append(os.Environ(), "GOMODCACHE="+c.modules, "GOCACHE="+c.builds)
		if out, err := cmd.CombinedOutput(); (err == nil) != c.works ||
			!c.works && !strings.Contains(string(out), "go cannot write to its caches") {
			t.Errorf("%v: %v, %s", c, err, out)
		}
	}
}
