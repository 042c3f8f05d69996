package redrivehandler

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// The pauses between the attempts are at most an hour.
func TestAnEventIsParkedAtTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deploy(t, nil)
		d.bus.Reject = func(bus.Entry) error { return &bus.EntryError{Fault: bus.OfEntry, Code: "InvalidArgument"} }
		d.record(newEvent())
		const attempts = 20 // as documented
		for i := range attempts {
			last := i+1 == attempts
			if got := d.handle(intake.Request{}); got.Failed != 1 || (got.Parked == 1) != last {
				t.Errorf("attempt %d: %+v", i+1, got)
			}
			time.Sleep(time.Hour)
		}
	})
}

// reported tests that the report on certificates has the value of a setting.
func reported(key, value string, field func(*intake.Certificates) []string) func(*testing.T) {
	return func(t *testing.T) {
		conf := withCertificates(t, settings.ByMTLS, paymenttest.NewCA("Operator CA"))
		conf[settings.ByKey(key).Env()] = value
		got := field(deploy(t, conf).handle(intake.Request{Certificates: true}).Certificates)
		if !slices.Equal(got, []string{value}) {
			t.Errorf("reported %v", got)
		}
	}
}

// effects has for every setting a test that the function's set-up passes it on.
var effects = map[string]func(t *testing.T){
	// The test of rejected webhooks.
	"allowedNetworks": verifies,

	"signatureHeader": verifies, "timestampLocation": verifies, "keyIdLocation": verifies,
	"timestampTolerance": verifies, "baseUrl": verifies, "keyEndpointAuth": verifies,
	"keyMaxAge": verifies,

	"largeEventRetention": func(t *testing.T) {
		for value, soon := range map[string]bool{"29d": true, "31d": false, "never": false} {
			d := deploy(t, map[string]string{"PAYHOOK_LARGE_EVENT_RETENTION": value})
			event := paymenttest.Event()
			event.EventData.Identifiers.PaymentRequestID = strings.Repeat("x", settings.LargeEventBytes)
			got := d.replayed(intake.Request{}, d.parkEvent(paymenttest.Encode(event)))
			if got.Outcome != "accepted" || !got.LargeEventEnds.IsZero() != soon {
				t.Errorf("%s: %+v", value, got)
			}
		}
	},

	"evidence": func(t *testing.T) {
		d := withRejected(t, nil)
		d.replayIt(d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())}, nil), true, false)
		if got := d.records.Keys(); len(got) != 1 || !strings.HasPrefix(got[0], "accepted/30/20") {
			t.Errorf("%q", got)
		}
	},

	// Package intake tests what a pipeline does with its settings.
	"deduplicationWindow": func(t *testing.T) {
		d := deploy(t, map[string]string{"PAYHOOK_DEDUPLICATION_WINDOW": "48h"})
		d.record(newEvent())
		d.handle(intake.Request{})
		for _, item := range d.table.Items() {
			if got := time.Until(item.ExpiresAt).Round(time.Hour); got != 48*time.Hour {
				t.Errorf("an eventId is remembered for %s", got)
			}
		}
	},

	"authentication": TestEachRunWritesTheDaysThatTheTrustLasts,
	"clientCertPins": reported("clientCertPins", strings.Repeat("ab", 32),
		func(c *intake.Certificates) []string { return c.Pins }),
	"clientCertSubjects": reported("clientCertSubjects", "CN=a",
		func(c *intake.Certificates) []string { return c.Subjects }),
	"revokedKeys": func(t *testing.T) {
		reported("revokedKeys", strings.Repeat("cd", 32),
			func(c *intake.Certificates) []string { return c.RevokedKeys })(t)
		id := signingKey().ID
		d := withRejected(t, map[string]string{"PAYHOOK_REVOKED_KEYS": id})
		got := d.handle(intake.Request{Certificates: true}).Certificates
		if !slices.Equal(got.RevokedKeys, []string{id}) {
			t.Errorf("by signature: reported %v", got)
		}
		w := paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())}
		rejected, _, _ := d.replayIt(d.reject(w, nil), true, false)
		parked := d.replayed(intake.Request{}, d.park(proof.Invalid, nil, newEvent()))
		if rejected.Outcome != "key-revoked" || parked.Outcome != "key-revoked" || len(d.bus.Entries()) > 0 {
			t.Errorf("replayed as %s and %s", rejected.Outcome, parked.Outcome)
		}
	},
}

// verifies tests that the function verifies rejected webhooks with its settings. That the webhook
// function reads them in the same way is tested there.
func verifies(t *testing.T) {
	w := paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event()), Age: 4 * time.Minute}
	for key, c := range map[string]struct {
		value string
		want  intake.Outcome
	}{
		"PAYHOOK_SIGNATURE_HEADER":    {"X-Other", intake.SignatureMissing},
		"PAYHOOK_TIMESTAMP_LOCATION":  {"query:at", intake.SignatureMissing},
		"PAYHOOK_KEY_ID_LOCATION":     {"query:key", intake.SignatureMissing},
		"PAYHOOK_TIMESTAMP_TOLERANCE": {"3m", intake.TimestampOutside},
		"PAYHOOK_BASE_URL":            {"http://127.0.0.1:1", intake.KeyUnavailable},
	} {
		d := withRejected(t, map[string]string{key: c.value})
		if got, _, _ := d.replayIt(d.reject(w, nil), false, false); got.Outcome != c.want.Name {
			t.Errorf("%s=%s: %+v", key, c.value, got)
		}
	}
}

func TestEverySettingHasItsEffect(t *testing.T) {
	for _, s := range settings.ReadBy("redrive") {
		effect := effects[s.Key]
		if effect == nil {
			t.Errorf("no test covers the effect of %s", s.Key)
			continue
		}
		t.Run(s.Key, effect)
	}
}
