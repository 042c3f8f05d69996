package webhookhandler

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/bus"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

func TestEveryAnswerHasItsBodyAndHeaders(t *testing.T) {
	counts := intake.Counts{Recorded: 1, Duplicates: 2, Conflicts: 3, Unrecorded: 4}
	field := &payment.FieldError{Field: "deliveryId", Problem: "is missing"}
	const unauthorized = `{"title":"Unauthorized","status":401,"detail":"The webhook is not authentic."}`
	const signed, sooner = "WWW-Authenticate: Signature", "Retry-After: 5"
	for name, c := range map[string]struct {
		authentication string // "": by signature
		result         intake.Result
		status         int
		header         string
		body           string
	}{
		"accepted": {result: intake.Result{Outcome: intake.Accepted, DeliveryID: "d", Counts: counts},
			status: 200, body: `{"deliveryId":"d","recorded":1,"duplicates":2,"conflicts":3}`},
		"no body": {result: intake.Result{Outcome: intake.Accepted}, status: 204},
		"reset":   {result: intake.Result{Outcome: intake.Accepted}, status: 205},
		"another method": {result: intake.Result{Outcome: intake.MethodNotAllowed}, status: 405,
			header: "Allow: POST, PUT, PATCH, GET, HEAD",
			body:   `{"title":"Method Not Allowed","status":405,"detail":"The method is not one of webhooks."}`},
		"a forgery": {result: intake.Result{Outcome: intake.SignatureMismatch, Err: field}, status: 401, header: signed,
			body: unauthorized},
		"a forgery with both": {authentication: settings.ByBoth, status: 401, header: signed, body: unauthorized,
			result: intake.Result{Outcome: intake.SignatureMismatch}},
		"no certificate": {authentication: settings.ByMTLS, status: 401,
			result: intake.Result{Outcome: intake.CertificateOutcome(clientcert.Missing)},
			header: "WWW-Authenticate: ClientCertificate", body: unauthorized},
		"invalid": {result: intake.Result{Outcome: intake.Invalid, Err: field}, status: 422,
			body: `{"title":"Unprocessable Entity","status":422,"detail":"deliveryId: is missing"}`},
		"invalid, not parked": {result: intake.Result{Outcome: intake.ParkingFailed, Err: field}, status: 503,
			header: sooner,
			body:   `{"title":"Service Unavailable","status":503,"detail":"The delivery could not be stored."}`},
		"not recorded": {result: intake.Result{Outcome: intake.LedgerUnavailable, DeliveryID: "d",
			Counts: counts}, status: 503, header: sooner,
			body: `{"title":"Service Unavailable","status":503,"detail":"Not every event could be recorded.",` +
				`"deliveryId":"d","recorded":1,"duplicates":2,"conflicts":3,"unrecorded":4}`},
	} {
		want := response{c.status, map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"},
			c.body}
		if c.status > 299 {
			want.Headers["Content-Type"] = "application/problem+json"
		}
		if header, value, ok := strings.Cut(c.header, ": "); ok {
			want.Headers[header] = value
		}
		h := &Handler{conf: settings.Config{Authentication: c.authentication}}
		if diff := cmp.Diff(want, h.respond(c.result, answerTo(c.result.Outcome, c.status))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The sender is checked before everything else: a DELETE of an allowed sender is answered 405.
// Rejected requests are stored, but not those of other senders.
func TestOnlyAllowedNetworksAreRead(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(nil)
	for name, change := range map[string]map[string]string{
		"function URL": {}, "API": withAPI(t, settings.ByBoth, ca),
	} {
		change["PAYHOOK_ALLOWED_NETWORKS"] = "192.0.2.0/24;2001:db8:1::/48"
		change[settings.StoreRejectedUntilEnv] = "2099-01-01T00:00:00Z"
		for address, allowed := range map[string]bool{
			"192.0.2.0": true, "192.0.2.255": true, "192.0.1.255": false, "192.0.3.0": false,
			"::ffff:192.0.2.7": true, "::ffff:192.0.3.7": false, "::c000:207": false,
			"2001:db8:1:ffff::1": true, "2001:db8:2::": false, "2001:db8:1::1%eth0": false,
			"": false, "x": false, "192.0.2.1:443": false, "192.0.2.1, 192.0.2.2": false, "192.0.2.01": false,
		} {
			e := newEndpoint(t, change)
			r := throughAPI(unsigned([]byte("x")), client)
			r.Headers["x-forwarded-for"], r.RequestContext.HTTP.SourceIP = "192.0.2.1", address
			r.RequestContext.HTTP.Method = "DELETE"
			got, line := e.handle(t, r).StatusCode, e.Line()
			if allowed {
				if got != 405 {
					t.Errorf("%s: %q is answered %d, logged as %v", name, address, got, line)
				}
				continue
			}
			e.NothingHappened()
			if got != 403 || line["outcome"] != intake.SenderNotAllowed.Name || line["SenderNotAllowed"] != 1.0 {
				t.Errorf("%s: %q is answered %d, logged as %v", name, address, got, line)
			}
		}
	}
}

// Any client can set a header. The sender of an authentic webhook is stored beside the key and the budget.
func TestTheSenderIsReadFromTheContextAlone(t *testing.T) {
	for address, want := range map[string]int{"": 0, "192.0.2.1, 192.0.2.2": 0, "198.51.100.1": 1} {
		e := newEndpoint(t, nil)
		r := e.signed(t, paymenttest.Event())
		r.Headers["x-forwarded-for"], r.RequestContext.HTTP.SourceIP = "192.0.2.1", address
		if got := e.handle(t, r).StatusCode; got != 200 || e.keys.senders != want {
			t.Errorf("%q: %d, %d senders", address, got, e.keys.senders)
		}
	}
}

func TestNothingSecretIsLoggedOrAnswered(t *testing.T) {
	e := newEndpoint(t, nil)
	event := paymenttest.Event()
	event.EventData.Identifiers.PaymentRequestID = "CANARY"
	good := e.signed(t, event)
	bad := e.request(t, paymenttest.Webhook{Payload: []byte(`{"CANARY":"CANARY","CANARY":1}`)})
	e.Bus.Reject = func(bus.Entry) error { return &bus.EntryError{Fault: bus.OfEntry, Code: "InvalidArgument"} }
	answers := fmt.Sprint(e.handle(t, good), e.handle(t, bad))
	for _, header := range []string{"x-svc-key-id", "x-svc-timestamp"} { // what is no key id is not logged as one
		bad.Headers[header] = "CANARY"
		answers += fmt.Sprint(e.handle(t, bad))
	}
	for _, secret := range []string{"CANARY", good.Headers["x-svc-signature"], bad.Headers["x-svc-signature"]} {
		if strings.Contains(e.Log.String(), secret) || strings.Contains(answers, secret) {
			t.Errorf("%q is in the log or the answer", secret)
		}
	}
}

// publishing returns the client of a key endpoint without a network.
func publishing() *http.Client {
	return &http.Client{Transport: keyEndpointFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(functiontest.SigningKey().JWK())), Request: r}, nil
	})}
}

// The first delivery with a new key is published before the key is in the table. Lambda
// may stop the function after the answer, so that the answer waits for the table.
func TestAKeyIsStoredBeforeTheAnswer(t *testing.T) {
	signed := encode(t, newEndpoint(t, nil).signed(t, paymenttest.Event()))
	synctest.Test(t, func(t *testing.T) {
		e := start(t, "https://service.example", publishing(), map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"})
		e.keys.stored = make(chan struct{})
		answer := make(chan []byte, 1)
		go func() {
			text, err := e.Invoke(t.Context(), signed)
			answer <- slices.Concat(text, fmt.Append(nil, err))
		}()
		synctest.Wait()
		if len(answer) > 0 || len(e.Bus.Entries()) != 1 {
			t.Errorf("%d answers, and %d events on the bus", len(answer), len(e.Bus.Entries()))
		}
		close(e.keys.stored)
		if text := <-answer; !bytes.HasPrefix(text, []byte(`{"statusCode":200,`)) {
			t.Errorf("%s", text)
		}
	})
}

// A monitor learns nothing, and changes no metric, line or store, whatever the settings are and whatever it sends.
func TestAMonitorIsAnsweredWithoutAnEffect(t *testing.T) {
	for name, change := range map[string]map[string]string{
		"signature": {}, "mtls": withAPI(t, settings.ByMTLS, paymenttest.NewCA("Operator CA")),
		"networks": {"PAYHOOK_ALLOWED_NETWORKS": "203.0.113.0/24"},
	} {
		change[settings.StoreRejectedUntilEnv] = "2099-01-01T00:00:00Z"
		for _, method := range []string{"GET", "HEAD"} {
			e := newEndpoint(t, change)
			r := unsigned([]byte("x"))
			r.RequestContext.HTTP.Method = method
			got := e.handle(t, r)
			if got.StatusCode != 204 || got.Body != "" || len(got.Headers) > 0 || e.Log.Len() > 0 {
				t.Errorf("%s, %s: %+v, logged %s", name, method, got, &e.Log)
			}
			e.NothingHappened()
		}
	}
}

// Lambda stops a function at its deadline. The sender must have its answer by then.
func TestTheAnswerComesBeforeTheDeadline(t *testing.T) {
	signed := newEndpoint(t, nil).signed(t, paymenttest.Event())
	synctest.Test(t, func(t *testing.T) {
		e := start(t, "https://service.example", publishing(), map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"})
		e.Ledger.Before = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if r := e.invoke(ctx, t, signed); r.StatusCode != 503 || ctx.Err() != nil {
			t.Errorf("answered %d, %v: %s", r.StatusCode, ctx.Err(), &e.Log)
		}
	})
}

func FuzzFunctionURLEvent(f *testing.F) {
	e := newEndpoint(f, nil)
	signed := e.request(f, paymenttest.Webhook{Payload: []byte("{}")})
	for _, change := range []func(*events.APIGatewayV2HTTPRequest){
		func(*events.APIGatewayV2HTTPRequest) {},
		func(r *events.APIGatewayV2HTTPRequest) { r.IsBase64Encoded = true },
		func(r *events.APIGatewayV2HTTPRequest) { r.Headers["X-SVC-Signature"] = "x" },
		func(r *events.APIGatewayV2HTTPRequest) { r.Body = "" },
	} {
		r := signed
		change(&r)
		f.Add(encode(f, r))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e.Log.Reset()
		answer, err := e.Invoke(t.Context(), text)
		if err != nil {
			return
		}
		var response events.LambdaFunctionURLResponse
		if err := json.Unmarshal(answer, &response); err != nil || response.StatusCode < 400 ||
			response.StatusCode >= 500 && response.StatusCode != 503 {
			t.Fatalf("%s %v", answer, err)
		}
		if len(e.Ledger.Items())+len(e.Bus.Entries()) > 0 {
			t.Fatal("something was written")
		}
	})
}
