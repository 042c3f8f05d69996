package intake_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

// An object in the bucket is not authentic because it is there.
func TestAForgedParkedDeliveryIsNotReplayed(t *testing.T) {
	small := paymenttest.NewKey(1024)
	for name, change := range map[string]func(p *proof.Proof){
		"the payload is changed": func(p *proof.Proof) {
			p.Payload = bytes.Replace(p.Payload, []byte("0.01"), []byte("9.99"), 1)
		},
		"there is no signature": func(p *proof.Proof) { p.Signature = "" },
		"there is no key":       func(p *proof.Proof) { p.JWK = nil },
		"a stranger signed it with a weak key": func(p *proof.Proof) {
			p.JWK = keys.FormatJWK(p.KeyID, &small.Private.PublicKey)
			p.Signature, _ = signature.Sign(small.Private, p.Payload, p.Timestamp, p.KeyID)
		},
	} {
		w := newWorld(t)
		_, _, _, conflict := w.conflict()
		items, entries, objects := w.table.Items(), len(w.bus.Entries()), w.parking.Objects()
		for _, p := range []proof.Proof{conflict, w.invalid(conflict.Payload)} {
			change(&p)
			for _, content := range []wire.Content{"", wire.FirstContent, wire.ParkedContent} {
				if r := w.replay(p, content); r.Outcome == intake.Accepted || r.Outcome == intake.Conflict {
					t.Errorf("%s: %s, content %q: %+v", name, p.Reason, content, r)
				}
			}
		}
		w.now = w.now.Add(time.Hour)
		w.redrive()
		if diff := cmp.Diff(items, w.table.Items()) + cmp.Diff(objects, w.parking.Objects()); diff != "" ||
			len(w.bus.Entries()) != entries {
			t.Errorf("%s: something changed: %s", name, diff)
		}
	}
}

// Both contents are never on their way together, and the cause says truly what is on the bus.
func TestAConflictIsDecidedByWhatTheFirstContentIs(t *testing.T) {
	const parked = "event ID: the first content is parked and not on the bus: replay or dismiss the event first"
	const dismissed = "event ID: the first content was dismissed and is not on the bus: dismiss the conflict too"
	const pending = "intake: an event is recorded and not published yet: redrive publishes or parks it; repeat the " +
		"replay later"
	outcomes := map[string]intake.Outcome{"": intake.Accepted, parked: intake.ContentUnavailable,
		dismissed: intake.ContentUnavailable, pending: intake.StillPending}
	const long = 2 * window
	type states = []ledger.State
	for name, test := range map[string]struct {
		by            states // through which the first content goes
		after         time.Duration
		gone          bool
		first, parked string // the causes
	}{
		"pending":                {first: pending, parked: pending},
		"published":              {by: states{ledger.Published}},
		"published for long":     {by: states{ledger.Published}, after: long},
		"published and gone":     {by: states{ledger.Published}, after: long, gone: true},
		"parked":                 {by: states{ledger.Parked}, first: parked, parked: parked},
		"parked for long":        {by: states{ledger.Parked}, after: long, gone: true, first: parked, parked: parked},
		"dismissed":              {by: states{ledger.Parked, ledger.Dismissed}, first: dismissed},
		"dismissed for long":     {by: states{ledger.Parked, ledger.Dismissed}, after: long, first: dismissed},
		"replayed":               {by: states{ledger.Parked, ledger.Pending}, first: pending, parked: pending},
		"replayed and published": {by: states{ledger.Parked, ledger.Pending, ledger.Published}},
	} {
		w := newWorld(t)
		first, other := twoContents()
		id := idOf(t, first)
		w.bus.Fails = broken
		w.send(first)
		_, r := w.send(other)
		p := w.parked(r.ParkedAs.Name)
		for _, state := range test.by {
			w.now = w.now.Add(2 * time.Minute)
			switch state {
			case ledger.Parked:
				w.run(1, time.Minute)
			case ledger.Pending:
				w.replayEvent(id)
			case ledger.Dismissed:
				_ = w.dismissEvent(id)
			case ledger.Published:
				w.bus.Fails = nil
				w.redrive()
			}
			if got := w.item(first).State; got != state {
				t.Fatalf("%s: it is %s, not %s", name, got, state)
			}
		}
		w.bus.Fails, w.now = nil, w.now.Add(test.after)
		if test.gone {
			w.table.Expire(w.now)
		}
		replay := func(content wire.Content, want string) {
			before := w.table.Items()
			r := w.replay(p, content)
			cause := strings.TrimPrefix(errText(r.Err), "intake: that content is not available: ")
			if strings.ReplaceAll(cause, id, "ID") != want || r.Outcome != outcomes[want] || r.Done() != (want == "") {
				t.Errorf("%s, %s: %s: %+v", name, content, cause, r)
			}
			written := content == wire.ParkedContent && want == ""
			if diff := cmp.Diff(before, w.table.Items()); (diff != "") != written || (r.Recorded == 1) != written {
				t.Errorf("%s, %s: the ledger changed: %s", name, content, diff)
			}
		}
		replay(wire.FirstContent, test.first)
		replay(wire.ParkedContent, test.parked)
		if test.parked == "" {
			w.redrive()
			if entries := w.bus.Entries(); !bytes.Equal(entries[len(entries)-1].Detail, other) {
				t.Errorf("%s: on the bus: %s", name, entries)
			}
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// After the parked content was replayed, the ledger has it: the first one cannot be chosen any more.
func TestAConflictWhoseParkedContentWasReplayed(t *testing.T) {
	const unavailable = "intake: that content is not available: event "
	for state, parked := range map[ledger.State]string{ledger.Published: "", ledger.Dismissed: "",
		ledger.Pending: "redrive publishes or parks it; repeat the replay later",
		ledger.Parked:  "the parked content is parked as an event of its own: replay or dismiss that event"} {
		w := newWorld(t)
		_, other, _, p := w.conflict()
		id := idOf(t, other)
		w.replay(p, wire.ParkedContent)
		switch state {
		case ledger.Published:
			w.redrive()
		case ledger.Parked, ledger.Dismissed:
			w.bus.Fails = broken
			w.run(1, time.Minute)
		}
		var err error
		if state == ledger.Dismissed {
			err = w.dismissEvent(id)
		}
		if i := w.item(other); i.State != state || err != nil {
			t.Fatalf("it is %s, not %s: %v", i.State, state, err)
		}
		r := w.replay(p, wire.FirstContent)
		if want := unavailable + id + ": the ledger has the parked content and not the first: choose the parked one, " +
			"or dismiss the conflict"; errText(r.Err) != want || r.Outcome != intake.ContentUnavailable {
			t.Errorf("%s: %+v", state, r)
		}
		if r := w.replay(p, wire.ParkedContent); !strings.HasSuffix(errText(r.Err), parked) ||
			r.Done() != (parked == "") || (r.Recorded == 1) != (state == ledger.Dismissed) {
			t.Errorf("%s: %+v", state, r)
		}
	}
}

// A person who decides compares the two.
func TestAConflictIsStoredWithBothContents(t *testing.T) {
	first, other := twoContents()
	id := idOf(t, first)
	for state, then := range map[ledger.State]func(w *world){
		ledger.Pending: func(*world) {},
		ledger.Published: func(w *world) {
			w.bus.Fails = nil
			w.redrive()
		},
		ledger.Parked: func(w *world) { w.run(1, time.Minute) },
		ledger.Dismissed: func(w *world) {
			w.run(1, time.Minute)
			w.dismissEvent(id)
		},
	} {
		for _, largeEventBytes := range []int{10, 2000} {
			w := newWorld(t)
			w.opts.LargeEventBytes, w.bus.Fails = largeEventBytes, broken
			recorded := w.now
			delivery, _ := w.send(first)
			w.now = w.now.Add(2 * time.Minute)
			then(w)
			_, r := w.send(other)
			w.hasContents(r.ParkedAs.Name, contentOf(t, other, "0.01", "EUR"), proof.First{DeliveryID: delivery,
				State: string(state), RecordedAt: recorded.UTC()}, contentOf(t, first, "1250.00", "USD"))
		}
	}
	// The first content can't be read again, or is another by then: the conflict is stored all the same.
	for _, err := range []error{errDown, nil} {
		w := newWorld(t)
		w.bus.Fails = broken
		delivery, _ := w.send(first)
		gets := 0
		w.table.Fails = func(ctx context.Context, call, _ string) error {
			if call != "get" {
				return nil
			}
			if gets++; gets < 2 {
				return nil
			}
			w.table.Memory.Write(ctx, []ledger.Write{{If: &ledger.Item{}, Kept: ledger.Rest,
				Item: ledger.Item{EventID: id, Digest: ledger.Digest{1}, Amount: "7"}}})
			return err
		}
		_, r := w.send(other)
		w.hasContents(r.ParkedAs.Name, contentOf(t, other, "0.01", "EUR"), proof.First{
			DeliveryID: delivery, State: "pending", RecordedAt: w.now.UTC()}, contentOf(t, first, "", ""))
	}
}

// contentOf returns what is stored of one content.
func contentOf(t *testing.T, raw []byte, amount, currency string) proof.Content {
	digest := ledger.DigestOf(raw)
	return proof.Content{EventID: idOf(t, raw), Digest: digest[:], Amount: amount, Currency: currency}
}

// hasContents compares what is parked: one content, and the first.
func (w *world) hasContents(name string, content proof.Content, first proof.First, of proof.Content) {
	w.t.Helper()
	first.Digest, first.Amount, first.Currency = of.Digest, of.Amount, of.Currency
	content.First = first
	if diff := cmp.Diff([]proof.Content{content}, w.parked(name).Contents); diff != "" {
		w.t.Errorf("a first content that is %s: %s", first.State, diff)
	}
}

// A large event is recorded apart from the small ones.
func TestOfTwoContentsInOneDeliveryTheFirstIsPublished(t *testing.T) {
	first, second := twoContents()
	for _, first := range [][]byte{first, enlarged(first)} {
		w := newWorld(t)
		id, r := w.send(first, second, first, second)
		if r.Outcome != intake.Conflict || r.Conflicts != 1 || r.Recorded != 1 || r.Duplicates != 2 {
			t.Fatalf("%+v", r)
		}
		w.onBus(first)
		w.hasContents(r.ParkedAs.Name, contentOf(t, second, "0.01", "EUR"), proof.First{
			DeliveryID: id, State: "pending", RecordedAt: w.now.UTC()}, contentOf(t, first, "1250.00", "USD"))
	}
}

// Each content of a delivery is compared with what the ledger has.
func TestWhichOfSeveralParkedContentsIsMeantIsNotGuessed(t *testing.T) {
	w := newWorld(t)
	first, second := twoContents()
	third := bytes.Replace(first, []byte("1250.00"), []byte("3.00"), 1)
	w.send(first)
	_, r := w.send(second, first, third)
	if r.Outcome != intake.Conflict || r.Conflicts != 2 || r.Duplicates != 1 || r.Recorded != 0 {
		t.Errorf("%+v", r)
	}
	p := w.parked(r.ParkedAs.Name)
	if c := p.Contents; len(c) != 2 || c[0].Amount != "0.01" || c[1].Amount != "3.00" ||
		c[1].First.Amount != "1250.00" {
		t.Errorf("parked for %+v", c)
	}
	if r := w.replay(p, wire.ParkedContent); r.Outcome != intake.ContentUnavailable || r.Recorded != 0 {
		t.Errorf("%+v", r)
	}
	if r := w.replay(p, wire.FirstContent); r.Outcome != intake.Accepted {
		t.Errorf("%+v", r)
	}
	w.redrive()
	w.onBus(first)
}

// What says which events are in conflict is not signed.
func TestOnlyEventsOfThePayloadAreReplayed(t *testing.T) {
	w := newWorld(t)
	_, _, beside, p := w.conflict()
	content := p.Contents[0]
	noDigest, otherDigest, otherID := content, content, content
	noDigest.Digest, otherDigest.Digest, otherID.EventID = nil, make([]byte, 32), idOf(t, beside)
	for _, contents := range [][]proof.Content{nil, {noDigest}, {otherDigest}, {otherID}, {content, otherID}} {
		p.Contents = contents
		if r := w.replay(p, wire.ParkedContent); r.Outcome != intake.DigestMismatch || r.Recorded != 0 {
			t.Errorf("%+v: %+v", contents, r)
		}
	}
}

// Today it is one that an earlier version of the code did not understand.
func TestAnInvalidDeliveryIsReplayedWhole(t *testing.T) {
	w := newWorld(t)
	first, other, beside, _ := w.conflict()
	one, two := paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event())
	p := w.invalid(paymenttest.RawDelivery(uuid.New().String(), one, other, two))
	r := w.replay(p, wire.NoContent)
	if r.Outcome != intake.Conflict || !r.Done() || r.Recorded != 2 || r.Published != 2 {
		t.Errorf("%+v", r)
	}
	// What is in conflict needs a decision of its own.
	q := w.parked(r.ParkedAs.Name)
	if q.Reason != proof.Conflict || !cmp.Equal(q.EventIDs, idsOf(t, other)) || !bytes.Equal(q.Payload, p.Payload) {
		t.Errorf("parked: %s of %v", q.Reason, q.EventIDs)
	}
	if r := w.replay(q, wire.FirstContent); r.Outcome != intake.Accepted {
		t.Errorf("%+v", r)
	}
	w.onBus(first, beside, one, two)

	objects := len(w.parking.Keys())
	p = w.invalid([]byte("{}"))
	if r := w.replay(p, wire.NoContent); r.Outcome != intake.Invalid || r.Err == nil ||
		len(w.parking.Keys()) != objects {
		t.Errorf("still invalid: %+v", r)
	}
	if r := w.replay(p, wire.ParkedContent); r.Outcome != intake.ContentUnavailable {
		t.Errorf("there is nothing to decide: %+v", r)
	}
}

// A replay says what became of every event.
func TestTheResultOfAReplay(t *testing.T) {
	w := newWorld(t)
	_, other, _, conflict := w.conflict()
	expect := func(got intake.Result, outcome intake.Outcome, counts intake.Counts, err string) {
		t.Helper()
		if got.Outcome != outcome || got.Counts != counts || !strings.HasPrefix(errText(got.Err), err) {
			t.Errorf("%+v", got)
		}
	}
	one := intake.Counts{Events: 1}
	expect(w.replay(conflict, wire.NoContent), intake.ContentMissing, intake.Counts{}, "intake: a conflict needs a")
	w.table.Fails = fails("get", "insert "+idOf(t, other))
	expect(w.replay(conflict, wire.FirstContent), intake.LedgerUnavailable,
		intake.Counts{Events: 1, Unrecorded: 1}, "intake: not every event could be recorded: it is down")
	expect(w.replay(conflict, wire.ParkedContent), intake.LedgerUnavailable,
		intake.Counts{Events: 1, Unrecorded: 1}, "intake: not every event could be recorded: ledger: record ")
	w.table.Fails = nil
	expect(w.replay(conflict, wire.ParkedContent), intake.Accepted,
		intake.Counts{Events: 1, Recorded: 1, Pending: 1}, "")
	for _, p := range []proof.Proof{conflict, w.invalid(paymenttest.RawDelivery(uuid.New().String(), other))} {
		content := map[proof.Reason]wire.Content{proof.Conflict: wire.ParkedContent}[p.Reason]
		expect(w.replay(p, content), intake.StillPending,
			intake.Counts{Events: 1, Duplicates: 1, PendingDuplicates: 1}, "intake: an event is recorded and not pub")
	}
	w.redrive()
	id := w.park(paymenttest.Encode(paymenttest.Event())).EventID
	w.table.Fails = fails("get")
	expect(w.replayEvent(id), intake.LedgerUnavailable, one, "intake: not every event could be recorded: ledger: find ")
	w.table.Fails = func(_ context.Context, call, _ string) error { // another decision comes between
		if call == "replay" {
			w.table.Fails = nil
			return w.dismissEvent(id)
		}
		return nil
	}
	expect(w.replayEvent(id), intake.AlreadyDismissed, one, "intake: the event was dismissed")
}

// enlarged returns an event that is sent as a claim check.
func enlarged(raw []byte) []byte {
	return bytes.Replace(raw, []byte(`"PAYMENT"`), []byte(`"`+strings.Repeat("x", 3000)+`"`), 1)
}

func largeEvent() []byte { return enlarged(paymenttest.Encode(paymenttest.Event())) }

// A large event in conflict is stored before it is written, and its claim check is published.
func TestALargeEventIsReplayedByItsClaimCheck(t *testing.T) {
	w := newWorld(t)
	first, other := twoContents()
	other = enlarged(other)
	w.send(first)
	_, r := w.send(other)
	p := w.parked(r.ParkedAs.Name)
	w.largeEvents.Fails = broken
	got := w.replay(p, wire.ParkedContent)
	if diff := cmp.Diff(intake.Result{Outcome: intake.LedgerUnavailable, DeliveryID: p.DeliveryID,
		Events: 1, Unrecorded: 1}, got, onTheirOwn); diff != "" || !errors.Is(got.Err, errDown) {
		t.Errorf("%v %s", got.Err, diff)
	}
	w.largeEvents.Fails = nil
	if got := w.replay(p, wire.ParkedContent); got.Recorded != 1 || !w.item(other).Large {
		t.Errorf("%+v", got)
	}
	w.redrive()
	w.onBus(first, other)
}
