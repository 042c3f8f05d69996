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

// gateway is an apiGateway in front of a function, with the CAs of both sides.
type gateway struct {
	*apiGateway
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
	api := httpAPI{Domain: bankDomain, ID: "a1b2c3d4e5",
		Function: "arn:aws:lambda:us-east-1:000000000000:function:webhook:live", Timeout: time.Second,
		Truststore: f.ca.PEM()}
	change(&api)
	var err error
	if f.apiGateway, err = startAPIGateway(api, f.function, f.server.Server(bankDomain), io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// post posts to the endpoint with a client certificate, and returns the answer and the last event of the function.
func (f *gateway) post(t *testing.T, certificate tls.Certificate, change func(*http.Request)) (*http.Response, string,
	events.APIGatewayV2HTTPRequest) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	change(r)
	roots := x509.NewCertPool()
	roots.AddCert(f.server.Certificate)
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var event events.APIGatewayV2HTTPRequest
	if n := len(f.function.events); n > 0 {
		d := json.NewDecoder(bytes.NewReader(f.function.events[n-1]))
		d.DisallowUnknownFields()
		if err := d.Decode(&event); err != nil {
			t.Fatal(err)
		}
	}
	return resp, string(body), event
}

func asItIs[T any](T) {}

func TestEventHasPayloadFormat2(t *testing.T) {
	f := newGateway(t, asItIs)
	certificate := f.ca.Client(nil)
	resp, body, e := f.post(t, certificate, func(r *http.Request) {
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
	want := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: "/", Body: `{"a":1}`,
		RawQueryString: "parameter1=value1&parameter1=value%202&parameter2=value",
		Headers: map[string]string{"header2": "value1,value2", "content-type": "application/json",
			"x-forwarded-client-cert": "Hash=00", "x-amzn-mtls-clientcert": "imitated", "user-agent": "agent",
			"content-length": "7", "accept-encoding": "gzip"},
		RequestContext: events.APIGatewayV2HTTPRequestContext{APIID: "a1b2c3d4e5", DomainName: bankDomain,
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: "POST", SourceIP: "127.0.0.1"}},
	}
	text := string(paymenttest.EncodeCertificate(certificate.Leaf))
	want.RequestContext.Authentication.ClientCert.ClientCertPem = text
	if diff := cmp.Diff(want, e, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBinaryBodiesAreBase64(t *testing.T) {
	f := newGateway(t, asItIs)
	certificate := f.ca.Client(nil)
	for contentType, want := range map[string]bool{
		"application/json": false, "Application/JSON; charset=utf-8": false, "text/plain": false,
		"application/xml": false, "application/javascript": false, "application/octet-stream": true,
		"application/problem+json":          true,
		"application/x-www-form-urlencoded": true, "": true,
	} {
		_, _, e := f.post(t, certificate, func(r *http.Request) { r.Header["Content-Type"] = []string{contentType} })
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
func TestAnswersOfAPIGateway(t *testing.T) {
	const problem = `{"statusCode":202,"headers":{"Content-Type":"application/problem+json","X-A":"1"},"body":"text"}`
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	servers := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	for name, test := range map[string]struct {
		status      int
		certificate func(*x509.Certificate)
		change      func(*http.Request)
		function    *fakeFunction // nil: one that works
	}{
		"for servers":         {200, servers, asItIs, nil},
		"the serial number 0": {200, func(c *x509.Certificate) { c.SerialNumber = new(big.Int) }, asItIs, nil},
		"expired":             {403, expired, asItIs, nil},
		"another path":        {404, nil, func(r *http.Request) { r.URL.Path = "/other" }, nil},
		"another method":      {404, nil, func(r *http.Request) { r.Method = http.MethodDelete }, nil},
		"another domain":      {403, nil, func(r *http.Request) { r.Host = "other.example" }, nil},
		"a web page":          {403, nil, func(r *http.Request) { r.Header.Set("Origin", "https://a.example") }, nil},
		"more than 10 MB": {413, nil, func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, 10<<20+1))), 10<<20+1
		}, nil},
		"an impossible status": {500, nil, asItIs, &fakeFunction{answer: `{"statusCode":42}`}},
		"not JSON":             {500, nil, asItIs, &fakeFunction{answer: `}`}},
		"it failed":            {500, nil, asItIs, &fakeFunction{answer: `{"errorMessage":"x"}`, failed: true}},
		"not reached":          {500, nil, asItIs, &fakeFunction{err: errors.New("x")}},
		"throttled":            {503, nil, asItIs, &fakeFunction{err: &types.TooManyRequestsException{}}},
		"too large for Lambda": {413, nil, asItIs, &fakeFunction{err: &types.RequestTooLargeException{}}},
		"late":                 {503, nil, asItIs, &fakeFunction{wait: true}},
		"a response":           {202, nil, asItIs, &fakeFunction{answer: problem}},
	} {
		f := newGateway(t, func(a *httpAPI) {
			if test.function != nil && test.function.wait {
				a.Timeout = time.Millisecond
			}
		})
		reached := test.function != nil || test.status == http.StatusOK
		if test.function != nil {
			f.function, f.functions = test.function, test.function
		}
		want := []string{`{"message":"` + http.StatusText(test.status) + `"}`, "application/json", ""}
		switch test.status {
		case http.StatusOK:
			want[0] = "{}"
		case http.StatusAccepted:
			want = []string{"text", "application/problem+json", "1"}
		}
		resp, body, _ := f.post(t, f.ca.Client(test.certificate), test.change)
		got := []string{body, resp.Header.Get("Content-Type"), resp.Header.Get("X-A")}
		if diff := cmp.Diff(want, got); resp.StatusCode != test.status || diff != "" ||
			(len(f.function.events) == 1) != reached {
			t.Errorf("%s: answered %d, want %d, and the function was invoked %d times (-want +got):\n%s", name,
				resp.StatusCode, test.status, len(f.function.events), diff)
		}
	}
	f := newGateway(t, func(a *httpAPI) { a.Truststore = nil })
	if resp, _, e := f.post(t, tls.Certificate{}, asItIs); resp.StatusCode != http.StatusOK ||
		e.RequestContext.Authentication.ClientCert.ClientCertPem != "" {
		t.Errorf("without a truststore: answered %d, the event is %+v", resp.StatusCode, e)
	}
}
