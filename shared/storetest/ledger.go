// Package storetest has the contracts of the stores that the core packages define. A contract compares
// stores with each other: the same calls have the same results. Tests and the end-to-end tests call it.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/ledger"
)

// LedgerStore is a store of events. Delete deletes an item, as TTL does. Each calls found with every item, without its
// content.
type LedgerStore struct {
	ledger.Store
	Delete func(ctx context.Context, eventID string)
	Each   func(ctx context.Context, found func(ledger.Item)) error
}

// LedgerInMemory is an empty store in memory.
func LedgerInMemory() LedgerStore {
	m := &ledger.Memory{}
	return LedgerStore{m, m.Delete, func(_ context.Context, found func(ledger.Item)) error {
		for _, i := range m.Items() {
			i.Detail, i.Size = nil, 0
			found(i)
		}
		return nil
	}}
}

// Ledger makes n random calls of each store, and calls at the limits of DynamoDB. It fails the test if their results
// differ, or what the stores have after a call. The stores must be empty. index is how long an index may take to follow
// its table.
func Ledger(t *testing.T, seed uint64, n int, index time.Duration, stores ...LedgerStore) {
	t.Helper()
	r := &random{rand.New(rand.NewPCG(seed, 0)), time.UnixMilli(1769860800000).UTC()}
	for call := range n {
		what, do := r.call()
		if what = fmt.Sprintf("seed %d, call %d, %s", seed, call, what); strings.HasSuffix(what, "query") {
			settle(t, index, stores, do)
		}
		compare(t, what, stores, do)
		compare(t, what+": items", stores, func(ctx context.Context, s LedgerStore) any {
			found, err := s.Get(ctx, allIDs(), true)
			return []any{found, err}
		})
	}
	limits(t, index, stores)
}

// settle waits until the indexes have what their tables have.
func settle(t *testing.T, index time.Duration, stores []LedgerStore, do func(context.Context, LedgerStore) any) {
	for _, other := range stores[1:] {
		for deadline := time.Now().Add(index); time.Now().Before(deadline) &&
			different(do(t.Context(), stores[0]), do(t.Context(), other)) != ""; {
			continue
		}
	}
}

// limits makes calls with as many and as large items as there may be, and at the same time.
func limits(t *testing.T, index time.Duration, stores []LedgerStore) {
	t.Helper()
	long := strings.Repeat("x", 128)
	item := func(n, size int) ledger.Item {
		return ledger.Item{EventID: idOf(n), Digest: ledger.Digest{1}, DeliveryID: idOf(n),
			RecordedAt: time.UnixMilli(5), State: ledger.Pending, Detail: bytes.Repeat([]byte("x"), size), Size: size,
			Shard: "pending/limits", Due: time.UnixMilli(5), Holder: ledger.Holder{1}}
	}
	insert := func(items ...ledger.Item) func(context.Context, LedgerStore) any {
		return func(ctx context.Context, s LedgerStore) any { return s.Insert(ctx, items) }
	}
	get := func(ids ...string) func(context.Context, LedgerStore) any {
		return func(ctx context.Context, s LedgerStore) any {
			found, err := s.Get(ctx, ids, true)
			return []any{found, err}
		}
	}
	var most []ledger.Item
	var reads []string
	for n := range ledger.MaxWrites {
		most = append(most, item(100+n, 2))
	}
	for n := range ledger.MaxReads {
		reads = append(reads, idOf(100+n))
	}
	largest := item(200, ledger.MaxEventBytes)
	largest.Amount, largest.Currency = long, long
	largest.Decision = ledger.Decision{By: "a", At: time.UnixMilli(1769860800123), Reason: strings.Repeat("a", 999)}
	park := []ledger.Change{{EventID: largest.EventID, Set: ledger.Item{State: ledger.Parked, Shard: "parked/63",
		Due: largest.Decision.At, Attempts: 20, Cause: long[:64], Problem: strings.Repeat("p", 512)}}}
	quarter := 1 << 18
	for _, step := range []struct {
		what string
		do   func(context.Context, LedgerStore) any
	}{
		{"as many writes as a call takes", insert(most...)},
		{"as many reads as a call takes", get(reads...)},
		{"a megabyte", insert(item(201, quarter), item(202, quarter), item(203, quarter), item(204, quarter))},
		{"the largest event", insert(largest)},
		{"the largest item", func(ctx context.Context, s LedgerStore) any { return s.Change(ctx, park) }},
		{"they are stored", get(idOf(200), idOf(201), idOf(202), idOf(203), idOf(204))},
		{"all items", func(ctx context.Context, s LedgerStore) any {
			all := map[string]ledger.Item{}
			err := s.Each(ctx, func(i ledger.Item) { all[i.EventID] = i })
			return []any{all, err}
		}},
		{"an insert of one item at the same time", atOnce(func(ctx context.Context, s LedgerStore, _ int) bool {
			return s.Insert(ctx, []ledger.Item{item(300, 2)})[0].Done
		})},
		{"a lease of one item at the same time", atOnce(func(ctx context.Context, s LedgerStore, n int) bool {
			return s.Change(ctx, []ledger.Change{{EventID: idOf(300), Where: ledger.Item{Due: time.UnixMilli(5)},
				Set: ledger.Item{Due: time.UnixMilli(6), Holder: ledger.Holder{byte(n)}}, Lease: true}})[0].Done
		})},
	} {
		compare(t, step.what, stores, step.do)
	}
	inOrder(t, index, stores, item)
}

// atOnce makes a call ten times at the same time, and returns how often it was true.
func atOnce[S any](call func(ctx context.Context, s S, n int) bool) func(context.Context, S) any {
	return func(ctx context.Context, s S) any {
		var done atomic.Int32
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() {
				if call(ctx, s, n) {
					done.Add(1)
				}
			})
		}
		all.Wait()
		return done.Load()
	}
}

// inOrder reads items in the order of numbers, not of texts, and continues where the last one was deleted.
func inOrder(t *testing.T, index time.Duration, stores []LedgerStore, item func(n, size int) ledger.Item) {
	t.Helper()
	var items []ledger.Item
	for n, due := range []int64{100, 9, 10, 1000, 99} {
		i := item(400+n, 2)
		i.Shard, i.Due = "pending/order", time.UnixMilli(due)
		items = append(items, i)
	}
	query := func(later bool, after *ledger.Cursor) func(context.Context, LedgerStore) any {
		return func(ctx context.Context, s LedgerStore) any {
			// A cursor after the last item of a full page is permitted.
			page, _, err := s.Query(ctx, ledger.Query{Shard: "pending/order", At: time.UnixMilli(10), Later: later,
				After: after, Limit: 2})
			return []any{page, err}
		}
	}
	for _, s := range stores {
		s.Insert(t.Context(), items)
	}
	last := &ledger.Cursor{EventID: items[0].EventID, Shard: items[0].Shard, Due: items[0].Due}
	for what, do := range map[string]func(context.Context, LedgerStore) any{"due": query(false, nil),
		"later": query(true, nil), "from an item on": query(true, last)} {
		settle(t, index, stores, do)
		compare(t, what, stores, do)
	}
	for _, s := range stores {
		s.Delete(t.Context(), last.EventID)
	}
	settle(t, index, stores, query(true, nil))
	compare(t, "from an item on that was deleted", stores, query(true, last))
}

// compare makes a call of each store and fails the test if a result differs from that of the first one.
func compare[S any](t *testing.T, what string, stores []S, do func(context.Context, S) any) {
	t.Helper()
	want := do(t.Context(), stores[0])
	for n, other := range stores[1:] {
		if diff := different(want, do(t.Context(), other)); diff != "" {
			t.Fatalf("%s (-store 0 +store %d):\n%s", what, n+1, diff)
		}
	}
}

// different returns how two results differ; "" if they do not.
func different(a, b any) string {
	if reflect.DeepEqual(a, b) { // much faster
		return ""
	}
	return cmp.Diff(a, b, cmpopts.EquateErrors())
}

// random chooses calls about few events, so that they meet.
type random struct {
	*rand.Rand
	start time.Time
}

const events = 6

func idOf(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n) }

func (r *random) id() string { return idOf(r.IntN(events)) }

func allIDs() (all []string) {
	for n := range events {
		all = append(all, idOf(n))
	}
	return all
}

// time returns one of few times. Some have fewer digits: they are numbers in a table.
func (r *random) time() time.Time {
	if n := r.IntN(16); n < 3 {
		return time.UnixMilli([]int64{9000, 10_000, 99_000}[n]).UTC()
	}
	return r.start.Add(time.Duration(r.IntN(4)) * time.Second)
}

func (r *random) digest() (d ledger.Digest) {
	d[0] = byte(1 + r.IntN(2))
	return d
}

func (r *random) holder() (h ledger.Holder) {
	h[0] = byte(1 + r.IntN(3))
	return h
}

// some returns one of these, often the zero value.
func some[T any](r *random, of ...T) (t T) {
	if n := r.IntN(2 * len(of)); n < len(of) {
		return of[n]
	}
	return t
}

func (r *random) shard(state ledger.State) string { return fmt.Sprintf("%s/%d", state, r.IntN(2)) }

// ids returns different eventIds.
func (r *random) ids() []string {
	ids := allIDs()
	r.Shuffle(events, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:1+r.IntN(events)]
}

func (r *random) pending(id string) ledger.Item {
	detail := fmt.Appendf(nil, "{\"n\":%d,\x00\xff}", r.IntN(1000))
	return ledger.Item{EventID: id, EventName: "not stored", Digest: r.digest(), DeliveryID: some(r, "delivery"),
		RecordedAt: r.time(), State: ledger.Pending, Detail: detail, Size: len(detail),
		Claimed: r.IntN(2) == 0, Shard: r.shard(ledger.Pending), Due: r.time(), Holder: r.holder()}
}

// state returns an item with what a change of the state sets, in each of the states.
func (r *random) state() ledger.Item {
	states := []ledger.State{ledger.Pending, ledger.Published, ledger.Parked, ledger.Dismissed}
	i := ledger.Item{State: states[r.IntN(len(states))]}
	switch i.State {
	case ledger.Pending:
		i.Shard, i.Due, i.Holder = r.shard(i.State), r.time(), r.holder()
	case ledger.Parked:
		i.Shard, i.Due, i.Attempts = r.shard(i.State), r.time(), r.IntN(3)
		i.Cause, i.Problem = some(r, "attempts"), some(r, "a problem")
	case ledger.Published:
		i.PublishedAt, i.EventTimestamp, i.ExpiresAt = r.time(), some(r, r.time()), r.time()
	default:
		i.ExpiresAt = r.time()
	}
	i.Amount, i.Currency = some(r, "1.00", "2.00"), some(r, "EUR")
	i.Decision = ledger.Decision{By: some(r, "alice", "bob"), At: some(r, r.time()), Reason: some(r, "a reason")}
	return i
}

// where returns a condition that often holds.
func (r *random) where() ledger.Item {
	i := ledger.Item{State: some(r, ledger.Pending, ledger.Parked, ledger.Published, ledger.Dismissed)}
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
func (r *random) call() (what string, do func(ctx context.Context, s LedgerStore) any) {
	switch ids := r.ids(); r.IntN(8) {
	case 0, 1:
		items := make([]ledger.Item, len(ids))
		for n, id := range ids {
			items[n] = r.pending(id)
		}
		return "insert", func(ctx context.Context, s LedgerStore) any { return s.Insert(ctx, items) }
	case 2, 3, 4:
		changes := make([]ledger.Change, len(ids))
		kind := r.IntN(5)
		for n, id := range ids {
			changes[n] = r.change(id, kind)
		}
		return fmt.Sprint("change ", kind),
			func(ctx context.Context, s LedgerStore) any { return s.Change(ctx, changes) }
	case 5:
		content := r.IntN(2) == 0
		return "get", func(ctx context.Context, s LedgerStore) any {
			found, err := s.Get(ctx, ids, content)
			return []any{found, err}
		}
	case 6: // before an item that was read is changed, for example
		return "delete", func(ctx context.Context, s LedgerStore) any {
			s.Delete(ctx, ids[0])
			return nil
		}
	default:
		q := ledger.Query{Shard: r.shard(some(r, ledger.Pending, ledger.Parked)), At: r.time(), Later: r.IntN(2) == 0,
			Limit: 1 + r.IntN(4)}
		return "query", func(ctx context.Context, s LedgerStore) any { return all(ctx, s, q) }
	}
}

// change returns a change of a kind.
func (r *random) change(id string, kind int) ledger.Change {
	c := ledger.Change{EventID: id, Where: r.where()}
	switch kind {
	case 0:
		c.Where.State = ledger.Pending // a lease needs attempts
		c.Set, c.Lease = ledger.Item{Due: r.time(), Holder: r.holder()}, true
	case 1:
		c.Where.State = ledger.Pending // only what is open is in the index
		c.Set = ledger.Item{Due: r.time()}
	case 2:
		c.Set = r.pending(id)
	default:
		c.Set = r.state()
	}
	return c
}

// all reads all pages of a query. The order of items that are due at the same time is not defined.
func all(ctx context.Context, s ledger.Store, q ledger.Query) any {
	items := map[string]ledger.Item{}
	var order []time.Time
	for {
		page, next, err := s.Query(ctx, q)
		if err != nil || len(page) > q.Limit {
			return []any{len(page), err}
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
