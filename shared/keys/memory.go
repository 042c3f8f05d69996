package keys

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is a [Store] in memory. The zero value is empty and ready to use. It is safe for concurrent use.
type Memory struct {
	mu       sync.Mutex
	records  map[string]Record
	counters map[string]int
	sources  map[string]time.Time
}

// Get implements [Store].
func (m *Memory) Get(_ context.Context, id string) (*Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.records[id]; ok {
		return &r, nil
	}
	return nil, nil
}

// Put implements [Store].
func (m *Memory) Put(_ context.Context, r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.records[r.ID].FetchedAt.After(r.FetchedAt) {
		put(&m.records, r.ID, r)
	}
	return nil
}

// Remove implements [Store].
func (m *Memory) Remove(_ context.Context, r Record, oldest time.Time) (*Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.records[r.ID]
	removable := !last.UnknownSince.IsZero() && !last.UnknownSince.After(oldest) && !last.FetchedAt.After(r.FetchedAt)
	if last.usable(r.FetchedAt) && !removable {
		return &last, nil
	}
	if r.UnknownSince.IsZero() {
		r.UnknownSince = last.UnknownSince
	}
	put(&m.records, r.ID, r)
	return nil, nil
}

// ReportUnknown implements [Store].
func (m *Memory) ReportUnknown(_ context.Context, id string, asked, since time.Time) (*Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[id]
	switch {
	case r.JWK != "" && r.FetchedAt.After(asked):
		return &r, nil
	case !r.usable(asked):
		return nil, nil
	case r.UnknownSince.IsZero():
		r.UnknownSince = since
	}
	r.UnknownAt = asked
	put(&m.records, id, r)
	return &r, nil
}

// usable reports whether there is a key that has not expired at that time.
func (r *Record) usable(at time.Time) bool { return r.JWK != "" && r.ExpiresAt.Unix() > at.Unix() }

func put[V any](all *map[string]V, name string, v V) {
	if *all == nil {
		*all = map[string]V{}
	}
	(*all)[name] = v
}

// Take implements [Store].
func (m *Memory) Take(_ context.Context, name string, limit int, _ time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, counted := m.counters[name]; counted && n >= limit {
		return false, nil
	}
	put(&m.counters, name, m.counters[name]+1)
	return true, nil
}

// RecordSource implements [Store].
func (m *Memory) RecordSource(_ context.Context, name string, now, oldest, _ time.Time) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.sources[name]; ok && at.After(oldest) {
		return at, nil
	}
	put(&m.sources, name, now)
	return now, nil
}

// Source implements [Store].
func (m *Memory) Source(_ context.Context, name string) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sources[name], nil
}

// Records implements [InspectStore].
func (m *Memory) Records(context.Context) ([]Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.records)), nil
}

// Delete implements [InspectStore].
func (m *Memory) Delete(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, id)
	return nil
}
