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
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
	"payhook.example/shared/signature"
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
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, _, _, conflict := w.conflict()
			invalid := w.invalid(conflict.Payload)
			items, entries, objects := w.table.Items(), len(w.bus.Entries()), w.parking.Objects()
			for _, p := range []proof.Proof{conflict, invalid} {
				change(&p)
				for _, version := range []redrive.Version{"", redrive.FirstVersion, redrive.ParkedVersion} {
					if r := w.replay(p, version); r.Outcome == intake.Accepted || r.Outcome == intake.Conflict {
						t.Errorf("%s, version %q: %+v", p.Reason, version, r)
					}
				}
			}
			w.now = w.now.Add(time.Hour)
			w.redrive()
			if diff := cmp.Diff(items, w.table.Items()); diff != "" || len(w.bus.Entries()) != entries {
				t.Errorf("the ledger changed: %s", diff)
			}
			if diff := cmp.Diff(objects, w.parking.Objects()); diff != "" {
				t.Errorf("the bucket changed: %s", diff)
			}
		})
	}
}

func TestTheParkedVersionOfAConflictIsPublishedAlone(t *testing.T) {
	w := newWorld(t)
	first, other, beside, p := w.conflict()
	for i, want := range []intake.Outcome{intake.Accepted, intake.StillPending} {
		if r := w.replay(p, redrive.ParkedVersion); r.Outcome != want || r.Done() == (i == 1) || r.Recorded != 1-i ||
			r.Duplicates != i || r.Pending != 1-i || r.PendingDuplicates != i || r.Events != 1 {
			t.Errorf("replay %d: %+v", i, r)
		}
	}
	w.redrive()
	w.onBus(first, beside, other)
	if r := w.replay(p, redrive.ParkedVersion); r.Outcome != intake.Accepted || r.Duplicates != 1 {
		t.Errorf("once it is published: %+v", r)
	}
	// Its window begins now.
	w.now = w.now.Add(window - time.Minute)
	if _, r := w.send(other); r.Duplicates != 1 {
		t.Errorf("the parked version comes again: %+v", r)
	}
	// From now on the first is the one in conflict, and never silent.
	if _, r := w.send(first); r.Outcome != intake.Conflict || r.Parked == "" {
		t.Errorf("the first version comes again: %+v", r)
	}
	w.redrive()
	w.onBus(first, beside, other)
}

// Both versions are never on their way together, and the cause says truly what is on the bus.
func TestAConflictIsDecidedByWhatTheFirstVersionIs(t *testing.T) {
	const parked = "the first version of ID is parked and not on the bus: replay or dismiss the event ID first"
	const dismissed = "the first version of ID was dismissed and is not on the bus: dismiss the conflict as well"
	const pending = "intake: an event is recorded and not published yet: redrive publishes or parks it; repeat the " +
		"replay later"
	outcomes := map[string]intake.Outcome{"": intake.Accepted, parked: intake.VersionUnfit,
		dismissed: intake.VersionUnfit, pending: intake.StillPending}
	const long = 2 * window
	type states = []ledger.State
	for name, test := range map[string]struct {
		states        states // through which the first version goes
		after         time.Duration
		deleted       bool
		first, parked string // the causes
	}{
		"pending":                {nil, 0, false, pending, pending},
		"published":              {states{ledger.Published}, 0, false, "", ""},
		"published for long":     {states{ledger.Published}, long, false, "", ""},
		"published and gone":     {states{ledger.Published}, long, true, "", ""},
		"parked":                 {states{ledger.Parked}, 0, false, parked, parked},
		"parked for long":        {states{ledger.Parked}, long, true, parked, parked},
		"dismissed":              {states{ledger.Parked, ledger.Dismissed}, 0, false, dismissed, ""},
		"dismissed for long":     {states{ledger.Parked, ledger.Dismissed}, long, false, dismissed, ""},
		"replayed":               {states{ledger.Parked, ledger.Pending}, 0, false, pending, pending},
		"replayed and published": {states{ledger.Parked, ledger.Pending, ledger.Published}, 0, false, "", ""},
	} {
		w := newWorld(t)
		first, other := versions()
		id := idOf(t, first)
		w.bus.Fails = broken
		w.send(first)
		_, r := w.send(other)
		p := w.parked(r.Parked)
		for _, state := range test.states {
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
		if test.deleted {
			w.table.Expire(w.now)
		}
		replay := func(version redrive.Version, want string) {
			before := w.table.Items()
			r := w.replay(p, version)
			cause := strings.TrimPrefix(errText(r.Err), "intake: that version is not available: ")
			if strings.ReplaceAll(cause, id, "ID") != want || r.Outcome != outcomes[want] || r.Done() != (want == "") {
				t.Errorf("%s, %s: %s: %+v", name, version, cause, r)
			}
			written := version == redrive.ParkedVersion && want == ""
			if diff := cmp.Diff(before, w.table.Items()); (diff != "") != written || (r.Recorded == 1) != written {
				t.Errorf("%s, %s: the ledger changed: %s", name, version, diff)
			}
		}
		replay(redrive.FirstVersion, test.first)
		replay(redrive.ParkedVersion, test.parked)
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

// A conflict whose parked version was replayed is decided once the event is.
func TestAConflictWhoseParkedVersionIsParkedAsAnEventWaitsForIt(t *testing.T) {
	w := newWorld(t)
	_, other, _, p := w.conflict()
	id := idOf(t, other)
	w.replay(p, redrive.ParkedVersion)
	w.bus.Fails = broken
	if r := w.run(1, time.Minute); r.Parked != 1 {
		t.Fatalf("%+v", r)
	}
	for version, cause := range map[redrive.Version]string{
		redrive.ParkedVersion: "the parked version of " + id + " is parked as the event " + id +
			": replay or dismiss that",
		redrive.FirstVersion: "the ledger has the parked version of " + id + ", and not the first",
	} {
		if r := w.replay(p, version); r.Outcome != intake.VersionUnfit || r.Recorded != 0 ||
			errText(r.Err) != "intake: that version is not available: "+cause {
			t.Errorf("%s: %+v", version, r)
		}
	}
}

// A person who decides compares the two.
func TestAConflictIsStoredWithBothVersions(t *testing.T) {
	for _, large := range []bool{false, true} {
		for state, then := range map[ledger.State]func(w *world, id string){
			ledger.Pending: nil,
			ledger.Published: func(w *world, _ string) {
				w.bus.Fails = nil
				w.redrive()
			},
			ledger.Parked: func(w *world, _ string) { w.run(1, time.Minute) },
			ledger.Dismissed: func(w *world, id string) {
				w.run(1, time.Minute)
				w.dismissEvent(id)
			},
		} {
			w := newWorld(t)
			if large {
				w.opts.ClaimBytes = 10
			}
			w.bus.Fails = broken
			first, other := versions()
			recorded := w.now
			id, _ := w.send(first)
			w.now = w.now.Add(2 * time.Minute)
			if then != nil {
				then(w, idOf(t, first))
			}
			_, r := w.send(other)
			w.hasContents(r.Parked, contentOf(t, other, "0.01", "EUR"), proof.First{DeliveryID: id,
				State: string(state), RecordedAt: recorded.UTC()}, contentOf(t, first, "1250.00", "USD"))
		}
	}
	// The first version can't be read again, or is another by then: the conflict is stored all the same.
	for _, err := range []error{errDown, nil} {
		w := newWorld(t)
		w.bus.Fails = broken
		first, other := versions()
		id, _ := w.send(first)
		gets := 0
		w.table.Fails = func(ctx context.Context, call, _ string) error {
			if call != "get" {
				return nil
			}
			if gets++; gets < 2 {
				return nil
			}
			w.table.Memory.Write(ctx, []ledger.Write{{If: &ledger.Item{}, Keep: ledger.Rest,
				Item: ledger.Item{EventID: idOf(t, first), Digest: ledger.Digest{1}, Amount: "7"}}})
			return err
		}
		_, r := w.send(other)
		w.hasContents(r.Parked, contentOf(t, other, "0.01", "EUR"), proof.First{DeliveryID: id, State: "pending",
			RecordedAt: w.now.UTC()}, contentOf(t, first, "", ""))
	}
}

// contentOf returns what is stored of one version.
func contentOf(t *testing.T, raw []byte, amount, currency string) proof.Content {
	digest := ledger.DigestOf(raw)
	return proof.Content{EventID: idOf(t, raw), Digest: digest[:], Amount: amount, Currency: currency}
}

// hasContents compares what is parked: one version, and the first.
func (w *world) hasContents(name string, content proof.Content, first proof.First, of proof.Content) {
	w.t.Helper()
	first.Digest, first.Amount, first.Currency = of.Digest, of.Amount, of.Currency
	content.First = first
	if diff := cmp.Diff([]proof.Content{content}, w.parked(name).Contents); diff != "" {
		w.t.Errorf("a first version that is %s: %s", first.State, diff)
	}
}

func TestOfTwoContentsInOneDeliveryTheFirstIsPublished(t *testing.T) {
	for _, large := range []bool{false, true} {
		w := newWorld(t)
		first, second := versions()
		if large {
			// A large event is recorded apart from the small ones.
			first = bytes.Replace(first, []byte(`"PAYMENT"`), []byte(`"`+strings.Repeat("x", 3000)+`"`), 1)
		}
		id, r := w.send(first, second, first, second)
		if r.Outcome != intake.Conflict || r.Conflicts != 1 || r.Recorded != 1 || r.Duplicates != 2 {
			t.Fatalf("%+v", r)
		}
		w.onBus(first)
		w.hasContents(r.Parked, contentOf(t, second, "0.01", "EUR"), proof.First{DeliveryID: id, State: "pending",
			RecordedAt: w.now.UTC()}, contentOf(t, first, "1250.00", "USD"))
		if r := w.replay(w.parked(r.Parked), redrive.ParkedVersion); r.Outcome != intake.Accepted || r.Recorded != 1 {
			t.Fatalf("%+v", r)
		}
		w.redrive()
		w.onBus(first, second)
	}
}

// Each content of a delivery is compared with what the ledger has.
func TestWhichOfSeveralParkedContentsIsMeantIsNotGuessed(t *testing.T) {
	w := newWorld(t)
	event := paymenttest.Event()
	var contents [][]byte
	for _, amount := range []string{"1.00", "2.00", "3.00"} {
		event.EventData.Amount = payment.Amount(amount)
		contents = append(contents, paymenttest.Encode(event))
	}
	id, _ := w.send(contents[0])
	_, r := w.send(contents[1], contents[0], contents[2])
	if r.Outcome != intake.Conflict || r.Conflicts != 2 || r.Duplicates != 1 || r.Recorded != 0 {
		t.Errorf("%+v", r)
	}
	p := w.parked(r.Parked)
	for n, c := range p.Contents {
		if c.Amount != []string{"2.00", "3.00"}[n] || c.First.DeliveryID != id ||
			c.First.Amount != "1.00" || c.First.State != "published" {
			t.Errorf("parked for %+v", c)
		}
	}
	if r := w.replay(p, redrive.ParkedVersion); r.Outcome != intake.VersionUnfit || r.Recorded != 0 {
		t.Errorf("%+v", r)
	}
	if r := w.replay(p, redrive.FirstVersion); r.Outcome != intake.Accepted {
		t.Errorf("%+v", r)
	}
	w.redrive()
	w.onBus(contents[0])
}

// What says which events are in conflict is not signed.
func TestOnlyEventsOfThePayloadAreReplayed(t *testing.T) {
	w := newWorld(t)
	first, _, beside, p := w.conflict()
	content := p.Contents[0]
	for name, change := range map[string]func(c *proof.Content){
		"no digest":      func(c *proof.Content) { c.Digest = nil },
		"another digest": func(c *proof.Content) { c.Digest = make([]byte, 32) },
		"another id":     func(c *proof.Content) { c.EventID = idOf(t, beside) },
		"no events":      nil,
	} {
		q, c := p, content
		q.EventIDs, q.Contents = nil, nil
		if change != nil {
			change(&c)
			q.EventIDs, q.Contents = []string{c.EventID}, []proof.Content{c}
		}
		if r := w.replay(q, redrive.ParkedVersion); r.Outcome != intake.Altered {
			t.Errorf("%s: %+v", name, r)
		}
	}
	w.redrive()
	w.onBus(first, beside)
}

func TestAnInvalidDeliveryIsReplayedWhole(t *testing.T) {
	w := newWorld(t)
	first, other, beside, _ := w.conflict()
	// Today it is one that an earlier version of the code did not understand.
	one, two := paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event())
	p := w.invalid(paymenttest.RawDelivery(uuid.New().String(), one, other, two))
	r := w.replay(p, redrive.NoVersion)
	if r.Outcome != intake.Conflict || !r.Done() || r.Recorded != 2 || r.Published != 2 || r.Parked == "" {
		t.Errorf("%+v", r)
	}
	w.onBus(first, beside, one, two)
	// What is in conflict needs a decision of its own.
	q := w.parked(r.Parked)
	if q.Reason != proof.Conflict || len(q.EventIDs) != 1 || !bytes.Equal(q.Payload, p.Payload) {
		t.Errorf("parked: %s of %v", q.Reason, q.EventIDs)
	}
	if r := w.replay(q, redrive.FirstVersion); r.Outcome != intake.Accepted {
		t.Errorf("%+v", r)
	}
	if r := w.replay(p, redrive.NoVersion); r.Duplicates != 2 || r.Recorded != 0 {
		t.Errorf("again: %+v", r)
	}
	w.onBus(first, beside, one, two)

	objects := len(w.parking.Keys())
	p = w.invalid([]byte("{}"))
	if r := w.replay(p, redrive.NoVersion); r.Outcome != intake.Invalid || r.Err == nil ||
		len(w.parking.Keys()) != objects {
		t.Errorf("still invalid: %+v", r)
	}
	if r := w.replay(p, redrive.ParkedVersion); r.Outcome != intake.VersionUnfit {
		t.Errorf("there is nothing to decide: %+v", r)
	}
}

// A delivery that was not understood can have events that came again and are pending.
func TestAReplayedDeliveryWaitsForItsPendingEvents(t *testing.T) {
	for name, claimBytes := range map[string]int{"small": 2000, "by claim check": 10} {
		w := newWorld(t)
		w.opts.ClaimBytes = claimBytes
		raw, beside := paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event())
		p := w.invalid(paymenttest.RawDelivery(uuid.New().String(), beside, raw))
		w.bus.Fails = broken
		if _, r := w.send(raw); r.Outcome != intake.Accepted {
			t.Fatalf("%+v", r)
		}
		if r := w.deliver(p.Payload); r.Outcome != intake.Accepted || r.PendingDuplicates != 1 {
			t.Errorf("%s: a webhook with a pending event: %+v", name, r)
		}
		w.bus.Fails = nil
		if r := w.replay(p, redrive.NoVersion); r.Outcome != intake.StillPending || r.Done() || r.Err == nil {
			t.Errorf("%s: %+v", name, r)
		}
		w.now = w.now.Add(2 * time.Minute)
		w.redrive()
		if r := w.replay(p, redrive.NoVersion); r.Outcome != intake.Accepted || !r.Done() || r.Duplicates != 2 {
			t.Errorf("%s: once all are published: %+v", name, r)
		}
	}
}

// A replay says what became of every event.
func TestTheResultOfAReplay(t *testing.T) {
	w := newWorld(t)
	_, other, _, conflict := w.conflict()
	event := idOf(t, other)
	expect := func(name string, got, want intake.Result, err string) {
		t.Helper()
		if (got.Err == nil) != (err == "") || got.Err != nil && !strings.HasPrefix(got.Err.Error(), err) {
			t.Errorf("%s: the error is %v", name, got.Err)
		}
		if diff := cmp.Diff(want, got, onTheirOwn); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	id := conflict.DeliveryID
	for _, version := range []redrive.Version{redrive.NoVersion, "second", "PARKED"} {
		expect("no version", w.replay(conflict, version), intake.Result{Outcome: intake.VersionMissing}, "")
	}
	expect("the first stays", w.replay(conflict, redrive.FirstVersion), intake.Result{Outcome: intake.Accepted,
		DeliveryID: id, Events: 1}, "")
	w.table.Fails = fails("get", "insert "+event)
	unavailable := intake.Result{Outcome: intake.LedgerUnavailable, DeliveryID: id, Events: 1, Unrecorded: 1}
	expect("the first can't be read", w.replay(conflict, redrive.FirstVersion), unavailable,
		"intake: not every event could be recorded: it is down")
	expect("the parked one can't be written", w.replay(conflict, redrive.ParkedVersion), unavailable,
		"intake: not every event could be recorded: ledger: ")
	w.table.Fails = nil
	expect("the parked one", w.replay(conflict, redrive.ParkedVersion), intake.Result{Outcome: intake.Accepted,
		DeliveryID: id, Events: 1, Recorded: 1, Pending: 1}, "")
	if w.item(other).Claimed {
		t.Error("a small event is a claim check")
	}
	w.redrive()
	small, large := paymenttest.Encode(paymenttest.Event()), largeEvent()
	for name, raw := range map[string][]byte{"an event": small, "a claim check": large} {
		item := w.park(raw)
		event, want := item.EventID, intake.Result{DeliveryID: item.DeliveryID, Events: 1}
		w.table.Fails, want.Outcome = fails("replay "+event), intake.LedgerUnavailable
		expect(name+" that can't be written", w.replayEvent(event), want,
			"intake: not every event could be recorded: ledger: replay "+event+": it is down")
		w.table.Fails = fails("get")
		expect(name+" that can't be read", w.replayEvent(event), intake.Result{Outcome: intake.LedgerUnavailable,
			Events: 1}, "intake: not every event could be recorded: ledger: find ")
		w.table.Fails = nil
		if item.Claimed {
			w.claims.Fails = broken
			expect(name+" that can't be looked up", w.replayEvent(event), want,
				"intake: not every event could be recorded: claim check: list: it is down")
			w.claims.Fails = nil
		}
		if diff := cmp.Diff(item, w.item(raw)); diff != "" {
			t.Errorf("%s: the ledger changed: %s", name, diff)
		}
		want.Outcome, want.Recorded, want.Pending = intake.Accepted, 1, 1
		expect(name, w.replayEvent(strings.ToUpper(event)), want, "")
		if got := w.item(raw); got.State != ledger.Pending || got.Claimed != (name == "a claim check") {
			t.Errorf("%s: %+v", name, got)
		}
		w.redrive()
	}
	// Another decision comes between.
	event = w.park(paymenttest.Encode(paymenttest.Event())).EventID
	w.table.Fails = func(_ context.Context, call, _ string) error {
		if call == "replay" {
			w.table.Fails = nil
			return w.dismissEvent(event)
		}
		return nil
	}
	if r := w.replayEvent(event); r.Outcome != intake.AlreadyDismissed || r.Recorded != 0 {
		t.Errorf("%+v", r)
	}
}

// largeEvent returns an event that is sent as a claim check.
func largeEvent() []byte {
	event := paymenttest.Event()
	event.EventData.AmountType = strings.Repeat("x", 3000)
	return paymenttest.Encode(event)
}

// A large event in conflict is stored before it is written, and its claim check is published.
func TestALargeEventIsReplayedByItsClaimCheck(t *testing.T) {
	w := newWorld(t)
	first, other := versions()
	other = bytes.Replace(other, []byte(`"PAYMENT"`), []byte(`"`+strings.Repeat("x", 3000)+`"`), 1)
	w.send(first)
	_, r := w.send(other)
	p := w.parked(r.Parked)
	w.claims.Fails = broken
	got := w.replay(p, redrive.ParkedVersion)
	if diff := cmp.Diff(intake.Result{Outcome: intake.LedgerUnavailable, DeliveryID: p.DeliveryID,
		Events: 1, Unrecorded: 1}, got, onTheirOwn); diff != "" || !errors.Is(got.Err, errDown) ||
		!strings.HasPrefix(got.Err.Error(), "intake: not every event could be recorded: ") {
		t.Errorf("%v %s", got.Err, diff)
	}
	w.claims.Fails = nil
	before := len(w.claims.Keys())
	if got := w.replay(p, redrive.ParkedVersion); got.Recorded != 1 || len(w.claims.Keys()) != before+1 ||
		!w.item(other).Claimed {
		t.Errorf("%+v, %d objects", got, len(w.claims.Keys()))
	}
	w.redrive()
	w.onBus(first, other)
}
