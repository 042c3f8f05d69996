package redrivehandler

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/wire"
)

// The pauses between the attempts are at most an hour.
func TestAnEventIsParkedAtTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deploy(t, nil)
		d.Bus.Reject = func(bus.Entry) error { return &bus.EntryError{Fault: bus.OfEntry, Code: "InvalidArgument"} }
		d.record(newEvent())
		const attempts = 20 // as documented
		for i := range attempts {
			last := i+1 == attempts
			if got := d.handle(wire.RedriveRequest{}); got.Failed != 1 || (got.Parked == 1) != last {
				t.Errorf("attempt %d: %+v", i+1, got)
			}
			time.Sleep(time.Hour)
		}
	})
}

// reported tests that the report on certificates has the value of a setting.
func reported(key, value string, field func(*wire.Certificates) []string) func(*testing.T) {
	return func(t *testing.T) {
		conf := functiontest.WithCertificates(t, settings.ByMTLS, paymenttest.NewCA("Operator CA"))
		conf[settings.ByKey(key).Env()] = value
		got := field(deploy(t, conf).handle(wire.RedriveRequest{Certificates: true}).Certificates)
		if !slices.Equal(got, []string{value}) {
			t.Errorf("reported %v", got)
		}
	}
}

// replayed tests the outcome of a replay of a rejected webhook that was sent 4 minutes ago from 192.0.2.10. With the
// default value of the setting, it is accepted.
func replayed(key, value string, want intake.Outcome) func(*testing.T) {
	return func(t *testing.T) {
		for env, want := range map[string]string{"": intake.Accepted.Name, settings.ByKey(key).Env(): want.Name} {
			d := withRejected(t, map[string]string{env: value})
			name := d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event()),
				Age: 4 * time.Minute}, nil)
			if got, _, _ := d.replayIt(name, false, false); got.Outcome != want {
				t.Errorf("%s: %+v, want %s", env, got, want)
			}
		}
	}
}

// effects has for every setting a test that the function's set-up passes it on.
var effects = map[string]func(t *testing.T){
	"allowedNetworks":    replayed("allowedNetworks", "198.51.100.0/24", intake.SenderNotAllowed),
	"signatureHeader":    replayed("signatureHeader", "X-Other", intake.SignatureMissing),
	"timestampLocation":  replayed("timestampLocation", "query:at", intake.SignatureMissing),
	"keyIdLocation":      replayed("keyIdLocation", "query:key", intake.SignatureMissing),
	"timestampTolerance": replayed("timestampTolerance", "3m", intake.TimestampOutside),
	"baseUrl":            replayed("baseUrl", "http://127.0.0.1:1", intake.KeyUnavailable),
	"revokedKeys": func(t *testing.T) {
		replayed("revokedKeys", functiontest.SigningKey().ID, intake.KeyRevoked)(t)
		reported("revokedKeys", strings.Repeat("cd", 32),
			func(c *wire.Certificates) []string { return c.RevokedKeys })(t)
	},
	"keyEndpointAuth": func(*testing.T) {}, // of the client that the function is given; package stores tests it
	"keyMaxAge": func(t *testing.T) {
		d := withRejected(t, map[string]string{"PAYHOOK_KEY_MAX_AGE": "2h"})
		d.replayIt(d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())}, nil), true, false)
		stored, err := d.Keys.Records(t.Context())
		if err != nil || len(stored) != 1 ||
			stored[0].ExpiresAt.Sub(stored[0].FetchedAt).Round(time.Minute) != 2*time.Hour {
			t.Errorf("%+v, %v", stored, err)
		}
	},

	"largeEventRetention": func(t *testing.T) {
		for value, soon := range map[string]bool{"29d": true, "31d": false, "never": false} {
			d := deploy(t, map[string]string{"PAYHOOK_LARGE_EVENT_RETENTION": value})
			event := paymenttest.Event()
			event.EventData.Identifiers.PaymentRequestID = strings.Repeat("x", settings.LargeEventBytes)
			got := d.replayed(wire.RedriveRequest{}, d.parkEvent(paymenttest.Encode(event)))
			if got.Outcome != "accepted" || !got.LargeEventEnds.IsZero() != soon {
				t.Errorf("%s: %+v", value, got)
			}
		}
	},

	"evidence": func(t *testing.T) {
		d := withRejected(t, nil)
		d.replayIt(d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())}, nil), true, false)
		if got := d.Evidence.Keys(); len(got) != 1 || !strings.HasPrefix(got[0], "accepted/30/20") {
			t.Errorf("%q", got)
		}
	},

	// Package intake tests what a pipeline does with its settings.
	"deduplicationWindow": func(t *testing.T) {
		d := deploy(t, map[string]string{"PAYHOOK_DEDUPLICATION_WINDOW": "48h"})
		d.record(newEvent())
		d.handle(wire.RedriveRequest{})
		for _, item := range d.Ledger.Items() {
			if got := time.Until(item.ExpiresAt).Round(time.Hour); got != 48*time.Hour {
				t.Errorf("an eventId is remembered for %s", got)
			}
		}
	},

	"authentication": TestEachRunWritesTheDaysThatTheTrustLasts,
	"clientCertPins": reported("clientCertPins", strings.Repeat("ab", 32),
		func(c *wire.Certificates) []string { return c.Pins }),
	"clientCertSubjects": reported("clientCertSubjects", "CN=a",
		func(c *wire.Certificates) []string { return c.Subjects }),
}

func TestEverySettingHasItsEffect(t *testing.T) { functiontest.RunEffects(t, "redrive", effects) }
