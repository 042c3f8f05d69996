package intake_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

// The events with identity are published and have their evidence, wherever the others are. The delivery is parked
// with the positions of these, and the sender is told the first.
func TestEventsWithIdentityArePublishedWithoutTheOthers(t *testing.T) {
	const id = "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60"
	good := [][]byte{paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event())}
	bad := []byte(`{"eventId":"` + id + `","eventData":{"amount":1}}`)
	for _, c := range []struct {
		events    [][]byte
		positions []int
		ids       []string
		problem   string
	}{
		{[][]byte{good[0], []byte("null"), good[1]}, []int{1}, nil, "payment: events[1]: must be an object"},
		{[][]byte{[]byte("7"), bad, good[0], good[1], []byte("{}")}, []int{0, 1, 4}, []string{id},
			"payment: events[0]: must be an object"},
		{[][]byte{good[0], bad, good[0], bad, good[1]}, []int{1, 3}, []string{id, id},
			"payment: events[1].eventName: must be GROUP.STATUS, in letters, digits, '_', '-' and '.', at most 128 " +
				"bytes"},
	} {
		w := newEvidenceWorld(t)
		payload := paymenttest.RawDelivery(uuid.New().String(), c.events...)
		delivery := w.signed(payload)
		r := w.receive(w.ctx(), delivery)
		want := intake.Result{Outcome: intake.Invalid, DeliveryID: r.DeliveryID, Invalid: len(c.positions), Events: 2,
			Recorded: 2, Published: 2, ParkedAs: intake.ParkedAs{Name: r.ParkedAs.Name}}
		if len(c.positions) == 2 { // one is repeated
			want.Events, want.Duplicates = 3, 1
		}
		is := func(got, want intake.Result, err string) {
			t.Helper()
			got.EventIDs = nil
			if diff := cmp.Diff(want, got, onTheirOwn); diff != "" || fmt.Sprint(got.Err) != err || got.Done() {
				t.Errorf("%v: %s", got.Err, diff)
			}
		}
		is(r, want, c.problem)
		p := w.parked(r.ParkedAs.Name)
		if p.Reason != proof.Invalid || p.Cause != c.problem || !cmp.Equal(p.Positions, c.positions) ||
			!cmp.Equal(p.EventIDs, c.ids) || p.DeliveryID != r.DeliveryID || !bytes.Equal(p.Payload, payload) {
			t.Errorf("parked %+v", p)
		}
		// Sent again, its events are duplicates and it is parked already.
		want.Recorded, want.Published, want.Duplicates, want.ParkedAs.Before = 0, 0, want.Duplicates+2, true
		is(w.receive(w.ctx(), delivery), want, c.problem)
		if records := w.stored(); len(records) != 1 || !bytes.Equal(records[0].Payload, payload) {
			t.Errorf("%d records", len(records))
		}
		// A replay changes nothing, and says what is left.
		w.opts.Evidence, want.ParkedAs = nil, intake.ParkedAs{}
		is(w.replay(p, wire.NoContent), want, fmt.Sprintf("intake: %d of its events have no identity and are "+
			"not published, the others are recorded: %s", len(c.positions), c.problem))
		if len(w.parking.Keys()) != 1 {
			t.Errorf("parked as %s", w.parking.Keys())
		}
		w.onBus(good[0], good[1])
	}
}

// The sender signs and sends the delivery again after a 503. What is parked before that would be parked twice.
func TestADeliveryIsParkedOnceAllElseIsStored(t *testing.T) {
	good := paymenttest.Event()
	first, other := twoContents()
	payload := paymenttest.RawDelivery(uuid.New().String(), []byte("null"), paymenttest.Encode(good), other)
	for name, c := range map[string]struct {
		table, evidence, parking hook
		want                     intake.Outcome
		stored                   int // proofs of this delivery
	}{
		"not recorded": {table: fails("insert " + good.EventID), want: intake.LedgerUnavailable},
		"neither":      {table: fails("insert " + good.EventID), evidence: broken, want: intake.LedgerUnavailable},
		"no evidence":  {evidence: broken, want: intake.EvidenceUnavailable},
		"not parked":   {parking: broken, want: intake.ParkingFailed, stored: 1},
	} {
		w := newEvidenceWorld(t)
		w.send(first)
		w.table.Fails, w.evidence.Fails, w.parking.Fails = c.table, c.evidence, c.parking
		if r := w.deliver(payload); r.Outcome != c.want || !r.Outcome.Unavailable || r.ParkedAs.Name != "" ||
			len(w.parking.Keys()) != 0 || len(w.evidence.Keys()) != 1+c.stored {
			t.Errorf("%s: %+v", name, r)
		}
		w.table.Fails, w.evidence.Fails, w.parking.Fails, w.now = nil, nil, nil, w.now.Add(time.Minute)
		if r := w.deliver(payload); r.Outcome != intake.Invalid || r.ParkedAs.Name == "" || r.AlsoParked.Name == "" ||
			len(w.stored()) != 2+c.stored {
			t.Errorf("%s: sent again: %+v", name, r)
		}
		w.onBus(first, paymenttest.Encode(good))
	}
}

// Each has its own object, since each needs its own decision.
func TestADeliveryIsParkedAsInvalidAndAsAConflict(t *testing.T) {
	w := newWorld(t)
	first, other := twoContents()
	w.send(first)
	beside := paymenttest.Encode(paymenttest.Event())
	payload := paymenttest.RawDelivery(uuid.New().String(), other, []byte("{}"), beside)

	calls := 0 // the second object fails
	w.parking.Fails = func(context.Context, string, string) error {
		if calls++; calls == 2 {
			return errDown
		}
		return nil
	}
	if r := w.deliver(payload); r.Outcome != intake.ParkingFailed || r.ParkedAs.Name == "" || r.AlsoParked.Name != "" {
		t.Errorf("%+v", r)
	}
	w.parking.Fails = nil
	r := w.deliver(payload)
	if r.Outcome != intake.Invalid || r.Conflicts != 1 || r.Invalid != 1 || r.Duplicates != 1 ||
		fmt.Sprint(r.Err) != "payment: events[1].eventId: must be a UUID" || !r.ParkedAs.Before || !r.AlsoParked.New() {
		t.Errorf("%+v", r)
	}
	invalid, conflict := w.parked(r.ParkedAs.Name), w.parked(r.AlsoParked.Name)
	if invalid.Reason != proof.Invalid || !cmp.Equal(invalid.Positions, []int{1}) ||
		conflict.Reason != proof.Conflict || !cmp.Equal(conflict.EventIDs, idsOf(t, other)) {
		t.Errorf("%+v, %+v", invalid, conflict)
	}
	if r := w.replay(invalid, wire.NoContent); r.Outcome != intake.Invalid || r.Conflicts != 1 || !r.ParkedAs.Before ||
		w.parked(r.ParkedAs.Name).Reason != proof.Conflict {
		t.Errorf("%+v", r)
	}
	// The decision about the conflict does not need the events without identity.
	if r := w.replay(conflict, wire.ParkedContent); r.Outcome != intake.Accepted {
		t.Errorf("%+v", r)
	}
	w.redrive()
	w.onBus(first, beside, other)
}

// One object is stored for each id, and a payload can have a million events of one byte.
func TestAParkedDeliveryHasAThousandPositions(t *testing.T) {
	w := newWorld(t)
	good := paymenttest.Encode(paymenttest.Event())
	_, r := w.send(good, []byte(strings.Repeat("1,", 4999)+"1"))
	if p := w.parked(r.ParkedAs.Name); len(p.Positions) != 1000 || p.Positions[999] != 1000 || r.Invalid != 5000 ||
		r.Published != 1 {
		t.Errorf("%d positions of %d", len(p.Positions), r.Invalid)
	}
}

// The line of a webhook has at most ten paths, and no value.
func TestTheFirstDeviationOfTenEventsIsKept(t *testing.T) {
	w := newWorld(t)
	events := [][]byte{paymenttest.Encode(paymenttest.Event())} // without a deviation
	for range 12 {
		events = append(events, []byte(strings.NewReplacer(`"amount":1250.00`, `"amount":"CANARY"`, `"USD"`, "840").
			Replace(string(paymenttest.Encode(paymenttest.Event())))))
	}
	_, r := w.send(events...)
	want := slices.Repeat([]string{"eventData.amount"}, 10)
	if r.Outcome != intake.Accepted || r.Published != 13 || !cmp.Equal(r.Deviations, want) {
		t.Errorf("%+v", r)
	}
}

// A byte order mark is a part of what was signed, and of nothing else.
func TestAByteOrderMarkIsVerifiedAndNotDecoded(t *testing.T) {
	w := newEvidenceWorld(t)
	raw := paymenttest.Encode(paymenttest.Event())
	payload := append([]byte("\ufeff"), paymenttest.RawDelivery(uuid.New().String(), raw)...)
	signed := w.signed(payload)
	r, records := w.receive(w.ctx(), signed), w.stored() // which verify
	if r.Outcome != intake.Accepted || r.DeliveryID == "" || len(records) != 1 ||
		!bytes.Equal(records[0].Payload, payload) || len(records[0].EventIDs) != 1 {
		t.Errorf("%+v, %+v", r, records)
	}
	w.onBus(raw)
	signed.Payload = payment.WithoutBOM(payload)
	if r := w.receive(w.ctx(), signed); r.Outcome != intake.SignatureMismatch || r.UnverifiedID == "" {
		t.Errorf("without the mark: %+v", r)
	}
}

// Case has no meaning in a UUID. A sender can write it in one way, and a system in front of it in another.
func TestAnEventWithItsIDInAnotherCaseIsADuplicate(t *testing.T) {
	for name, size := range map[string]int{"small": 0, "large": 3000} {
		event := paymenttest.Event()
		event.EventData.Identifiers.PaymentRequestID = strings.Repeat("x", size)
		raw := paymenttest.Encode(event)
		upper := bytes.ReplaceAll(raw, []byte(event.EventID), []byte(strings.ToUpper(event.EventID)))
		for _, order := range [][][]byte{{raw, upper}, {upper, raw}} {
			w := newWorld(t)
			w.send(order[0])
			_, again := w.send(order[1])
			if again.Outcome != intake.Accepted || again.Duplicates != 1 || again.Conflicts != 0 {
				t.Errorf("%s: %+v", name, again)
			}
			w.onBus(order[0])
			// What was parked is published in the spelling that came last.
			w = newWorld(t)
			w.park(order[0])
			if _, again = w.send(order[1]); again.Recorded != 1 || again.Conflicts != 0 {
				t.Errorf("%s: parked, and sent again: %+v", name, again)
			}
			w.onBus(order[1])
			w = newWorld(t)
			if _, both := w.send(order...); both.Recorded != 1 || both.Duplicates != 1 || both.Conflicts != 0 {
				t.Errorf("%s: twice in a delivery: %+v", name, both)
			}
			w.onBus(order[0])
		}
	}
}

// The largest event of Lambda has 6 MiB.
func TestTheLargestDeliveryThatIsParkedIsReadBack(t *testing.T) {
	w := newWorld(t)
	payload := bytes.Repeat([]byte("\x00"), 6<<20)
	r := w.deliver(payload)
	if r.Outcome != intake.Invalid || r.ParkedAs.Name == "" {
		t.Fatalf("%+v", r)
	}
	p := w.parked(r.ParkedAs.Name)
	if again := w.replay(p, wire.NoContent); !bytes.Equal(p.Payload, payload) || again.Outcome != intake.Invalid {
		t.Errorf("%d bytes, %+v", len(p.Payload), again)
	}
}
