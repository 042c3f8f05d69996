package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// group is a process with all processes that it starts. A Ctrl-C in the terminal reaches
// none of them, so that they can be ended in the right order.
type group struct {
	pid    int
	exited chan error // has the error of the first process when it has ended, and is closed then
}

func startGroup(cmd *exec.Cmd) (*group, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &group{pid: cmd.Process.Pid, exited: make(chan error, 1)}
	go func() {
		g.exited <- cmd.Wait()
		close(g.exited)
	}()
	return g, nil
}

// Stop kills the group and returns when none of its processes is left.
func (g *group) Stop() {
	syscall.Kill(-g.pid, syscall.SIGKILL)
	<-g.exited
	// A zombie that nobody waits for stays in the group, and does not run.
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline) &&
		!errors.Is(syscall.Kill(-g.pid, 0), syscall.ESRCH); {
		time.Sleep(10 * time.Millisecond)
	}
}

// runLogged runs a command with all processes that it starts until it ends or ctx does, and
// writes their output to a file. If the command fails, the error has the last lines.
func runLogged(ctx context.Context, path string, cmd *exec.Cmd) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintf(file, "$ %s\n", strings.Join(cmd.Args, " "))
	cmd.Stdout, cmd.Stderr = file, file
	if err = runGroup(ctx, cmd); err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w\n%s", err, lastLines(path))
}

// runGroup runs a command with all processes that it starts until it ends or ctx does.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	g, err := startGroup(cmd)
	if err != nil {
		return err
	}
	select {
	case err = <-g.exited:
	case <-ctx.Done():
		g.Stop()
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	return nil
}

func lastLines(path string) string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// LockedError is returned if another process holds the lock of a folder.
type LockedError struct{ PID int }

func (e LockedError) Error() string {
	return fmt.Sprintf("it is running here already (process %d); make down ends it", e.PID)
}

// Lock takes the lock of a folder, which at most one process has. Closing the file or the
// end of the process releases it. The error is a [LockedError] if another process has it.
func Lock(folder string) (io.Closer, error) { return lock(folder, syscall.LOCK_NB) }

// lock takes the lock of a folder. Without LOCK_NB, it waits for it.
func lock(folder string, flag int) (io.Closer, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|flag); err != nil {
		defer file.Close()
		text, _ := io.ReadAll(file)
		pid, _ := strconv.Atoi(string(text))
		return nil, LockedError{pid}
	}
	if err = file.Truncate(0); err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	return file, err
}

// Progress writes what a run does, with the time since its start as infra/local/step does. It is safe for
// concurrent use.
type Progress struct {
	start time.Time
	mu    sync.Mutex
	out   io.Writer
}

// startedVariable is the variable with which make says when it started, in seconds since 1970.
const startedVariable = "PAYHOOK_STARTED"

// NewProgress returns a progress that started with make, or now without make.
func NewProgress(out io.Writer) *Progress {
	start := time.Now()
	if seconds, err := strconv.ParseInt(os.Getenv(startedVariable), 10, 64); err == nil {
		start = time.Unix(seconds, 0)
	}
	return &Progress{start: start, out: out}
}

// Say writes a line.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "[%6ds] %s\n", seconds(p.start), fmt.Sprintf(format, args...))
}

func seconds(start time.Time) int { return int(time.Since(start).Seconds()) }

// Step runs one step. It writes its start, every eight seconds how long it has taken, and its end.
func (p *Progress) Step(name string, do func() error) error {
	p.Say("%s ...", name)
	start, ended := time.Now(), make(chan error, 1)
	ticks := time.NewTicker(8 * time.Second)
	defer ticks.Stop()
	go func() { ended <- do() }()
	for {
		select {
		case <-ticks.C:
			p.Say("%s: %ds so far", name, seconds(start))
		case err := <-ended:
			if err != nil {
				p.Say("%s: failed after %ds", name, seconds(start))
				return fmt.Errorf("%s: %w", name, err)
			}
			p.Say("%s: done in %ds", name, seconds(start))
			return nil
		}
	}
}
