package keys

import (
	"context"
	"crypto/rsa"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Store is what all functions share: records of key ids, counters, and senders of authentic webhooks. It decides about
// each of them in one step. A write that fails may have taken effect. It is safe for concurrent use. Package
// shared/aws/dynamodb has the store of a stack, [Memory] is one in memory.
type Store interface {
	// Get returns the record of a key id; nil for none. It can be one that was replaced less than a second ago.
	Get(ctx context.Context, id string) (*Record, error)
	// Put stores r if the version of the record that is there is this one; "" stands for no record, also in r. If the
	// answer in r is Fresh, it also stores r if the FetchedAt that is there is earlier or none. It reports whether r
	// was stored, and returns the record that is there instead; nil for none.
	Put(ctx context.Context, r Record, version string) (stored bool, instead *Record, err error)

	// Take counts up to limit under a name, and reports whether it did. The counter is needed until it expires.
	Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error)
	// RecordSender records that a sender was seen now, unless it was recorded after oldest. It returns the time that is
	// then recorded. The sender is needed until it expires.
	RecordSender(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error)
	// Sender returns when a sender was seen; the zero time if that is not recorded.
	Sender(ctx context.Context, name string) (time.Time, error)
}

// InspectStore is the part of a store that is for a person. Its reads are consistent.
type InspectStore interface {
	Get(ctx context.Context, id string) (*Record, error) // nil for none
	Records(ctx context.Context) ([]Record, error)       // of all key ids, in any order
	// Delete deletes the record of a key id, if there is one. A function without its own copy then fetches the key
	// again.
	Delete(ctx context.Context, id string) error
}

// Record is what the store has of a key id. A store keeps ExpiresAt in seconds, and the other times, which are zero for
// none, in milliseconds.
type Record struct {
	ID      string // in its canonical form
	Version string // random, and another one after each change; without it, there is no record
	SentAs  string // the spelling of the id for which the service returned the key
	JWK     string // "" for no key
	// FetchedAt is when the request for the key was sent, or the one whose answer removed it; zero if there never was a
	// key.
	FetchedAt    time.Time
	UnknownSince time.Time // when the service first did not return the key: it is withdrawn, or without JWK removed
	AskedAs      string    // the spelling of the last request
	Answer       State     // to the last request: Fresh, Unknown, Refused or Unavailable; None: not yet
	Failures     int       // how often in a row the service was unavailable without a key
	// LeasedUntil is the time before which no other cache asks the service: the lease of the cache that asks ends
	// then, or after its answer the pause.
	LeasedUntil time.Time
	ExpiresAt   time.Time // from then, no function needs the record
}

// Key returns the key of a record; nil for none. The error says why the functions do not use it.
func (r *Record) Key() (*rsa.PublicKey, error) {
	switch {
	case r.SentAs != "" && !sameID(r.SentAs, r.ID): // it would be fetched again in this spelling
		return nil, fmt.Errorf("%w: sentAs is not its key id", ErrNotJWK)
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
	senders  map[string]time.Time
}

// lock returns the function that unlocks m.
func (m *Memory) lock() func() {
	m.mu.Lock()
	if m.records == nil {
		m.records, m.counters, m.senders = map[string]Record{}, map[string]int{}, map[string]time.Time{}
	}
	return m.mu.Unlock
}

// Get implements [Store].
func (m *Memory) Get(_ context.Context, id string) (*Record, error) {
	defer m.lock()()
	if r, ok := m.records[id]; ok {
		return &r, nil
	}
	return nil, nil
}

// Put implements [Store].
func (m *Memory) Put(_ context.Context, r Record, version string) (stored bool, instead *Record, err error) {
	defer m.lock()()
	old, ok := m.records[r.ID]
	switch {
	case old.Version != version && (r.Answer != Fresh || !old.FetchedAt.Before(r.FetchedAt)):
		if ok {
			instead = &old
		}
		return false, instead, nil
	case r.Version == "":
		delete(m.records, r.ID)
	default:
		m.records[r.ID] = r
	}
	return true, nil, nil
}

// Take implements [Store].
func (m *Memory) Take(_ context.Context, name string, limit int, _ time.Time) (bool, error) {
	defer m.lock()()
	left := m.counters[name] < limit
	if left {
		m.counters[name]++
	}
	return left, nil
}

// RecordSender implements [Store].
func (m *Memory) RecordSender(_ context.Context, name string, now, oldest, _ time.Time) (time.Time, error) {
	defer m.lock()()
	if !m.senders[name].After(oldest) {
		m.senders[name] = now
	}
	return m.senders[name], nil
}

// Sender implements [Store].
func (m *Memory) Sender(_ context.Context, name string) (time.Time, error) {
	defer m.lock()()
	return m.senders[name], nil
}

// Records implements [InspectStore].
func (m *Memory) Records(context.Context) ([]Record, error) {
	defer m.lock()()
	return slices.Collect(maps.Values(m.records)), nil
}

// Delete implements [InspectStore].
func (m *Memory) Delete(_ context.Context, id string) error {
	defer m.lock()()
	delete(m.records, id)
	return nil
}
