package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/awstest"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
	"payhook.example/shared/telemetry"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// deployment is the function with AWS services in memory.
type deployment struct {
	*handler
	t       *testing.T
	db      *awstest.DynamoDB
	bus     *awstest.EventBridge
	buckets *awstest.S3
	log     *bytes.Buffer
	key     paymenttest.Key

	parkedFor string // the bus of deliveries
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{t: t, db: awstest.NewDynamoDB(), bus: &awstest.EventBridge{}, buckets: awstest.NewS3(),
		log: &bytes.Buffer{}, key: paymenttest.NewKey(2048), parkedFor: "bus"}
	d.db.CreateLedger("ledger")
	d.buckets.MakeBucket("claims")
	d.buckets.MakeBucket("parking")
	env := map[string]string{names.LedgerTableEnv: "ledger", names.ClaimBucketEnv: "claims",
		names.ParkingBucketEnv: "parking"}
	for _, s := range settings.RedriveSettings() {
		env[s.Env()] = s.Default
	}
	env[settings.EventBusName.Env()] = "bus"
	conf, err := settings.ParseRedrive(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	d.handler = newHandler(conf, clients{d.db, d.bus, d.buckets}, telemetry.New(d.log, "Payhook"))
	d.now = func() time.Time { return noon }
	return d
}

// park parks an authentic delivery, for a reason.
func (d *deployment) park(reason parking.Reason, inConflict [][]byte, events ...[]byte) string {
	d.t.Helper()
	id := uuid.New().String()
	p := parking.Parked{
		Reason: reason, ParkedAt: noon, Bus: d.parkedFor, DeliveryID: id, Payload: paymenttest.RawDelivery(id, events...),
		Timestamp: signature.FormatRFC3339.Text(noon), KeyID: d.key.ID, JWK: d.key.JWK(),
	}
	for _, raw := range inConflict {
		digest := ledger.DigestOf(raw)
		p.EventIDs, p.EventDigests = append(p.EventIDs, ledger.Key(idOf(d.t, raw))), append(p.EventDigests, digest[:])
	}
	var err error
	if p.Signature, err = signature.Sign(d.key.Private, p.Payload, p.Timestamp, p.KeyID); err != nil {
		d.t.Fatal(err)
	}
	return d.parkIt(p)
}

func (d *deployment) parkIt(p parking.Parked) string {
	d.t.Helper()
	name, _, err := d.parking.Park(d.t.Context(), p)
	if err != nil {
		d.t.Fatal(err)
	}
	return name
}

func idOf(t *testing.T, raw []byte) string {
	t.Helper()
	event, err := payment.DecodeRawEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	return event.EventID
}

func (d *deployment) handle(e event) report {
	d.t.Helper()
	r, err := d.Handle(d.t.Context(), e)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// decided fails the test unless the object has that state.
func (d *deployment) decided(name string, want parking.State) parking.Note {
	d.t.Helper()
	got, note, err := d.parking.Decision(d.t.Context(), name)
	if err != nil || got != want {
		d.t.Errorf("%s is %s, %v, want %s", name, got, err, want)
	}
	return note
}

func newEvent() []byte { return paymenttest.Encode(paymenttest.Event()) }

// twoContents returns an event, and the same event with another amount.
func twoContents() (first, other []byte) {
	event := paymenttest.Event()
	first = paymenttest.Encode(event)
	event.EventData.Amount = "0.01"
	return first, paymenttest.Encode(event)
}

func TestOnlyWhatWasAcceptedIsMarkedAsReplayed(t *testing.T) {
	d := newDeployment(t)
	first, other := twoContents()
	fine := d.park(parking.Invalid, nil, first)
	stillInvalid := d.park(parking.Invalid, nil, []byte(`{}`))
	conflict := d.park(parking.Conflict, [][]byte{other}, other)
	forged, err := d.parking.Get(t.Context(), fine)
	if err != nil {
		t.Fatal(err)
	}
	forged.Payload = bytes.Replace(forged.Payload, []byte(`"amount":`), []byte(`"amount":9`), 1)
	forgedName := d.parkIt(forged)
	missing := "2026/01/31/12/20260131T120000.000Z-invalid-00000000000000000000000000000000.json"

	got := d.handle(event{Replay: []string{fine, stillInvalid, conflict, forgedName, missing}, By: "ann"})
	for i, want := range []struct {
		outcome  intake.Outcome
		recorded int
		cause    string
		state    parking.State
	}{
		{intake.Accepted, 1, "", parking.Replayed},
		{intake.Invalid, 0, "events[0]", parking.Open},
		{intake.VersionMissing, 0, "", parking.Open},
		{intake.SignatureMismatch, 0, "signature", parking.Open},
		{"", 0, parking.ErrNotParked.Error(), parking.Open},
	} {
		r := got.Replayed[i]
		if r.Outcome != want.outcome || r.Recorded != want.recorded || !strings.Contains(r.Cause, want.cause) ||
			(r.Cause == "") != (want.cause == "") {
			t.Errorf("%d: %+v", i, r)
		}
		d.decided(r.Name, want.state)
	}
	if note := d.decided(fine, parking.Replayed); note != (parking.Note{By: "ann", At: noon}) {
		t.Errorf("noted %+v", note)
	}
	if n := len(d.bus.Entries()); n != 1 {
		t.Errorf("%d entries are on the bus", n)
	}
}

func TestAConflictIsReplayedInTheVersionThatIsNamed(t *testing.T) {
	d := newDeployment(t)
	first, other := twoContents()
	d.handle(event{Replay: []string{d.park(parking.Invalid, nil, first)}})
	conflict := d.park(parking.Conflict, [][]byte{other}, newEvent(), other)

	got := d.handle(event{Replay: []string{conflict}, Version: intake.FirstVersion, By: "ann"})
	if r := got.Replayed[0]; r.Outcome != intake.Accepted || r.Recorded != 0 || r.Cause != "" {
		t.Errorf("%+v", r)
	}
	if note := d.decided(conflict, parking.Settled); note.By != "ann" || note.Version != "first" || note.Reason == "" {
		t.Errorf("noted %+v", note)
	}
	// The other version could be a second payment.
	got = d.handle(event{Replay: []string{conflict}, Version: intake.ParkedVersion, By: "bob"})
	if r := got.Replayed[0]; r.Outcome != alreadySettled || r.Cause != "it was settled at 2026-01-31T12:00:00Z" ||
		len(d.bus.Entries()) != 1 {
		t.Errorf("without again: %+v", r)
	}
	got = d.handle(event{Replay: []string{conflict}, Version: intake.ParkedVersion, Again: true, By: "bob"})
	if r := got.Replayed[0]; r.Outcome != intake.Accepted || r.Recorded != 1 || r.Cause != "" {
		t.Errorf("%+v", r)
	}
	if note := d.decided(conflict, parking.Replayed); note.By != "bob" || note.Version != "parked" {
		t.Errorf("noted %+v", note)
	}
	if r := d.handle(event{Replay: []string{conflict}, Version: intake.ParkedVersion}).Replayed[0]; r.Outcome !=
		alreadyReplayed {
		t.Errorf("without again: %+v", r)
	}
	d.handle(event{})
	if entries := d.bus.Entries(); len(entries) != 2 || *entries[1].Detail != string(other) {
		t.Errorf("%d entries are on the bus", len(entries))
	}
}

func TestWhatIsInConflictIsParkedForItself(t *testing.T) {
	d := newDeployment(t)
	first, other := twoContents()
	d.handle(event{Replay: []string{d.park(parking.Invalid, nil, first)}})
	name := d.park(parking.Invalid, nil, newEvent(), other)
	r := d.handle(event{Replay: []string{name}}).Replayed[0]
	if r.Outcome != intake.Conflict || r.Recorded != 1 || r.Conflicts != 1 || r.Parked == "" || r.Parked == name ||
		r.Cause != "" {
		t.Errorf("%+v", r)
	}
	d.decided(name, parking.Replayed)
	d.decided(r.Parked, parking.Open)
}

func TestAnEventWithOtherContentInTheLedgerStaysOpen(t *testing.T) {
	d := newDeployment(t)
	first, other := twoContents()
	d.handle(event{Replay: []string{d.park(parking.Invalid, nil, first)}})
	digest := ledger.DigestOf(other)
	name := d.parkIt(parking.Parked{
		Reason: parking.Unpublishable, ParkedAt: noon, Bus: "bus", DeliveryID: uuid.New().String(),
		EventIDs: []string{idOf(t, other)},
		Event:    other, Digest: digest[:], RecordedAt: noon, Attempts: 20,
	})
	if r := d.handle(event{Replay: []string{name}}).Replayed[0]; r.Outcome != intake.Conflict || r.Conflicts != 1 {
		t.Errorf("%+v", r)
	}
	d.decided(name, parking.Open)
}

// A bucket that two stacks share has what was parked for both buses.
func TestAReplayOfAnotherBusNeedsItsName(t *testing.T) {
	raw := newEvent()
	digest := ledger.DigestOf(raw)
	for reason, p := range map[parking.Reason]parking.Parked{
		parking.Unpublishable: {Event: raw, Digest: digest[:], RecordedAt: noon},
		parking.Invalid:       {},
	} {
		d := newDeployment(t)
		d.parkedFor = "gone"
		name := d.park(reason, nil, raw)
		if p.Event != nil {
			p.Reason, p.Bus, p.EventIDs = reason, "gone", []string{idOf(t, raw)}
			name = d.parkIt(p)
		}
		for _, bus := range []string{"", "bus", "third"} {
			r := d.handle(event{Replay: []string{name}, Bus: bus}).Replayed[0]
			if r.Outcome != intake.OtherBus || !strings.Contains(r.Cause, `"gone"`) || len(d.db.Items("ledger")) != 0 {
				t.Errorf("%s on %q: %+v", reason, bus, r)
			}
			d.decided(name, parking.Open)
		}
		if r := d.handle(event{Replay: []string{name}, Bus: "gone"}).Replayed[0]; r.Outcome != intake.Accepted {
			t.Errorf("%s on its bus: %+v", reason, r)
		}
		d.handle(event{}) // an event is published by a run
		if n := len(d.bus.Entries()); n != 1 || *d.bus.Entries()[0].EventBusName != "bus" {
			t.Errorf("%s: %d entries are on the bus", reason, n)
		}
	}
}

// Two stacks have one ledger. Redrive of the second publishes nothing of the first before
// it was moved.
func TestRedriveMovesTheEventsOfAnotherBus(t *testing.T) {
	d := newDeployment(t)
	recordOn := func(bus string) string {
		e, err := payment.DecodeRawEvent(newEvent())
		if err != nil {
			t.Fatal(err)
		}
		entry := ledger.NewEntry(e, uuid.New().String(), time.Now())
		if err := ledger.New(d.db, "ledger", bus, ledger.Options{}).Record(t.Context(), []ledger.Entry{entry},
			ledger.NewHolder(), time.Now().Add(-time.Second))[0].Err; err != nil {
			t.Fatal(err)
		}
		return entry.EventID
	}
	moved := recordOn("gone")
	recordOn("third")
	if r := d.handle(event{}); r.Found != 0 || len(d.bus.Entries()) != 0 {
		t.Errorf("a run publishes events of other buses: %+v", r)
	}
	if r := d.handle(event{MoveFrom: "gone"}); r.Moved != 1 || r.Left {
		t.Errorf("%+v", r)
	}
	if r := d.handle(event{}); r.Published != 1 || !strings.Contains(*d.bus.Entries()[0].Detail, moved) {
		t.Errorf("%+v", r)
	}
	if _, err := d.Handle(t.Context(), event{MoveFrom: "bus"}); err == nil {
		t.Error("events are moved to their own bus")
	}
	if !strings.Contains(d.log.String(), `"msg":"move","from":"gone","moved":1`) {
		t.Errorf("log: %s", d.log)
	}
}

func TestWhatCouldNotBeMarkedSaysSo(t *testing.T) {
	d := newDeployment(t)
	name := d.park(parking.Invalid, nil, newEvent())
	d.buckets.Fails = func(operation, key string) error {
		if operation == "PutObject" && (strings.HasPrefix(key, "replayed/") || strings.HasPrefix(key, "settled/")) {
			return errors.New("the bucket is down")
		}
		return nil
	}
	if r := d.handle(event{Replay: []string{name}}).Replayed[0]; r.Outcome != intake.Accepted ||
		!strings.Contains(r.Cause, "down") {
		t.Errorf("%+v", r)
	}
	if r := d.handle(event{Settle: []string{name}, Reason: "why"}).Settled[0]; !strings.Contains(r.Cause, "down") {
		t.Errorf("%+v", r)
	}
	d.buckets.Fails = nil
	d.decided(name, parking.Open)
}

func TestWhatNeedsNoReplayIsSettled(t *testing.T) {
	d := newDeployment(t)
	name := d.park(parking.Invalid, nil, newEvent())
	missing := "2026/01/31/12/20260131T120000.000Z-invalid-00000000000000000000000000000000.json"
	got := d.handle(event{Settle: []string{name, missing}, Reason: "sent again",
		By: "arn:aws:iam::123456789012:user/ann"})
	if diff := cmp.Diff([]settled{{Name: name}, {Name: missing, Cause: parking.ErrNotParked.Error()}},
		got.Settled); diff != "" {
		t.Error(diff)
	}
	if note := d.decided(name, parking.Settled); note != (parking.Note{By: "arn:aws:iam::123456789012:user/ann",
		At: noon, Reason: "sent again"}) {
		t.Errorf("noted %+v", note)
	}
	d.decided(missing, parking.Open)
	if len(d.db.Items("ledger"))+len(d.bus.Entries()) != 0 {
		t.Error("an event was published")
	}
	if strings.Contains(d.log.String(), "arn:") {
		t.Errorf("an ARN is logged: %s", d.log)
	}
	for _, e := range []event{{Settle: []string{name}}, {Settle: []string{name}, Reason: " "},
		{Settle: []string{name}, Replay: []string{name}, Reason: "why"}} {
		if _, err := d.Handle(t.Context(), e); err == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
}

func TestARunThatCannotParkFails(t *testing.T) {
	d := newDeployment(t)
	d.buckets.Fails = func(string, string) error { return errors.New("AccessDenied") }
	// An integer that EventBridge rejects.
	raw := bytes.Replace(newEvent(), []byte(`"eventData":{`), []byte(`"eventData":{"n":9223372036854775808,`), 1)
	e, err := payment.DecodeRawEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	entry := ledger.NewEntry(e, uuid.New().String(), time.Now())
	if err := ledger.New(d.db, "ledger", "bus", ledger.Options{}).Record(t.Context(), []ledger.Entry{entry},
		ledger.NewHolder(), time.Now().Add(-time.Second))[0].Err; err != nil {
		t.Fatal(err)
	}
	if r, err := d.Handle(t.Context(), event{}); err == nil || !strings.Contains(err.Error(), "AccessDenied") ||
		r.Failed != 1 || r.Parked != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
