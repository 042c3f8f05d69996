package local

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

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

// seconds returns the whole seconds since a time.
func seconds(start time.Time) int { return int(time.Since(start).Seconds()) }

// sign is how often a step that is not done says so.
const sign = 8 * time.Second

// Step runs one step. It writes its start, every eight seconds how long it has taken, and its end.
func (p *Progress) Step(name string, do func() error) error {
	p.Say("%s ...", name)
	start, ended := time.Now(), make(chan error, 1)
	ticks := time.NewTicker(sign)
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
