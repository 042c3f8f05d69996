package redrivehandler

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// signingKey is the service's key in all tests.
var signingKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

// table is a ledger in memory. It calls before with the context of each write, if that is set.
type table struct {
	ledger.Memory
	before func(context.Context)
}

func (t *table) Write(ctx context.Context, writes []ledger.Write) []ledger.WriteResult {
	if t.before != nil {
		t.before(ctx)
	}
	return t.Memory.Write(ctx, writes)
}

// deployment is the function with its own set-up and stores in memory. It is noon.
type deployment struct {
	*Handler
	conf        settings.Config
	t           *testing.T
	table       table
	keys        keys.Memory
	bus         bus.Memory
	parked      objects.Memory
	largeEvents objects.Memory
	records     objects.Memory
	log         bytes.Buffer
}

// deploy sets the function up. change are environment variables.
func deploy(t *testing.T, change map[string]string) *deployment {
	t.Helper()
	d := &deployment{t: t}
	deployed, err := settings.ParseDeployment(settings.Given{Deployment: "Payhook",
		Values: settings.Texts(map[string]string{"baseUrl": "https://api.payments.example",
			"tokenStore": settings.NoToken, "storeRejected": "1h"}, "")})
	if err != nil {
		t.Fatal(err)
	}
	env := deployed.Environment("redrive", settings.Resources{settings.LedgerTableEnv: "ledger",
		settings.KeysTableEnv: "keys", settings.LargeEventBucketEnv: "large-events", settings.ParkingBucketEnv: "parking",
		settings.EventBusNameEnv: "bus"})
	maps.Copy(env, change)
	conf, err := settings.ParseFunction("redrive", func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	d.conf = conf
	d.Handler = d.with(&d.bus)
	return d
}

// with returns the function with another bus.
func (d *deployment) with(b intake.Bus) *Handler {
	all := intake.Stores{Ledger: &d.table, Keys: &d.keys, Bus: b, LargeEvents: &d.largeEvents, Parking: &d.parked}
	if d.conf.EvidenceBucket != "" {
		all.Evidence = &d.records
	}
	h := New(all, &http.Client{}, d.conf, lambdaruntime.NewLog(&d.log, "Payhook"))
	h.now = func() time.Time { return noon }
	return h
}

// withCertificates are the settings of a deployment that requires client
// certificates of a CA.
func withCertificates(t *testing.T, authentication string, ca *paymenttest.CA) map[string]string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, settings.TruststoreFile), ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"PAYHOOK_AUTHENTICATION": authentication, "LAMBDA_TASK_ROOT": folder}
}

// handle invokes the function.
func (d *deployment) handle(e intake.Request) intake.Report {
	d.t.Helper()
	d.log.Reset()
	r, err := d.Handle(d.t.Context(), e)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// replayed replays what has a name.
func (d *deployment) replayed(e intake.Request, name string) intake.Decided {
	d.t.Helper()
	e.Replay = []string{name}
	return d.handle(e).Decided[0]
}

// line returns the one line of the last invocation.
func (d *deployment) line() (line map[string]any) {
	d.t.Helper()
	if err := json.Unmarshal(d.log.Bytes(), &line); err != nil {
		d.t.Fatalf("%v: %s", err, &d.log)
	}
	return line
}

// record writes an event that is due, a large one as a claim check.
func (d *deployment) record(event []byte) ledger.Item {
	d.t.Helper()
	raw := decoded(d.t, event)
	at := time.Now().Add(-time.Minute)
	e := ledger.NewItem(raw, uuid.New().String(), at)
	if len(event) > settings.LargeEventBytes {
		detail, err := bus.NewLargeEvents(&d.largeEvents, "large-events").Put(d.t.Context(), raw)
		if err != nil {
			d.t.Fatal(err)
		}
		e.Detail, e.Large = detail, true
	}
	if err := d.ledger().Record(d.t.Context(), []ledger.Item{e}, ledger.NewLeaseOwner(), at)[0].Err; err != nil {
		d.t.Fatal(err)
	}
	return e
}

func (d *deployment) ledger() *ledger.Ledger {
	return ledger.New(&d.table, ledger.Options{Window: time.Hour})
}

func decoded(t *testing.T, raw []byte) payment.RawEvent {
	t.Helper()
	event, err := payment.DecodeRawEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// signed returns the proof of a signed delivery.
func (d *deployment) signed(reason proof.Reason, events ...[]byte) proof.Proof {
	d.t.Helper()
	id := uuid.New().String()
	p := proof.Proof{
		Reason: reason, StoredAt: noon, DeliveryID: id, Payload: paymenttest.RawDelivery(id, events...),
		Timestamp: signature.FormatTime(noon), KeyID: signingKey().ID,
		JWK: keys.FormatJWK(signingKey().ID, &signingKey().Private.PublicKey),
	}
	var err error
	if p.Signature, err = signature.Sign(signingKey().Private, p.Payload, p.Timestamp, p.KeyID); err != nil {
		d.t.Fatal(err)
	}
	return p
}

// park parks an authentic delivery, for a reason.
func (d *deployment) park(reason proof.Reason, inConflict [][]byte, events ...[]byte) string {
	d.t.Helper()
	p := d.signed(reason, events...)
	for _, raw := range inConflict {
		digest, id := ledger.DigestOf(raw), ledger.Key(decoded(d.t, raw).EventID)
		p.EventIDs = append(p.EventIDs, id)
		p.Contents = append(p.Contents, proof.Content{EventID: id, Digest: digest[:]})
	}
	return d.parkIt(p)
}

func (d *deployment) parkIt(p proof.Proof) string {
	d.t.Helper()
	name, _, err := proof.Put(d.t.Context(), &d.parked, p)
	if err != nil {
		d.t.Fatal(err)
	}
	return name
}

// parkEvent parks an event in the ledger, and returns its eventId.
func (d *deployment) parkEvent(event []byte) string {
	d.t.Helper()
	item := d.record(event)
	if err := d.ledger().Park(d.t.Context(), item, "attempts", "no answer"); err != nil {
		d.t.Fatal(err)
	}
	return item.EventID
}

// decided fails the test unless there is that decision about a name.
func (d *deployment) decided(name string, want proof.Decision) proof.Note {
	d.t.Helper()
	got, note, err := proof.DecisionOn(d.t.Context(), &d.parked, name)
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
