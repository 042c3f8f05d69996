package webhookhandler

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// storingRejected returns an endpoint that stores rejected requests until that time from now.
func storingRejected(t *testing.T, until time.Duration) *endpoint {
	return newEndpoint(t, map[string]string{settings.StoreRejectedUntilEnv: time.Now().Add(until).Format(time.RFC3339)})
}

// What is rejected before it is authentic is stored as it came, with the settings that
// rejected it, and is answered and logged as without.
func TestARejectedWebhookIsStored(t *testing.T) {
	for name, change := range map[string]func(r *events.APIGatewayV2HTTPRequest){
		"signature-mismatch": func(r *events.APIGatewayV2HTTPRequest) { r.Body = "a\xff\x00b" }, // sent in base64
		"method-not-allowed": func(r *events.APIGatewayV2HTTPRequest) { r.RequestContext.HTTP.Method = "DELETE" },
		"payload-encoding":   func(r *events.APIGatewayV2HTTPRequest) { r.Body, r.IsBase64Encoded = "§", true },
	} {
		t.Run(name, func(t *testing.T) {
			e, plain := storingRejected(t, time.Hour), storingRejected(t, -time.Second)
			r := e.signed(t, paymenttest.Event())
			r.Headers["authorization"] = "Bearer secret"
			r.RawPath, r.RawQueryString, r.RequestContext.HTTP.SourceIP = "/hook", "a=b", "192.0.2.1"
			change(&r)
			if diff := cmp.Diff(plain.handle(t, r), e.handle(t, r)); diff != "" {
				t.Errorf("answered otherwise (-without +with)\n%s", diff)
			}
			if got := plain.Parking.Keys(); len(got) != 0 || plain.Line()["rejected"] != nil {
				t.Errorf("stored after the end: %v", got)
			}
			stored, _ := e.Line()["rejected"].(string)
			got, err := proof.Get(t.Context(), &e.Parking, stored)
			if err != nil || got.Request == nil || time.Since(got.Request.ReceivedAt) > time.Hour || got.Cause == "" ||
				strings.Contains(e.Log.String(), "paymentRequestId") {
				t.Errorf("%+v, %v; logged %s", got, err, &e.Log)
			}
			want := proof.Proof{
				Reason:  proof.Rejected,
				Cause:   got.Cause,
				Payload: []byte(r.Body),
				Request: &proof.RejectedRequest{
					ReceivedAt:    got.Request.ReceivedAt,
					RequestID:     "request-1",
					Outcome:       name,
					Method:        r.RequestContext.HTTP.Method,
					Path:          "/hook",
					RawQuery:      "a=" + signature.Redacted,
					Headers:       maps.Clone(r.Headers),
					SenderIP:      "192.0.2.1",
					PayloadBytes:  len(r.Body),
					PayloadSHA256: got.Request.PayloadSHA256,
					Settings:      e.Conf.Verification,
				},
			}
			want.Request.Headers["authorization"] = signature.Redacted
			if diff := cmp.Diff(want, got); diff != "" || got.Request.Settings["baseUrl"] != e.service.URL {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing of an authentic webhook is stored, and nothing without a body.
func TestNoOtherRequestIsStored(t *testing.T) {
	e := storingRejected(t, time.Hour)
	for status, r := range map[int]events.APIGatewayV2HTTPRequest{
		200: e.signed(t, paymenttest.Event()), 422: e.request(t, paymenttest.Webhook{Payload: []byte("{}")}),
		400: unsigned(nil),
	} {
		if got := e.handle(t, r).StatusCode; got != status || e.Line()["rejected"] != nil {
			t.Errorf("%d, want %d; logged as %v", got, status, e.Line())
		}
	}
}

// A webhook is answered although it cannot be stored.
func TestARejectedWebhookThatCannotBeStoredChangesNothing(t *testing.T) {
	e := storingRejected(t, time.Hour)
	want := e.handle(t, unsigned([]byte("x")))
	e.Parking.Fails = func(context.Context, string, string) error { return errors.New("no answer") }
	if diff := cmp.Diff(want, e.handle(t, unsigned([]byte("x")))); diff != "" {
		t.Errorf("answered otherwise (-stored +not stored)\n%s", diff)
	}
	if line := e.Line(); line["rejectedNotStored"] == nil || line["rejected"] != nil {
		t.Errorf("logged as %v", line)
	}
}
