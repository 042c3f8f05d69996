package intake_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
)

func TestABacklogDrainsOldestFirstOverSeveralRuns(t *testing.T) {
	w := newWorld(t)
	w.parallel = 1
	position := map[string]int{}
	for i, id := range w.pend(450) {
		position[id] = i
	}
	// Time passes with every lease, so that every run has time for one chunk only.
	w.table.Fails = func(_ context.Context, call, id string) error {
		if call == "lease" && id != "" {
			w.now = w.now.Add(280 * time.Millisecond)
		}
		return nil
	}
	runs := 0
	for ; w.pending() > 0 && runs < 20; runs++ {
		if r := w.redrive(); w.pending() > 0 && !r.Left {
			t.Errorf("a run ended with work left and does not say so: %+v", r)
		}
		w.now = w.now.Add(time.Minute)
	}
	// The events of a chunk are published in any order.
	for i, entry := range w.bus.Entries() {
		id := idOf(t, entry.Detail)
		if p, left := position[id]; !left || p/200 != i/200 {
			t.Errorf("number %d came as number %d", p, i)
		}
		delete(position, id)
	}
	if runs < 3 || w.pending() > 0 || len(position) > 0 {
		t.Errorf("%d are pending after %d runs, %d are not on the bus", w.pending(), runs, len(position))
	}
}

// amount changes the amount of the event at position i.
func amount(i int, text string) func(int, []byte) []byte {
	return func(at int, raw []byte) []byte {
		if at != i {
			return raw
		}
		return regexp.MustCompile(`"amount":[0-9.]+`).ReplaceAll(raw, []byte(`"amount":`+text))
	}
}

// What could be neither published nor parked is reported: there is no other report of it.
func TestAnEventThatCannotBeParkedIsReported(t *testing.T) {
	w := newWorld(t)
	w.pend(2)
	w.table.Fails, w.bus.Fails = fails("parked"), broken
	if r := w.run(1, time.Minute); r.Err == nil || r.Errors != 2 || r.Parked != 0 || r.Failed != 2 || w.pending() != 2 {
		t.Errorf("got %+v", r)
	}
}

// An event that fails is left alone for up to an hour. It is pending all the time.
func TestTheOldestPendingItemCountsWhileItIsPostponed(t *testing.T) {
	w := newWorld(t)
	first := w.pend(1)[0]
	w.bus.Fails = broken
	recorded := w.now.Add(-time.Minute)
	for range 3 * 12 {
		if r := w.redrive(); r.Oldest != w.now.Sub(recorded) {
			t.Fatalf("after %s the oldest is said to be %s old", w.now.Sub(recorded), r.Oldest)
		}
		w.now = w.now.Add(5 * time.Minute)
	}
	// Events of receivers that are on their way, due in a minute, do not hide it: three pages of its shard.
	now := w.now
	w.now = w.now.Add(time.Minute)
	for _, id := range w.pend(60) {
		i := ledger.Item{EventID: id, Shard: w.table.Items()[first].Shard}
		w.table.Memory.Write(t.Context(), []ledger.Write{{Item: i, If: &ledger.Item{}, Kept: ledger.Rest}})
	}
	w.now = now
	if r := w.redrive(); r.Oldest < 3*time.Hour {
		t.Errorf("the oldest is said to be %s old", r.Oldest)
	}
	w.bus.Fails, w.now = nil, w.now.Add(2*time.Hour)
	w.redrive()
	if r := w.redrive(); r.Oldest != 0 {
		t.Errorf("once all are published: %+v", r)
	}
}

// The events of a chunk are in memory together. A slow machine does not use up the time of the run.
func TestRedriveLeasesEightMiBAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pend(100)
		w.table.read = func(i *ledger.Item) { i.Size = 250_000 }
		var mu sync.Mutex
		var held, most int // bytes of events that are leased and not marked yet
		w.table.Fails = func(_ context.Context, call, id string) error {
			mu.Lock()
			defer mu.Unlock()
			switch call {
			case "lease":
				held += 250_000 * min(len(id), 1)
				most = max(most, held)
			case "published":
				held = 0
			}
			return nil
		}
		if r := w.redrive(); r.Published != 100 || most > 8<<20 || most < 7<<20 {
			t.Errorf("%d bytes are leased together: %+v", most, r)
		}
	})
}

// An event that fails waits for a minute, and twice as long each time, up to an hour. It is
// not due before its lease ends. After the last attempt it is parked.
func TestPausesOfAnEventThatFails(t *testing.T) {
	w := newWorld(t)
	id := w.pend(1)[0]
	w.bus.Fails = broken
	minutes := []int{1, 2, 4, 8, 16, 32, 60, 60, 60}
	run := func(parked int) ledger.Item {
		t.Helper()
		if r := w.run(len(minutes)+1, 10*time.Second); r.Failed != 1 || r.Err != nil || r.Parked != parked ||
			!errors.Is(r.PublishErr, errDown) {
			t.Fatalf("%+v", r)
		}
		return w.table.Items()[id]
	}
	for attempt, minutes := range minutes {
		item := run(0)
		if got := item.LeasedUntil.Sub(w.now); got != time.Duration(minutes)*time.Minute || item.Attempts != attempt+1 {
			t.Errorf("after %d attempts (%d): %s, want %d minutes", attempt+1, item.Attempts, got, minutes)
		}
		w.now = item.LeasedUntil
	}
	if i := run(1); i.State != ledger.Parked || i.Cause != "attempts" || i.Problem != errDown.Error() ||
		i.Attempts != len(minutes)+1 || !i.ParkedAt.Equal(w.now) {
		t.Errorf("parked: %+v", i)
	}
	id = w.pend(1)[0]
	w.run(20, 10*time.Minute)
	if got := w.table.Items()[id].LeasedUntil.Sub(w.now); got != 10*time.Minute+30*time.Second {
		t.Errorf("within the lease: %s", got)
	}
}

// Each error counts, and the first one is reported.
func TestTheErrorsOfARun(t *testing.T) {
	for _, test := range []struct {
		fail           hook
		leased, errors int
		err            string
	}{
		{fails("waiting"), 1, ledger.Shards, "ledger: shard "}, {fails("due"), 0, ledger.Shards, "ledger: shard "},
		{fails("waiting", "due"), 0, 2 * ledger.Shards, "ledger: shard "}, {fails("lease"), 0, 1, "ledger: lease "},
	} {
		w := newWorld(t)
		w.pend(1)
		w.table.Fails = test.fail
		r := w.run(20, time.Minute)
		if r.Errors != test.errors || r.Leased != test.leased || r.Published != test.leased || r.Failed != 0 ||
			r.Unread != (test.errors > 1) || !errors.Is(r.Err, errDown) || !strings.Contains(r.Err.Error(), test.err) {
			t.Errorf("%+v: %+v", test, r)
		}
	}
	// What is on the bus without a mark is published again.
	w := newWorld(t)
	id := w.pend(1)[0]
	w.table.Fails = fails("published")
	if r := w.redrive(); r.Unmarked != 1 || r.Published+r.Failed+r.Errors != 0 {
		t.Errorf("not marked: %+v", r)
	}
	w.table.Fails, w.now = nil, w.now.Add(3*time.Minute)
	if r := w.redrive(); r.Published != 1 || w.published()[id] != 2 {
		t.Errorf("published %d times: %+v", w.published()[id], r)
	}
}

// A run without time reads what waits, for the metric, and no more.
func TestARunWithoutTimeReadsNothingThatIsDue(t *testing.T) {
	w := newWorld(t)
	w.pend(3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.table.Fails = func(ctx context.Context, call, _ string) error {
		if call != "waiting" {
			t.Errorf("a call: %s", call)
		}
		return ctx.Err()
	}
	r := intake.NewRedriver(w.pipeline(), 20).Run(ctx)
	if !r.Left || r.Errors != ledger.Shards || r.Found+r.Leased != 0 {
		t.Errorf("%+v", r)
	}
}

// An item that is not what was recorded never reaches the bus, and takes no other with it. Nothing makes it better, so
// it is parked at the first attempt.
func TestADamagedItemIsParkedOnceAndNotReplayed(t *testing.T) {
	other := paymenttest.Encode(paymenttest.Event())
	for name, test := range map[string]struct {
		set  ledger.Item        // in the table
		read func(*ledger.Item) // what can't be decoded
	}{
		"another event": {set: ledger.Item{Detail: other}},
		"no event":      {set: ledger.Item{Detail: []byte("x")}},
		"no bytes":      {read: func(i *ledger.Item) { i.Detail = nil }},
	} {
		w := newWorld(t)
		ids := w.pend(3)
		bad := ids[1]
		test.set.EventID = bad
		w.table.Memory.Write(t.Context(), []ledger.Write{{Item: test.set, If: &ledger.Item{}, Kept: ledger.Rest}})
		w.table.read = func(i *ledger.Item) {
			if i.EventID == bad && i.State != "" && test.read != nil { // not of the index
				test.read(i)
				i.Err = errors.New("can't decode it")
			}
		}
		if r := w.run(20, time.Minute); r.Found != 3 || r.Leased != 3 || r.Published != 2 || r.Failed != 1 ||
			r.Parked != 1 || r.Errors != 1 || !errors.Is(r.Err, ledger.ErrCorrupt) {
			t.Errorf("%s: %+v", name, r)
		}
		parked := w.table.Items()[bad]
		if parked.State != ledger.Parked || parked.Cause != "damaged" || parked.Detail == nil {
			t.Errorf("%s: %+v", name, parked)
		}
		w.now = w.now.Add(time.Hour)
		if r := w.redrive(); r.Found+r.Parked != 0 {
			t.Errorf("%s: parked again: %+v", name, r)
		}
		if r := w.replayEvent(bad); r.Outcome != intake.DigestMismatch || r.Err == nil || r.Recorded != 0 {
			t.Errorf("%s: replayed: %+v", name, r)
		}
		if diff := cmp.Diff(parked, w.table.Items()[bad]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(map[string]int{ids[0]: 1, ids[2]: 1}, w.published()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if err := w.dismissEvent(bad); err != nil || w.table.Items()[bad].State != ledger.Dismissed {
			t.Errorf("%s: dismissed: %v", name, err)
		}
	}
}

// What the index has of an item and can't be decoded is reported, and the event is published.
func TestAnItemOfTheIndexThatCannotBeDecodedStopsNoOther(t *testing.T) {
	w := newWorld(t)
	ids := w.pend(100)
	w.now = w.now.Add(time.Minute)
	w.table.read = func(i *ledger.Item) {
		if i.EventID == ids[50] && i.State == "" { // of the index
			i.RecordedAt, i.Size, i.Err = time.Time{}, 0, errors.New("can't decode size")
		}
	}
	if r := w.run(20, time.Minute); r.Found != 100 || r.Published != 100 || r.Failed != 0 || r.Errors != 1 ||
		r.Unread || r.Oldest > time.Hour || r.Err == nil ||
		r.Err.Error() != "intake: pending event "+ids[50]+": can't decode size" {
		t.Errorf("%+v", r)
	}
}
