package intake_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
)

// The events with identity are published and have their evidence, wherever the others are. The delivery is parked
// with the positions of these, and the sender is told the first.
func TestEventsWithIdentityArePublishedWithoutTheOthers(t *testing.T) {
	const id = "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60"
	good := [][]byte{paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event())}
	bad := []byte(`{"eventId":"` + id + `","eventData":{"amount":1}}`)
	for name, c := range map[string]struct {
		events    [][]byte
		positions []int
		ids       []string
		problem   string
	}{
		"first":   {[][]byte{bad, good[0], good[1]}, []int{0}, []string{id}, "events[0].eventName: is missing"},
		"last":    {[][]byte{good[0], good[1], bad}, []int{2}, []string{id}, "events[2].eventName: is missing"},
		"between": {[][]byte{good[0], []byte("null"), good[1]}, []int{1}, nil, "events[1]: must be an object"},
		"most": {[][]byte{[]byte("7"), bad, good[0], good[1], []byte("{}")}, []int{0, 1, 4}, []string{id},
			"events[0]: must be an object"},
		"repeated": {[][]byte{good[0], bad, good[0], bad, good[1]}, []int{1, 3}, []string{id, id},
			"events[1].eventName: is missing"},
	} {
		w := newEvidenceWorld(t)
		payload := paymenttest.RawDelivery(uuid.New().String(), c.events...)
		delivery := w.signed(payload)
		r := w.receive(w.ctx(), delivery)
		repeated := len(c.events) - len(c.positions) - 2
		if r.Outcome != intake.Invalid || r.Recorded != 2 || r.Published != 2 || r.Duplicates != repeated ||
			r.Invalid != len(c.positions) || r.Err == nil || r.Err.Error() != "payment: "+c.problem || r.ParkedBefore ||
			r.AlsoParked.Parked != "" {
			t.Errorf("%s: %+v", name, r)
		}
		w.onBus(good[0], good[1])
		p := w.parked(r.Parked)
		if p.Reason != proof.Invalid || p.Cause != "payment: "+c.problem || !cmp.Equal(p.Positions, c.positions) ||
			!cmp.Equal(p.EventIDs, c.ids) || p.DeliveryID != r.DeliveryID || !bytes.Equal(p.Payload, payload) {
			t.Errorf("%s: parked %+v", name, p)
		}
		if records := w.stored(); len(records) != 1 || !bytes.Equal(records[0].Payload, payload) {
			t.Errorf("%s: %d records", name, len(records))
		}

		// Sent again, its events are duplicates and it is parked already.
		again := w.receive(w.ctx(), delivery)
		if again.Outcome != intake.Invalid || again.Recorded != 0 || again.Duplicates != repeated+2 ||
			!again.ParkedBefore || again.Parked != r.Parked || again.Err.Error() != r.Err.Error() ||
			len(w.stored()) != 1 {
			t.Errorf("%s: again: %+v", name, again)
		}
		// A replay changes nothing, and says what is left.
		w.opts.Evidence = nil
		before := len(w.parking.Keys())
		replayed := w.replay(p, redrive.NoVersion)
		want := fmt.Sprintf("intake: %d of its events have no identity and are not published, the others are "+
			"recorded: payment: %s", len(c.positions), c.problem)
		if replayed.Outcome != intake.Invalid || replayed.Done() || replayed.Duplicates != repeated+2 ||
			replayed.Recorded+replayed.Pending+replayed.Conflicts != 0 || replayed.Err == nil ||
			replayed.Err.Error() != want || len(w.parking.Keys()) != before {
			t.Errorf("%s: replayed: %+v", name, replayed)
		}
		w.onBus(good[0], good[1])
	}
}

// The sender signs and sends the delivery again after a 503. What is parked before that would be parked twice.
func TestADeliveryIsParkedOnceAllElseIsStored(t *testing.T) {
	good := paymenttest.Event()
	first, other := versions()
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
		if r := w.deliver(payload); r.Outcome != c.want || r.Outcome.Status != 503 || r.Parked != "" ||
			len(w.parking.Keys()) != 0 || len(w.evidence.Keys()) != 1+c.stored {
			t.Errorf("%s: %+v", name, r)
		}
		w.table.Fails, w.evidence.Fails, w.parking.Fails, w.now = nil, nil, nil, w.now.Add(time.Minute)
		if r := w.deliver(payload); r.Outcome != intake.Invalid || r.Parked == "" || r.AlsoParked.Parked == "" ||
			len(w.stored()) != 2+c.stored {
			t.Errorf("%s: sent again: %+v", name, r)
		}
		w.onBus(first, paymenttest.Encode(good))
	}
}

// Each has its own object, since each needs its own decision.
func TestADeliveryIsParkedAsInvalidAndAsAConflict(t *testing.T) {
	w := newWorld(t)
	first, other := versions()
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
	if r := w.deliver(payload); r.Outcome != intake.ParkingFailed || r.Parked == "" || r.AlsoParked.Parked != "" {
		t.Errorf("%+v", r)
	}
	w.parking.Fails = nil
	r := w.deliver(payload)
	if r.Outcome != intake.Invalid || r.Conflicts != 1 || r.Invalid != 1 || r.Duplicates != 1 ||
		r.Err.Error() != "payment: events[1].eventName: is missing" || !r.ParkedBefore || !r.AlsoParked.New() {
		t.Errorf("%+v", r)
	}
	invalid, conflict := w.parked(r.Parked), w.parked(r.AlsoParked.Parked)
	if invalid.Reason != proof.Invalid || !cmp.Equal(invalid.Positions, []int{1}) ||
		conflict.Reason != proof.Conflict || len(conflict.EventIDs) != 1 || conflict.EventIDs[0] != idOf(t, other) {
		t.Errorf("%+v, %+v", invalid, conflict)
	}
	w.onBus(first, beside)
	if r := w.replay(invalid, redrive.NoVersion); r.Outcome != intake.Invalid || r.Conflicts != 1 || !r.ParkedBefore ||
		w.parked(r.Parked).Reason != proof.Conflict {
		t.Errorf("%+v", r)
	}
	// The decision about the conflict does not need the events without identity.
	if r := w.replay(conflict, redrive.ParkedVersion); r.Outcome != intake.Accepted {
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
	if p := w.parked(r.Parked); len(p.Positions) != 1000 || p.Positions[999] != 1000 || r.Invalid != 5000 ||
		r.Published != 1 {
		t.Errorf("%d positions of %d", len(p.Positions), r.Invalid)
	}
}

// respelled returns the same content in another spelling.
func respelled(t *testing.T, raw []byte) []byte {
	t.Helper()
	const currency = `"paymentCurrency":"USD"`
	text := string(raw)
	if !strings.Contains(text, currency+",") {
		t.Fatalf("%s", text)
	}
	text = strings.Replace(text, currency+",", "", 1)
	return []byte(strings.Replace(text, `"eventData":{`, `"event\u0044ata" : {"paymentCurrency": "\u0055SD",`, 1))
}

func TestTheSameContentInAnotherSpellingIsADuplicate(t *testing.T) {
	for _, large := range []bool{false, true} {
		w := newWorld(t)
		if large {
			w.opts.ClaimBytes = 10
		}
		first := paymenttest.Encode(paymenttest.Event())
		if _, r := w.send(first, respelled(t, first)); r.Outcome != intake.Accepted || r.Recorded != 1 ||
			r.Duplicates != 1 {
			t.Errorf("in one delivery: %+v", r)
		}
		if _, r := w.send(respelled(t, first)); r.Outcome != intake.Accepted || r.Duplicates != 1 {
			t.Errorf("in another one: %+v", r)
		}
		// An amount of another text needs a person.
		other := bytes.Replace(first, []byte("1250.00"), []byte("1250.0"), 1)
		if _, r := w.send(respelled(t, other)); r.Outcome != intake.Conflict || r.Parked == "" {
			t.Errorf("another amount: %+v", r)
		}
		w.onBus(first)
	}
}

// The digest that finds damage is that of the content as well.
func TestAPendingItemInAnotherSpellingIsPublished(t *testing.T) {
	w := newWorld(t)
	id := w.pend(1)[0]
	other := respelled(t, w.table.Items()[id].Detail)
	w.table.Memory.Write(t.Context(), []ledger.Write{{Item: ledger.Item{EventID: id, Detail: other}, If: &ledger.Item{},
		Keep: ledger.Rest}})
	if r := w.redrive(); r.Published != 1 || r.Errors != 0 {
		t.Errorf("%+v", r)
	}
	w.onBus(other)
}

// EventBridge then takes the time of the request.
func TestAnEventWithoutATimeIsPublishedWithoutTime(t *testing.T) {
	for sent, large := range map[string]bool{`"yesterday"`: false, "1769860800123": true, "null": false, `""`: true} {
		w := newWorld(t)
		if large {
			w.opts.ClaimBytes = 10
		}
		id := uuid.New().String()
		raw := []byte(`{"eventName":"A.B","eventId":"` + id + `","eventTimestamp":` + sent +
			`,"eventData":{"amount":"1"}}`)
		// The first attempt fails, so that redrive publishes it.
		w.bus.Fails = broken
		_, r := w.send(raw)
		if r.Outcome != intake.Accepted || r.Pending != 1 || !cmp.Equal(r.Deviations, []string{"eventTimestamp"}) {
			t.Errorf("%s: %+v", sent, r)
		}
		w.bus.Fails, w.now = nil, w.now.Add(5*time.Minute)
		w.redrive()
		entries := w.bus.Entries()
		if len(entries) != 1 || !entries[0].Time.IsZero() {
			t.Fatalf("%s: %+v", sent, entries)
		}
		if detail := string(entries[0].Detail); large != strings.Contains(detail, "claimCheck") ||
			strings.Contains(detail, "0001-01-01") || !large && detail != string(raw) {
			t.Errorf("%s: %+v", sent, entries)
		}
		if item := w.item(raw); item.PublishedAt.IsZero() || !item.EventTimestamp.IsZero() {
			t.Errorf("%s: %+v", sent, item)
		}
	}
}

// The line of a webhook has at most ten paths, and no value.
func TestTheFirstDeviationOfTenEventsIsKept(t *testing.T) {
	w := newWorld(t)
	var events [][]byte
	for i := range 25 {
		event := string(paymenttest.Encode(paymenttest.Event()))
		if i%2 == 1 {
			event = strings.NewReplacer(`"amount":1250.00`, `"amount":"CANARY"`, `"USD"`, "840").Replace(event)
		}
		events = append(events, []byte(event))
	}
	_, r := w.send(events...)
	want := strings.Split(strings.Repeat("eventData.amount ", 10), " ")[:10]
	if r.Outcome != intake.Accepted || r.Published != 25 || !cmp.Equal(r.Deviations, want) {
		t.Errorf("%+v", r)
	}
}

// A byte order mark is a part of what was signed, and of nothing else.
func TestAByteOrderMarkIsVerifiedAndNotDecoded(t *testing.T) {
	w := newEvidenceWorld(t)
	raw := paymenttest.Encode(paymenttest.Event())
	payload := append([]byte("\ufeff"), paymenttest.RawDelivery(uuid.New().String(), raw)...)
	signed := w.signed(payload)
	if r := w.receive(w.ctx(), signed); r.Outcome != intake.Accepted || r.DeliveryID == "" {
		t.Errorf("%+v", r)
	}
	w.onBus(raw)
	records := w.stored() // which verify
	if len(records) != 1 || !bytes.Equal(records[0].Payload, payload) || len(records[0].EventIDs) != 1 {
		t.Errorf("%+v", records)
	}
	signed.Payload = payment.WithoutBOM(payload)
	if r := w.receive(w.ctx(), signed); r.Outcome != intake.SignatureMismatch || r.UnverifiedID == "" {
		t.Errorf("without the mark: %+v", r)
	}
}
