package intake_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/redrive"
)

// Only what waits for a person can be decided: what is pending would be neither published nor open.
func TestOnlyAParkedEventIsReplayedOrDismissed(t *testing.T) {
	w := newWorld(t)
	raw := amount(0, "1000000000000000000000")(0, paymenttest.Encode(paymenttest.Event()))
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
	w.table.Fails = fails("parked")
	if _, r := w.send(raw); r.Pending != 1 {
		t.Fatalf("%+v", r)
	}
	expect(intake.StillPending)
	w.table.Fails, w.now = nil, w.now.Add(2*time.Minute)
	if r := w.redrive(); r.Parked != 1 {
		t.Errorf("%+v", r)
	}
	if r := w.replayEvent(id); r.Outcome != intake.Accepted {
		t.Errorf("%+v", r)
	}
	expect(intake.StillPending)
	raw = paymenttest.Encode(paymenttest.Event())
	id = idOf(t, raw)
	w.send(raw)
	expect(intake.AlreadyPublished)
}

func TestADismissedEventThatIsSentAgainIsADuplicate(t *testing.T) {
	for name, raw := range map[string][]byte{"small": paymenttest.Encode(paymenttest.Event()), "large": largeEvent()} {
		w := newWorld(t)
		item := w.park(raw)
		want := ledger.Item{EventID: item.EventID, Digest: item.Digest, DeliveryID: item.DeliveryID,
			RecordedAt: item.RecordedAt, Amount: "1250.00", Currency: "USD", State: ledger.Dismissed,
			Decision: w.decided(), ExpiresAt: w.now.Add(window).Truncate(time.Second).UTC()}
		for range 2 {
			if err := w.dismissEvent(item.EventID); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, w.item(raw)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			w.now = w.now.Add(time.Hour)
		}
		if r := w.replayEvent(item.EventID); r.Outcome != intake.AlreadyDismissed {
			t.Errorf("%s: %+v", name, r)
		}
		objects := len(w.claims.Keys())
		id, r := w.send(raw)
		if diff := cmp.Diff(intake.Result{Outcome: intake.Accepted, DeliveryID: id,
			Events: 1, Duplicates: 1,
			EventIDs: intake.EventIDs{intake.Dismissed: {item.EventID}}}, r, onTheirOwn); diff != "" {
			t.Errorf("%s: sent again: %s", name, diff)
		}
		if diff := cmp.Diff(want, w.item(raw)); diff != "" || len(w.claims.Keys()) != objects {
			t.Errorf("%s: sent again: %s", name, diff)
		}
		w.now = w.now.Add(window)
		if _, r := w.send(raw); r.Recorded != 1 || r.Published != 1 {
			t.Errorf("%s: after the window: %+v", name, r)
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
			w.claims.Delete(w.claims.Keys()[0])
		}
		if parked.Claimed {
			w.claims.Fails = broken
			if _, r := w.send(test.raw); r.Outcome != intake.LedgerUnavailable ||
				w.item(test.raw).State != ledger.Parked {
				t.Errorf("%s: recorded before its object is stored: %+v", name, r)
			}
			w.claims.Fails = nil
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
			State: ledger.Pending, Detail: parked.Detail, Size: parked.Size, Claimed: parked.Claimed,
			Shard: strings.Replace(parked.Shard, "parked", "pending", 1), Due: w.now.Add(90 * time.Second).UTC(),
			Holder: sent.Holder}
		if diff := cmp.Diff(want, sent); diff != "" || sent.Holder == parked.Holder {
			t.Errorf("%s: %s", name, diff)
		}
		w.onBus(test.raw)
		if got := w.bus.Entries()[0].DeliveryID; got != id {
			t.Errorf("%s: on the bus with the delivery %s", name, got)
		}
		if page, _, _ := w.claims.List(t.Context(), "", "", 1); parked.Claimed && !page[0].StoredAt.Equal(w.now) {
			t.Errorf("%s: its object is not stored again: %+v", name, page)
		}
	}
}

func TestAReplaySaysWhenTheObjectOfAClaimCheckEnds(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		retention, age time.Duration
		ends           bool
	}{
		"31 days":       {90 * day, 59 * day, false},
		"30 days":       {90 * day, 60 * day, true},
		"an hour":       {90 * day, 90*day - time.Hour, true},
		"there is none": {0, 900 * day, false},
	} {
		w := newWorld(t)
		w.opts.ClaimRetention = test.retention
		stored := w.now
		id := w.park(largeEvent()).EventID
		w.now = stored.Add(max(test.age, 3*time.Minute))
		var ends time.Time
		if test.ends {
			ends = stored.Add(test.retention)
		}
		if r := w.replayEvent(id); r.Outcome != intake.Accepted || !r.ClaimEnds.Equal(ends) {
			t.Errorf("%s: ends %s, want %s: %+v", name, r.ClaimEnds, ends, r)
		}
	}
	w := newWorld(t)
	raw := largeEvent()
	parked := w.park(raw)
	w.claims.Delete(w.claims.Keys()[0])
	if r := w.replayEvent(parked.EventID); r.Outcome != intake.Gone || r.Recorded != 0 || r.Err == nil ||
		!cmp.Equal(parked, w.item(raw)) {
		t.Errorf("it is gone: %+v", r)
	}
}

// Who decided, when and why stays with the event. The last decision counts.
func TestADecisionIsInTheItem(t *testing.T) {
	w := newWorld(t)
	raw := paymenttest.Encode(paymenttest.Event())
	id := w.park(raw).EventID
	before := w.table.Items()
	long := ledger.Decision{By: "jane", At: w.now.UTC(), Reason: strings.Repeat("x", 997)}
	for _, err := range []error{w.replayer().ReplayEvent(w.ctx(), id, long).Err,
		w.replayer().DismissEvent(w.ctx(), id, long)} {
		if !errors.Is(err, ledger.ErrDecisionTooLong) || !cmp.Equal(before, w.table.Items()) {
			t.Errorf("1,001 bytes: %v", err)
		}
	}
	expect := func(err error, want ledger.Decision, state ledger.State) {
		t.Helper()
		if i := w.item(raw); err != nil || i.Decision != want || i.State != state {
			t.Errorf("%v: %+v", err, i)
		}
	}
	long.Reason = long.Reason[1:]
	expect(w.replayer().ReplayEvent(w.ctx(), id, long).Err, long, ledger.Pending)
	w.bus.Fails = broken
	expect(w.run(1, time.Minute).Err, long, ledger.Parked)
	w.bus.Fails = nil
	expect(w.replayEvent(id).Err, w.decided(), ledger.Pending)
	expect(w.redrive().Err, w.decided(), ledger.Published)
}

// The write may arrive when redrive has leased the event.
func TestAReceiverParksWhatItHolds(t *testing.T) {
	w := newWorld(t)
	wrong := amount(0, "99999999999999999999")(0, paymenttest.Encode(paymenttest.Event()))
	var leased ledger.Item
	w.table.Fails = func(ctx context.Context, call, _ string) error {
		if call == "parked" {
			w.table.Fails = nil
			w.ledger().Lease(ctx, []ledger.Item{w.item(wrong)}, ledger.NewHolder(), w.now.Add(time.Hour))
			leased = w.item(wrong)
		}
		return nil
	}
	if w.send(wrong); leased.Attempts != 1 || !cmp.Equal(w.item(wrong), leased) {
		t.Errorf("%+v, leased %+v", w.item(wrong), leased)
	}
}

// A dismissal removes bytes, so it must not concern what another person replayed and redrive parked again meanwhile.
func TestALateDecisionDoesNotConcernWhatIsParkedLater(t *testing.T) {
	for call, do := range map[string]func(w *world, id string) error{
		"replay":    func(w *world, id string) error { return w.replayEvent(id).Err },
		"dismissed": (*world).dismissEvent,
	} {
		w := newWorld(t)
		raw := paymenttest.Encode(paymenttest.Event())
		id := w.park(raw).EventID
		var again ledger.Item
		w.table.Fails = func(_ context.Context, c, _ string) error {
			if c == call {
				w.table.Fails, w.bus.Fails = nil, broken
				w.replayEvent(id)
				w.run(1, time.Minute)
				again = w.item(raw)
			}
			return nil
		}
		w.bus.Fails, w.now = broken, w.now.Add(time.Minute)
		if err := do(w, id); intake.OutcomeOf(err) != intake.StillPending || !cmp.Equal(w.item(raw), again) ||
			again.State != ledger.Parked {
			t.Errorf("%s: %v: %+v", call, err, w.item(raw))
		}
	}
}

// The function stops at the end of its invocation, and nobody learns what became of a call that is open then.
func TestEveryCallOfADecisionEndsBeforeItsInvocation(t *testing.T) {
	for name, test := range map[string]struct {
		do    func(w *world) func(ctx context.Context) error
		calls []string
	}{
		"a replay of a large conflict": {func(w *world) func(ctx context.Context) error {
			first, other := versions()
			w.opts.ClaimBytes = 10
			w.send(first)
			_, r := w.send(other)
			p := w.parked(r.Parked)
			return func(ctx context.Context) error { return w.replayer().Replay(ctx, p, redrive.ParkedVersion).Err }
		}, []string{"Put", "get", "insert", "pending"}},
		"a replay of a parked claim check": {func(w *world) func(ctx context.Context) error {
			id := w.park(largeEvent()).EventID
			return func(ctx context.Context) error { return w.replayer().ReplayEvent(ctx, id, w.decided()).Err }
		}, []string{"List", "get", "replay"}},
		"a dismissal": {func(w *world) func(ctx context.Context) error {
			id := w.park(largeEvent()).EventID
			return func(ctx context.Context) error { return w.replayer().DismissEvent(ctx, id, w.decided()) }
		}, []string{"dismissed", "get"}},
	} {
		for _, limit := range []time.Duration{0, 10 * time.Second} {
			w := newWorld(t)
			do := test.do(w)
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
					t.Errorf("%s, %s: %s may last until %s", name, limit, call, end)
				}
				return nil
			}
			w.table.Fails, w.bus.Fails, w.claims.Fails, w.parking.Fails = observe, observe, observe, observe
			if err := do(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := slices.Sorted(maps.Keys(calls)); !slices.Equal(got, test.calls) {
				t.Errorf("%s: it calls %q", name, got)
			}
		}
	}
}
