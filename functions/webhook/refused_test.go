package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/refused"
	"payhook.example/shared/settings"
	"payhook.example/shared/telemetry"
)

// capturing returns an endpoint that stores rejected requests.
func capturing(t *testing.T, change map[string]string) *endpoint {
	all := map[string]string{names.CaptureUntilEnv: time.Now().Add(time.Hour).Format(time.RFC3339)}
	maps.Copy(all, change)
	return newEndpoint(t, all)
}

// stored returns what the endpoint has stored of rejected requests.
func (e *endpoint) stored(t *testing.T) (all []refused.Request) {
	t.Helper()
	store := refused.NewStore(e.buckets, "parking")
	found, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		r, err := store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// What is rejected before it is authentic is stored as it came, with the settings that
// rejected it, and is answered and logged as without.
func TestARejectedWebhookIsStored(t *testing.T) {
	const secret = "c2VjcmV0LWlu"
	for name, change := range map[string]func(r *events.APIGatewayV2HTTPRequest){
		"signature-missing":   func(r *events.APIGatewayV2HTTPRequest) { delete(r.Headers, "x-svc-signature") },
		"signature-malformed": func(r *events.APIGatewayV2HTTPRequest) { r.Headers["x-svc-signature"] = "x" },
		"signature-mismatch":  func(r *events.APIGatewayV2HTTPRequest) { r.Body += " " },
		"method-not-allowed":  func(r *events.APIGatewayV2HTTPRequest) { r.RequestContext.HTTP.Method = "PUT" },
		"payload-encoding":    func(r *events.APIGatewayV2HTTPRequest) { r.Body, r.IsBase64Encoded = "§", true },
		"payload-too-large":   func(r *events.APIGatewayV2HTTPRequest) { r.Body = strings.Repeat("x", 2000) },
		"key-unknown": func(r *events.APIGatewayV2HTTPRequest) {
			r.Headers["x-svc-key-id"] = "00000000-0000-4000-8000-000000000000"
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := capturing(t, map[string]string{settings.MaxPayloadBytes.Env(): "1500"})
			plain := newEndpoint(t, map[string]string{settings.MaxPayloadBytes.Env(): "1500"})
			r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
			r.Headers["authorization"] = "Bearer " + secret
			r.RawPath, r.RawQueryString = "/hook", "a=b"
			change(&r)
			got := e.handle(t, r)
			if diff := cmp.Diff(plain.handle(t, r), got); diff != "" {
				t.Errorf("answered otherwise (-without +with)\n%s", diff)
			}
			line := e.line(t)
			if line["outcome"] != name || line["captured"] == nil {
				t.Errorf("logged as %v", line)
			}
			stored := e.stored(t)
			if len(stored) != 1 {
				t.Fatalf("%d requests are stored", len(stored))
			}
			s := stored[0]
			if s.Outcome != name || s.Method != r.RequestContext.HTTP.Method || s.Path != "/hook" ||
				s.RawQuery != "a=b" ||
				s.RequestID != "request-1" || string(s.Payload) != r.Body || time.Since(s.ReceivedAt) > time.Hour ||
				s.Settings["keyIdCarrier"] != "header:X-SVC-Key-Id" || s.Settings["baseUrl"] != e.service.URL {
				t.Errorf("stored as %+v", s)
			}
			want := maps.Clone(r.Headers)
			want["authorization"] = refused.Redacted
			if diff := cmp.Diff(want, s.Headers); diff != "" {
				t.Error(diff)
			}
			for _, text := range append(slices.Collect(maps.Values(e.buckets.Objects("parking"))), e.log.Bytes()) {
				if bytes.Contains(text, []byte(secret)) {
					t.Error("the credentials are stored or logged")
				}
			}
			if strings.Contains(e.log.String(), "paymentRequestId") {
				t.Errorf("the payload is logged: %s", e.log)
			}
		})
	}
}

// A body in base64 is stored decoded.
func TestTheStoredBodyIsTheOneThatWasSent(t *testing.T) {
	e := capturing(t, nil)
	r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
	body := []byte("a\xff\x00b")
	r.Body, r.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	e.handle(t, r)
	if s := e.stored(t); len(s) != 1 || !bytes.Equal(s[0].Payload, body) {
		t.Errorf("stored as %+v", s)
	}
}

// Nothing of an authentic webhook is stored, nothing without a body, and nothing at all
// without the setting or after its end.
func TestNoOtherRequestIsStored(t *testing.T) {
	e := capturing(t, nil)
	ok := paymenttest.Event()
	if status := e.send(t, ok).StatusCode; status != 200 {
		t.Fatal(status)
	}
	invalid := ok
	invalid.EventName = "none"
	if status := e.send(t, invalid).StatusCode; status != 422 {
		t.Fatal(status)
	}
	other := ok
	other.EventData.Amount = "9.00"
	e.send(t, other) // a conflict
	r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(ok)})
	r.Body = ""
	if status := e.handle(t, r).StatusCode; status != 400 {
		t.Fatal(status)
	}
	if s := e.stored(t); len(s) != 0 {
		t.Errorf("stored: %+v", s)
	}
	for _, until := range []string{"", time.Now().Add(-time.Second).Format(time.RFC3339)} {
		e := newEndpoint(t, map[string]string{names.CaptureUntilEnv: until})
		r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(ok), Flaw: paymenttest.SignatureChanged})
		if status := e.handle(t, r).StatusCode; status != 401 {
			t.Fatal(status)
		}
		if s := e.stored(t); len(s) != 0 {
			t.Errorf("stored until %q: %+v", until, s)
		}
	}
}

// brokenS3 stores nothing.
type brokenS3 struct{ refused.API }

func (brokenS3) PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	return nil, errors.New("secret details")
}

// A webhook is answered although it cannot be stored.
func TestACaptureThatFailsChangesNothing(t *testing.T) {
	e := capturing(t, nil)
	plain := newEndpoint(t, nil)
	conf := conf(t, e.service.URL, map[string]string{
		names.CaptureUntilEnv: time.Now().Add(time.Hour).Format(time.RFC3339),
	})
	h := newHandler(conf, clients{e.broken, e.bus, brokenS3{}, &http.Client{}}, telemetry.New(e.log, "webhook"))
	r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event()),
		Flaw: paymenttest.SignatureMissing})
	got := invoke(t.Context(), t, h, r)
	if diff := cmp.Diff(plain.handle(t, r), got); diff != "" {
		t.Errorf("answered otherwise (-without +with)\n%s", diff)
	}
	if line := e.line(t); line["captureFailed"] == nil || line["captured"] != nil ||
		line["outcome"] != string(intake.SignatureMissing) {
		t.Errorf("logged as %v", line)
	}
}
