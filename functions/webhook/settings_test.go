package main

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// effects has for every setting a test that the function's set-up passes it on: two
// values have different effects. The settings of keys are in keyEffects.
var effects = map[*settings.Setting]func(t *testing.T){
	settings.BaseURL: func(t *testing.T) {
		e := newEndpoint(t, nil)
		other := newEndpoint(t, map[string]string{settings.BaseURL.Env(): e.service.URL})
		// Only e's service has the key.
		if got := other.handle(t, e.request(t,
			paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})).StatusCode; got != http.StatusOK {
			t.Errorf("the key was not found at baseUrl: %d", got)
		}
	},
	settings.SignatureHeader: func(t *testing.T) {
		carried(t, settings.SignatureHeader, "X-Other-Signature", func(r *events.APIGatewayV2HTTPRequest) {
			r.Headers["x-other-signature"] = r.Headers["x-svc-signature"]
			delete(r.Headers, "x-svc-signature")
		})
	},
	settings.TimestampCarrier: func(t *testing.T) {
		carried(t, settings.TimestampCarrier, "query:at", func(r *events.APIGatewayV2HTTPRequest) {
			r.RawQueryString = "at=" + r.Headers["x-svc-timestamp"]
			delete(r.Headers, "x-svc-timestamp")
		})
	},
	settings.KeyIDCarrier: func(t *testing.T) {
		carried(t, settings.KeyIDCarrier, "query:key", func(r *events.APIGatewayV2HTTPRequest) {
			r.RawQueryString = "key=" + r.Headers["x-svc-key-id"]
			delete(r.Headers, "x-svc-key-id")
		})
	},
	settings.TimestampFormat: func(t *testing.T) {
		// The sender writes RFC 3339.
		for value, want := range map[string]int{"rfc3339": http.StatusOK, "unix-seconds": http.StatusUnauthorized} {
			e := newEndpoint(t, map[string]string{settings.TimestampFormat.Env(): value})
			if got := e.send(t, paymenttest.Event()).StatusCode; got != want {
				t.Errorf("%s: a webhook is answered %d, want %d", value, got, want)
			}
		}
	},
	settings.TimestampTolerance: func(t *testing.T) {
		for value, want := range map[string]int{"5m": http.StatusUnauthorized, "30m": http.StatusOK,
			settings.Off: http.StatusOK} {
			e := newEndpoint(t, map[string]string{settings.TimestampTolerance.Env(): value})
			old := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event()),
				Age: 10 * time.Minute})
			if got := e.handle(t, old).StatusCode; got != want {
				t.Errorf("%s: a webhook of 10 minutes ago is answered %d, want %d", value, got, want)
			}
		}
	},
	settings.HTTPMethod: func(t *testing.T) {
		e := newEndpoint(t, map[string]string{settings.HTTPMethod.Env(): "PUT"})
		r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
		r.RequestContext.HTTP.Method = http.MethodPost
		if got := e.handle(t, r); got.StatusCode != http.StatusMethodNotAllowed || got.Headers["Allow"] != "PUT" {
			t.Errorf("POST is answered %d, Allow %q", got.StatusCode, got.Headers["Allow"])
		}
		r.RequestContext.HTTP.Method = http.MethodPut
		if got := e.handle(t, r).StatusCode; got != http.StatusOK {
			t.Errorf("PUT is answered %d", got)
		}
	},
	settings.SuccessStatus: func(t *testing.T) {
		e := newEndpoint(t, map[string]string{settings.SuccessStatus.Env(): "202"})
		if got := e.send(t, paymenttest.Event()).StatusCode; got != http.StatusAccepted {
			t.Errorf("answered %d", got)
		}
	},
	settings.MaxPayloadBytes: func(t *testing.T) {
		payload := paymenttest.Delivery(paymenttest.Event())
		for limit, want := range map[int]int{len(payload): http.StatusOK,
			len(payload) - 1: http.StatusRequestEntityTooLarge} {
			e := newEndpoint(t, map[string]string{settings.MaxPayloadBytes.Env(): strconv.Itoa(limit)})
			if got := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload})).StatusCode; got != want {
				t.Errorf("%d bytes with a limit of %d are answered %d, want %d", len(payload), limit, got, want)
			}
		}
	},
	settings.EventBusName: func(t *testing.T) {
		e := newEndpoint(t, map[string]string{settings.EventBusName.Env(): "other-bus"})
		e.send(t, paymenttest.Event())
		if got := *e.bus.Entries()[0].EventBusName; got != "other-bus" {
			t.Errorf("published on %s", got)
		}
	},
	settings.EventSource: func(t *testing.T) {
		e := newEndpoint(t, map[string]string{settings.EventSource.Env(): "payments.example"})
		e.send(t, paymenttest.Event())
		if got := *e.bus.Entries()[0].Source; got != "payments.example" {
			t.Errorf("the source is %s", got)
		}
	},
	settings.MaxEntryBytes: func(t *testing.T) {
		two := paymenttest.Events(2)
		for i := range two {
			two[i].EventData.Identifiers.PaymentRequestID = strings.Repeat("x", 1500)
		}
		one := len(paymenttest.Encode(two[0]))
		for limit, want := range map[int]int{3 * one: 1, one * 3 / 2: 2} {
			e := newEndpoint(t, map[string]string{settings.MaxEntryBytes.Env(): strconv.Itoa(limit)})
			e.send(t, two...)
			if got := e.bus.Calls(); got != want {
				t.Errorf("two events of %d bytes with a limit of %d took %d requests, want %d", one, limit, got, want)
			}
		}
	},
	settings.ClaimCheckBytes: func(t *testing.T) {
		event := paymenttest.Event()
		event.EventData.Identifiers.PaymentRequestID = strings.Repeat("x", 1500)
		for limit, want := range map[string]int{"1024": 1, "3000": 0} {
			e := newEndpoint(t, map[string]string{
				settings.ClaimCheckBytes.Env(): limit, names.ClaimBucketEnv: "claims",
				names.ParkingBucketEnv: "parking",
			})
			e.send(t, event)
			if got := len(e.buckets.Objects("claims")); got != want {
				t.Errorf("claimCheckBytes=%s: %d objects, want %d", limit, got, want)
			}
		}
	},
	settings.DeduplicationWindow: func(t *testing.T) {
		e := newEndpoint(t, map[string]string{settings.DeduplicationWindow.Env(): "48h"})
		start := time.Now()
		e.send(t, paymenttest.Event())
		for _, item := range e.db.Items("ledger") {
			expires, err := strconv.ParseInt(item[names.LedgerTTL].(*dynamodbtypes.AttributeValueMemberN).Value, 10, 64)
			if got := time.Unix(expires, 0).Sub(start).Round(time.Hour); err != nil || got != 48*time.Hour {
				t.Errorf("an eventId is remembered for %s: %v", got, err)
			}
		}
	},
	settings.RedriveGrace: func(t *testing.T) {
		if got := untouched(t, settings.RedriveGrace, "1h") - untouched(t, settings.RedriveGrace,
			"1s"); got.Round(time.Minute) != time.Hour {
			t.Errorf("with a grace of an hour, not a second, redrive does not lease an event for %s longer", got)
		}
	},
	settings.WebhookTimeout: func(t *testing.T) {
		if got := untouched(t, settings.WebhookTimeout, "600s") - untouched(t, settings.WebhookTimeout,
			"5s"); got.Round(time.Minute) != 10*time.Minute {
			t.Errorf("with a timeout of 10 minutes, not 5 seconds, redrive does not lease an event for %s longer", got)
		}
	},
}

// carried sends the proof in the headers that a value of a setting names. The function
// must find it there, and not with the default.
func carried(t *testing.T, s *settings.Setting, value string, move func(*events.APIGatewayV2HTTPRequest)) {
	t.Helper()
	for value, want := range map[string]int{value: http.StatusOK, s.Default: http.StatusUnauthorized} {
		e := newEndpoint(t, map[string]string{s.Env(): value})
		r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
		move(&r)
		if got := e.handle(t, r).StatusCode; got != want {
			t.Errorf("%s=%s: answered %d, want %d", s.Key, value, got, want)
		}
	}
}

// untouched returns for how long redrive does not lease an event that could not be
// published, with a value of a setting.
func untouched(t *testing.T, s *settings.Setting, value string) time.Duration {
	t.Helper()
	e := newEndpoint(t, map[string]string{s.Env(): value})
	e.bus.Answer = func([]types.PutEventsRequestEntry) (map[int]string, error) {
		return map[int]string{0: "InvalidArgument"}, nil
	}
	start := time.Now()
	e.send(t, paymenttest.Event())
	for _, item := range e.db.Items("ledger") {
		due, ok := item[names.LedgerPendingDue].(*dynamodbtypes.AttributeValueMemberN)
		if !ok {
			break
		}
		ms, err := strconv.ParseInt(due.Value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.UnixMilli(ms).Sub(start)
	}
	t.Fatal("nothing is pending")
	return 0
}

func TestEverySettingHasItsEffect(t *testing.T) {
	for _, s := range settings.WebhookSettings() {
		effect := effects[s]
		if effect == nil {
			effect = keyEffects[s]
		}
		if effect == nil {
			t.Errorf("no test covers the effect of %s", s.Key)
			continue
		}
		t.Run(s.Key, effect)
	}
}
