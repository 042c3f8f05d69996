package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/calls"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
)

func init() { calls.PauseOf = func(longest time.Duration) time.Duration { return longest } }

// store is a store in memory whose calls are counted and can fail.
type store struct {
	ledger.Memory
	// before, if set, is called before every call, with its name: insert, change, get or query.
	before func(call string)
	// after, if set, is called for every item of a call after it took effect, and returns the error that the caller
	// gets instead of the answer. The key of a query is its shard.
	after  func(call, key string) error
	repeat bool             // every write is made twice, and the second answer is returned
	page   int              // the most items of a page; 0: as many as are asked for
	calls  map[string][]int // the numbers of items of all calls; not for calls at the same time
}

func (s *store) begin(call string, n int) {
	if s.calls != nil {
		s.calls[call] = append(s.calls[call], n)
	}
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

func (s *store) Write(ctx context.Context, writes []ledger.Write) []ledger.WriteResult {
	call := "change"
	if writes[0].If == nil {
		call = "insert"
	}
	s.begin(call, len(writes))
	results := s.Memory.Write(ctx, writes)
	if s.repeat {
		results = s.Memory.Write(ctx, writes)
	}
	for n, w := range writes {
		if err := s.end(call, w.Item.EventID); err != nil {
			results[n] = ledger.WriteResult{Err: err}
		}
	}
	return results
}

func (s *store) Get(ctx context.Context, ids []string, content bool) (map[string]ledger.Item, error) {
	s.begin("get", len(ids))
	found, err := s.Memory.Get(ctx, ids, content)
	for _, id := range ids {
		err = errors.Join(err, s.end("get", id))
	}
	return found, err
}

func (s *store) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	if s.page > 0 {
		q.Limit = min(q.Limit, s.page)
	}
	page, next, err := s.Memory.Query(ctx, q)
	return page, next, errors.Join(err, s.end("query", q.Shard))
}

// window is that of most tests.
const window = 30 * 24 * time.Hour

// fixture is a ledger, its store and a clock.
type fixture struct {
	*ledger.Ledger
	store store
	now   time.Time
}

// newFixture returns a fixture whose ledger makes that many calls at the same time. With 1, they are counted.
func newFixture(parallel int) *fixture {
	b := &fixture{now: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}
	if parallel == 1 {
		b.store.calls = map[string][]int{}
	}
	b.Ledger = ledger.New(&b.store, ledger.Options{Window: window, Parallel: parallel,
		Now: func() time.Time { return b.now }})
	return b
}

// eventOf returns an event with an id and an amount.
func (b *fixture) eventOf(id, amount string) ledger.Item {
	event, err := payment.DecodeRawEvent(fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":%q,`+
		`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%s,"paymentCurrency":"EUR"}}`, id, amount))
	if err != nil {
		panic(err)
	}
	return ledger.NewItem(event, uuid.New().String(), b.now)
}

func (b *fixture) newEvent() ledger.Item { return b.eventOf(uuid.New().String(), "1.00") }

// newEvents returns n new events.
func (b *fixture) newEvents(n int) (all []ledger.Item) {
	for range n {
		all = append(all, b.newEvent())
	}
	return all
}

// The outcomes of a recording.
const (
	recorded  = "recorded"
	duplicate = "duplicate"
	conflict  = "conflict"
	uncertain = "uncertain"
)

// outcomeOf returns the outcome of the recording of an event.
func outcomeOf(r ledger.WriteResult, e ledger.Item) string {
	switch {
	case r.Err != nil:
		return uncertain
	case r.Done:
		return recorded
	case r.Found.Digest == e.Digest:
		return duplicate
	}
	return conflict
}

// record records events that are due now, and returns their outcomes.
func (b *fixture) record(t *testing.T, events ...ledger.Item) (outcomes []string) {
	t.Helper()
	for i, r := range b.Record(t.Context(), events, ledger.NewLeaseOwner(), b.now) {
		if r.Err != nil {
			t.Fatalf("event %d: %+v", i, r)
		}
		outcomes = append(outcomes, outcomeOf(r, events[i]))
	}
	return outcomes
}

func (b *fixture) publish(t *testing.T, events ...ledger.Item) {
	t.Helper()
	if err := errors.Join(b.MarkPublished(t.Context(), events)...); err != nil {
		t.Fatal(err)
	}
}

func (b *fixture) park(t *testing.T, i ledger.Item) {
	t.Helper()
	if err := b.Park(t.Context(), i, "attempts", "a problem"); err != nil {
		t.Fatal(err)
	}
}

// lease leases an item for a minute.
func (b *fixture) lease(t *testing.T, i ledger.Item) ledger.WriteResult {
	t.Helper()
	return b.Lease(t.Context(), []ledger.Item{i}, ledger.NewLeaseOwner(), b.now.Add(time.Minute))[0]
}

// due returns what is due.
func (b *fixture) due(t *testing.T) (all []ledger.Item) {
	t.Helper()
	for shard := range ledger.Shards {
		page, next, err := b.Pending(t.Context(), shard, ledger.Query{At: b.now, Limit: 100})
		if err != nil || next != nil {
			t.Fatal(next, err)
		}
		all = append(all, page...)
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
	b.store.Memory.Write(t.Context(), []ledger.Write{{Item: i}})
}

// in brings an event into a state.
func (b *fixture) in(t *testing.T, state ledger.State, e ledger.Item) {
	t.Helper()
	if state == "" {
		return
	}
	b.record(t, e)
	switch state {
	case ledger.Published:
		b.publish(t, e)
	case ledger.Parked, ledger.Dismissed:
		b.park(t, e)
		if state == ledger.Dismissed && !b.Dismiss(t.Context(), e, ledger.Note{}).Done {
			t.Fatal("it is not dismissed")
		}
	}
}
