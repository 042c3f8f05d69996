package local

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// progress says what is going on, with the time since the start. It is safe for
// concurrent use.
type progress struct {
	start time.Time
	mu    sync.Mutex
	out   io.Writer
}

func newProgress(out io.Writer) *progress { return &progress{start: time.Now(), out: out} }

func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "[%6.1fs] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// step runs one step, and says when it starts, and when it ends after how long.
func (p *progress) step(name string, do func() error) error {
	p.say("%s ...", name)
	start := time.Now()
	if err := do(); err != nil {
		p.say("%s: failed after %.1fs", name, time.Since(start).Seconds())
		return fmt.Errorf("%s: %w", name, err)
	}
	p.say("%s: done in %.1fs", name, time.Since(start).Seconds())
	return nil
}

// atOnce runs steps side by side. The first that fails ends the others.
func atOnce(ctx context.Context, steps ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range steps {
		group.Go(func() error { return s(ctx) })
	}
	return group.Wait()
}
