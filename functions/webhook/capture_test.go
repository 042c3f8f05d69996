package main

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/paymenttest"
)

// capturing returns an endpoint that stores rejected requests until that time from now.
func capturing(t *testing.T, until time.Duration) *endpoint {
	return newEndpoint(t, map[string]string{names.CaptureUntilEnv: time.Now().Add(until).Format(time.RFC3339),
		"PAYHOOK_MAX_PAYLOAD_BYTES": "1500"})
}

// What is rejected before it is authentic is stored as it came, with the settings that
// rejected it, and is answered and logged as without.
func TestARejectedWebhookIsStored(t *testing.T) {
	for name, change := range map[string]func(r *events.APIGatewayV2HTTPRequest){
		"signature-mismatch": func(r *events.APIGatewayV2HTTPRequest) { r.Body = "a\xff\x00b" }, // sent in base64
		"method-not-allowed": func(r *events.APIGatewayV2HTTPRequest) { r.RequestContext.HTTP.Method = "GET" },
		"payload-encoding":   func(r *events.APIGatewayV2HTTPRequest) { r.Body, r.IsBase64Encoded = "§", true },
		"payload-too-large":  func(r *events.APIGatewayV2HTTPRequest) { r.Body = strings.Repeat("x", 2000) },
	} {
		t.Run(name, func(t *testing.T) {
			e, plain := capturing(t, time.Hour), capturing(t, -time.Second)
			r := e.signed(t, paymenttest.Event())
			r.Headers["authorization"] = "Bearer secret"
			r.RawPath, r.RawQueryString, r.RequestContext.HTTP.SourceIP = "/hook", "a=b", "192.0.2.1"
			change(&r)
			if diff := cmp.Diff(plain.handle(t, r), e.handle(t, r)); diff != "" {
				t.Errorf("answered otherwise (-without +with)\n%s", diff)
			}
			if got := plain.buckets.Objects("parking"); len(got) != 0 || plain.line(t)["captured"] != nil {
				t.Errorf("stored after the end: %v", got)
			}
			stored, _ := e.line(t)["captured"].(string)
			got, err := parking.NewStore(e.buckets, "parking").Captured(t.Context(), stored)
			if err != nil || time.Since(got.ReceivedAt) > time.Hour || got.Cause == "" ||
				strings.Contains(e.log.String(), "paymentRequestId") {
				t.Errorf("%+v, %v; logged %s", got, err, e.log)
			}
			want := parking.Captured{
				ReceivedAt:    got.ReceivedAt,
				RequestID:     "request-1",
				Outcome:       name,
				Cause:         got.Cause,
				Method:        r.RequestContext.HTTP.Method,
				Path:          "/hook",
				RawQuery:      "a=b",
				Headers:       maps.Clone(r.Headers),
				SourceIP:      "192.0.2.1",
				Payload:       []byte(r.Body),
				PayloadBytes:  got.PayloadBytes,
				PayloadSHA256: got.PayloadSHA256,
				Settings:      e.proof,
			}
			want.Headers["authorization"] = parking.Redacted
			if diff := cmp.Diff(want, got); diff != "" || got.Settings["baseUrl"] != e.service.URL {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing of an authentic webhook is stored, and nothing without a body.
func TestNoOtherRequestIsStored(t *testing.T) {
	e := capturing(t, time.Hour)
	for status, r := range map[int]events.APIGatewayV2HTTPRequest{
		200: e.signed(t, paymenttest.Event()), 422: e.request(t, paymenttest.Webhook{Payload: []byte("{}")}),
		400: unsigned(nil),
	} {
		if got := e.handle(t, r).StatusCode; got != status || e.line(t)["captured"] != nil {
			t.Errorf("%d, want %d; logged as %v", got, status, e.line(t))
		}
	}
}

// A webhook is answered although it cannot be stored.
func TestACaptureThatFailsChangesNothing(t *testing.T) {
	e := capturing(t, time.Hour)
	want := e.handle(t, unsigned([]byte("x")))
	e.buckets.Fails = func(string, string) error { return errors.New("S3 does not answer") }
	if diff := cmp.Diff(want, e.handle(t, unsigned([]byte("x")))); diff != "" {
		t.Errorf("answered otherwise (-stored +not stored)\n%s", diff)
	}
	if line := e.line(t); line["captureFailed"] == nil || line["captured"] != nil {
		t.Errorf("logged as %v", line)
	}
}
