package emulator

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

// group is a process with all processes that it starts. A Ctrl-C in the terminal reaches
// none of them, so that they can be ended in the right order.
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

// awaitEnd waits until no process of the group runs. A zombie does not run.
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

// Run runs a command with all processes that it starts until it ends or ctx does, and
// appends their output to a file. If the command fails, the error has the last lines.
func Run(ctx context.Context, path string, cmd *exec.Cmd) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintf(file, "$ %s\n", strings.Join(cmd.Args, " "))
	var output bytes.Buffer
	out := io.MultiWriter(file, &output)
	cmd.Stdout, cmd.Stderr = out, out
	g, err := startGroup(cmd)
	if err != nil {
		return err
	}
	select {
	case <-g.exited:
	case <-ctx.Done():
		g.stop(2 * time.Second)
		return ctx.Err()
	}
	if g.err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w\n%s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), g.err,
		lastLines(output.String(), 40))
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// LockedError is returned if another process holds the lock of a folder.
type LockedError struct{ PID int }

func (e LockedError) Error() string {
	return fmt.Sprintf("it is running here already (process %d); make down ends it", e.PID)
}

// Lock takes the lock of a folder, which at most one process has. Closing the file or the
// end of the process releases it. The error is a [LockedError] if another process has it.
func Lock(folder string) (io.Closer, error) {
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
		return nil, LockedError{pid}
	}
	if err := file.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return nil, err
	}
	return file, nil
}

// waitForLock waits until it has the lock of a folder, or ctx ends.
func waitForLock(ctx context.Context, folder string) (io.Closer, error) {
	for {
		l, err := Lock(folder)
		if _, held := errors.AsType[LockedError](err); !held {
			return l, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// pidFile has the process of the emulator of a folder, so that a later run can end it if this
// process is killed.
func pidFile(folder string) string { return filepath.Join(folder, "emulator.pid") }

// EndLeftovers ends an emulator of a folder, with its functions, whose run was killed. It
// reports whether there was one. The caller must hold the lock of the folder.
func EndLeftovers(folder string) (found bool) {
	text, err := os.ReadFile(pidFile(folder))
	if err != nil {
		return false
	}
	defer os.Remove(pidFile(folder))
	pid, err := strconv.Atoi(string(text))
	if err != nil || pid < 2 {
		return false
	}
	// The number may belong to another process now. The command of an emulator and of its
	// functions names this folder.
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
