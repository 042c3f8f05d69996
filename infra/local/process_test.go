package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
)

func TestCommandEndsWithItsContextAndEveryProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; sleep 1000 & echo $!; wait")
	cmd.Stdout = writer
	ended := make(chan error, 1)
	go func() { ended <- runGroup(ctx, cmd) }()
	child, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context canceled", err)
	}
	if state, _ := exec.Command("ps", "-o", "stat=", "-p", strings.TrimSpace(child)).Output(); len(state) > 0 &&
		state[0] != 'Z' {
		t.Errorf("the child is left: %s", state)
	}
}

func TestFailedCommandShowsItsOutput(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	err := runLogged(t.Context(), log, exec.Command("sh", "-c", "echo for this reason; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "for this reason") ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error = %v", err)
	}
	text, readErr := os.ReadFile(log)
	if readErr != nil || !strings.Contains(string(text), "for this reason") {
		t.Errorf("the log has %q, %v", text, readErr)
	}
}

func TestMissingAndOldProgramsAreNamed(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for versions, want := range map[string]string{ // of node and python3; patterns of the lines
		"v1.2.3 -": `node is too old \(v1.2.3\); version 20.0.*\nnpm is not installed.*\n` +
			`python3 is not installed; version 3.10 or newer is needed.*`,
		"v19.9.9 Python-3.9.18": `node is too old.*\nnpm.*\npython3 is too old.*`,
		"v20.0.0 Python-3.10.0": `warning: Node 20 works, but.*\nnpm.*`,
		"v22.1.0 Python-4.0":    `npm.*`,
	} {
		node, python, _ := strings.Cut(versions, " ")
		for name, version := range map[string]string{"node": node, "python3": strings.Replace(python, "-", " ", 1)} {
			os.Remove(filepath.Join(folder, name))
			if version == " " {
				continue
			}
			script := []byte("#!/bin/sh\necho " + version + "\n")
			if err := os.WriteFile(filepath.Join(folder, name), script, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		check := exec.Command(bash, "./check", "node", "npm", "python3")
		check.Env = []string{"PATH=" + folder}
		text, err := check.CombinedOutput()
		if err == nil || !regexp.MustCompile("^"+want+"\n$").Match(text) {
			t.Errorf("%s: %v, %s", versions, err, text)
		}
	}
}

func TestToolsAreInstalledBelowAnyPath(t *testing.T) {
	clone := filepath.Join(t.TempDir(), "a clone of $HOME's")
	requirements := "infra/local/emulator/requirements.txt"
	for _, name := range []string{"Makefile", "infra/local/check", "infra/local/locked", "infra/local/step",
		requirements} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if name == requirements {
			text = nil // nothing is downloaded
		}
		path := filepath.Join(clone, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o700))
		if err != nil {
			t.Fatal(err)
		}
	}
	var both errgroup.Group
	for range 2 {
		both.Go(func() error {
			out, err := exec.CommandContext(t.Context(), "make", "-C", clone, ".local/venv").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	if err := both.Wait(); err != nil {
		t.Error(err)
	}
}

func TestStepNamesAFullDisk(t *testing.T) {
	full := "/dev/full" // https://man7.org/linux/man-pages/man4/full.4.html
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	for command, want := range map[string]bool{"cp ./step " + full: true, "echo no; exit 1": false} {
		step := exec.CommandContext(t.Context(), "./step", "installing", "sh", "-c", command)
		step.Env = append(os.Environ(), "TMPDIR="+full) // no file can be written there
		text, err := step.CombinedOutput()
		if err == nil || strings.Contains(string(text), "a disk is full; free now: ") != want ||
			!strings.Contains(string(text), "installing: failed") {
			t.Errorf("%v, %s", err, text)
		}
	}
}

func TestREADMENamesTheCheckedVersions(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	check, errCheck := os.ReadFile("check")
	if err := errors.Join(err, errCheck); err != nil {
		t.Fatal(err)
	}
	for needed, stated := range map[string]string{"need go 1 21 ": "Go 1.21", "need node 20 0 ": "(20 works",
		"need python3 3 10 ": "Python 3.10"} {
		if !strings.Contains(string(check), needed) || !strings.Contains(string(text), stated) {
			t.Errorf("check has no %q, or README.md no %q", needed, stated)
		}
	}
}

func TestLongStepShowsItsSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		t.Setenv(startedVariable, strconv.FormatInt(time.Now().Add(-100*time.Second).Unix(), 10))
		failed := errors.New("it failed")
		if err := NewProgress(&out).Step("slow", func() error {
			time.Sleep(20 * time.Second)
			return failed
		}); !errors.Is(err, failed) {
			t.Error(err)
		}
		want := "[   100s] slow ...\n[   108s] slow: 8s so far\n[   116s] slow: 16s so far\n" +
			"[   120s] slow: failed after 20s\n"
		if out.String() != want {
			t.Errorf("%s, want %s", &out, want)
		}
	})
}

func TestOneAppUnpacksTheLibrary(t *testing.T) {
	top := t.TempDir()
	bin := filepath.Join(top, "infra", "node_modules", ".bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	// It fails while another one unpacks.
	script := "#!/bin/sh\nlib=" + top + "/.local/jsii\n[ -d $lib/aws-cdk-lib ] && exit\n" +
		"mkdir " + top + "/unpacking || exit 1\nsleep 0.3\nmkdir -p $lib/aws-cdk-lib\n"
	if err := os.WriteFile(filepath.Join(bin, "cdk"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cdk := &CDK{Top: top, State: top}
	var group errgroup.Group
	for range 2 {
		group.Go(func() error {
			_, err := cdk.Synth(t.Context(), top, "out", nil)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestMiniStackNeedsPatchesThatFit(t *testing.T) {
	const patchDoesNotFit = 3
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
				text, err := os.ReadFile(filepath.Join("emulator", "ministack", name))
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
