package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/ledger"
)

var decision = ledger.Note{By: "alice", At: time.Date(2026, 2, 1, 9, 0, 0, 5e6, time.UTC),
	Reason: "asked the sender"}

// has fails the test unless the ledger has that item, by each way to read it, and its index has it while it is open.
// The owner can be any.
func (b *fixture) has(t *testing.T, want ledger.Item) {
	t.Helper()
	got := b.find(t, ledger.Item{EventID: strings.ToUpper(want.EventID)})
	want.LeaseOwner, want.Size = got.LeaseOwner, len(want.Detail)
	if (got.LeaseOwner != ledger.LeaseOwner{}) != (want.State == ledger.Pending) {
		t.Errorf("the owner is %x", got.LeaseOwner)
	}
	var listed []ledger.Item
	if want.State == ledger.Pending || want.State == ledger.Parked {
		if want.Shard = got.Shard; !strings.HasPrefix(got.Shard, string(got.State)+"/") {
			t.Errorf("the shard is %q", got.Shard)
		}
		listed = []ledger.Item{{EventID: want.EventID, Shard: want.Shard, LeasedUntil: want.LeasedUntil,
			ParkedAt: want.ParkedAt, RecordedAt: want.RecordedAt, Size: want.Size, Large: want.Large,
			Cause: want.Cause}}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, state := range []ledger.State{ledger.Pending, ledger.Parked} {
		list, err := ledger.List(t.Context(), &b.store, state)
		if err != nil || (state == want.State) != (len(list) > 0) {
			t.Errorf("%s are %d, %v", state, len(list), err)
		}
		if diff := cmp.Diff(listed, list); state == want.State && diff != "" {
			t.Errorf("%s: %s", state, diff)
		}
	}
	want.Detail, want.Size = nil, 0
	known, err := b.Known(t.Context(), []string{want.EventID, "unknown"})
	if diff := cmp.Diff(map[string]ledger.Item{want.EventID: want}, known); err != nil || diff != "" {
		t.Errorf("known: %s, %v", diff, err)
	}
}

// The whole way of an event, and what the table has of it. A second time, it is a claim check that is dismissed.
func TestAnItemHasWhatItsStateNeeds(t *testing.T) {
	for _, claimed := range []bool{false, true} {
		b := newFixture(0)
		e := b.newEvent()
		if claimed {
			e.Detail, e.Large = bytes.Replace(e.Detail, []byte("}}"), []byte(`},"claimCheck":{}}`), 1), true
		}
		if _, known, err := b.Find(t.Context(), e.EventID); known || err != nil {
			t.Fatal(known, err)
		}
		b.record(t, e)
		// It is pending, however old it is.
		want := ledger.Item{EventID: e.EventID, DeliveryID: e.DeliveryID, Digest: e.Digest, RecordedAt: b.now,
			State: ledger.Pending, LeasedUntil: b.now, Detail: e.Detail, Large: claimed}
		b.now = b.now.Add(10 * window)
		b.has(t, want)

		leased := b.lease(t, b.due(t)[0])
		if !leased.Done || leased.Err != nil {
			t.Fatalf("%+v", leased)
		}
		want.LeasedUntil, want.Attempts = b.now.Add(time.Minute), 1
		b.has(t, want)
		read := want
		read.LeaseOwner, read.Shard, read.Size = leased.Found.LeaseOwner, leased.Found.Shard, len(e.Detail)
		read.EventName, read.EventTimestamp, read.Amount, read.Currency = e.EventName, e.EventTimestamp, "1.00", "EUR"
		if diff := cmp.Diff(read, *leased.Found); diff != "" {
			t.Error("leased:", diff)
		}

		b.now = b.now.Add(time.Second)
		b.park(t, *leased.Found)
		want.State, want.LeasedUntil, want.ParkedAt = ledger.Parked, time.Time{}, b.now
		want.Cause, want.Problem = "attempts", "a problem"
		want.Amount, want.Currency = "1.00", "EUR"
		b.now = b.now.Add(10 * window)
		b.has(t, want)
		if claimed {
			if r := b.Dismiss(t.Context(), b.find(t, e), decision); !r.Done || r.Err != nil {
				t.Fatalf("%+v", r)
			}
			want.State, want.ParkedAt, want.Attempts = ledger.Dismissed, time.Time{}, 0
			want.Cause, want.Problem = "", ""
			want.Detail, want.Large, want.Note, want.ExpiresAt = nil, false, decision, b.now.Add(window)
			b.has(t, want)
			continue
		}
		due := b.now.Add(time.Minute)
		if r := b.Replay(t.Context(), b.find(t, e), decision, due); !r.Done || r.Err != nil {
			t.Fatalf("%+v", r)
		}
		want.State, want.LeasedUntil, want.ParkedAt = ledger.Pending, due, time.Time{}
		want.Attempts, want.Cause, want.Problem = 0, "", ""
		want.Note = decision
		b.has(t, want)
		// A call to park or to postpone that comes late is of the owner of the first recording.
		b.park(t, *leased.Found)
		if err := b.Postpone(t.Context(), e, leased.Found.LeaseOwner, b.now); err != nil {
			t.Fatal(err)
		}
		b.has(t, want)
		b.now = due
		b.publish(t, *b.lease(t, b.due(t)[0]).Found)
		want.State, want.LeasedUntil, want.Detail, want.PublishedAt = ledger.Published, time.Time{}, nil, b.now
		want.EventTimestamp, want.ExpiresAt = e.EventTimestamp, b.now.Add(window)
		b.has(t, want)
		b.now = b.now.Add(time.Hour) // a second mark, by an invocation that is late, changes nothing
		b.publish(t, e)
		b.has(t, want)
	}
}

func TestWhatTheStatesAllow(t *testing.T) {
	for _, test := range []struct {
		state           ledger.State // of what the ledger has
		other           bool         // it has other content
		record, replace string
		decide          bool
	}{
		{record: recorded, replace: recorded},
		{state: ledger.Pending, record: duplicate, replace: duplicate},
		{state: ledger.Pending, other: true, record: conflict, replace: conflict},
		{state: ledger.Published, record: duplicate, replace: duplicate},
		{state: ledger.Published, other: true, record: conflict, replace: recorded},
		{state: ledger.Parked, record: recorded, replace: duplicate, decide: true},
		{state: ledger.Parked, other: true, record: conflict, replace: conflict},
		{state: ledger.Dismissed, record: duplicate, replace: recorded},
		{state: ledger.Dismissed, other: true, record: conflict, replace: recorded},
	} {
		b := newFixture(0)
		sent := func() ledger.Item {
			e := b.newEvent()
			b.in(t, test.state, e)
			if test.other {
				return b.eventOf(e.EventID, "2.00")
			}
			return e
		}
		for want, record := range map[string]func(e ...ledger.Item) ledger.WriteResult{
			"record " + test.record: func(e ...ledger.Item) ledger.WriteResult {
				return b.Record(t.Context(), e, ledger.NewLeaseOwner(), b.now)[0]
			},
			"replace " + test.replace: func(e ...ledger.Item) ledger.WriteResult {
				return b.Replace(t.Context(), e, b.now)[0]
			},
		} {
			e := sent()
			if r := record(e); !strings.HasSuffix(want, " "+outcomeOf(r, e)) ||
				r.Found != nil && r.Found.State != test.state {
				t.Errorf("%q, other %v: %+v, want %s", test.state, test.other, r, want)
			}
		}
		for name, do := range map[string]func(e ledger.Item) ledger.WriteResult{
			"replay":  func(e ledger.Item) ledger.WriteResult { return b.Replay(t.Context(), e, decision, b.now) },
			"dismiss": func(e ledger.Item) ledger.WriteResult { return b.Dismiss(t.Context(), e, decision) },
		} {
			e := sent()
			before := b.store.Items()
			r := do(e)
			if r.Err != nil || r.Done != test.decide || !r.Done && (r.Found == nil) != (test.state == "") ||
				r.Found != nil && r.Found.State != test.state {
				t.Errorf("%s what is %q, other %v: %+v", name, test.state, test.other, r)
			}
			if diff := cmp.Diff(before, b.store.Items()); (diff != "") != test.decide {
				t.Errorf("%s what is %q: %s", name, test.state, diff)
			}
		}
		// What is not pending as this event, with this content, is neither marked nor parked.
		if test.state != ledger.Pending || test.other {
			e := sent()
			before := b.store.Items()
			b.publish(t, e)
			b.park(t, e)
			if diff := cmp.Diff(before, b.store.Items()); diff != "" {
				t.Errorf("mark and park what is %q, other %v: %s", test.state, test.other, diff)
			}
		}
	}
}

// What is parked, or decided, or late is of one recording.
func TestALaterRecordingIsNotParkedOrDecided(t *testing.T) {
	b := newFixture(0)
	e := b.newEvent()
	b.in(t, ledger.Parked, e)
	b.now = b.now.Add(time.Hour)
	sent := b.eventOf(e.EventID, "1.00")
	b.record(t, sent)
	if b.park(t, e); b.find(t, e).State != ledger.Pending {
		t.Error("the later recording is parked")
	}
	b.park(t, sent)
	first := b.find(t, e)
	refused := []ledger.WriteResult{b.Replay(t.Context(), e, decision, b.now), b.Dismiss(t.Context(), e, decision)}
	b.Replay(t.Context(), first, decision, b.now)
	b.now = b.now.Add(time.Hour)
	b.park(t, b.find(t, e))
	for n, r := range append(refused, b.Dismiss(t.Context(), first, decision)) { // as it was parked first
		if r.Done || r.Err != nil || r.Found.State != ledger.Parked || r.Found.DeliveryID != sent.DeliveryID {
			t.Errorf("decided %d: %+v", n, r)
		}
	}
	if r := b.Dismiss(t.Context(), ledger.Item{EventID: e.EventID}, decision); !r.Done {
		t.Errorf("without a recording: %+v", r)
	}
}

var errDecode = errors.New("can't decode something")

func TestAnItemThatCannotBeDecodedIsParkedOnce(t *testing.T) {
	for name, damage := range map[string]func(*ledger.Item){
		"digest":      func(i *ledger.Item) { i.Digest, i.Err = ledger.Digest{}, errDecode },
		"no digest":   func(i *ledger.Item) { i.Digest = ledger.Digest{} },
		"no bytes":    func(i *ledger.Item) { i.Detail = nil },
		"recordedAt":  func(i *ledger.Item) { i.RecordedAt, i.Err = time.Time{}, errDecode },
		"other bytes": func(i *ledger.Item) { i.Detail = []byte("{}") },
		"claim":       func(i *ledger.Item) { i.Detail, i.Large = []byte("x"), true },
	} {
		b := newFixture(0)
		e := b.newEvent()
		b.record(t, e)
		b.damage(t, e, damage)
		l := b.lease(t, b.due(t)[0])
		if !l.Done || l.Found.EventID != e.EventID ||
			fmt.Sprint(l.Err) != "ledger: lease "+e.EventID+": "+ledger.ErrCorrupt.Error() {
			t.Errorf("%s: %+v", name, l)
		}
		b.park(t, *l.Found)
		parked := b.store.Items()
		b.now = b.now.Add(time.Hour)
		b.park(t, *l.Found)
		if diff := cmp.Diff(parked, b.store.Items(), cmpopts.EquateErrors()); diff != "" || len(b.due(t)) > 0 {
			t.Errorf("%s: parked twice: %s", name, diff)
		}
		found, known, _ := b.Find(t.Context(), e.EventID)
		if r := b.Dismiss(t.Context(), found, decision); !known || !r.Done || r.Err != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// It counts as unknown, and hides no other. Only the condition decides about it.
func TestAnItemThatCannotBeDecodedIsNoOutcome(t *testing.T) {
	b := newFixture(0)
	events := b.newEvents(2)
	bad, good := events[0], events[1]
	b.record(t, bad, good)
	b.damage(t, bad, func(i *ledger.Item) { i.RecordedAt, i.Err = time.Time{}, errDecode })
	for name, r := range map[string]ledger.WriteResult{
		"record":  b.Record(t.Context(), []ledger.Item{bad}, ledger.NewLeaseOwner(), b.now)[0],
		"replace": b.Replace(t.Context(), []ledger.Item{bad}, b.now)[0],
	} {
		if !errors.Is(r.Err, errDecode) || outcomeOf(r, bad) != uncertain {
			t.Errorf("%s: %+v", name, r)
		}
	}
	both := b.Record(t.Context(), []ledger.Item{bad, good}, ledger.NewLeaseOwner(), b.now)
	if both[0].Err == nil || outcomeOf(both[1], good) != duplicate {
		t.Errorf("both: %+v", both)
	}
	known, err := b.Known(t.Context(), []string{bad.EventID, good.EventID})
	if len(known) != 1 || known[good.EventID].Digest != good.Digest ||
		fmt.Sprint(err) != "ledger: read "+bad.EventID+": can't decode something" {
		t.Errorf("known: %v, %v", known, err)
	}
	i, ok, err := b.Find(t.Context(), bad.EventID)
	if !ok || i.Digest != bad.Digest || fmt.Sprint(err) != "ledger: find "+bad.EventID+": can't decode something" {
		t.Errorf("find: %+v, %t, %v", i, ok, err)
	}
	// The eventId is enough to lease an item, but not one whose time is not known.
	if l := b.lease(t, ledger.Item{EventID: good.EventID}); l.Done || l.Err != nil {
		t.Errorf("%+v", l)
	}
}

// The SDK repeats a write whose answer is lost after it took effect, alone or in a batch.
func TestAWriteWhoseAnswerIsLostIsKnownAgain(t *testing.T) {
	b := newFixture(0)
	b.store.repeat = true
	events := b.newEvents(30)
	for i, outcome := range append(b.record(t, events...), b.record(t, events...)...) { // by another owner
		if want := map[bool]string{true: recorded, false: duplicate}[i < 30]; outcome != want {
			t.Errorf("%d: %s", i, outcome)
		}
	}
	due, owner := b.due(t), ledger.NewLeaseOwner()
	for n, test := range []struct {
		owner ledger.LeaseOwner
		until time.Duration
		held  bool
	}{{owner, 1, true}, {owner, 1, true}, {ledger.NewLeaseOwner(), 1, false}, {owner, 2, false}} {
		for i, l := range b.Lease(t.Context(), due, test.owner, b.now.Add(test.until*time.Minute)) {
			if l.Done != test.held || l.Err != nil || l.Done && l.Found.Attempts != 1 || !l.Done && l.Found != nil {
				t.Errorf("lease %d, %d: %+v", n, i, l)
			}
		}
	}
	first, second := events[0], events[1]
	b.store.repeat = false
	b.park(t, *b.lease(t, b.find(t, first)).Found)
	b.park(t, *b.lease(t, b.find(t, second)).Found)
	b.store.repeat = true
	for what, r := range map[string]ledger.WriteResult{"replay": b.Replay(t.Context(), first, decision, b.now),
		"dismiss": b.Dismiss(t.Context(), second, decision)} {
		if !r.Done || r.Err != nil {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if r := b.Replay(t.Context(), first, decision, b.now); r.Done || r.Found.State != ledger.Pending {
		t.Errorf("another replay: %+v", r)
	}
	for _, other := range []ledger.Note{{By: "bob", At: decision.At, Reason: decision.Reason},
		{By: "alice", At: decision.At, Reason: "why"}, {By: "alice", At: b.now, Reason: decision.Reason}} {
		if r := b.Dismiss(t.Context(), second, other); r.Done || r.Found.Note != decision {
			t.Errorf("another decision: %+v", r)
		}
	}
}

func TestTextsOfAPersonAreLimited(t *testing.T) {
	b := newFixture(0)
	e := b.newEvent()
	b.record(t, e)
	if err := b.Park(t.Context(), e, "x", strings.Repeat("a", 511)+"é"); err != nil ||
		b.find(t, e).Problem != strings.Repeat("a", 511) {
		t.Errorf("%v, %q", err, b.find(t, e).Problem)
	}
}
