// Package storetest has the contracts of the stores that the core packages define. A contract compares
// stores with each other: the same calls have the same results. Tests and the end-to-end tests call it.
package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/ledger"
)

// Ledger makes n random calls of each store and fails the test if their results differ. The stores must be
// empty. index is how long an index may take to follow its table.
func Ledger(t *testing.T, seed uint64, n int, index time.Duration, stores ...ledger.Store) {
	t.Helper()
	r := &random{rand.New(rand.NewPCG(seed, 0)), time.UnixMilli(1769860800000).UTC()}
	for call := range n {
		what, do := r.call()
		want := do(t.Context(), stores[0])
		for _, other := range stores[1:] {
			var diff string
			for deadline := time.Now().Add(index); ; {
				// Only the index needs more than one attempt, and a query has no effect.
				if diff = cmp.Diff(want, do(t.Context(), other), cmpopts.EquateErrors()); diff == "" ||
					what != "query" || time.Now().After(deadline) {
					break
				}
			}
			if diff != "" {
				t.Fatalf("seed %d, call %d, %s (-%T +%T):\n%s", seed, call, what, stores[0], other, diff)
			}
		}
	}
}

// random chooses calls about few events, so that they meet.
type random struct {
	*rand.Rand
	start time.Time
}

const events = 6

func (r *random) id() string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", r.IntN(events)) }

func (r *random) time() time.Time { return r.start.Add(time.Duration(r.IntN(4)) * time.Second) }

func (r *random) digest() (d ledger.Digest) {
	d[0] = byte(1 + r.IntN(2))
	return d
}

func (r *random) holder() (h ledger.Holder) {
	h[0] = byte(1 + r.IntN(3))
	return h
}

func (r *random) shard() string { return fmt.Sprintf("pending/%d", r.IntN(2)) }

// ids returns different eventIds.
func (r *random) ids() []string {
	chosen := map[string]bool{}
	for range 1 + r.IntN(events) {
		chosen[r.id()] = true
	}
	return sorted(chosen)
}

func sorted(set map[string]bool) (list []string) {
	for n := range events {
		if id := fmt.Sprintf("%08d-0000-4000-8000-000000000000", n); set[id] {
			list = append(list, id)
		}
	}
	return list
}

func (r *random) pending(id string) ledger.Item {
	detail := []byte(fmt.Sprintf(`{"n":%d}`, r.IntN(1000)))
	return ledger.Item{EventID: id, Digest: r.digest(), DeliveryID: fmt.Sprint("delivery ", r.IntN(3)),
		RecordedAt: r.time(), State: ledger.Pending, Detail: detail, Size: len(detail), Shard: r.shard(), Due: r.time(),
		Holder: r.holder(), Claimed: r.IntN(2) == 0}
}

// ended returns an item that is published or parked.
func (r *random) ended() ledger.Item {
	i := ledger.Item{State: ledger.Published, PublishedAt: r.time(), ExpiresAt: r.time()}
	if r.IntN(2) == 0 {
		i.EventTimestamp = r.time()
	}
	if r.IntN(3) == 0 {
		i = ledger.Item{State: ledger.Parked, ParkedAt: r.time(), ExpiresAt: r.time()}
	}
	return i
}

// where returns a condition that often holds.
func (r *random) where() ledger.Item {
	i := ledger.Item{State: ledger.Pending}
	if r.IntN(3) == 0 {
		i.State = []ledger.State{"", ledger.Published, ledger.Parked}[r.IntN(3)]
	}
	for _, also := range []func(){
		func() { i.Digest = r.digest() }, func() { i.Due = r.time() }, func() { i.Holder = r.holder() },
		func() { i.RecordedAt = r.time() }, func() { i.ExpiresAt = r.time() },
	} {
		if r.IntN(5) == 0 {
			also()
		}
	}
	return i
}

// call returns what a call does, and the call, which returns its result.
func (r *random) call() (what string, do func(ctx context.Context, s ledger.Store) any) {
	switch ids := r.ids(); r.IntN(7) {
	case 0:
		items := make([]ledger.Item, len(ids))
		for n, id := range ids {
			items[n] = r.pending(id)
		}
		return "insert", func(ctx context.Context, s ledger.Store) any { return s.Insert(ctx, items) }
	case 1, 2, 3:
		changes := make([]ledger.Change, len(ids))
		kind := r.IntN(4)
		for n, id := range ids {
			c := ledger.Change{EventID: id, Where: r.where()}
			switch kind {
			case 0:
				c.Where.State = ledger.Pending // a lease needs attempts
				c.Set, c.Lease = ledger.Item{Due: r.time(), Holder: r.holder()}, true
			case 1:
				c.Set = r.ended()
			case 2:
				c.Set = r.pending(id)
			default:
				c.Where.State = ledger.Pending // only what is pending is in the index
				c.Set = ledger.Item{Due: r.time()}
			}
			changes[n] = c
		}
		return fmt.Sprint("change ", kind),
			func(ctx context.Context, s ledger.Store) any { return s.Change(ctx, changes) }
	case 4:
		return "get", func(ctx context.Context, s ledger.Store) any {
			found, err := s.Get(ctx, ids)
			return []any{found, err}
		}
	default:
		q := ledger.Query{Shard: r.shard(), At: r.time(), Later: r.IntN(2) == 0, Limit: 1 + r.IntN(4)}
		return "query", func(ctx context.Context, s ledger.Store) any { return all(ctx, s, q) }
	}
}

// all reads all pages of a query. The order of items that are due at the same time is not defined.
func all(ctx context.Context, s ledger.Store, q ledger.Query) any {
	items := map[string]ledger.Item{}
	var order []time.Time
	for {
		page, next, err := s.Query(ctx, q)
		if err != nil || len(page) > q.Limit {
			return fmt.Errorf("%d items: %w", len(page), err)
		}
		for _, i := range page {
			items[i.EventID] = i
			order = append(order, i.Due)
		}
		if next == nil {
			return []any{items, order}
		}
		q.After = next
	}
}
