package emulator

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Progress writes what a run does, with the time since its start. It is safe for
// concurrent use.
type Progress struct {
	start time.Time
	mu    sync.Mutex
	out   io.Writer
}

// NewProgress returns a progress that starts now.
func NewProgress(out io.Writer) *Progress { return &Progress{start: time.Now(), out: out} }

// Say writes a line.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "[%6.1fs] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Step runs one step, and writes its start, its end and how long it took.
func (p *Progress) Step(name string, do func() error) error {
	p.Say("%s ...", name)
	start := time.Now()
	if err := do(); err != nil {
		p.Say("%s: failed after %.1fs", name, time.Since(start).Seconds())
		return fmt.Errorf("%s: %w", name, err)
	}
	p.Say("%s: done in %.1fs", name, time.Since(start).Seconds())
	return nil
}

// Together runs steps at the same time. The first error cancels the context of the others.
func Together(ctx context.Context, steps ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range steps {
		group.Go(func() error { return s(ctx) })
	}
	return group.Wait()
}
