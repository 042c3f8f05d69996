package ledger_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
)

func init() { objects.PauseOf = func(longest time.Duration) time.Duration { return longest } }

// store is a store in memory whose calls are counted and can fail.
type store struct {
	ledger.Memory
	// before, if set, is called before every call, with the method's name.
	before func(call string)
	// after, if set, is called for every item of a call after it took effect, and returns the error that the caller
	// gets instead of the answer. The key of a query is its shard.
	after  func(call, key string) error
	repeat bool // every write is made twice, and the second answer is returned
	page   int  // the most items of a page; 0: as many as are asked for

	mu    sync.Mutex
	calls map[string][]int // the numbers of items of all calls, by method
}

func (s *store) begin(call string, n int) {
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string][]int{}
	}
	s.calls[call] = append(s.calls[call], n)
	s.mu.Unlock()
	if s.before != nil {
		s.before(call)
	}
}

func (s *store) end(call, key string) error {
	if s.after == nil {
		return nil
	}
	return s.after(call, key)
}

func write[T any](ctx context.Context, s *store, call string, all []T, id func(T) string,
	do func(context.Context, []T) []ledger.Result) []ledger.Result {
	s.begin(call, len(all))
	results := do(ctx, all)
	if s.repeat {
		results = do(ctx, all)
	}
	for n, one := range all {
		if err := s.end(call, id(one)); err != nil {
			results[n] = ledger.Result{Err: err}
		}
	}
	return results
}

func (s *store) Insert(ctx context.Context, items []ledger.Item) []ledger.Result {
	return write(ctx, s, "Insert", items, func(i ledger.Item) string { return i.EventID }, s.Memory.Insert)
}

func (s *store) Change(ctx context.Context, changes []ledger.Change) []ledger.Result {
	return write(ctx, s, "Change", changes, func(c ledger.Change) string { return c.EventID }, s.Memory.Change)
}

func (s *store) Get(ctx context.Context, ids []string, content bool) (map[string]ledger.Item, error) {
	s.begin("Get", len(ids))
	found, err := s.Memory.Get(ctx, ids, content)
	for _, id := range ids {
		err = errors.Join(err, s.end("Get", id))
	}
	return found, err
}

func (s *store) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Cursor, error) {
	s.begin("Query", q.Limit)
	if s.page > 0 {
		q.Limit = min(q.Limit, s.page)
	}
	page, next, err := s.Memory.Query(ctx, q)
	return page, next, errors.Join(err, s.end("Query", q.Shard))
}

// representative is the event of section 2 of the interface, with ids of the
// usual lengths.
const representative = `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s",` +
	`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"identifiers":{` +
	`"paymentRequestId":"PR-20260131-000000001",` +
	`"paymentEndToEndId":"E2E-20260131-000000001",` +
	`"svcUniquePaymentId":"b7e4c1e0-3d43-4f26-9c0d-2f1f6a5b7c8d","railReferenceId":{},` +
	`"svcPostingIds":["20260131-0000000001","20260131-0000000002"]},"paymentExecutedValueDate":"2026-01-31",` +
	`"amount":1234567890.10,"amountType":"PAYMENT","paymentCurrency":"EUR",` +
	`"paymentStatus":{"status":"RELEASED","statusTime":"2026-01-31T11:59:59.000Z"},` +
	`"returns":{"hasReturnDetails":false},"cancelations":{"hasCancelationDetails":false},` +
	`"cases":{"hasLinkedCases":false}}}`

// window is that of most tests.
const window = 30 * 24 * time.Hour

// fixture is a ledger, its store and a clock.
type fixture struct {
	*ledger.Ledger
	store store
	now   time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(ledger.Options{})
}

// newFixtureWith returns a fixture whose ledger has options.
func newFixtureWith(o ledger.Options) *fixture {
	o.Window = cmp.Or(o.Window, window)
	b := &fixture{now: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}
	o.Now = func() time.Time { return b.now }
	b.Ledger = ledger.New(&b.store, o)
	return b
}

func (b *fixture) entry(t testing.TB, id, change string) ledger.Item {
	t.Helper()
	raw := fmt.Sprintf(representative, id)
	if change != "" {
		raw = strings.Replace(raw, "1234567890.10", change, 1)
	}
	event, err := payment.DecodeRawEvent([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return ledger.NewItem(event, uuid.New().String(), b.now)
}

// new returns n new events.
func (b *fixture) new(t *testing.T, n int) (all []ledger.Item) {
	t.Helper()
	for range n {
		all = append(all, b.entry(t, uuid.New().String(), ""))
	}
	return all
}

// record records an event that is due in a minute.
func (b *fixture) record(t *testing.T, e ledger.Item, want ledger.Outcome) {
	t.Helper()
	r := b.Record(t.Context(), []ledger.Item{e}, ledger.NewHolder(), b.now.Add(time.Minute))[0]
	if r.Err != nil || r.Outcome != want {
		t.Fatalf("got %v, %v, want %v", r.Outcome, r.Err, want)
	}
}

// recordDue records new events that are due now.
func (b *fixture) recordDue(t *testing.T, events ...ledger.Item) {
	t.Helper()
	for i, r := range b.Record(t.Context(), events, ledger.NewHolder(), b.now) {
		if r.Err != nil || r.Outcome != ledger.Recorded {
			t.Fatalf("event %d: %+v", i, r)
		}
	}
}

func (b *fixture) publish(t *testing.T, events ...ledger.Item) {
	t.Helper()
	if err := errors.Join(b.MarkPublished(t.Context(), events)...); err != nil {
		t.Fatal(err)
	}
}

// leaseUntil leases one item.
func (b *fixture) leaseUntil(t *testing.T, i ledger.Item, holder ledger.Holder, until time.Time) ledger.Leased {
	t.Helper()
	return b.Lease(t.Context(), []ledger.Item{i}, holder, until)[0]
}

// lease leases the only event that is due.
func (b *fixture) lease(t *testing.T) ledger.Leased {
	t.Helper()
	due := b.due(t)
	if len(due) != 1 {
		t.Fatalf("%d due", len(due))
	}
	return b.leaseUntil(t, due[0], ledger.NewHolder(), b.now.Add(time.Minute))
}

func (b *fixture) due(t *testing.T) []ledger.Item {
	t.Helper()
	var all []ledger.Item
	for shard := range ledger.Shards {
		var after *ledger.Cursor
		for {
			page, cursor, err := b.Due(t.Context(), shard, b.now, after, 10)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page...)
			if after = cursor; after == nil {
				break
			}
		}
	}
	return all
}

// find returns what the ledger has of an event.
func (b *fixture) find(t *testing.T, e ledger.Item) ledger.Item {
	t.Helper()
	item, known, err := b.Find(t.Context(), e.EventID)
	if err != nil || !known {
		t.Fatal(known, err)
	}
	return item
}

// damage changes the item of an event.
func (b *fixture) damage(t *testing.T, e ledger.Item, change func(*ledger.Item)) {
	t.Helper()
	i := b.store.Items()[e.EventID]
	change(&i)
	b.store.Delete(t.Context(), e.EventID)
	b.store.Memory.Insert(t.Context(), []ledger.Item{i})
}

// in brings an event into a state.
func (b *fixture) in(t *testing.T, state ledger.State, e ledger.Item) {
	t.Helper()
	if state == "" {
		return
	}
	b.record(t, e, ledger.Recorded)
	switch state {
	case ledger.Published:
		b.publish(t, e)
	case ledger.Parked, ledger.Dismissed:
		err := b.Park(t.Context(), e, "attempts", "")
		if err != nil || state == ledger.Dismissed && !b.Dismiss(t.Context(), e, ledger.Decision{}).Done {
			t.Fatal(err)
		}
	}
}

// count returns the number of calls of a method.
func (b *fixture) count(call string) int { return len(b.store.calls[call]) }

// sizes returns the numbers of items of all calls of a method since the last call of sizes.
func (b *fixture) sizes(call string) []int {
	defer delete(b.store.calls, call)
	return slices.Clone(b.store.calls[call])
}
