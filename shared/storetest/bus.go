package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/bus"
)

// EventBus is a store of a bus with all its parts.
type EventBus struct {
	bus.Store
	bus.Finder
	// Entries returns what is on the bus, in order; nil if that cannot be read.
	Entries func() []bus.Entry
}

// Bus makes n random calls of each bus and fails the test if their results differ. The buses must be empty.
func Bus(t *testing.T, seed uint64, n int, buses ...EventBus) {
	t.Helper()
	r := &random{rand.New(rand.NewPCG(seed, 2)), time.UnixMilli(1769860800123).UTC()}
	for call := range n {
		entries := r.entries()
		do := func(b EventBus) any {
			mine := slices.Clone(entries)
			for n, e := range mine {
				mine[n].Detail = bytes.Clone(e.Detail)
				defer clear(mine[n].Detail) // what is on the bus stays
			}
			failures, err := b.Put(t.Context(), mine)
			fault := bus.OfService
			if e, ok := errors.AsType[*bus.RequestError](err); ok {
				fault = e.Fault
			}
			found := b.Find(t.Context())
			return []any{failures, err != nil, fault, found != nil, errors.Is(found, bus.ErrMissing)}
		}
		want := do(buses[0])
		for _, other := range buses[1:] {
			if diff := cmp.Diff(want, do(other)); diff != "" {
				t.Fatalf("seed %d, call %d, %d entries (-%T +%T):\n%s", seed, call, len(entries), buses[0].Store,
					other.Store, diff)
			}
		}
	}
	want := buses[0].Entries()
	for _, other := range buses[1:] {
		if other.Entries == nil {
			continue
		}
		if diff := cmp.Diff(want, other.Entries(), cmp.Comparer(bytes.Equal)); diff != "" {
			t.Fatalf("seed %d, on the bus (-%T +%T):\n%s", seed, buses[0].Store, other.Store, diff)
		}
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
