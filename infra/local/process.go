package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// group is a process of ours with everything that it starts. Signals reach all
// of them, and a Ctrl-C in the terminal none: we end them in good order.
type group struct {
	pid    int
	exited chan struct{} // closed when the first process has ended
	err    error         // of that process, once it has
}

func startGroup(cmd *exec.Cmd) (*group, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &group{pid: cmd.Process.Pid, exited: make(chan struct{})}
	go func() {
		g.err = cmd.Wait()
		close(g.exited)
	}()
	return g, nil
}

// stop ends the group and returns when none of its processes is left. Those
// that do not end on request within the grace are killed.
func (g *group) stop(grace time.Duration) {
	if grace > 0 {
		syscall.Kill(-g.pid, syscall.SIGTERM)
		select {
		case <-g.exited:
		case <-time.After(grace):
		}
	}
	syscall.Kill(-g.pid, syscall.SIGKILL)
	<-g.exited
	awaitEnd(g.pid)
}

// awaitEnd waits until no process of the group runs any more. Those whose end
// nobody has collected yet do not.
func awaitEnd(pgid int) {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		if errors.Is(syscall.Kill(-pgid, 0), syscall.ESRCH) || !runs(pgid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// runs reports whether a process of the group runs, as far as ps can tell.
func runs(pgid int) bool {
	listing, err := exec.Command("ps", "-A", "-o", "pgid=", "-o", "stat=").Output()
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(listing)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == strconv.Itoa(pgid) && fields[1][0] != 'Z' {
			return true
		}
	}
	return false
}

// runGroup runs a command to its end, or to ctx's, with everything that it
// starts.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g, err := startGroup(cmd)
	if err != nil {
		return err
	}
	select {
	case <-g.exited:
		return g.err
	case <-ctx.Done():
		g.stop(2 * time.Second)
		return ctx.Err()
	}
}

// logged runs a command with everything that it starts, to its end or ctx's,
// and appends what they say to a file. The end of that is in the error if the
// command fails.
func logged(ctx context.Context, path string, cmd *exec.Cmd) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintf(file, "$ %s\n", strings.Join(cmd.Args, " "))
	var said bytes.Buffer
	out := io.MultiWriter(file, &said)
	cmd.Stdout, cmd.Stderr = out, out
	err = runGroup(ctx, cmd)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%s %s: %w\n%s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err,
		lastLines(said.String(), 40))
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// lock is held by the one process that runs things in a folder, until it ends,
// however it ends.
type lock struct{ file *os.File }

// errLocked says that another process runs things in the folder.
type errLocked struct{ pid int }

func (e errLocked) Error() string {
	return fmt.Sprintf("it is running here already (process %d); make down ends it", e.pid)
}

func lockFolder(folder string) (*lock, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		text := make([]byte, 20)
		n, _ := file.ReadAt(text, 0)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:n])))
		return nil, errLocked{pid}
	}
	if err := file.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return nil, err
	}
	return &lock{file}, nil
}

func (l *lock) release() { l.file.Close() }

// waitForLock waits until it has the lock of a folder, or ctx ends.
func waitForLock(ctx context.Context, folder string) (*lock, error) {
	for {
		l, err := lockFolder(folder)
		if _, held := errors.AsType[errLocked](err); !held {
			return l, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// remember writes down the emulator's process, so that a later run finds it if
// this one can't end it, because it was killed itself.
func remember(folder string, pid int) error {
	return os.WriteFile(filepath.Join(folder, "emulator.pid"), []byte(strconv.Itoa(pid)), 0o600)
}

func forget(folder string) { os.Remove(filepath.Join(folder, "emulator.pid")) }

// endLeftovers ends an emulator that an earlier run of this folder could not
// end, with its functions. It must be called with the folder locked.
func endLeftovers(folder string) (found bool) {
	text, err := os.ReadFile(filepath.Join(folder, "emulator.pid"))
	if err != nil {
		return false
	}
	defer forget(folder)
	pid, err := strconv.Atoi(string(text))
	if err != nil || pid < 2 {
		return false
	}
	// The number may be another process' by now: a group of ours runs out of
	// this folder, either as its emulator or as one of its functions.
	listing, err := exec.Command("ps", "-A", "-ww", "-o", "pgid=", "-o", "command=").Output()
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(listing)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == strconv.Itoa(pid) && strings.Contains(line, filepath.Dir(folder)) {
			syscall.Kill(-pid, syscall.SIGKILL)
			awaitEnd(pid)
			return true
		}
	}
	return false
}
