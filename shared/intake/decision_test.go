package intake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/wire"
)

// Only what waits for a person can be decided: what is pending would be neither published nor open.
func TestOnlyAParkedEventIsReplayedOrDismissed(t *testing.T) {
	w := newWorld(t)
	raw := paymenttest.Encode(paymenttest.Event())
	id := idOf(t, raw)
	expect := func(want intake.Outcome) {
		t.Helper()
		before := w.table.Items()
		if err := w.dismissEvent(strings.ToUpper(id)); intake.OutcomeOf(err) != want {
			t.Errorf("dismissed: %v, want %s", err, want)
		}
		if r := w.replayEvent(id); r.Outcome != want || r.Err == nil || r.Recorded != 0 {
			t.Errorf("replayed: %+v, want %s", r, want)
		}
		if diff := cmp.Diff(before, w.table.Items()); diff != "" {
			t.Error(diff)
		}
	}
	expect(intake.NotParked)
	w.bus.Fails = broken
	if _, r := w.send(raw); r.Pending != 1 {
		t.Fatalf("%+v", r)
	}
	expect(intake.StillPending)
	w.now = w.now.Add(2 * time.Minute)
	if r := w.run(1, time.Minute); r.Parked != 1 {
		t.Errorf("%+v", r)
	}
	w.bus.Fails = nil
	if r := w.replayEvent(id); r.Outcome != intake.Accepted {
		t.Errorf("%+v", r)
	}
	expect(intake.StillPending)
	raw = paymenttest.Encode(paymenttest.Event())
	id = idOf(t, raw)
	w.send(raw)
	expect(intake.AlreadyPublished)
}

// Redrive would park it again, and whoever replayed it would believe that it is published.
func TestWhatEventBridgeRejectsIsNotReplayed(t *testing.T) {
	event := paymenttest.Event()
	first := paymenttest.Encode(event)
	levels := fmt.Appendf(first[:len(first)-1:len(first)-1], `,"x":%s%s}`, strings.Repeat("[", 1000),
		strings.Repeat("]", 1000))
	for name, raw := range map[string][]byte{"number": amount(0, "9223372036854775808")(0, first), "levels": levels} {
		w := newWorld(t)
		w.opts.LargeEventBytes = 1 << 20
		if _, r := w.send(raw); r.Unpublishable != 1 {
			t.Fatalf("%s: %+v", name, r)
		}
		parked := w.item(raw)
		r := w.replayEvent(parked.EventID)
		if _, why := errors.AsType[*bus.DetailError](r.Err); r.Outcome != intake.NotPublishable || r.Done() || !why ||
			r.Recorded+r.Pending != 0 || !cmp.Equal(parked, w.item(raw)) {
			t.Errorf("%s: %+v", name, r)
		}
		if err := w.dismissEvent(parked.EventID); err != nil {
			t.Errorf("%s: dismissed: %v", name, err)
		}

		// The other content of a conflict stays what it is.
		w = newWorld(t)
		w.opts.LargeEventBytes = 1 << 20
		w.send(first)
		beside := paymenttest.Encode(paymenttest.Event())
		w.send(beside)
		_, changed := w.send(raw, bytes.Replace(beside, []byte("1250.00"), []byte("0.01"), 1))
		before, p := w.table.Items(), w.parked(changed.ParkedAs.Name)
		if r := w.replay(p, wire.ParkedContent); r.Outcome != intake.NotPublishable || r.Done() || r.Recorded != 0 ||
			r.Err == nil || !cmp.Equal(before, w.table.Items()) {
			t.Errorf("%s: a conflict: %+v", name, r)
		}
		if r := w.replay(p, wire.FirstContent); r.Outcome != intake.Accepted {
			t.Errorf("%s: the first content: %+v", name, r)
		}
		w.opts.LargeEventBytes = 100 // EventBridge takes the reference to it
		if r := w.replay(p, wire.ParkedContent); r.Outcome != intake.Accepted || r.Recorded != 2 {
			t.Errorf("%s: as a large event: %+v", name, r)
		}
	}
}

// What is parked anew is another decision: it can have failed for another reason.
func TestAnEventThatIsParkedAnewIsNotReplayedOrDismissed(t *testing.T) {
	for _, call := range []string{"replay", "dismissed"} {
		w := newWorld(t)
		raw := paymenttest.Encode(paymenttest.Event())
		id := w.park(raw).EventID
		var anew ledger.Item
		w.table.Fails = func(_ context.Context, now, _ string) error {
			if now == call { // another person replays it, and redrive parks it again
				w.table.Fails = nil
				w.replayEvent(id)
				w.now = w.now.Add(time.Minute)
				w.bus.Fails = broken
				w.run(1, time.Minute)
				anew = w.item(raw)
			}
			return nil
		}
		if call == "replay" {
			r := w.replayEvent(id)
			if r.Outcome != intake.StillPending || r.Err == nil || r.Done() || r.Recorded+r.Pending != 0 {
				t.Errorf("%+v", r)
			}
		} else if err := w.dismissEvent(id); intake.OutcomeOf(err) != intake.StillPending {
			t.Errorf("dismissed: %v", err)
		}
		if anew.State != ledger.Parked || !cmp.Equal(anew, w.item(raw)) {
			t.Errorf("%s: %+v, was %+v", call, w.item(raw), anew)
		}
	}
}

func TestADismissedEventThatIsSentAgainIsADuplicate(t *testing.T) {
	for name, raw := range map[string][]byte{"small": paymenttest.Encode(paymenttest.Event()), "large": largeEvent()} {
		w := newWorld(t)
		item := w.park(raw)
		want := ledger.Item{EventID: item.EventID, Digest: item.Digest, DeliveryID: item.DeliveryID,
			RecordedAt: item.RecordedAt, Amount: "1250.00", Currency: "USD", State: ledger.Dismissed,
			Note: w.decided(), ExpiresAt: w.now.Add(window).Truncate(time.Second).UTC()}
		for range 2 {
			if err := w.dismissEvent(item.EventID); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			w.now = w.now.Add(time.Hour)
		}
		if r := w.replayEvent(item.EventID); r.Outcome != intake.AlreadyDismissed {
			t.Errorf("%s: %+v", name, r)
		}
		objects := len(w.largeEvents.Keys())
		id, r := w.send(raw)
		if diff := cmp.Diff(intake.Result{Outcome: intake.Accepted, DeliveryID: id, Events: 1, Duplicates: 1,
			EventIDs: intake.EventIDs{intake.Dismissed: {item.EventID}}}, r, onTheirOwn); diff != "" {
			t.Errorf("%s: sent again: %s", name, diff)
		}
		if diff := cmp.Diff(want, w.item(raw)); diff != "" || len(w.largeEvents.Keys()) != objects {
			t.Errorf("%s: sent again: %s", name, diff)
		}
		w.now = w.now.Add(window)
		if _, r := w.send(raw); r.Recorded != 1 || r.Published != 1 {
			t.Errorf("%s: after the window: %+v", name, r)
		}
	}
}

func TestAReplaySaysWhenTheObjectOfAClaimCheckEnds(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		retention, age time.Duration
		ends           bool
	}{{90 * day, 59 * day, false}, {90 * day, 60 * day, true}, {0, 900 * day, false}} {
		w := newWorld(t)
		w.opts.LargeEventRetention = test.retention
		stored := w.now
		id := w.park(largeEvent()).EventID
		w.now = stored.Add(test.age)
		var ends time.Time
		if test.ends {
			ends = stored.Add(test.retention)
		}
		if r := w.replayEvent(id); r.Outcome != intake.Accepted || !r.LargeEventEnds.Equal(ends) {
			t.Errorf("%s: ends %s, want %s: %+v", test.age, r.LargeEventEnds, ends, r)
		}
	}
	w := newWorld(t)
	raw := largeEvent()
	parked := w.park(raw)
	w.largeEvents.Delete(w.largeEvents.Keys()[0])
	if r := w.replayEvent(parked.EventID); r.Outcome != intake.Gone || r.Recorded != 0 || r.Err == nil ||
		!cmp.Equal(parked, w.item(raw)) {
		t.Errorf("it is gone: %+v", r)
	}
}

// The write may arrive when redrive has leased the event.
func TestAReceiverParksWhatItHolds(t *testing.T) {
	w := newWorld(t)
	wrong := amount(0, "99999999999999999999")(0, paymenttest.Encode(paymenttest.Event()))
	var leased ledger.Item
	w.table.Fails = func(ctx context.Context, call, _ string) error {
		if call == "parked" {
			w.table.Fails = nil
			w.ledger().Lease(ctx, []ledger.Item{w.item(wrong)}, ledger.NewLeaseOwner(), w.now.Add(time.Hour))
			leased = w.item(wrong)
		}
		return nil
	}
	if w.send(wrong); leased.Attempts != 1 || !cmp.Equal(w.item(wrong), leased) {
		t.Errorf("%+v, leased %+v", w.item(wrong), leased)
	}
}

// The function stops at the end of its invocation, and nobody learns what became of a call that is open then.
func TestEveryCallOfADecisionEndsBeforeItsInvocation(t *testing.T) {
	type do = func(w *world, ctx context.Context) error
	ofEvent := func(decide func(w *world, ctx context.Context, id string) error) func(w *world) do {
		return func(w *world) do {
			id := w.park(largeEvent()).EventID
			return func(w *world, ctx context.Context) error { return decide(w, ctx, id) }
		}
	}
	for want, prepare := range map[string]func(w *world) do{
		"[Put get insert pending]": func(w *world) do {
			first, other := twoContents()
			w.opts.LargeEventBytes = 10
			w.send(first)
			_, r := w.send(other)
			p := w.parked(r.ParkedAs.Name)
			return func(w *world, ctx context.Context) error {
				return w.replayer().Replay(ctx, p, wire.ParkedContent).Err
			}
		},
		"[List get replay]": ofEvent(func(w *world, ctx context.Context, id string) error {
			return w.replayer().ReplayEvent(ctx, id, w.decided()).Err
		}),
		"[dismissed get]": ofEvent(func(w *world, ctx context.Context, id string) error {
			return w.replayer().DismissEvent(ctx, id, w.decided())
		}),
	} {
		for _, limit := range []time.Duration{0, 10 * time.Second} {
			w := newWorld(t)
			decide := prepare(w)
			ctx, until := t.Context(), w.now.Add(29*time.Second)
			if limit > 0 {
				ctx, until = w.within(limit), w.now.Add(9*time.Second)
			}
			var mu sync.Mutex
			calls := map[string]bool{}
			observe := func(ctx context.Context, call, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				calls[call] = true
				if end, ok := ctx.Deadline(); !ok || end.After(until) {
					t.Errorf("%s, %s: %s may last until %s", want, limit, call, end)
				}
				return nil
			}
			w.table.Fails, w.bus.Fails, w.largeEvents.Fails, w.parking.Fails = observe, observe, observe, observe
			if err := decide(w, ctx); err != nil {
				t.Error(err)
			}
			if got := fmt.Sprint(slices.Sorted(maps.Keys(calls))); got != want {
				t.Errorf("it calls %s, want %s", got, want)
			}
		}
	}
}

// The service has sent it again: a person need not decide.
func TestAParkedEventThatIsSentAgainIsPublished(t *testing.T) {
	for name, test := range map[string]struct {
		raw  []byte
		gone bool
	}{
		"small": {paymenttest.Encode(paymenttest.Event()), false}, "large": {largeEvent(), false},
		"large, and its object is gone": {largeEvent(), true},
	} {
		w := newWorld(t)
		parked := w.park(test.raw)
		w.now = w.now.Add(2 * window)
		if test.gone {
			w.largeEvents.Delete(w.largeEvents.Keys()[0])
		}
		if parked.Large {
			w.largeEvents.Fails = broken
			if _, r := w.send(test.raw); r.Outcome != intake.LedgerUnavailable ||
				w.item(test.raw).State != ledger.Parked {
				t.Errorf("%s: recorded before its object is stored: %+v", name, r)
			}
			w.largeEvents.Fails = nil
		}
		var sent ledger.Item // while it is on its way
		w.bus.Fails = func(context.Context, string, string) error {
			sent = w.item(test.raw)
			return nil
		}
		id, r := w.send(test.raw)
		if r.Outcome != intake.Accepted || r.Recorded != 1 || r.Published != 1 || r.Duplicates != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		want := ledger.Item{EventID: parked.EventID, Digest: parked.Digest, DeliveryID: id, RecordedAt: w.now.UTC(),
			State: ledger.Pending, Detail: parked.Detail, Size: parked.Size, Large: parked.Large,
			Shard:       strings.Replace(parked.Shard, "parked", "pending", 1),
			LeasedUntil: w.now.Add(90 * time.Second).UTC(),
			LeaseOwner:  sent.LeaseOwner}
		if diff := cmp.Diff(want, sent); diff != "" || sent.LeaseOwner == parked.LeaseOwner {
			t.Errorf("%s: %s", name, diff)
		}
		w.onBus(test.raw)
		if got := w.bus.Entries()[0].DeliveryID; got != id {
			t.Errorf("%s: on the bus with the delivery %s", name, got)
		}
		if page, _, _ := w.largeEvents.List(t.Context(), "", "", 1); parked.Large && !page[0].StoredAt.Equal(w.now) {
			t.Errorf("%s: its object is not stored again: %+v", name, page)
		}
	}
}
