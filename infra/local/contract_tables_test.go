package local

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
)

// ledgerStore is a store of events. Delete deletes an item, as TTL does.
type ledgerStore struct {
	ledger.Store
	Delete func(ctx context.Context, eventID string)
}

type ledgerCall = func(context.Context, ledgerStore) any

// compareLedgers makes random calls of a store, which must be empty, and of one in memory, and calls at the limits of
// DynamoDB. It fails the test if their results differ, or what they have after a call. index is how long its index may
// take to follow its table.
func compareLedgers(t *testing.T, seed uint64, index time.Duration, store ledgerStore) {
	t.Helper()
	m := &ledger.Memory{}
	stores := []ledgerStore{{m, m.Delete}, store}
	r := newRandom(seed)
	for call := range 500 {
		what, do := r.ledgerCall()
		what = fmt.Sprintf("seed %d, call %d, %s", seed, call, what)
		if strings.HasSuffix(what, "query") {
			compareLater(t, what, index, stores, do)
		} else {
			compare(t, what, stores, do)
		}
		compare(t, what+": items", stores, get(allIDs()...))
	}
	limits(t, stores)
	inOrder(t, index, stores)
}

func write(writes ...ledger.Write) ledgerCall {
	return func(ctx context.Context, s ledgerStore) any { return s.Write(ctx, writes) }
}

func get(ids ...string) ledgerCall {
	return func(ctx context.Context, s ledgerStore) any {
		found, err := s.Get(ctx, ids, true)
		return []any{found, err}
	}
}

// insert returns an insert of an item with an event of that many bytes.
func insert(n, size int) ledger.Write {
	return ledger.Write{Item: ledger.Item{EventID: idOf(n), Digest: ledger.Digest{1}, DeliveryID: idOf(n),
		RecordedAt: time.UnixMilli(5), State: ledger.Pending, Detail: bytes.Repeat([]byte("x"), size), Size: size,
		Shard: "pending/limits", LeasedUntil: time.UnixMilli(5), LeaseOwner: ledger.LeaseOwner{1}}}
}

// limits makes calls with as many and as large items as there may be, and at the same time.
func limits(t *testing.T, stores []ledgerStore) {
	t.Helper()
	var most []ledger.Write
	var reads []string
	for n := range ledger.MaxWrites {
		most = append(most, insert(100+n, 2))
	}
	for n := range ledger.MaxReads {
		reads = append(reads, idOf(100+n))
	}
	long := strings.Repeat("x", 128)
	largest := insert(200, ledger.MaxEventBytes)
	largest.Item.Amount, largest.Item.Currency = long, long
	largest.Item.Note = ledger.Note{By: "a", At: time.UnixMilli(1769860800123),
		Reason: strings.Repeat("a", 999)}
	park := ledger.Write{If: &ledger.Item{}, Kept: ledger.Content, Item: ledger.Item{EventID: idOf(200),
		State: ledger.Parked, Shard: "parked/63", ParkedAt: time.UnixMilli(1769860800123), Attempts: 20,
		Cause:   long[:64],
		Problem: strings.Repeat("p", 512)}}
	const quarter = 1 << 18
	compare(t, "as many writes as a call takes", stores, write(most...))
	compare(t, "as many reads as a call takes", stores, get(reads...))
	compare(t, "a megabyte", stores,
		write(insert(201, quarter), insert(202, quarter), insert(203, quarter), insert(204, quarter)))
	compare(t, "the largest event", stores, write(largest))
	compare(t, "the largest item", stores, write(park))
	compare(t, "they are stored", stores, get(idOf(200), idOf(201), idOf(202), idOf(203), idOf(204)))
	compare(t, "an insert at the same time", stores, atOnce(func(ctx context.Context, s ledgerStore, _ int) bool {
		return s.Write(ctx, []ledger.Write{insert(300, 2)})[0].Done
	}))
	compare(t, "a lease at the same time", stores, atOnce(func(ctx context.Context, s ledgerStore, n int) bool {
		lease := ledger.Item{EventID: idOf(300), LeasedUntil: time.UnixMilli(6), LeaseOwner: ledger.LeaseOwner{byte(n)}}
		return s.Write(ctx, []ledger.Write{{If: &ledger.Item{LeasedUntil: time.UnixMilli(5)}, Kept: ledger.Rest,
			Lease: true, Item: lease}})[0].Done
	}))
}

// inOrder reads items in the order of numbers, not of texts, and continues where the last one was deleted.
func inOrder(t *testing.T, index time.Duration, stores []ledgerStore) {
	t.Helper()
	for n, due := range []int64{100, 9, 10, 1000, 99} {
		w := insert(400+n, 2)
		w.Item.Shard, w.Item.LeasedUntil = "pending/order", time.UnixMilli(due)
		compare(t, "an insert", stores, write(w))
	}
	query := func(later bool, after *ledger.Item) ledgerCall {
		return func(ctx context.Context, s ledgerStore) any {
			// A cursor after the last item of a full page is permitted.
			page, _, err := s.Query(ctx, ledger.Query{Shard: "pending/order", At: time.UnixMilli(10), Later: later,
				After: after, Limit: 2})
			return []any{page, err}
		}
	}
	last := &ledger.Item{EventID: idOf(400), Shard: "pending/order", LeasedUntil: time.UnixMilli(100)}
	compareLater(t, "due", index, stores, query(false, nil))
	compareLater(t, "later", index, stores, query(true, nil))
	compareLater(t, "from an item on", index, stores, query(true, last))
	for _, s := range stores {
		s.Delete(t.Context(), last.EventID)
	}
	compareLater(t, "without the item", index, stores, query(true, nil))
	compare(t, "from an item on that was deleted", stores, query(true, last))
}

func (r *random) owner() ledger.LeaseOwner { return ledger.LeaseOwner{byte(1 + r.IntN(3))} }

func (r *random) digest() ledger.Digest { return ledger.Digest{byte(1 + r.IntN(2))} }

func (r *random) shard(state ledger.State) string { return fmt.Sprintf("%s/%d", state, r.IntN(2)) }

// recorded returns an item as it is recorded.
func (r *random) recorded() ledger.Item {
	detail := fmt.Appendf(nil, "{\"n\":%d,\x00\xff}", r.IntN(1000))
	return ledger.Item{EventName: "not stored", Digest: r.digest(), DeliveryID: some(r, "delivery"),
		RecordedAt: r.time(), State: ledger.Pending, Detail: detail, Size: len(detail),
		Large: r.IntN(2) == 0, Shard: r.shard(ledger.Pending), LeasedUntil: r.time(), LeaseOwner: r.owner()}
}

// changed returns what a change of the state sets, in each of the states.
func (r *random) changed() ledger.Item {
	i := ledger.Item{Amount: some(r, "1.00", "2.00"), Currency: some(r, "EUR"), Note: ledger.Note{
		By: some(r, "alice", "bob"), At: some(r, r.time()), Reason: some(r, "a reason")}}
	switch r.IntN(4) {
	case 0:
		i.State, i.LeasedUntil, i.LeaseOwner = ledger.Pending, r.time(), r.owner()
		i.Shard = r.shard(i.State)
	case 1:
		i.State, i.ParkedAt, i.Attempts = ledger.Parked, r.time(), r.IntN(3)
		i.Shard, i.Cause, i.Problem = r.shard(i.State), some(r, "attempts"), some(r, "a problem")
	case 2:
		i.State, i.PublishedAt, i.EventTimestamp = ledger.Published, r.time(), some(r, r.time())
		i.ExpiresAt = r.time()
	default:
		i.State, i.ExpiresAt = ledger.Dismissed, r.time()
	}
	return i
}

// condition returns one that often holds.
func (r *random) condition() *ledger.Item {
	i := &ledger.Item{State: some(r, ledger.Pending, ledger.Parked, ledger.Published, ledger.Dismissed)}
	for _, also := range []func(){
		func() { i.Digest = r.digest() }, func() { i.LeasedUntil, i.ParkedAt = r.time(), r.time() },
		func() { i.LeaseOwner = r.owner() },
		func() { i.RecordedAt = r.time() }, func() { i.ExpiresAt = r.time() },
		func() { i.Shard = r.shard(i.State) },
	} {
		if r.IntN(5) == 0 {
			also()
		}
	}
	return i
}

// writes returns writes of a kind. Inserts and changes may be in one call.
func (r *random) writes(ids []string) (what string, writes []ledger.Write) {
	kind := r.IntN(5)
	for _, id := range ids {
		w := ledger.Write{If: r.condition()}
		switch kind {
		case 0: // only what is pending has attempts
			w.If.State, w.Kept, w.Lease = ledger.Pending, ledger.Rest, true
			w.Item = ledger.Item{LeasedUntil: r.time(), LeaseOwner: r.owner()}
		case 1: // only what is open is in the index
			w.If.State, w.Item, w.Kept = ledger.Pending, ledger.Item{LeasedUntil: r.time()}, ledger.Rest
		case 2:
			w.Item, w.Kept = r.changed(), ledger.AttributeSet(r.IntN(int(ledger.Rest)))
		default:
			if w.Item = r.recorded(); r.IntN(3) > 0 {
				w.If = nil
			}
		}
		w.Item.EventID = id
		writes = append(writes, w)
	}
	return fmt.Sprint("write ", kind), writes
}

// ledgerCall returns what a call does, and the call, which returns its result.
func (r *random) ledgerCall() (what string, do ledgerCall) {
	ids := allIDs()
	r.Shuffle(fewEvents, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:1+r.IntN(fewEvents)]
	switch r.IntN(8) {
	case 0:
		return "get", func(ctx context.Context, s ledgerStore) any {
			found, err := s.Get(ctx, ids, false)
			return []any{found, err}
		}
	case 1: // before an item that was read is changed, for example
		return "delete", func(ctx context.Context, s ledgerStore) any {
			s.Delete(ctx, ids[0])
			return nil
		}
	case 2:
		q := ledger.Query{Shard: r.shard(some(r, ledger.Pending, ledger.Parked)), At: r.time(), Later: r.IntN(2) == 0,
			Limit: 1 + r.IntN(4)}
		return "query", func(ctx context.Context, s ledgerStore) any { return all(ctx, s, q) }
	}
	what, writes := r.writes(ids)
	return what, write(writes...)
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
			order = append(order, i.IndexTime())
		}
		if next == nil {
			return []any{items, order}
		}
		q.After = next
	}
}

// keyStore is a store of keys with all its parts.
type keyStore struct {
	keys.Store
	keys.InspectStore
}

// compareKeys compares a store, which must be empty, with one in memory.
func compareKeys(t *testing.T, seed uint64, store keyStore) {
	t.Helper()
	m := &keys.Memory{}
	stores := []keyStore{{m, m}, store}
	compareCalls(t, seed, 500, stores, (*random).keyCall)
	compare(t, "a lease at the same time", stores, atOnce(func(ctx context.Context, s keyStore, n int) bool {
		stored, _, err := s.Put(ctx, keys.Record{ID: "leased", Version: fmt.Sprint(n + 1)}, "")
		return stored && err == nil
	}))
	compare(t, "a budget of seven at the same time", stores, atOnce(func(ctx context.Context, s keyStore, _ int) bool {
		left, err := s.Take(ctx, "name#once", 7, time.UnixMilli(1769860800123))
		return left && err == nil
	}))
}

// record returns a record of few times, so that conditions hold as often as not.
func (r *random) record() keys.Record {
	k := keys.Record{ID: r.id(), Version: []string{"", "1", "2"}[r.IntN(3)], AskedAs: r.id(), Failures: r.IntN(2),
		Answer:    []keys.State{keys.None, keys.Fresh, keys.Unknown, keys.Refused, keys.Unavailable}[r.IntN(5)],
		ExpiresAt: r.time().Add(2 * time.Second).Truncate(time.Second)}
	if r.IntN(4) > 0 {
		k.SentAs, k.JWK = r.id(), fmt.Sprintf(`{"n":%d}`, r.IntN(1000))
	}
	for _, at := range []*time.Time{&k.FetchedAt, &k.UnknownSince, &k.LeasedUntil} {
		if r.IntN(3) > 0 {
			*at = r.time()
		}
	}
	switch {
	case k.Version == "": // no record
		k = keys.Record{ID: k.ID, ExpiresAt: k.ExpiresAt}
	case k.Answer == keys.Fresh:
		k.FetchedAt = r.time()
	}
	return k
}

// keyCall returns what a call does, and the call, which returns its result.
func (r *random) keyCall() (what string, do func(ctx context.Context, s keyStore) any) {
	k, one, other, limit, name := r.record(), r.time(), r.time(), r.IntN(20), fmt.Sprint("name#", r.IntN(3))
	version := r.record().Version
	calls := []struct {
		what string
		do   func(ctx context.Context, s keyStore) (any, error)
	}{
		{"put", func(ctx context.Context, s keyStore) (any, error) {
			stored, instead, err := s.Put(ctx, k, version)
			return []any{stored, instead}, err
		}},
		{"delete", func(ctx context.Context, s keyStore) (any, error) { return nil, s.Delete(ctx, k.ID) }},
		{"take", func(ctx context.Context, s keyStore) (any, error) { return s.Take(ctx, name, limit, one) }},
		{"record sender", func(ctx context.Context, s keyStore) (any, error) {
			return s.RecordSender(ctx, "sender "+name, one, other, one)
		}},
		{"sender", func(ctx context.Context, s keyStore) (any, error) { return s.Sender(ctx, "sender "+name) }},
		{"get", func(ctx context.Context, s keyStore) (any, error) { return s.Store.Get(ctx, k.ID) }},
		{"inspect", func(ctx context.Context, s keyStore) (any, error) { return s.InspectStore.Get(ctx, k.ID) }},
		{"list", func(ctx context.Context, s keyStore) (any, error) {
			all, err := s.Records(ctx)
			slices.SortFunc(all, func(a, b keys.Record) int { return cmp.Compare(a.ID, b.ID) })
			return all, err
		}},
	}
	call := calls[r.IntN(len(calls))]
	return call.what, func(ctx context.Context, s keyStore) any {
		got, err := call.do(ctx, s)
		return []any{got, err}
	}
}
