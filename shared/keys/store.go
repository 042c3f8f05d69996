package keys

import (
	"context"
	"crypto/rsa"
	"maps"
	"slices"
	"sync"
	"time"
)

// Store is what all functions share: records of key ids, counters, and sources of authentic webhooks. It decides about
// each of them in one step. A write that fails may have taken effect. It is safe for concurrent use. Package
// shared/aws/dynamodb has the store of a deployment, [Memory] is one in memory.
type Store interface {
	// Get returns the record of a key id; nil for none.
	Get(ctx context.Context, id string) (*Record, error)
	// Put stores r, unless there is a record with a later FetchedAt.
	Put(ctx context.Context, r Record) error
	// Remove stores r, which has no key, unless there is a key that has not expired at r.FetchedAt, and that was
	// fetched later or was not reported as unknown by oldest. It returns the record that it does not replace; nil for
	// none. An UnknownSince of the record before stays if r has none.
	Remove(ctx context.Context, r Record, oldest time.Time) (kept *Record, err error)
	// ReportUnknown records that the service, asked at that time, did not know the key: at since, unless there is an
	// earlier report. It returns the new record, or the key that was fetched later, which it does not change; nil if
	// there is no key, or it has expired.
	ReportUnknown(ctx context.Context, id string, asked, since time.Time) (*Record, error)

	// Take counts up to limit under a name, and reports whether it did. The counter is needed until it expires.
	Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error)
	// RecordSource records that a source was seen now, unless it was recorded after oldest. It returns the time that is
	// then recorded. The source is needed until it expires.
	RecordSource(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error)
	// Source returns when a source was seen; the zero time if that is not recorded.
	Source(ctx context.Context, name string) (time.Time, error)
}

// InspectStore is the part of a store that is for a person. Its reads are consistent.
type InspectStore interface {
	// Get returns the record of a key id; nil for none.
	Get(ctx context.Context, id string) (*Record, error)
	// Records returns all records of key ids, in any order.
	Records(ctx context.Context) ([]Record, error)
	// Delete deletes the record of a key id, if there is one. A function without its own copy then fetches the key
	// again.
	Delete(ctx context.Context, id string) error
}

// Record is what the store has of a key id. Without JWK, the id had no key at FetchedAt; with UnknownSince, it had one
// before that was removed. A store keeps ExpiresAt in seconds, and the other times, which are zero for none, in
// milliseconds.
type Record struct {
	ID           string // in its canonical form
	SentAs       string // the id in the request to the service
	JWK          string
	Rejected     []Violation // why the policy rejects the key that the service returned
	FetchedAt    time.Time   // when the request was sent to the service
	UnknownSince time.Time   // when the service first reported a known key as unknown; while JWK is set, it is in use
	UnknownAt    time.Time   // when it last did
	ExpiresAt    time.Time   // from then, no function uses the record
}

// Key returns the key of a record; nil if the service did not know the id. The error says why the functions do not use
// the key that the service returned.
func (r *Record) Key() (*rsa.PublicKey, error) {
	switch {
	case r.Rejected != nil:
		return nil, &PolicyError{r.Rejected}
	case r.JWK == "":
		return nil, nil
	}
	return ParseJWK([]byte(r.JWK), r.ID)
}

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
