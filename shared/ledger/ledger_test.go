package ledger_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"payhook.example/shared/ledger"
)

// The later of the clocks of recording and marking begins the window. Its end counts even if nothing is deleted.
func TestTheWindowOfAnEvent(t *testing.T) {
	for ahead, begins := range map[time.Duration]time.Duration{time.Hour: time.Hour, -time.Hour: 0} {
		b := newFixture(0)
		e := b.newEvent()
		e.RecordedAt = b.now.Add(ahead)
		b.record(t, e)
		b.publish(t, e)
		start := b.now.Add(begins)
		b.now = start.Add(window - time.Second)
		if got := b.record(t, e); got[0] != duplicate {
			t.Errorf("%s ahead: %s before the end", ahead, got)
		}
		b.now = start.Add(window)
		next := b.eventOf(e.EventID, "2.00")
		if got := b.record(t, next); got[0] != recorded {
			t.Errorf("%s ahead: %s at the end", ahead, got)
		}
		b.publish(t, next)
		b.now = b.now.Add(window)
		if r := b.Replace(t.Context(), []ledger.Item{next}, b.now)[0]; outcomeOf(r, next) != recorded {
			t.Errorf("replaced: %+v", r)
		}
	}
}

// TTL deletes an item at any time after its window.
func TestAnItemThatIsDeletedMeanwhileIsInsertedAgain(t *testing.T) {
	for _, moment := range []string{"get", "change"} {
		b := newFixture(0)
		e := b.newEvent()
		b.in(t, ledger.Published, e)
		b.now = b.now.Add(window)
		sent := b.eventOf(e.EventID, "2.00")
		deleted := false
		b.store.before = func(call string) {
			if call == moment && !deleted {
				deleted = true
				b.store.Delete(t.Context(), e.EventID)
			}
		}
		if got := b.record(t, sent); !deleted || got[0] != recorded ||
			b.find(t, e).DeliveryID != sent.DeliveryID {
			t.Errorf("before %s: %s, %+v", moment, got, b.find(t, e))
		}
	}
}

func TestAnEventWhoseItemChangesAfterEachReadIsAnError(t *testing.T) {
	b := newFixture(1)
	e := b.newEvent()
	b.in(t, ledger.Dismissed, e)
	b.store.before = func(call string) {
		if call == "change" {
			b.damage(t, e, func(i *ledger.Item) { i.ExpiresAt = i.ExpiresAt.Add(time.Second) })
		}
	}
	r := b.Replace(t.Context(), []ledger.Item{e}, b.now)[0]
	if r.Err == nil || !strings.HasSuffix(r.Err.Error(), "the item changed after each read") ||
		outcomeOf(r, e) != uncertain ||
		len(b.store.calls["get"]) != 3 {
		t.Errorf("%+v after the calls %v", r, b.store.calls)
	}
}

func TestNothingIsDueBeforeItsTime(t *testing.T) {
	b := newFixture(0)
	e := b.newEvent()
	b.Record(t.Context(), []ledger.Item{e}, ledger.NewLeaseOwner(), b.now.Add(time.Minute))
	for n, step := range []struct {
		after time.Duration
		due   int
	}{{time.Minute - time.Millisecond, 0}, {time.Millisecond, 1}, {time.Minute - time.Millisecond, 0},
		{time.Millisecond, 1}} {
		b.now = b.now.Add(step.after)
		due := b.due(t)
		if len(due) != step.due {
			t.Fatalf("%d due in step %d", len(due), n)
		}
		if n == 1 {
			b.lease(t, due[0])
		}
	}
	due := b.due(t)
	b.publish(t, e)
	if l := b.lease(t, due[0]); l.Done || l.Err != nil {
		t.Errorf("a published event is leased: %+v", l)
	}
}

func TestOnlyItsLeaseOwnerPostponesAnItem(t *testing.T) {
	b := newFixture(0)
	e := b.newEvent()
	b.record(t, e)
	var owners []ledger.LeaseOwner
	for range 2 {
		owners = append(owners, b.lease(t, b.due(t)[0]).Found.LeaseOwner)
		b.now = b.now.Add(time.Minute)
	}
	postpone := func(owner, due int) {
		t.Helper()
		if err := b.Postpone(t.Context(), e, owners[owner], b.now.Add(time.Hour)); err != nil ||
			len(b.due(t)) != due {
			t.Errorf("owner %d: %v, and %d are due", owner, err, len(b.due(t)))
		}
	}
	postpone(0, 1)
	postpone(1, 0)
	b.publish(t, e)
	before := b.store.Items()
	postpone(1, 0)
	if diff := gocmp.Diff(before, b.store.Items()); diff != "" {
		t.Error("what is published is postponed:", diff)
	}
}

// An archive of the bus is searched by the time that an event has on the bus. The bus leaves
// out a time that the SDK can't represent.
func TestAMarkKeepsTheTimeOnTheBus(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 120e6, time.UTC)
	for sent, want := range map[time.Time]time.Time{
		at: at, at.Add(456789): at, time.UnixMilli(0): time.UnixMilli(0), {}: {}, at.AddDate(-526, 0, 0): {},
		at.AddDate(300, 0, 0): {},
	} {
		b := newFixture(0)
		e := b.newEvent()
		e.EventTimestamp = sent
		b.record(t, e)
		b.publish(t, e)
		if got := b.find(t, e); !got.EventTimestamp.Equal(want) || got.PublishedAt.IsZero() {
			t.Errorf("%s: %+v", sent, got)
		}
	}
}

// Redrive reads the shards in order and page by page: the longest due first, and of the others, those that are due
// last. Events are spread evenly over the shards.
func TestTheIndexIsReadInOrder(t *testing.T) {
	b := newFixture(0)
	var want []ledger.Item
	shards := map[string][]ledger.Item{}
	for i, e := range b.newEvents(1000) {
		due := b.now.Add(time.Duration(i/10-15) * time.Second) // ten have the same time
		b.Record(t.Context(), []ledger.Item{e}, ledger.NewLeaseOwner(), due)
		i := ledger.Item{EventID: e.EventID, Shard: b.store.Items()[e.EventID].Shard, LeasedUntil: due,
			RecordedAt: e.RecordedAt, Size: len(e.Detail)}
		want = append(want, i)
	}
	slices.SortFunc(want, func(x, y ledger.Item) int {
		return cmp.Or(x.LeasedUntil.Compare(y.LeasedUntil), cmp.Compare(x.EventID, y.EventID))
	})
	for _, i := range want {
		shards[i.Shard] = append(shards[i.Shard], i)
	}
	b.store.page = 7
	got, err := ledger.List(t.Context(), &b.store, ledger.Pending)
	if diff := gocmp.Diff(want, got); diff != "" || err != nil {
		t.Error("list:", diff, err)
	}
	if len(shards) != 64 || ledger.Shards != 64 {
		t.Errorf("%d shards are in use", len(shards))
	}
	for shard := range ledger.Shards {
		want := shards["pending/"+strconv.Itoa(shard)]
		if len(want) > 45 {
			t.Errorf("shard %d has %d of 1000", shard, len(want))
		}
		var got []ledger.Item
		for after, pages := (*ledger.Item)(nil), 0; pages <= len(want); pages++ {
			page, next, err := b.Pending(t.Context(), shard,
				ledger.Query{At: b.now.Add(time.Hour), After: after, Limit: 5})
			if err != nil || len(page) > 5 {
				t.Fatalf("%d items, %v", len(page), err)
			}
			got = append(got, page...)
			if after = next; after == nil {
				break
			}
		}
		last, _, err := b.Pending(t.Context(), shard,
			ledger.Query{At: b.now.Add(-time.Minute), Later: true, Limit: 1})
		if diff := gocmp.Diff([][]ledger.Item{want, want[len(want)-1:]}, [][]ledger.Item{got, last}); diff != "" ||
			err != nil {
			t.Errorf("shard %d: %s %v", shard, diff, err)
		}
	}
}

func TestABatchHas25EventsAndAMegabyteOfThemAtMost(t *testing.T) {
	const quarter = 1 << 18
	for name, test := range map[string]struct{ sizes, batches []int }{
		"exactly":     {[]int{quarter, quarter, quarter, quarter, 1000}, []int{4, 1}},
		"a byte more": {[]int{quarter, quarter, quarter, quarter + 1, 1000}, []int{3, 2}},
		"exactly in the second": {[]int{quarter, quarter, quarter, quarter, quarter, quarter, quarter, quarter, 1000},
			[]int{4, 4, 1}},
		"equal": {slices.Repeat([]int{300_000}, 7), []int{3, 3, 1}},
		"small": {slices.Repeat([]int{1000}, 51), []int{25, 25, 1}},
		"none":  {nil, nil},
	} {
		b := newFixture(1)
		events := b.newEvents(len(test.sizes))
		for i := range events {
			e := &events[i]
			e.Detail = append(e.Detail, bytes.Repeat([]byte(" "), test.sizes[i]-len(e.Detail))...)
			e.Size, e.LeasedUntil = len(e.Detail), b.now // as they are in the index
		}
		b.record(t, events...)
		b.Lease(t.Context(), events, ledger.NewLeaseOwner(), b.now) // it answers with the events
		if diff := gocmp.Diff([][]int{test.batches, test.batches}, [][]int{b.store.calls["insert"],
			b.store.calls["change"]}); diff != "" {
			t.Errorf("%s: recorded and leased: %s", name, diff)
		}
		delete(b.store.calls, "change")
		b.publish(t, events...)
		if got := b.store.calls["change"]; len(got) != (len(events)+24)/25 {
			t.Errorf("%s: marked in batches of %v", name, got)
		}
	}
}

func TestEveryOperationReturnsTheErrorOfTheStore(t *testing.T) {
	b, down := newFixture(0), errors.New("down")
	b.store.after = func(string, string) error { return down }
	e, ctx, owner, at := b.newEvent(), t.Context(), ledger.NewLeaseOwner(), b.now
	events, errs := []ledger.Item{e}, map[string]error{}
	for name, r := range map[string]ledger.WriteResult{
		"record": b.Record(ctx, events, owner, at)[0], "replace": b.Replace(ctx, events, at)[0],
	} {
		if errs[name] = r.Err; outcomeOf(r, e) != uncertain {
			t.Errorf("%s: %+v", name, r)
		}
	}
	leased := b.Lease(ctx, []ledger.Item{{EventID: e.EventID}}, owner, at)[0]
	if errs["lease"] = leased.Err; leased.Done {
		t.Error("lease: held with an error")
	}
	errs["postpone"] = b.Postpone(ctx, e, owner, at)
	errs["mark"] = b.MarkPublished(ctx, events)[0]
	errs["park"] = b.Park(ctx, e, "", "")
	errs["replay"] = b.Replay(ctx, e, ledger.Note{}, at).Err
	errs["dismiss"] = b.Dismiss(ctx, e, ledger.Note{}).Err
	for name, err := range errs {
		if err == nil ||
			err.Error() != "ledger: "+strings.Replace(name, "replace", "record", 1)+" "+e.EventID+": down" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, _, errs["pending"] = b.Pending(t.Context(), 0, ledger.Query{At: b.now, Limit: 1})
	_, errs["known"] = b.Known(t.Context(), []string{e.EventID})
	_, _, errs["find"] = b.Find(t.Context(), e.EventID)
	_, errs["list"] = ledger.List(t.Context(), &b.store, ledger.Pending)
	for name, err := range errs {
		if !errors.Is(err, down) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingIsRecordedAfterTheTimeOfTheCaller(t *testing.T) {
	b := newFixture(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	events := b.newEvents(3)
	for i, r := range append(b.Record(ctx, events, ledger.NewLeaseOwner(), b.now), b.Replace(ctx, events, b.now)...) {
		if !errors.Is(r.Err, context.Canceled) || outcomeOf(r, ledger.Item{}) != uncertain {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if len(b.Record(ctx, nil, ledger.NewLeaseOwner(), b.now)) > 0 || len(b.store.calls) > 0 {
		t.Errorf("calls without time: %v", b.store.calls)
	}
}

// An id that the ledger has is new, a duplicate or a conflict in a batch as in a single
// write, and takes no other with it.
func TestEachEventOfABatchHasItsOwnOutcome(t *testing.T) {
	b := newFixture(1)
	all := b.newEvents(6)
	expired, published, pending, parked := all[0], all[1], all[2], all[3]
	b.record(t, expired, pending)
	b.publish(t, expired)
	b.now = b.now.Add(window)
	b.record(t, published, parked)
	b.publish(t, published)
	b.park(t, parked)
	clear(b.store.calls)
	other := func(e ledger.Item) ledger.Item { return b.eventOf(e.EventID, "2.00") }
	got := b.record(t, all[4], other(published), pending, other(parked), expired, all[5])
	got = append(got, b.record(t, all[4], published, other(pending), parked, other(expired))...)
	if !slices.Equal(got, []string{recorded, conflict, duplicate, conflict, recorded, recorded, duplicate,
		duplicate, conflict, recorded, conflict}) {
		t.Error(got)
	}
	// What was found is read at once. Only what has expired or was parked is written again.
	if diff := gocmp.Diff(map[string][]int{"insert": {6, 5}, "get": {4, 5}, "change": {1, 1}},
		b.store.calls); diff != "" {
		t.Error(diff)
	}
}

// A caller that ran out of time repeats its call. Of what is known, only what may be replaced is written.
func TestOfADeliveryThatIsRepeatedTheRestIsReadBeforeItIsWritten(t *testing.T) {
	b := newFixture(1)
	events := b.newEvents(60)
	b.record(t, events[:59]...)
	b.park(t, events[58])
	clear(b.store.calls)
	for i, outcome := range b.record(t, events...) {
		if (outcome == recorded) != (i >= 58) {
			t.Errorf("%d: %s", i, outcome)
		}
	}
	if diff := gocmp.Diff(map[string][]int{"insert": {25}, "get": {60}, "change": {2}}, b.store.calls); diff != "" {
		t.Error(diff)
	}
}

// If writes take more than an eighth of the time, the events are read meanwhile. The
// caller's own writes are new also then, even if their answers are lost.
func TestEventsAreReadWhileWritesAreSlow(t *testing.T) {
	for takes, reads := range map[time.Duration]int{
		999 * time.Millisecond: 0, 1001 * time.Millisecond: 1, time.Hour: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newFixture(2)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			events, gets := b.newEvents(50), 0
			b.store.before = func(call string) {
				if call == "get" {
					gets++
				}
			}
			// Writes take effect at once, and are answered later.
			b.store.after = func(call, id string) error {
				if call != "insert" || id != events[0].EventID && id != events[25].EventID {
					return nil
				}
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			for i, r := range b.Record(ctx, events, ledger.NewLeaseOwner(), b.now) {
				if outcomeOf(r, events[i]) != recorded {
					t.Errorf("%s, %d: %+v", takes, i, r)
				}
			}
			if gets != reads {
				t.Errorf("%s: %d reads", takes, gets)
			}
		})
	}
}

// A call reads 100 items. One that fails does not hide what others read.
func TestManyItemsAreReadByMoreThanOneCall(t *testing.T) {
	b := newFixture(0)
	var ids []string
	for _, e := range b.newEvents(101) {
		b.record(t, e)
		ids = append(ids, e.EventID)
	}
	if got, err := b.Known(t.Context(), ids); err != nil || len(got) != len(ids) {
		t.Errorf("%d of %d, %v", len(got), len(ids), err)
	}
	down := errors.New("down")
	b.store.after = func(_, id string) error {
		if id == ids[100] {
			return down
		}
		return nil
	}
	if got, err := b.Known(t.Context(), ids); !errors.Is(err, down) || len(got) < 100 {
		t.Errorf("%d of %d, %v", len(got), len(ids), err)
	}
}
