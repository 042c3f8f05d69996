package keys

import (
	"context"
	"sync"
	"time"
)

// table is a store in memory that counts the calls that reach it, by the name of the method. Hook lets others fail or
// wait.
type table struct {
	Memory
	Hook func(ctx context.Context, next func() error) error // nil: none

	mu      sync.Mutex
	calls   map[string]int
	expires map[string]time.Time // of counters and sources, by name
}

func (t *table) Calls(methods ...string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range methods {
		n += t.calls[m]
	}
	return n
}

func call[T any](ctx context.Context, t *table, method string, do func() (T, error)) (result T, err error) {
	next := func() (err error) {
		t.mu.Lock()
		put(&t.calls, method, t.calls[method]+1)
		t.mu.Unlock()
		result, err = do()
		return err
	}
	if t.Hook == nil {
		err = next()
	} else {
		err = t.Hook(ctx, next)
	}
	return result, err
}

func (t *table) Get(ctx context.Context, id string) (*Record, error) {
	return call(ctx, t, "Get", func() (*Record, error) { return t.Memory.Get(ctx, id) })
}

func (t *table) Put(ctx context.Context, r Record) error {
	_, err := call(ctx, t, "Put", func() (any, error) { return nil, t.Memory.Put(ctx, r) })
	return err
}

func (t *table) Remove(ctx context.Context, r Record, oldest time.Time) (*Record, error) {
	return call(ctx, t, "Remove", func() (*Record, error) { return t.Memory.Remove(ctx, r, oldest) })
}

func (t *table) ReportUnknown(ctx context.Context, id string, asked, since time.Time) (*Record, error) {
	return call(ctx, t, "ReportUnknown",
		func() (*Record, error) { return t.Memory.ReportUnknown(ctx, id, asked, since) })
}

func (t *table) Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error) {
	t.until(name, expires)
	return call(ctx, t, "Take", func() (bool, error) { return t.Memory.Take(ctx, name, limit, expires) })
}

func (t *table) RecordSource(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error) {
	t.until(name, expires)
	return call(ctx, t, "RecordSource",
		func() (time.Time, error) { return t.Memory.RecordSource(ctx, name, now, oldest, expires) })
}

func (t *table) Source(ctx context.Context, name string) (time.Time, error) {
	return call(ctx, t, "Source", func() (time.Time, error) { return t.Memory.Source(ctx, name) })
}

func (t *table) Records(ctx context.Context) ([]Record, error) {
	return call(ctx, t, "Records", func() ([]Record, error) { return t.Memory.Records(ctx) })
}

func (t *table) Delete(ctx context.Context, id string) error {
	_, err := call(ctx, t, "Delete", func() (any, error) { return nil, t.Memory.Delete(ctx, id) })
	return err
}

func (t *table) until(name string, expires time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	put(&t.expires, name, expires)
}
