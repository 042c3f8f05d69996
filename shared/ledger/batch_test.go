package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/ledger"
)

func TestABatchHasAMegabyteOfEventsAtMost(t *testing.T) {
	const quarter = 1 << 18
	for name, test := range map[string]struct{ sizes, batches []int }{
		"exactly":     {[]int{quarter, quarter, quarter, quarter, 1000}, []int{4, 1}},
		"a byte more": {[]int{quarter, quarter, quarter, quarter + 1, 1000}, []int{3, 2}},
		"exactly in the second": {[]int{quarter, quarter, quarter, quarter, quarter, quarter, quarter, quarter, 1000},
			[]int{4, 4, 1}},
		"equal": {slices.Repeat([]int{300_000}, 7), []int{3, 3, 1}},
		"none":  {nil, nil},
	} {
		b := newFixtureWith(ledger.Options{Parallel: 1})
		events := b.new(t, len(test.sizes))
		for i := range events {
			e := &events[i]
			e.Detail = append(e.Detail, bytes.Repeat([]byte(" "), test.sizes[i]-len(e.Detail))...)
		}
		b.recordDue(t, events...)
		if got := b.sizes("Insert"); !slices.Equal(got, test.batches) {
			t.Errorf("%s: batches of %v", name, got)
		}
		if name == "equal" { // a lease answers with the events
			b.Lease(t.Context(), b.due(t), ledger.NewHolder(), b.now)
			if got := b.sizes("Change"); !slices.Equal(got, test.batches) {
				t.Errorf("leased in batches of %v", got)
			}
		}
	}
}

func TestOptionsOfALedger(t *testing.T) {
	b := newFixtureWith(ledger.Options{Batch: 4, Parallel: 1, Window: 48 * time.Hour})
	events := b.new(t, 10)
	b.recordDue(t, events...)
	b.publish(t, events...)
	for call, want := range map[string][]int{"Insert": {4, 4, 2}, "Change": {4, 4, 2}} {
		if got := b.sizes(call); !slices.Equal(got, want) {
			t.Errorf("%s: batches of %v", call, got)
		}
	}
	b.now = b.now.Add(48 * time.Hour)
	b.recordDue(t, events...) // their window is over

	b = newFixtureWith(ledger.Options{Parallel: 1})
	b.recordDue(t, b.new(t, 51)...)
	if got := b.sizes("Insert"); !slices.Equal(got, []int{25, 25, 1}) {
		t.Errorf("batches of %v", got)
	}
}

// Nothing is tried after the time of the caller.
func TestTheTimeOfTheCallerEndsTheAttempts(t *testing.T) {
	b := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	events := b.new(t, 3)
	for name, results := range map[string][]ledger.Recording{
		"record":          b.Record(ctx, events, ledger.NewHolder(), b.now),
		"replace":         b.Replace(ctx, events, b.now),
		"record no event": b.Record(ctx, nil, ledger.NewHolder(), b.now),
	} {
		for i, r := range results {
			if !errors.Is(r.Err, context.Canceled) || r.Outcome != 0 {
				t.Errorf("%s %d: %+v", name, i, r)
			}
		}
	}
	if len(b.store.calls) > 0 {
		t.Errorf("calls without time: %v", b.store.calls)
	}
}

// An id that the ledger has is new, a duplicate or a conflict in a batch as in a single
// write, and takes no other with it.
func TestEachEventOfABatchHasItsOwnOutcome(t *testing.T) {
	b := newFixture(t)
	all := b.new(t, 6)
	expired, published, pending, parked := all[0], all[1], all[2], all[3]
	b.recordDue(t, expired, pending)
	b.publish(t, expired)
	b.now = b.now.Add(window)
	b.recordDue(t, published, parked)
	b.publish(t, published)
	if err := b.Park(t.Context(), parked, "", ""); err != nil {
		t.Fatal(err)
	}
	b.store.calls = nil

	other := func(e ledger.Item) ledger.Item { return b.entry(t, e.EventID, "1") }
	first := []ledger.Item{all[4], other(published), pending, other(parked), expired, all[5]}
	second := []ledger.Item{first[0], published, other(pending), parked, other(expired)}
	for n, test := range []struct {
		events []ledger.Item
		want   []ledger.Outcome
	}{
		{first, []ledger.Outcome{ledger.Recorded, ledger.Conflict, ledger.Duplicate, ledger.Conflict,
			ledger.Recorded, ledger.Recorded}},
		{second, []ledger.Outcome{ledger.Duplicate, ledger.Duplicate, ledger.Conflict, ledger.Recorded,
			ledger.Conflict}},
	} {
		var got []ledger.Outcome
		for _, r := range b.Record(t.Context(), test.events, ledger.NewHolder(), b.now) {
			if r.Err != nil {
				t.Error(r.Err)
			}
			got = append(got, r.Outcome)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%d: got %v, want %v", n, got, test.want)
		}
	}
	// What was found is read at once. Only what has expired or was parked is written again.
	if diff := cmp.Diff(map[string][]int{"Insert": {6, 5}, "Get": {4, 5}, "Change": {1, 1}},
		b.store.calls); diff != "" {
		t.Error(diff)
	}
}

// A caller that ran out of time repeats its call.
func TestOfADeliveryThatIsRepeatedTheRestIsReadBeforeItIsWritten(t *testing.T) {
	b := newFixtureWith(ledger.Options{Parallel: 1})
	events := b.new(t, 60)
	b.recordDue(t, events[:59]...)
	b.store.calls = nil
	for i, r := range b.Record(t.Context(), events, ledger.NewHolder(), b.now) {
		if r.Err != nil || (r.Outcome == ledger.Recorded) != (i == 59) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if diff := cmp.Diff(map[string][]int{"Insert": {25, 1}, "Get": {60}}, b.store.calls); diff != "" {
		t.Error(diff)
	}
}

// A write whose answer is lost leaves its event uncertain, and others as they are.
func TestAnEventWhoseAnswerIsLostIsUncertain(t *testing.T) {
	b := newFixture(t)
	events := b.new(t, 60)
	lost, ids := errors.New("connection reset"), map[string]bool{}
	for _, e := range events[20:40] {
		ids[e.EventID] = true
	}
	b.store.after = func(_, id string) error {
		if ids[id] {
			return lost
		}
		return nil
	}
	holder := ledger.NewHolder()
	for i, r := range b.Record(t.Context(), events, holder, b.now) {
		if want := ids[events[i].EventID]; want != errors.Is(r.Err, lost) || want == (r.Outcome == ledger.Recorded) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	for i, err := range b.MarkPublished(t.Context(), events) {
		if ids[events[i].EventID] != errors.Is(err, lost) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// An archive of the bus is searched by the time that an event has on the bus. The bus leaves
// out a time that the SDK can't represent.
func TestAMarkKeepsTheTimeOnTheBus(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 120e6, time.UTC)
	for name, test := range map[string]struct{ times, want []time.Time }{
		"one event":   {[]time.Time{at}, []time.Time{at}},
		"nanoseconds": {[]time.Time{at.Add(456789)}, []time.Time{at}},
		"the first":   {[]time.Time{time.UnixMilli(0)}, []time.Time{time.UnixMilli(0)}},
		"no time":     {[]time.Time{{}}, []time.Time{{}}},
		"year 1500":   {[]time.Time{at.AddDate(-526, 0, 0)}, []time.Time{{}}},
		"two events":  {[]time.Time{at, at.Add(time.Hour)}, []time.Time{at, at.Add(time.Hour)}},
		"one of two":  {[]time.Time{at.AddDate(300, 0, 0), at}, []time.Time{{}, at}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			events := b.new(t, len(test.times))
			for i, at := range test.times {
				events[i].EventTimestamp = at
			}
			b.recordDue(t, events...)
			b.publish(t, events...)
			for i, e := range events {
				if item := b.find(t, e); !item.EventTimestamp.Equal(test.want[i]) || item.PublishedAt.IsZero() {
					t.Errorf("%d: %+v", i, item)
				}
			}
		})
	}
}

// If writes take more than an eighth of the time, the events are read meanwhile. The
// caller's own writes are new also then, even if their answers are lost.
func TestEventsAreReadWhileWritesAreSlow(t *testing.T) {
	for takes, reads := range map[time.Duration]int{
		999 * time.Millisecond: 0, 1001 * time.Millisecond: 1, time.Hour: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newFixtureWith(ledger.Options{Parallel: 2})
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			events := b.new(t, 50)
			// Writes take effect at once, and are answered later.
			b.store.after = func(call, id string) error {
				if call != "Insert" || id != events[0].EventID && id != events[25].EventID {
					return nil
				}
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			for i, r := range b.Record(ctx, events, ledger.NewHolder(), b.now) {
				if r.Outcome != ledger.Recorded || r.Err != nil {
					t.Errorf("%s, %d: %+v", takes, i, r)
				}
			}
			if n := b.count("Get"); n != reads {
				t.Errorf("%s: %d reads", takes, n)
			}
		})
	}
}

// The SDK repeats a write whose answer is lost after it took effect, alone or in a batch.
func TestAWriteWhoseAnswerIsLostIsKnownAgain(t *testing.T) {
	b := newFixture(t)
	b.store.repeat = true
	events := b.new(t, 30)
	b.recordDue(t, events...)
	for i, r := range b.Record(t.Context(), events, ledger.NewHolder(), b.now) {
		if r.Outcome != ledger.Duplicate || r.Err != nil {
			t.Errorf("%d: another holder: %+v", i, r)
		}
	}
	due, holder := b.due(t), ledger.NewHolder()
	for _, test := range []struct {
		holder ledger.Holder
		held   bool
	}{{holder, true}, {ledger.NewHolder(), false}} {
		for i, l := range b.Lease(t.Context(), due, test.holder, b.now.Add(time.Minute)) {
			if l.Held != test.held || l.Err != nil || l.Held && l.Item.Attempts != 1 {
				t.Errorf("%d: %+v", i, l)
			}
		}
	}
}

func TestAMarkLeavesWhatIsNotPending(t *testing.T) {
	b := newFixture(t)
	events := b.new(t, 3)
	b.recordDue(t, events[:2]...)
	b.publish(t, events[0])
	before := b.store.Items()
	b.now = b.now.Add(time.Hour)
	late := []ledger.Item{events[0], b.entry(t, events[1].EventID, "1"), events[2]}
	b.publish(t, late...)
	for _, e := range late {
		if err := b.Park(t.Context(), e, "", ""); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(before, b.store.Items()); diff != "" {
		t.Error(diff)
	}
}
