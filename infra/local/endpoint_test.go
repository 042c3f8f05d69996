package local

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/paymenttest"
)

const bankDomain = "webhooks.bank.example"

// fakeFunction is a Lambda function that keeps the events it gets.
type fakeFunction struct {
	mu     sync.Mutex
	events [][]byte
	answer string
	err    error
	failed bool
	wait   bool // until the invocation is given up
}

func (f *fakeFunction) Invoke(ctx context.Context, in *lambda.InvokeInput,
	_ ...func(*lambda.Options)) (*lambda.InvokeOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, in.Payload)
	if f.wait {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.err != nil {
		return nil, f.err
	}
	out := &lambda.InvokeOutput{Payload: []byte(f.answer)}
	if f.failed {
		out.FunctionError = aws.String("Unhandled")
	}
	return out, nil
}

// gateway is an endpoint in front of a function, with the CAs of both sides.
type gateway struct {
	*endpoint
	function *fakeFunction
	ca       *paymenttest.CA // issues client certificates
	server   *paymenttest.CA
}

func newGateway(t *testing.T, change func(*httpAPI)) *gateway {
	t.Helper()
	f := &gateway{
		function: &fakeFunction{answer: `{"statusCode":200,"headers":{"content-type":"application/json"},"body":"{}"}`},
		ca:       paymenttest.NewCA("Operator CA"), server: paymenttest.NewCA("Server CA"),
	}
	api := httpAPI{Domain: bankDomain, ID: "a1b2c3d4e5", Account: "000000000000",
		Function: "arn:aws:lambda:us-east-1:000000000000:function:webhook:live", Timeout: time.Second,
		Truststore: f.ca.PEM()}
	if change != nil {
		change(&api)
	}
	var err error
	if f.endpoint, err = startEndpoint(api, f.function, f.server.Server(bankDomain), io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// client returns a client with that certificate, or none if it has no chain.
func (f *gateway) client(certificate tls.Certificate) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(f.server.Certificate)
	config := &tls.Config{RootCAs: roots}
	if len(certificate.Certificate) > 0 {
		config.Certificates = []tls.Certificate{certificate}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
}

func (f *gateway) post(t *testing.T, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	return f.postAs(t, f.ca.Client(nil), change)
}

func (f *gateway) postAs(t *testing.T, certificate tls.Certificate,
	change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	resp, err := f.client(certificate).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func (f *gateway) event(t *testing.T) (e events.APIGatewayV2HTTPRequest, raw []byte) {
	t.Helper()
	if len(f.function.events) == 0 {
		t.Fatal("the function was not invoked")
	}
	raw = f.function.events[len(f.function.events)-1]
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		t.Fatal(err)
	}
	return e, raw
}

func TestEventHasPayloadFormat2(t *testing.T) {
	f := newGateway(t, nil)
	certificate := f.ca.Client(nil)
	resp, body := f.postAs(t, certificate, func(r *http.Request) {
		r.URL.RawQuery = "parameter1=value1&parameter1=value%202&parameter2=value"
		r.Header.Set("User-Agent", "agent")
		r.Header.Add("Header2", "value1")
		r.Header.Add("Header2", "value2")
		r.Header.Set("X-Forwarded-Client-Cert", "Hash=00")
		r.Header.Set("X-Amzn-Mtls-Clientcert", "imitated")
	})
	if resp.StatusCode != http.StatusOK || body != "{}" {
		t.Fatalf("answered %d %s", resp.StatusCode, body)
	}
	e, _ := f.event(t)
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", e.RequestContext.Time)
	if err != nil || at.Unix() != e.RequestContext.TimeEpoch/1000 || e.RequestContext.RequestID == "" {
		t.Errorf("the request context is %+v", e.RequestContext)
	}
	want := events.APIGatewayV2HTTPRequest{Version: "2.0", RouteKey: "POST /", RawPath: "/",
		RawQueryString: "parameter1=value1&parameter1=value%202&parameter2=value", Body: `{"a":1}`,
		Headers: map[string]string{
			"header2": "value1,value2", "host": bankDomain, "content-type": "application/json", "content-length": "7",
			"x-forwarded-proto": "https", "x-forwarded-port": "443", "x-forwarded-for": "127.0.0.1",
			"x-forwarded-client-cert": "Hash=00", "x-amzn-mtls-clientcert": "imitated", "user-agent": "agent",
			"accept-encoding": "gzip",
		},
		RequestContext: events.APIGatewayV2HTTPRequestContext{AccountID: "000000000000", APIID: "a1b2c3d4e5",
			DomainName: bankDomain, DomainPrefix: "webhooks", Stage: "$default", RouteKey: "POST /",
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: "POST", Path: "/",
				Protocol: "HTTP/2.0", SourceIP: "127.0.0.1", UserAgent: "agent"},
			RequestID: e.RequestContext.RequestID, Time: e.RequestContext.Time, TimeEpoch: e.RequestContext.TimeEpoch},
	}
	text := string(paymenttest.EncodeCertificate(certificate.Leaf))
	want.RequestContext.Authentication.ClientCert.ClientCertPem = text
	if diff := cmp.Diff(want, e, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBinaryBodiesAreBase64(t *testing.T) {
	f := newGateway(t, nil)
	for contentType, want := range map[string]bool{
		"application/json": false, "application/json; charset=utf-8": false, "Application/JSON": false,
		"text/plain": false, "application/xml": false,
		"application/javascript": false, "application/octet-stream": true, "application/problem+json": true,
		"application/x-www-form-urlencoded": true, "": true,
	} {
		f.post(t, func(r *http.Request) {
			r.Header.Del("Content-Type")
			if contentType != "" {
				r.Header.Set("Content-Type", contentType)
			}
		})
		e, _ := f.event(t)
		body := `{"a":1}`
		if want {
			body = "eyJhIjoxfQ=="
		}
		if e.IsBase64Encoded != want || e.Body != body {
			t.Errorf("%q: the body is %q, base64 %t", contentType, e.Body, e.IsBase64Encoded)
		}
	}
}

// Package clientcert verifies. A flaw that API Gateway does not look at reaches the function.
func TestAPIGatewayAnswersUntrustedCertificates(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*x509.Certificate)
		want   int
	}{
		"for servers": {func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}, 200},
		"the serial number 0": {func(c *x509.Certificate) { c.SerialNumber = new(big.Int) }, 200},
		"expired":             {func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, 403},
	} {
		f := newGateway(t, nil)
		resp, body := f.postAs(t, f.ca.Client(c.change), nil)
		if resp.StatusCode != c.want || (len(f.function.events) == 1) != (c.want == 200) ||
			c.want == 403 && body != `{"message":"Forbidden"}` {
			t.Errorf("%s: answered %d %s, and the function was invoked %d times", name, resp.StatusCode, body,
				len(f.function.events))
		}
	}
}

func TestNoTruststoreNeedsNoCertificate(t *testing.T) {
	f := newGateway(t, func(a *httpAPI) { a.Truststore = nil })
	resp, _ := f.postAs(t, tls.Certificate{}, nil)
	e, raw := f.event(t)
	if resp.StatusCode != http.StatusOK || e.RequestContext.Authentication.ClientCert.ClientCertPem != "" {
		t.Errorf("answered %d, the event is %s", resp.StatusCode, raw)
	}
}

func TestRequestsThatAPIGatewayAnswersItself(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*http.Request)
		status int
	}{
		{"another path", func(r *http.Request) { r.URL.Path = "/other" }, 404},
		{"another method", func(r *http.Request) { r.Method = http.MethodGet }, 404},
		{"another bankDomain", func(r *http.Request) { r.Host = "other.example" }, 403},
		{"a web page", func(r *http.Request) { r.Header.Set("Origin", "https://other.example") }, 403},
		{"more than 10 MB", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, 10<<20+1))), 10<<20+1
		}, 413},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newGateway(t, nil)
			resp, body := f.post(t, test.change)
			if want := `{"message":"` + http.StatusText(test.status) + `"}`; resp.StatusCode != test.status ||
				body != want || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("answered %d %s, want %d %s", resp.StatusCode, body, test.status, want)
			}
			if len(f.function.events) > 0 {
				t.Error("the function was invoked")
			}
		})
	}
}

func TestAnswerOfTheFunctionIsTranslated(t *testing.T) {
	for name, test := range map[string]struct {
		function *fakeFunction
		status   int
	}{
		"an impossible status": {&fakeFunction{answer: `{"statusCode":42}`}, 500},
		"not JSON":             {&fakeFunction{answer: `}`}, 500},
		"it failed":            {&fakeFunction{answer: `{"errorMessage":"x"}`, failed: true}, 500},
		"not reached":          {&fakeFunction{err: errors.New("x")}, 500},
		"throttled":            {&fakeFunction{err: &types.TooManyRequestsException{}}, 503},
		"too large for Lambda": {&fakeFunction{err: &types.RequestTooLargeException{}}, 413},
		"late":                 {&fakeFunction{wait: true}, 503},
		"a response": {&fakeFunction{answer: `{"statusCode":202,"headers":{"Content-Type":"application/problem+json",` +
			`"X-A":"1"},"body":"text"}`}, 202},
	} {
		f := newGateway(t, func(a *httpAPI) {
			if test.function.wait {
				a.Timeout = time.Millisecond
			}
		})
		f.function.answer, f.function.err, f.function.failed, f.function.wait =
			test.function.answer, test.function.err, test.function.failed, test.function.wait
		want := []string{`{"message":"` + http.StatusText(test.status) + `"}`, "application/json", ""}
		if test.status == http.StatusAccepted {
			want = []string{"text", "application/problem+json", "1"}
		}
		resp, body := f.post(t, nil)
		got := []string{body, resp.Header.Get("Content-Type"), resp.Header.Get("X-A")}
		if diff := cmp.Diff(want, got); resp.StatusCode != test.status || diff != "" {
			t.Errorf("%s: answered %d, want %d (-want +got):\n%s", name, resp.StatusCode, test.status, diff)
		}
	}
}
