package redrivehandler

import (
	"fmt"
	"net/http"
	"testing"
	"time"
	"uuid"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/bus"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// world is the function with stores in memory. It is noon.
type world struct {
	*functiontest.Function
	*Handler
}

// deploy sets the function up. env are environment variables.
func deploy(t *testing.T, env map[string]string) *world {
	t.Helper()
	f := functiontest.New(t, "redrive", map[string]string{"storeRejected": "1h"}, env)
	d := &world{f, New(f.Stores(), &http.Client{}, f.Conf, f.NewLog())}
	d.now = func() time.Time { return noon }
	return d
}

// handle invokes the function.
func (d *world) handle(e wire.RedriveRequest) wire.RedriveReport {
	d.T.Helper()
	d.Log.Reset()
	r, err := d.Handle(d.T.Context(), e)
	if err != nil {
		d.T.Fatal(err)
	}
	return r
}

// replayed replays what has a name.
func (d *world) replayed(e wire.RedriveRequest, name string) wire.Decided {
	d.T.Helper()
	e.Replay = []string{name}
	return d.handle(e).Decided[0]
}

// record writes an event that is due, a large one as a claim check.
func (d *world) record(event []byte) ledger.Item {
	d.T.Helper()
	raw, err := payment.DecodeRawEvent(event)
	if err != nil {
		d.T.Fatal(err)
	}
	at := time.Now().Add(-time.Minute)
	e := ledger.NewItem(raw, uuid.New().String(), at)
	if len(event) > settings.LargeEventBytes {
		detail, err := bus.NewLargeEvents(&d.LargeEvents, "large-events").Put(d.T.Context(), raw)
		if err != nil {
			d.T.Fatal(err)
		}
		e.Detail, e.Large = detail, true
	}
	if err := d.ledger().Record(d.T.Context(), []ledger.Item{e}, ledger.NewLeaseOwner(), at)[0].Err; err != nil {
		d.T.Fatal(err)
	}
	return e
}

func (d *world) ledger() *ledger.Ledger {
	return ledger.New(&d.Ledger, ledger.Options{Window: time.Hour})
}

// signed returns the proof of a signed delivery.
func (d *world) signed(reason proof.Reason, events ...[]byte) proof.Proof {
	d.T.Helper()
	id := uuid.New().String()
	key := functiontest.SigningKey()
	p := proof.Proof{
		Reason: reason, StoredAt: noon, DeliveryID: id, Payload: paymenttest.RawDelivery(id, events...),
		Timestamp: signature.FormatTime(noon), KeyID: key.ID,
		JWK: keys.FormatJWK(key.ID, &key.Private.PublicKey),
	}
	var err error
	if p.Signature, err = signature.Sign(key.Private, p.Payload, p.Timestamp, p.KeyID); err != nil {
		d.T.Fatal(err)
	}
	return p
}

// park parks an authentic delivery, for a reason.
func (d *world) park(reason proof.Reason, inConflict [][]byte, events ...[]byte) string {
	d.T.Helper()
	p := d.signed(reason, events...)
	for _, raw := range inConflict {
		digest, id := ledger.DigestOf(raw), ledger.Key(fmt.Sprint(d.Decode(raw)["eventId"]))
		p.EventIDs = append(p.EventIDs, id)
		p.Contents = append(p.Contents, proof.Content{EventID: id, Digest: digest[:]})
	}
	return d.parkIt(p)
}

func (d *world) parkIt(p proof.Proof) string {
	d.T.Helper()
	name, _, err := proof.Put(d.T.Context(), &d.Parking, p)
	if err != nil {
		d.T.Fatal(err)
	}
	return name
}

// parkEvent parks an event in the ledger, and returns its eventId.
func (d *world) parkEvent(event []byte) string {
	d.T.Helper()
	item := d.record(event)
	if err := d.ledger().Park(d.T.Context(), item, "attempts", "no answer"); err != nil {
		d.T.Fatal(err)
	}
	return item.EventID
}

// decided fails the test unless there is that decision about a name.
func (d *world) decided(name string, want proof.Decision) proof.Note {
	d.T.Helper()
	got, note, err := proof.DecisionOn(d.T.Context(), &d.Parking, name)
	if err != nil || got != want {
		d.T.Errorf("%s is %s, %v, want %s", name, got, err, want)
	}
	return note
}

func newEvent() []byte { return paymenttest.Encode(paymenttest.Event()) }

// twoContents returns an event, and the same event with another amount.
func twoContents() (first, other []byte) {
	event := paymenttest.Event()
	return paymenttest.Encode(event), paymenttest.Encode(paymenttest.WithAmount(event, "0.01"))
}
