package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"payhook.example/shared/bus"
)

// EventBus is a store of a bus with all its parts.
type EventBus struct {
	bus.Store
	bus.Finder
	// Entries returns what is on the bus, in order; nil if that cannot be read.
	Entries func() []bus.Entry
}

// Bus makes n random calls of a bus and of one in memory, and fails the test if their results differ. The bus must be
// empty, or missing.
func Bus(t *testing.T, seed uint64, n int, missing bool, other EventBus) {
	t.Helper()
	memory, r := &bus.Memory{Missing: missing}, newRandom(seed)
	buses := []EventBus{{memory, memory, memory.Entries}, other}
	for call := range n {
		entries := r.entries()
		compare(t, fmt.Sprintf("seed %d, call %d, %d entries", seed, call, len(entries)), buses,
			func(ctx context.Context, b EventBus) any {
				mine := slices.Clone(entries)
				for n, e := range mine {
					mine[n].Detail = bytes.Clone(e.Detail)
					defer clear(mine[n].Detail) // what is on the bus stays
				}
				failures, err := b.Put(ctx, mine)
				fault := bus.OfService
				if e, ok := errors.AsType[*bus.RequestError](err); ok {
					fault = e.Fault
				}
				found := b.Find(ctx)
				return []any{failures, err != nil, fault, found != nil, errors.Is(found, bus.ErrMissing)}
			})
	}
	if other.Entries != nil {
		compare(t, "on the bus", buses, func(_ context.Context, b EventBus) any { return b.Entries() })
	}
}

// entries returns the entries of a request, which is sometimes too large.
func (r *random) entries() []bus.Entry {
	entries := make([]bus.Entry, 1+r.IntN(10))
	size := 0
	for n := range entries {
		e := &entries[n]
		*e = bus.Entry{Source: "payhook", DetailType: "PAYMENT_STATUS.RELEASED", Time: r.time(),
			Detail: fmt.Appendf(nil, `{ "n":%d, "text":"ü\u00fc" }`, r.IntN(1000)), DeliveryID: r.id()}
		switch r.IntN(12) {
		case 0:
			e.DetailType = strings.Repeat("ü", 127+r.IntN(3)) // 128 are the most
		case 1:
			e.Detail = []byte([]string{" \n{\t} ", "[]", "null", "{}{}", `{"a":1,}`, `{"a":01}`, "text"}[r.IntN(7)])
		case 2:
			e.DeliveryID = ""
		}
		size += bus.New(nil, e.Source, 0).Size(e.Event)
	}
	switch r.IntN(20) {
	case 0: // the limit is 1 MB
		e := &entries[len(entries)-1]
		e.Detail = append(e.Detail, strings.Repeat(" ", 1<<20-2+r.IntN(3)-size)...)
	case 1:
		for len(entries) < 11 {
			entries = append(entries, entries[0])
		}
	}
	return entries
}
