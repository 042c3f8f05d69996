package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/ledger"
)

// open returns how many events are pending and parked.
func (b *fixture) open(t *testing.T) (open [2]int) {
	t.Helper()
	pending, err := b.List(t.Context(), ledger.Pending)
	parked, also := b.List(t.Context(), ledger.Parked)
	if err := errors.Join(err, also); err != nil {
		t.Fatal(err)
	}
	return [2]int{len(pending), len(parked)}
}

var decision = ledger.Decision{By: "alice", At: time.Date(2026, 2, 1, 9, 0, 0, 5e6, time.UTC),
	Reason: "asked the sender"}

// The whole way of an event: it is parked, replayed, parked again, replayed and published.
func TestAParkedEventHasOneHome(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.recordDue(t, e)
	leased := b.lease(t)
	if leased.Err != nil {
		t.Fatal(leased.Err)
	}
	b.now = b.now.Add(time.Second)
	if err := b.Park(t.Context(), leased.Item, "attempts", "the bus is full"); err != nil {
		t.Fatal(err)
	}
	want := ledger.Item{EventID: e.EventID, Digest: e.Digest, DeliveryID: e.DeliveryID, RecordedAt: e.RecordedAt,
		Amount: "1234567890.10", Currency: "EUR", State: ledger.Parked, Detail: e.Detail, Size: len(e.Detail),
		Shard: strings.Replace(leased.Item.Shard, "pending", "parked", 1), Due: b.now, Attempts: 1, Cause: "attempts",
		Problem: "the bus is full"}
	if diff := cmp.Diff(want, b.find(t, e)); diff != "" {
		t.Error("parked:", diff)
	}
	listed := ledger.Item{EventID: want.EventID, Shard: want.Shard, Due: want.Due, RecordedAt: want.RecordedAt,
		Size: want.Size, Cause: want.Cause}
	list, err := b.List(t.Context(), ledger.Parked)
	if diff := cmp.Diff([]ledger.Item{listed}, list); diff != "" || err != nil {
		t.Error(err, diff)
	}
	b.now = b.now.Add(10 * window)
	if got := b.open(t); got != [2]int{0, 1} || len(b.due(t)) != 0 ||
		!b.find(t, e).ExpiresAt.IsZero() {
		t.Errorf("a window later, %v are pending and parked", got)
	}

	due := b.now.Add(time.Minute)
	if r := b.Replay(t.Context(), b.find(t, e), decision, due); !r.Done || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	got := b.find(t, e)
	want.State, want.Shard, want.Due, want.Holder = ledger.Pending, leased.Item.Shard, due, got.Holder
	want.Attempts, want.Cause, want.Problem, want.Decision = 0, "", "", decision
	if diff := cmp.Diff(want, got); diff != "" || got.Holder == (ledger.Holder{}) || got.Holder == leased.Item.Holder {
		t.Error("replayed:", diff)
	}
	// A lease or a call to park that comes late is of the first recording's holder.
	if err := errors.Join(b.Park(t.Context(), leased.Item, "late", ""),
		b.Postpone(t.Context(), e, leased.Item.Holder, b.now)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.find(t, e)); diff != "" {
		t.Error("late:", diff)
	}
	b.now = due
	again := b.lease(t)
	if again.Err != nil || again.Item.Attempts != 1 || again.Item.Amount != want.Amount {
		t.Fatalf("%+v", again)
	}
	b.publish(t, again.Item)
	if got := b.find(t, e); got.State != ledger.Published || got.Decision != decision || got.Detail != nil ||
		!got.ExpiresAt.Equal(b.now.Add(window)) || b.open(t) != [2]int{} {
		t.Errorf("published: %+v, %v", got, b.open(t))
	}
}

// The new delivery replaces all of the old one, whatever was decided, in one conditional change.
func TestAParkedEventThatIsSentAgainIsRecordedAnew(t *testing.T) {
	for _, claimed := range []bool{false, true} {
		b := newFixture(t)
		e := b.new(t, 1)[0]
		claim := []byte(fmt.Sprintf(`{"eventName":"A.B","eventId":%q,"claimCheck":{}}`, e.EventID))
		if !claimed {
			e = e.AsClaim(claim)
		}
		b.in(t, ledger.Parked, e)
		b.Replay(t.Context(), e, decision, b.now)
		if err := b.Park(t.Context(), b.lease(t).Item, "attempts", "a problem"); err != nil {
			t.Fatal(err)
		}
		b.now = b.now.Add(window)
		sent := b.entry(t, e.EventID, "")
		if claimed {
			sent = sent.AsClaim(claim)
		}
		holder := ledger.NewHolder()
		b.store.calls = nil
		if r := b.Record(t.Context(), []ledger.Item{sent}, holder, b.now)[0]; r.Outcome != ledger.Recorded {
			t.Fatal(r)
		}
		if diff := cmp.Diff(map[string][]int{"Insert": {1}, "Get": {1}, "Change": {1}}, b.store.calls); diff != "" {
			t.Error(diff)
		}
		got := b.find(t, e)
		want := ledger.Item{EventID: e.EventID, Digest: e.Digest, DeliveryID: sent.DeliveryID, RecordedAt: b.now,
			State: ledger.Pending, Detail: sent.Detail, Size: len(sent.Detail), Claimed: claimed, Shard: got.Shard,
			Due: b.now, Holder: holder}
		if diff := cmp.Diff(want, got); diff != "" || b.open(t) != [2]int{1, 0} {
			t.Errorf("claimed %v: %v %s", claimed, b.open(t), diff)
		}
		if l := b.lease(t); l.Item.Attempts != 1 || l.Item.DeliveryID != sent.DeliveryID {
			t.Errorf("%+v", l)
		}
	}
}

// What is parked, or decided, or late is of one recording.
func TestALaterRecordingIsNotParkedOrDecided(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.in(t, ledger.Parked, e)
	b.now = b.now.Add(time.Hour)
	sent := b.entry(t, e.EventID, "")
	b.recordDue(t, sent)
	if err := b.Park(t.Context(), e, "", ""); err != nil || b.find(t, e).State != ledger.Pending {
		t.Errorf("parked: %v", err)
	}
	if err := b.Park(t.Context(), sent, "", ""); err != nil {
		t.Fatal(err)
	}
	for _, r := range []ledger.Result{b.Replay(t.Context(), e, decision, b.now), b.Dismiss(t.Context(), e, decision)} {
		if r.Done || r.Err != nil || r.Item.State != ledger.Parked || r.Item.DeliveryID != sent.DeliveryID {
			t.Errorf("decided: %+v", r)
		}
	}
	first := b.find(t, e)
	b.Replay(t.Context(), first, decision, b.now)
	b.now = b.now.Add(time.Hour)
	if err := b.Park(t.Context(), b.find(t, e), "", ""); err != nil {
		t.Fatal(err)
	}
	if r := b.Dismiss(t.Context(), first, decision); r.Done || r.Err != nil || r.Item.State != ledger.Parked {
		t.Errorf("dismissed as it was parked first: %+v", r)
	}
	if r := b.Dismiss(t.Context(), ledger.Item{EventID: e.EventID}, decision); !r.Done {
		t.Errorf("without a recording: %+v", r)
	}
}

func TestAnItemThatCannotBeDecodedIsParkedOnce(t *testing.T) {
	for name, damage := range map[string]func(*ledger.Item){
		"digest":      func(i *ledger.Item) { i.Digest, i.Err = ledger.Digest{}, errDecode },
		"no digest":   func(i *ledger.Item) { i.Digest = ledger.Digest{} },
		"bytes":       func(i *ledger.Item) { i.Detail, i.Err = nil, errDecode },
		"no bytes":    func(i *ledger.Item) { i.Detail = nil },
		"recordedAt":  func(i *ledger.Item) { i.RecordedAt, i.Err = time.Time{}, errDecode },
		"other bytes": func(i *ledger.Item) { i.Detail = []byte("{}") },
	} {
		b := newFixture(t)
		e := b.new(t, 1)[0]
		b.recordDue(t, e)
		b.damage(t, e, damage)
		l := b.lease(t)
		if !l.Held || !errors.Is(l.Err, ledger.ErrCorrupt) {
			t.Errorf("%s: %+v", name, l)
		}
		var parked map[string]ledger.Item
		for range 2 {
			if err := b.Park(t.Context(), l.Item, "not-as-recorded", ""); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			b.now = b.now.Add(time.Hour)
			if got := b.open(t); got != [2]int{0, 1} || len(b.due(t)) != 0 {
				t.Errorf("%s: %v, %d due", name, got, len(b.due(t)))
			}
			if items := b.store.Items(); parked == nil {
				parked = items
			} else if diff := cmp.Diff(parked, items, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s: parked twice: %s", name, diff)
			}
		}
		found, known, _ := b.Find(t.Context(), e.EventID)
		if _, err := found.WithEvent(); !known || !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if r := b.Dismiss(t.Context(), found, decision); !r.Done || r.Err != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// The SDK repeats a write whose answer is lost after it took effect.
func TestADecisionWhoseAnswerIsLostIsKnownAgain(t *testing.T) {
	b := newFixture(t)
	first, second := b.new(t, 1)[0], b.new(t, 1)[0]
	b.in(t, ledger.Parked, first)
	b.in(t, ledger.Parked, second)
	b.store.repeat = true
	other := decision
	other.At = other.At.Add(time.Millisecond)
	for what, r := range map[string]ledger.Result{"replay": b.Replay(t.Context(), first, decision, b.now),
		"dismiss": b.Dismiss(t.Context(), second, decision)} {
		if !r.Done || r.Err != nil {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if r := b.Replay(t.Context(), first, decision, b.now); r.Done || r.Item.State != ledger.Pending {
		t.Errorf("another replay: %+v", r)
	}
	if r := b.Dismiss(t.Context(), second, other); r.Done || r.Item.State != ledger.Dismissed ||
		r.Item.Decision != decision {
		t.Errorf("another decision: %+v", r)
	}
}

func TestTextsOfAPersonAreLimited(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.recordDue(t, e)
	if err := b.Park(t.Context(), e, "x", strings.Repeat("a", 511)+"é"); err != nil ||
		b.find(t, e).Problem != strings.Repeat("a", 511) {
		t.Errorf("%v, %q", err, b.find(t, e).Problem)
	}
	d := ledger.Decision{By: "a", Reason: strings.Repeat("a", 1000)}
	for _, r := range []ledger.Result{b.Replay(t.Context(), e, d, b.now), b.Dismiss(t.Context(), e, d)} {
		if r.Done || !errors.Is(r.Err, ledger.ErrDecisionTooLong) {
			t.Errorf("%+v", r)
		}
	}
	d.Reason = d.Reason[:999]
	if r := b.Dismiss(t.Context(), e, d); !r.Done {
		t.Errorf("%+v", r)
	}
}

// TTL deletes an item at any time after its window.
func TestAnItemThatIsDeletedMeanwhileIsInsertedAgain(t *testing.T) {
	for _, moment := range []string{"Get", "Change"} {
		b := newFixture(t)
		e := b.new(t, 1)[0]
		b.in(t, ledger.Published, e)
		b.now = b.now.Add(window)
		sent := b.entry(t, e.EventID, "1")
		deleted := false
		b.store.before = func(call string) {
			if call == moment && !deleted {
				deleted = true
				b.store.Delete(t.Context(), e.EventID)
			}
		}
		b.record(t, sent, ledger.Recorded)
		if got := b.find(t, e); !deleted || got.State != ledger.Pending || got.DeliveryID != sent.DeliveryID {
			t.Errorf("before %s: %v, %+v", moment, deleted, got)
		}
	}
}
