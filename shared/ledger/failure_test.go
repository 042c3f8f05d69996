package ledger_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"payhook.example/shared/ledger"
)

// operations calls every method for the event e, and returns their errors.
func (b *fixture) operations(t *testing.T, e ledger.Item) map[string]error {
	t.Helper()
	ctx, events, holder, at := t.Context(), []ledger.Item{e}, ledger.NewHolder(), b.now
	errs := map[string]error{}
	for name, r := range map[string]ledger.Recording{
		"record": b.Record(ctx, events, holder, at)[0], "replace": b.Replace(ctx, events, at)[0],
	} {
		if errs[name] = r.Err; r.Err != nil && r.Outcome != 0 {
			t.Errorf("%s: outcome %d with an error", name, r.Outcome)
		}
	}
	leased := b.Lease(ctx, []ledger.Item{{EventID: e.EventID}}, holder, at)[0]
	if errs["lease"] = leased.Err; leased.Held {
		t.Error("lease: held with an error")
	}
	errs["postpone"] = b.Postpone(ctx, e, holder, at)
	errs["mark"] = b.MarkPublished(ctx, events)[0]
	errs["park"] = b.Park(ctx, e, "", "")
	errs["replay"] = b.Replay(ctx, e, ledger.Decision{}, at).Err
	errs["dismiss"] = b.Dismiss(ctx, e, ledger.Decision{}).Err
	_, _, errs["due"] = b.Due(ctx, 0, at, nil, 1)
	_, errs["waiting"] = b.Waiting(ctx, 0, at, 1)
	_, errs["known"] = b.Known(ctx, []string{e.EventID})
	_, _, errs["find"] = b.Find(ctx, e.EventID)
	_, errs["list"] = b.List(ctx, ledger.Pending)
	return errs
}

func TestEveryOperationReturnsTheErrorOfTheStore(t *testing.T) {
	b, down := newFixture(t), errors.New("down")
	b.store.after = func(string, string) error { return down }
	for name, err := range b.operations(t, b.new(t, 1)[0]) {
		if !errors.Is(err, down) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An item whose bytes are a claim check has the digest of the event, not of the
// bytes.
func TestLeaseReturnsAClaimCheck(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	e.Claimed, e.Digest = true, ledger.Digest{1}
	b.recordDue(t, e)
	until := b.now.Add(time.Minute)
	l := b.leaseUntil(t, ledger.Item{EventID: e.EventID, Due: b.now}, ledger.NewHolder(), until)
	if !l.Held || l.Err != nil || !l.Item.Claimed || l.Item.Digest != e.Digest || l.Item.EventName != e.EventName ||
		l.Item.Attempts != 1 {
		t.Errorf("%+v", l)
	}
	b.damage(t, e, func(i *ledger.Item) { i.Detail = []byte("x") })
	l = b.leaseUntil(t, ledger.Item{EventID: e.EventID, Due: until}, ledger.NewHolder(), until)
	if !l.Held || !errors.Is(l.Err, ledger.ErrCorrupt) || l.Item.EventID != e.EventID {
		t.Errorf("without JSON: %+v", l)
	}
}

var errDecode = errors.New("can't decode something")

// It counts as unknown, and hides no other. Only the condition decides about it.
func TestAnItemThatCannotBeDecodedIsNoOutcome(t *testing.T) {
	b := newFixture(t)
	events := b.new(t, 2)
	bad, good := events[0], events[1]
	b.recordDue(t, bad, good)
	b.damage(t, bad, func(i *ledger.Item) { i.RecordedAt, i.Err = time.Time{}, errDecode })
	for name, r := range map[string]ledger.Recording{
		"record":  b.Record(t.Context(), []ledger.Item{bad}, ledger.NewHolder(), b.now)[0],
		"replace": b.Replace(t.Context(), []ledger.Item{bad}, b.now)[0],
	} {
		if r.Err == nil || r.Outcome != 0 {
			t.Errorf("%s: %+v", name, r)
		}
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
}

// Its eventId is enough to lease it if its time can't be decoded.
func TestAnItemWithoutATimeIsNotLeased(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.recordDue(t, e)
	if l := b.leaseUntil(t, ledger.Item{EventID: e.EventID}, ledger.NewHolder(), b.now); l.Held || l.Err != nil {
		t.Errorf("%+v", l)
	}
}
