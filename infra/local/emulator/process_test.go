package emulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func startParentAndChild(t *testing.T, folder string) *group {
	t.Helper()
	script := filepath.Join(folder, "children.sh")
	text := "#!/bin/sh\ntrap '' TERM\n(trap '' TERM; echo child; while :; do sleep 1; done) &\necho parent\nwait\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", script)
	cmd.Stdout = write
	g, err := startGroup(cmd)
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-g.pid, syscall.SIGKILL) })
	output := make([]byte, len("child\nparent\n"))
	for n := 0; n < len(output); {
		more, err := read.Read(output[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	return g
}

func TestStopEndsEveryProcessOfAGroup(t *testing.T) {
	for _, grace := range []time.Duration{0, 10 * time.Millisecond} {
		g := startParentAndChild(t, t.TempDir())
		g.stop(grace)
		if runs(g.pid) {
			t.Errorf("grace %s: a process is left", grace)
		}
	}
}

func TestCommandEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	folder := t.TempDir()
	log := filepath.Join(folder, "log")
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, log, exec.Command("sleep", "1000")) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context canceled", err)
	}
}

func TestFailedCommandShowsItsOutput(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	err := Run(t.Context(), log, exec.Command("sh", "-c", "echo for this reason; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "for this reason") ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error = %v", err)
	}
	text, readErr := os.ReadFile(log)
	if readErr != nil || !strings.Contains(string(text), "for this reason") {
		t.Errorf("the log has %q, %v", text, readErr)
	}
}

func TestOneProcessHasTheLock(t *testing.T) {
	folder := t.TempDir()
	first, err := Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(folder)
	held, ok := errors.AsType[LockedError](err)
	if !ok || held.PID != os.Getpid() {
		t.Errorf("a second lock: %v, want that process %d holds it", err, os.Getpid())
	}
	first.Close()
	second, err := Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

func TestProcessesOfAKilledRunAreEnded(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	ours := startParentAndChild(t, folder)
	if err := os.WriteFile(pidFile(folder), []byte(strconv.Itoa(ours.pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if !EndLeftovers(folder) || runs(ours.pid) {
		t.Error("the process is left")
	}

	// The number is another process' by now.
	others := startParentAndChild(t, t.TempDir())
	if err := os.WriteFile(pidFile(folder), []byte(strconv.Itoa(others.pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if EndLeftovers(folder) || !runs(others.pid) {
		t.Error("a process that is not ours was ended")
	}
	if EndLeftovers(folder) {
		t.Error("it is remembered still")
	}
	others.stop(0)
}

func TestVersionsAreCompared(t *testing.T) {
	for text, want := range map[string]bool{
		"v20.0.0": true, "v20.11.1\n": true, "v22.1.0": true, "Python 20.0": true,
		"v19.9.9": false, "8.0": false, "": false, "none": false,
	} {
		if got := atLeast(text, 20, 0); got != want {
			t.Errorf("%q is at least 20.0: %t, want %t", text, got, want)
		}
	}
	if atLeast("3.9.18", 3, 10) || !atLeast("Python 3.10.0", 3, 10) {
		t.Error("the minor version is not compared as a number")
	}
}

func programs(t *testing.T, versions map[string]string) {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	for name, version := range versions {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\necho "+version+"\n"),
			0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	programs(t, map[string]string{"node": "v1.2.3"})
	_, err := FindTools()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"node is too old (v1.2.3); version 20.0", "npm is not installed",
		"python3 is not installed; version 3.10 or newer is needed"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestREADMENamesTheCheckedVersions(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requirements {
		want := map[string]string{
			"node":    fmt.Sprintf("Node %d (%d works", r.recommended, r.major),
			"python3": fmt.Sprintf("Python %d.%d", r.major, r.minor),
		}[r.program]
		if !strings.Contains(string(text), want) {
			t.Errorf("README.md does not contain %q", want)
		}
	}
}

func TestMiniStackNeedsPatchesThatFit(t *testing.T) {
	for _, test := range []struct{ name, app, message string }{
		{"a function is gone", "", "there is no function pin_request_origin"},
		{"a function has other parameters", "def pin_request_origin(origin): pass\n", "has the parameters ['origin']"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			other := filepath.Join(folder, "ministack")
			if err := os.Mkdir(other, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"__init__.py": "", "__main__.py": "print('started')\n",
				"app.py": test.app} {
				if err := os.WriteFile(filepath.Join(other, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// Only the patch that is looked at: the others do not fit either.
			for _, name := range []string{"start.py", "patching.py", "secure_transport.py"} {
				text, err := os.ReadFile(filepath.Join("ministack", name))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command("python3", filepath.Join(folder, "start.py")).CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != patchDoesNotFit {
				t.Errorf("it ends with %v, want status %d", err, patchDoesNotFit)
			}
			if text := string(out); !strings.Contains(text, "secure_transport.py") ||
				!strings.Contains(text, test.message) || strings.Contains(text, "started") {
				t.Errorf("output %q, want the patch's name and %q", text, test.message)
			}
		})
	}
}
