package main

import (
	"bytes"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
	"payhook.example/shared/telemetry"
)

// deployed is the function with its own set-up and AWS services in memory.
type deployed struct {
	*handler
	db      *awstest.DynamoDB
	bus     *awstest.EventBridge
	buckets *awstest.S3
	ledger  *ledger.Ledger
	log     bytes.Buffer
}

// deploy sets the function up with one setting changed.
func deploy(t *testing.T, s *settings.Setting, value string) *deployed {
	t.Helper()
	return deployWith(t, map[string]string{s.Env(): value})
}

// deployWith sets the function up with other values in its environment.
func deployWith(t *testing.T, change map[string]string) *deployed {
	t.Helper()
	d := &deployed{db: awstest.NewDynamoDB(), bus: &awstest.EventBridge{}, buckets: awstest.NewS3()}
	d.db.CreateLedger("ledger")
	d.db.CreateTable("keys", names.KeysKey)
	d.buckets.MakeBucket("claims")
	d.buckets.MakeBucket("parking")
	d.setUp(t, change, d.db)
	return d
}

// setUp sets the function up with other values in its environment, and a DynamoDB.
func (d *deployed) setUp(t *testing.T, change map[string]string, db dynamoDB) {
	t.Helper()
	env := map[string]string{
		names.LedgerTableEnv: "ledger", names.KeysTableEnv: "keys", names.ClaimBucketEnv: "claims",
		names.ParkingBucketEnv: "parking",
	}
	for _, s := range settings.RedriveSettings() {
		env[s.Env()] = s.Default
	}
	env[settings.EventBusName.Env()] = "payhook"
	maps.Copy(env, change)
	d.ledger = ledger.New(d.db, "ledger", env[settings.EventBusName.Env()], ledger.Options{})
	conf, err := settings.ParseRedrive(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	d.handler = newHandler(conf, clients{db, d.bus, d.buckets}, telemetry.New(&d.log, "Payhook"))
}

// record writes n events that are due.
func (d *deployed) record(t *testing.T, n int) {
	t.Helper()
	for range n {
		raw, err := payment.DecodeRawEvent(paymenttest.Encode(paymenttest.Event()))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-time.Minute)
		e := ledger.NewEntry(raw, uuid.New().String(), at)
		if err := d.ledger.Record(t.Context(), []ledger.Entry{e}, ledger.NewHolder(), at)[0].Err; err != nil {
			t.Fatal(err)
		}
	}
}

// run runs redrive once.
func (d *deployed) run(t *testing.T) report {
	t.Helper()
	r, err := d.Handle(t.Context(), event{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// number returns a number attribute of the one item in the ledger.
func (d *deployed) number(t *testing.T, attribute string) int64 {
	t.Helper()
	for _, item := range d.db.Items("ledger") {
		n, ok := item[attribute].(*types.AttributeValueMemberN)
		if !ok {
			t.Fatalf("the item has no %s: %v", attribute, item)
		}
		value, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	t.Fatal("the ledger is empty")
	return 0
}

// refuse makes EventBridge reject every entry.
func refuse(entries []eventbridgetypes.PutEventsRequestEntry) (map[int]string, error) {
	codes := map[int]string{}
	for i := range entries {
		codes[i] = "InvalidArgument"
	}
	return codes, nil
}

// leased returns for how long a run leases an event that it cannot publish, with a
// value of a setting.
func leased(t *testing.T, s *settings.Setting, value string) time.Duration {
	t.Helper()
	d := deploy(t, s, value)
	d.bus.Answer = refuse
	d.record(t, 1)
	start := time.Now()
	d.run(t)
	return time.UnixMilli(d.number(t, names.LedgerPendingDue)).Sub(start)
}

// effects has for every setting a test that the function's set-up passes it on: two
// values have different effects.
var effects = map[*settings.Setting]func(t *testing.T){
	settings.RedriveTimeout: func(t *testing.T) {
		if got := leased(t, settings.RedriveTimeout, "900s"); got < 900*time.Second {
			t.Errorf("a run of at most 900 s leases an event for %s", got)
		}
		if got := leased(t, settings.RedriveTimeout, "5s"); got > 120*time.Second {
			t.Errorf("a run of at most 5 s leases an event for %s", got)
		}
	},
	settings.RedriveGrace: func(t *testing.T) {
		if got := leased(t, settings.RedriveGrace, "1h"); got < time.Hour {
			t.Errorf("with a grace of an hour, an event is leased for %s", got)
		}
		if got := leased(t, settings.RedriveGrace, "1s"); got > 2*time.Minute {
			t.Errorf("with a grace of a second, an event is leased for %s", got)
		}
	},
	settings.RedriveAttempts: func(t *testing.T) {
		for value, want := range map[string]int{"1": 1, "2": 0} {
			d := deploy(t, settings.RedriveAttempts, value)
			d.bus.Answer = refuse
			d.record(t, 1)
			if got := d.run(t).Parked; got != want {
				t.Errorf("redriveAttempts=%s: %d events are parked at the first failure, want %d", value, got, want)
			}
		}
	},
	settings.KeyExponents: func(t *testing.T) {
		for value, want := range map[string]string{"65537": "accepted", "3": "key-refused"} {
			d := deploy(t, settings.KeyExponents, value)
			name := d.parkInvalid(t)
			r, err := d.Handle(t.Context(), event{Replay: []string{name}})
			if err != nil || len(r.Replayed) != 1 || string(r.Replayed[0].Outcome) != want {
				t.Errorf("keyExponents=%s: replayed as %+v, %v, want %s", value, r.Replayed, err, want)
			}
		}
	},
	settings.EventBusName: func(t *testing.T) {
		d := deploy(t, settings.EventBusName, "other-bus")
		d.record(t, 1)
		d.run(t)
		if got := *d.bus.Entries()[0].EventBusName; got != "other-bus" {
			t.Errorf("published on %s", got)
		}
	},
	settings.EventSource: func(t *testing.T) {
		d := deploy(t, settings.EventSource, "payments.example")
		d.record(t, 1)
		d.run(t)
		if got := *d.bus.Entries()[0].Source; got != "payments.example" {
			t.Errorf("the source is %s", got)
		}
	},
	settings.MaxEntryBytes: func(t *testing.T) {
		for value, want := range map[string]int{"2048": 2, "10000": 1} {
			d := deploy(t, settings.MaxEntryBytes, value)
			d.record(t, 4)
			d.run(t)
			if got := d.bus.Calls(); got != want {
				t.Errorf("maxEntryBytes=%s: four events took %d requests, want %d", value, got, want)
			}
		}
	},
	settings.DeduplicationWindow: func(t *testing.T) {
		d := deploy(t, settings.DeduplicationWindow, "48h")
		d.record(t, 1)
		start := time.Now()
		d.run(t)
		if got := time.Unix(d.number(t, names.LedgerTTL), 0).Sub(start).Round(time.Hour); got != 48*time.Hour {
			t.Errorf("an eventId is remembered for %s", got)
		}
	},
	settings.ClaimCheckBytes: func(t *testing.T) {
		for value, want := range map[string]int{"1024": 1, "10000": 0} {
			d := deploy(t, settings.ClaimCheckBytes, value)
			name := d.parkInvalid(t)
			if _, err := d.Handle(t.Context(), event{Replay: []string{name}}); err != nil {
				t.Fatal(err)
			}
			if got := len(d.buckets.Objects("claims")); got != want {
				t.Errorf("claimCheckBytes=%s: a replay stored %d objects, want %d", value, got, want)
			}
		}
	},
}

func TestEverySettingHasItsEffect(t *testing.T) {
	for _, s := range settings.RedriveSettings() {
		effect := effects[s]
		if effect == nil {
			t.Errorf("no test covers the effect of %s", s.Key)
			continue
		}
		t.Run(s.Key, effect)
	}
}

// parkInvalid parks a delivery of one event that was invalid and can now be accepted.
func (d *deployed) parkInvalid(t *testing.T) (name string) {
	t.Helper()
	key := paymenttest.NewKey(2048)
	e := paymenttest.Event()
	e.EventData.Identifiers.PaymentRequestID = strings.Repeat("x", 1500)
	p := parking.Parked{
		Reason: parking.Invalid, ParkedAt: time.Now(), Bus: "payhook", DeliveryID: uuid.New().String(),
		EventIDs: []string{e.EventID},
		Payload:  paymenttest.Delivery(e), Timestamp: "1769860800", KeyID: key.ID, JWK: key.JWK(),
	}
	var err error
	if p.Signature, err = signature.Sign(key.Private, p.Payload, p.Timestamp, p.KeyID); err != nil {
		t.Fatal(err)
	}
	if name, _, err = d.parking.Park(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return name
}
