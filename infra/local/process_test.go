package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
