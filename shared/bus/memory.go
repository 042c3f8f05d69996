package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// maxRequestBytes is what the size of a request must be less than (AWS, "PutEvents" in the EventBridge API reference).
const maxRequestBytes = 1 << 20

// Memory is a bus in memory, a [Store] and a [Finder]. Its zero value is empty and ready. As EventBridge does, it
// rejects requests with too many entries or bytes, and entries with a long detail-type or a detail that is not a JSON
// object. It takes what [Check] finds. It is safe for concurrent use, if its fields are only changed while nobody uses
// it.
type Memory struct {
	// Reject, if set, is called for each entry of a request, in order. It returns why the entry is not taken: an
	// [*EntryError] if only this entry is not, another error if nothing of the request is.
	Reject func(Entry) error

	// Missing is whether the bus does not exist. As with EventBridge, Put does not tell, and the entries are lost.
	Missing bool

	mu      sync.Mutex
	entries []Entry
}

// Put implements [Store].
func (m *Memory) Put(ctx context.Context, entries []Entry) ([]error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	size := 0
	for _, e := range entries {
		size += e.size()
	}
	if n := len(entries); n == 0 || n > maxEntries || size >= maxRequestBytes {
		return nil, &RequestError{OfEntry, fmt.Errorf("bus: a request has %d entries with %d bytes", n, size)}
	}
	failures := make([]error, len(entries))
	for i, e := range entries {
		if failures[i] = e.check(); failures[i] != nil || m.Reject == nil {
			continue
		}
		failures[i] = m.Reject(e)
		if _, alone := errors.AsType[*EntryError](failures[i]); failures[i] != nil && !alone {
			return nil, failures[i]
		}
	}
	for i, e := range entries {
		if failures[i] == nil && !m.Missing {
			e.Detail = bytes.Clone(e.Detail) // the caller's
			m.entries = append(m.entries, e)
		}
	}
	return failures, nil
}

// check returns the error of an entry that EventBridge does not take (AWS, "PutEventsRequestEntry" in the EventBridge
// API reference).
func (e Entry) check() error {
	const maxDetailType = 128 // characters
	switch {
	case utf8.RuneCountInString(e.DetailType) > maxDetailType:
		return &EntryError{OfEntry, "InvalidArgument"}
	case !json.Valid(e.Detail) || jsontext.Value(e.Detail).Kind() != '{':
		return &EntryError{OfEntry, "MalformedDetail"}
	}
	return nil
}

// Find implements [Finder].
func (m *Memory) Find(context.Context) error {
	if m.Missing {
		return ErrMissing
	}
	return nil
}

// Take returns what was put on the bus since the last call, in order, and forgets it.
func (m *Memory) Take() (entries []Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries, m.entries = m.entries, nil
	return entries
}

// Entries returns what was put on the bus, in order.
func (m *Memory) Entries() []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries)
}
