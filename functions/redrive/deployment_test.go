package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// signingKey is the service's key in all tests.
var signingKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

// deployment is the function with its own set-up and AWS services in memory. It is noon.
type deployment struct {
	*handler
	t       *testing.T
	db      *awstest.DynamoDB
	bus     *bus.Memory
	buckets *awstest.S3
	log     bytes.Buffer
}

// deploy sets the function up. change are environment variables.
func deploy(t *testing.T, change map[string]string) *deployment {
	t.Helper()
	d := &deployment{t: t, db: awstest.NewDynamoDB(), bus: &bus.Memory{}, buckets: awstest.NewS3()}
	d.db.CreateLedger("ledger")
	d.db.CreateTable("keys", names.KeysKey)
	d.buckets.MakeBucket("claims")
	d.buckets.MakeBucket("parking")
	d.buckets.MakeBucket("records")
	env := map[string]string{
		names.LedgerTableEnv: "ledger", names.KeysTableEnv: "keys", names.ClaimBucketEnv: "claims",
		names.ParkingBucketEnv: "parking", names.EventBusNameEnv: "bus",
	}
	for _, s := range settings.ReadBy("redrive") {
		env[s.Env()] = s.Default
	}
	env["PAYHOOK_BASE_URL"] = "https://api.payments.example"
	maps.Copy(env, change)
	conf, err := settings.ParseRedrive(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	all := newStores(d.db, nil, d.buckets, conf)
	all.Bus, all.bus = d.bus, d.bus
	d.handler = newHandler(all, &http.Client{}, conf, awsenv.NewLog(&d.log, "Payhook"))
	d.now = func() time.Time { return noon }
	return d
}

// withCertificates are the settings of a deployment that requires client
// certificates of a CA.
func withCertificates(t *testing.T, authentication string, ca *paymenttest.CA) map[string]string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, names.TruststoreFile), ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"PAYHOOK_AUTHENTICATION": authentication, "LAMBDA_TASK_ROOT": folder}
}

// handle invokes the function.
func (d *deployment) handle(e event) report {
	d.t.Helper()
	d.log.Reset()
	r, err := d.Handle(d.t.Context(), e)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// replay replays one object.
func (d *deployment) replay(e event, name string) replayed {
	d.t.Helper()
	e.Replay = []string{name}
	return d.handle(e).Replayed[0]
}

// line returns the one line of the last invocation.
func (d *deployment) line() (line map[string]any) {
	d.t.Helper()
	if err := json.Unmarshal(d.log.Bytes(), &line); err != nil {
		d.t.Fatalf("%v: %s", err, &d.log)
	}
	return line
}

// record writes an event that is due.
func (d *deployment) record(event []byte) {
	d.t.Helper()
	raw, err := payment.DecodeRawEvent(event)
	if err != nil {
		d.t.Fatal(err)
	}
	at := time.Now().Add(-time.Minute)
	e := ledger.NewItem(raw, uuid.New().String(), at)
	if err := ledger.New(dynamodb.NewLedger(d.db, "ledger"), ledger.Options{}).Record(d.t.Context(), []ledger.Item{e},
		ledger.NewHolder(), at)[0].Err; err != nil {
		d.t.Fatal(err)
	}
}

// park parks an authentic delivery, for a reason.
func (d *deployment) park(reason parking.Reason, inConflict [][]byte, events ...[]byte) string {
	d.t.Helper()
	id := uuid.New().String()
	p := parking.Parked{
		Reason: reason, ParkedAt: noon, DeliveryID: id, Payload: paymenttest.RawDelivery(id, events...),
		Timestamp: signature.FormatTime(noon), KeyID: signingKey().ID, JWK: signingKey().JWK(),
	}
	for _, raw := range inConflict {
		digest := ledger.DigestOf(raw)
		p.EventIDs, p.EventDigests = append(p.EventIDs, ledger.Key(idOf(d.t, raw))), append(p.EventDigests, digest[:])
	}
	var err error
	if p.Signature, err = signature.Sign(signingKey().Private, p.Payload, p.Timestamp, p.KeyID); err != nil {
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
