package handler

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/bus"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

func TestEveryAnswerHasItsBodyAndHeaders(t *testing.T) {
	counts := intake.Counts{Recorded: 1, Duplicates: 2, Conflicts: 3, Unrecorded: 4}
	for name, c := range map[string]struct {
		authentication string
		result         intake.Result
		status         int
		headers        map[string]string
		body           string
	}{
		"accepted": {settings.BySignature, intake.Result{Outcome: intake.Accepted, DeliveryID: "d", Counts: counts},
			200,
			nil, `{"deliveryId":"d","recorded":1,"duplicates":2,"conflicts":3}`},
		"no body": {settings.BySignature, intake.Result{Outcome: intake.Accepted}, 204, nil, ``},
		"reset":   {settings.BySignature, intake.Result{Outcome: intake.Accepted}, 205, nil, ``},
		"another method": {settings.BySignature, intake.Result{Outcome: intake.MethodNotAllowed}, 405,
			map[string]string{"Allow": "POST, PUT, PATCH"},
			`{"title":"Method Not Allowed","status":405,"detail":"The method is not one of webhooks."}`},
		"a forgery": {settings.BySignature, intake.Result{Outcome: intake.SignatureMismatch,
			Err: &payment.FieldError{Field: "deliveryId", Problem: "is missing"}}, 401,
			map[string]string{"WWW-Authenticate": "Signature"},
			`{"title":"Unauthorized","status":401,"detail":"The webhook is not authentic."}`},
		"a forgery with both": {settings.ByBoth, intake.Result{Outcome: intake.SignatureMismatch}, 401,
			map[string]string{"WWW-Authenticate": "Signature"},
			`{"title":"Unauthorized","status":401,"detail":"The webhook is not authentic."}`},
		"no certificate": {settings.ByMTLS, intake.Result{Outcome: intake.CertificateOutcome(clientcert.Missing)}, 401,
			map[string]string{"WWW-Authenticate": "ClientCertificate"},
			`{"title":"Unauthorized","status":401,"detail":"The webhook is not authentic."}`},
		"invalid": {settings.BySignature, intake.Result{Outcome: intake.Invalid,
			Err: &payment.FieldError{Field: "deliveryId", Problem: "is missing"}}, 422, nil,
			`{"title":"Unprocessable Entity","status":422,"detail":"deliveryId: is missing"}`},
		"invalid, not parked": {settings.BySignature, intake.Result{Outcome: intake.ParkingFailed,
			Err: &payment.FieldError{Field: "deliveryId", Problem: "is missing"}}, 503,
			map[string]string{"Retry-After": "5"},
			`{"title":"Service Unavailable","status":503,"detail":"The delivery could not be stored."}`},
		"not recorded": {settings.BySignature, intake.Result{Outcome: intake.LedgerUnavailable, DeliveryID: "d",
			Counts: counts}, 503, map[string]string{"Retry-After": "5"},
			`{"title":"Service Unavailable","status":503,"detail":"Not every event could be recorded.",` +
				`"deliveryId":"d","recorded":1,"duplicates":2,"conflicts":3,"unrecorded":4}`},
	} {
		h := &Handler{authentication: c.authentication}
		answer := c.result.Outcome.AnswerTo(c.status)
		want := response{c.status, map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"},
			c.body}
		if c.status > 299 {
			want.Headers["Content-Type"] = "application/problem+json"
		}
		maps.Copy(want.Headers, c.headers)
		if diff := cmp.Diff(want, h.respond(c.result, answer)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The source is checked before everything else: a GET of an allowed source is answered 405.
// Rejected requests are captured, but not those of other sources.
func TestOnlyAllowedSourcesAreRead(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(nil)
	for name, change := range map[string]map[string]string{
		"function URL": {}, "API": withCertificates(t, settings.ByBoth, ca),
	} {
		change["PAYHOOK_ALLOWED_SOURCES"] = "192.0.2.0/24;2001:db8:1::/48"
		change[settings.CaptureUntilEnv] = "2099-01-01T00:00:00Z"
		for address, allowed := range map[string]bool{
			"192.0.2.0": true, "192.0.2.255": true, "192.0.1.255": false, "192.0.3.0": false,
			"::ffff:192.0.2.7": true, "::ffff:192.0.3.7": false, "::c000:207": false,
			"2001:db8:1:ffff::1": true, "2001:db8:2::": false, "2001:db8:1::1%eth0": false,
			"": false, "x": false, "192.0.2.1:443": false, "192.0.2.1, 192.0.2.2": false, "192.0.2.01": false,
		} {
			e := newEndpoint(t, change)
			r := unsigned([]byte("x"))
			if name == "API" {
				r = throughAPI(r, client)
			}
			r.Headers["x-forwarded-for"], r.RequestContext.HTTP.SourceIP = "192.0.2.1", address
			r.RequestContext.HTTP.Method = "GET"
			got := e.handle(t, r).StatusCode
			line := e.line(t)
			if allowed != (got == 405) || allowed == (got == 403) {
				t.Errorf("%s: %q is answered %d, logged as %v", name, address, got, line)
			}
			if !allowed {
				e.nothingHappened(t)
			}
			if !allowed && (line["outcome"] != intake.SourceNotAllowed.Name || line["SourceNotAllowed"] != 1.0) {
				t.Errorf("%s: %q is logged as %v", name, address, line)
			}
		}
	}
}

// Any client can set a header. The source of an authentic webhook is stored beside the key
// and the budget.
func TestASourceAddressIsReadFromTheContextAlone(t *testing.T) {
	for address, want := range map[string]int{"": 0, "192.0.2.1, 192.0.2.2": 0, "198.51.100.1": 1} {
		e := newEndpoint(t, nil)
		r := e.signed(t, paymenttest.Event())
		r.Headers["x-forwarded-for"], r.RequestContext.HTTP.SourceIP = "192.0.2.1", address
		if got := e.handle(t, r).StatusCode; got != 200 || e.keys.sources != want {
			t.Errorf("%q: %d, %d sources", address, got, e.keys.sources)
		}
	}
}

func TestNothingSecretIsLoggedOrAnswered(t *testing.T) {
	e := newEndpoint(t, nil)
	event := paymenttest.Event()
	event.EventData.Identifiers.PaymentRequestID = "CANARY"
	good := e.signed(t, event)
	bad := e.request(t, paymenttest.Webhook{Payload: []byte(`{"CANARY":"CANARY","CANARY":1}`)})
	e.bus.Reject = func(bus.Entry) error { return &bus.EntryError{Fault: bus.OfEntry, Code: "InvalidArgument"} }
	answers := fmt.Sprint(e.handle(t, good), e.handle(t, bad))
	bad.Headers["x-svc-key-id"], bad.Headers["x-svc-timestamp"] = "CANARY", "CANARY"
	answers += fmt.Sprint(e.handle(t, bad))
	for _, secret := range []string{"CANARY", good.Headers["x-svc-signature"], bad.Headers["x-svc-signature"]} {
		if strings.Contains(e.log.String(), secret) || strings.Contains(answers, secret) {
			t.Errorf("%q is in the log or the answer", secret)
		}
	}
}

// The first delivery with a new key is published before the key is in the table. Lambda
// may stop the function after the answer, so that the answer waits for the table.
func TestAKeyIsStoredBeforeTheAnswer(t *testing.T) {
	signed := encode(t, newEndpoint(t, nil).signed(t, paymenttest.Event()))
	synctest.Test(t, func(t *testing.T) {
		e := newServices()
		e.keys.stored = make(chan struct{})
		service := keyServiceFunc(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(bytes.NewReader(signingKey().JWK())), Request: r}, nil
		})
		e.start(t, "https://service.example", &http.Client{Transport: service},
			map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"})
		answer := make(chan []byte, 1)
		go func() {
			text, err := e.Invoke(t.Context(), signed)
			answer <- slices.Concat(text, fmt.Append(nil, err))
		}()
		synctest.Wait()
		if len(answer) > 0 || len(e.bus.Entries()) != 1 {
			t.Errorf("%d answers, and %d events on the bus", len(answer), len(e.bus.Entries()))
		}
		close(e.keys.stored)
		if text := <-answer; !bytes.HasPrefix(text, []byte(`{"statusCode":200,`)) {
			t.Errorf("%s", text)
		}
	})
}

// The interface does not say how the timestamp is written, and which method is used.
func TestEveryMethodAndEveryTimestampIsAccepted(t *testing.T) {
	decimal := func(digits int) func(time.Time) string { // Unix time in seconds with a fraction
		return func(at time.Time) string { return fmt.Sprintf("%d.%09d", at.Unix(), at.Nanosecond())[:11+digits] }
	}
	formats := map[string]func(time.Time) string{
		"RFC 3339":      func(at time.Time) string { return at.Format(time.RFC3339Nano) },
		"no colon":      func(at time.Time) string { return at.Format("2006-01-02T15:04:05.000+0000") },
		"hours":         func(at time.Time) string { return at.Add(2*time.Hour).Format("2006-01-02t15:04:05") + "+02" },
		"space":         func(at time.Time) string { return at.Format("2006-01-02 15:04:05z") },
		"basic":         func(at time.Time) string { return at.Format("20060102T150405Z") },
		"minutes":       func(at time.Time) string { return at.Format("2006-01-02T15:04Z") },
		"decimal comma": func(at time.Time) string { return at.Format("2006-01-02T15:04:05,000000+00:00") },
		"HTTP":          func(at time.Time) string { return at.Format(http.TimeFormat) },
		"seconds":       func(at time.Time) string { return fmt.Sprint(at.Unix()) },
		"seconds.1":     decimal(1), "seconds.3": decimal(3), "seconds.9": decimal(9),
		"milliseconds":  func(at time.Time) string { return fmt.Sprint(at.UnixMilli()) },
		"microseconds":  func(at time.Time) string { return fmt.Sprint(at.UnixMicro()) },
		"nanoseconds":   func(at time.Time) string { return fmt.Sprint(at.UnixNano()) },
		"not accepted":  func(at time.Time) string { return at.Format("2006-01-02T15:04:05") },
		"not accepted2": func(at time.Time) string { return at.Format("Mon, 02 Jan 2006 15:04:05") },
	}
	escaped := func(text string) string { return strings.ReplaceAll(text, " ", "%20") }
	for name, format := range formats {
		for place, encode := range map[string]func(string) string{
			"header:Date": nil, "query:at": url.QueryEscape, "query:sent": escaped,
		} {
			e := newEndpoint(t, map[string]string{"PAYHOOK_TIMESTAMP_LOCATION": place})
			send := func(method string, signed, sent time.Time) string {
				payload := paymenttest.Delivery(paymenttest.Event())
				proof, err := signature.Sign(signingKey().Private, payload, format(signed), signingKey().ID)
				if err != nil {
					t.Fatal(err)
				}
				r := unsigned(payload)
				r.Headers = map[string]string{"x-svc-signature": proof, "x-svc-key-id": signingKey().ID}
				if r.RequestContext.HTTP.Method = method; encode == nil {
					r.Headers["date"] = format(sent)
				} else {
					r.RawQueryString = strings.TrimPrefix(place, "query:") + "=" + encode(format(sent))
				}
				e.handle(t, r)
				return e.line(t)["outcome"].(string)
			}
			now := time.Now().UTC()
			old, early := now.Add(-time.Hour), now.Add(time.Hour)
			got := []string{send("POST", now, now), send("PUT", now, now), send("PATCH", now, now),
				send("GET", now, now), send("DELETE", now, now), send("post", now, now),
				send("POST", now.Add(-time.Minute), now), send("POST", old, old), send("POST", early, early)}
			want := []string{"accepted", "accepted", "accepted", "method-not-allowed", "method-not-allowed",
				"method-not-allowed", "signature-mismatch", "timestamp-outside-window", "timestamp-outside-window"}
			if strings.HasPrefix(name, "not") {
				malformed := "signature-malformed"
				if encode == nil && strings.Contains(format(now), ",") {
					malformed = "signature-repeated"
				}
				for i, outcome := range want {
					if outcome != "method-not-allowed" {
						want[i] = malformed
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s in %s, as in %s (-want +got)\n%s", name, place, format(now), diff)
			}
		}
	}
}

// Lambda stops a function at its deadline. The sender must have its answer by then.
func TestTheAnswerComesBeforeTheDeadline(t *testing.T) {
	signed := newEndpoint(t, nil).signed(t, paymenttest.Event())
	synctest.Test(t, func(t *testing.T) {
		e := newServices()
		e.ledger.hangs = true
		e.start(t, "https://service.example", &http.Client{Transport: keyServiceFunc(
			func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(bytes.NewReader(signingKey().JWK())), Request: r}, nil
			})}, map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if r := e.invoke(ctx, t, signed); r.StatusCode != 503 || ctx.Err() != nil {
			t.Errorf("answered %d, %v: %s", r.StatusCode, ctx.Err(), e.log)
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
		e.log.Reset()
		answer, err := e.Invoke(t.Context(), text)
		if err != nil {
			return
		}
		var response events.LambdaFunctionURLResponse
		if err := json.Unmarshal(answer, &response); err != nil || response.StatusCode < 400 ||
			response.StatusCode >= 500 && response.StatusCode != 503 {
			t.Fatalf("%s %v", answer, err)
		}
		if len(e.ledger.Items())+len(e.bus.Entries()) > 0 {
			t.Fatal("something was written")
		}
	})
}
