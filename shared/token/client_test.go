package token_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/awstest"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/token"
)

// service starts a payment service on the rig's clock, with a refresher that
// gets its tokens there.
func (r *rig) service(t *testing.T, o paymenttest.Options) *paymenttest.Server {
	o.Now = r.Now
	s := paymenttest.NewServer(o)
	t.Cleanup(s.Close)
	r.fill(s.Client())
	r.refresher = token.NewRefresher(r.secrets.SDK(), tokenSecret, credentialsSecret,
		token.NewEndpoint(parse(t, s.URL), "manager-1", token.EndpointOptions{Now: r.Now, FormEncoded: o.FormEncoded}),
		token.RefresherOptions{Now: r.Now})
	return s
}

func status(t *testing.T, client *http.Client, method, target string, body io.Reader) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

func TestClientCallsAProtectedAPI(t *testing.T) {
	for name, o := range map[string]paymenttest.Options{
		"literal credentials":      {ClientID: "client 1", ClientSecret: "s%cret+/: ü"},
		"form-encoded credentials": {ClientID: "client:1", ClientSecret: "s%cret+/: ü", FormEncoded: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hangsUp)
			s := r.service(t, o)
			r.run(t, token.Refreshed)
			client := token.NewClient(r.reader(), parse(t, s.URL))
			if got := status(t, client, http.MethodPost, s.URL+paymenttest.ProtectedPath+"payments",
				strings.NewReader("{}")); got != http.StatusOK {
				t.Errorf("status %d", got)
			}
		})
	}
}

func TestClientWorksDuringAnOutageOfTheEndpoint(t *testing.T) {
	r := newRig(t, hangsUp)
	s := r.service(t, paymenttest.Options{TokenLifetime: 5 * time.Minute})
	client := token.NewClient(r.reader(), parse(t, s.URL))
	for second := range 30 * 60 {
		switch second {
		case 10*60 + 1: // for less than the remaining life of the stored token
			if err := s.Misbehave(paymenttest.Token, paymenttest.Fault{Name: paymenttest.Unauthorized}); err != nil {
				t.Fatal(err)
			}
		case 12*60 + 59:
			if err := s.Misbehave(paymenttest.Token, paymenttest.Fault{}); err != nil {
				t.Fatal(err)
			}
		}
		if second%60 == 0 {
			_, _ = r.refresher.Run(t.Context())
		}
		if second%5 == 0 {
			if got := status(t, client, http.MethodGet, s.URL+paymenttest.ProtectedPath, nil); got != http.StatusOK {
				t.Fatalf("after %d s: status %d", second, got)
			}
		}
		r.Advance(time.Second)
	}
	if n := s.Count(paymenttest.API, http.StatusUnauthorized); n > 0 {
		t.Errorf("%d calls were rejected", n)
	}
	if n := len(r.secrets.Values(tokenSecret)); n < 10 {
		t.Errorf("only %d tokens", n)
	}
	if n := s.Count(paymenttest.Token, http.StatusUnauthorized); n == 0 {
		t.Error("no run happened during the outage")
	}
}

func TestTransportSendsTheTokenOnlyToItsHost(t *testing.T) {
	r := newRig(t, hangsUp)
	r.store(canaryToken, time.Hour)
	var seen []http.Header
	record := http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		seen = append(seen, request.Header)
		if to := request.URL.Query().Get("to"); to != "" {
			http.Redirect(w, request, to, http.StatusTemporaryRedirect)
		}
	})
	own, other := httptest.NewServer(record), httptest.NewServer(record)
	defer own.Close()
	defer other.Close()
	client := token.NewClient(r.reader(), parse(t, own.URL+"/api"))
	tests := map[string]struct {
		url     string
		carries []bool // each request on the way
	}{
		"the host itself":       {own.URL + "/api/x", []bool{true}},
		"another path of it":    {own.URL + "/", []bool{true}},
		"another host":          {other.URL, []bool{false}}, // the same address at another port
		"a redirect to itself":  {own.URL + "/?to=/y", []bool{true, true}},
		"a redirect to another": {own.URL + "/?to=" + other.URL, []bool{true, false}},
		"a redirect there and back": {own.URL + "/?to=" + url.QueryEscape(other.URL+"/?to="+own.URL),
			[]bool{true, false, true}},
		"another name for it": {strings.Replace(own.URL, "127.0.0.1", "localhost", 1), []bool{false}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			seen = nil
			if got := status(t, client, http.MethodGet, test.url, nil); got != http.StatusOK {
				t.Fatalf("status %d", got)
			}
			if len(seen) != len(test.carries) {
				t.Fatalf("%d requests, want %d", len(seen), len(test.carries))
			}
			for i, header := range seen {
				authorization, contentType := "", ""
				if test.carries[i] {
					authorization, contentType = "Bearer "+canaryToken, "application/json"
				}
				if header.Get("Authorization") != authorization || header.Get("Content-Type") != contentType {
					t.Errorf("request %d: %v", i, header)
				}
			}
		})
	}
}

func TestTransportComparesSchemeHostAndPort(t *testing.T) {
	tests := map[string]bool{
		"https://api.payments.example/x":      true,
		"https://API.payments.example:443/x":  true,
		"HTTPS://api.payments.example":        true,
		"http://api.payments.example/x":       false,
		"http://api.payments.example:443/x":   false,
		"https://api.payments.example:8443/x": false,
		"https://payments.example/x":          false,
		"https://api.payments.example.evil/x": false,
		"https://evil@api.payments.example/x": true, // a user is none of the host's name
		"https://api.payments.example@evil/x": false,
	}
	r := newRig(t, hangsUp)
	r.store(canaryToken, time.Hour)
	for target, want := range tests {
		var got *http.Request
		transport := token.NewTransport(r.reader(), parse(t, "https://api.payments.example/base"),
			roundTripper(func(r *http.Request) (*http.Response, error) {
				got = r
				return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
			}))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if carries := got.Header.Get("Authorization") != ""; carries != want {
			t.Errorf("%s carries the token: %t, want %t", target, carries, want)
		}
		if len(request.Header) > 0 {
			t.Errorf("%s: the caller's request was changed: %v", target, request.Header)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportRetriesOnceWithANewToken(t *testing.T) {
	tests := map[string]struct {
		body   func() io.Reader
		stored string // the token in the secret when the first one is rejected
		status int
		tokens []string // of the requests
	}{
		"no body": {func() io.Reader { return nil }, "t-2", 200, []string{"t-1", "t-2"}},
		"a body to be replayed": {func() io.Reader { return strings.NewReader("payment") }, "t-2", 200,
			[]string{"t-1", "t-2"}},
		"a body that is gone": {func() io.Reader { return io.MultiReader(strings.NewReader("payment")) }, "t-2", 401,
			[]string{"t-1"}},
		"no other token": {func() io.Reader { return strings.NewReader("payment") }, "t-1", 401,
			[]string{"t-1"}},
		"another that is refused too": {func() io.Reader { return strings.NewReader("payment") }, "t-3", 401,
			[]string{"t-1", "t-3"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hangsUp)
			r.store("t-1", time.Hour)
			reader := r.reader()
			expectToken(t, reader, "t-1")
			r.store(test.stored, time.Hour)

			var tokens []string
			var bodies [][]byte
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				body, _ := io.ReadAll(request.Body)
				access := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
				tokens, bodies = append(tokens, access), append(bodies, body)
				if access != "t-2" {
					w.WriteHeader(http.StatusUnauthorized)
					_, _ = w.Write([]byte("refused"))
				}
			}))
			defer s.Close()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, test.body())
			if err != nil {
				t.Fatal(err)
			}
			response, err := token.NewClient(reader, parse(t, s.URL)).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != test.status || strings.Join(tokens, " ") != strings.Join(test.tokens, " ") {
				t.Errorf("status %d with %v, want %d with %v", response.StatusCode, tokens, test.status, test.tokens)
			}
			for _, body := range bodies[1:] {
				if !bytes.Equal(body, bodies[0]) {
					t.Errorf("replayed %q, want %q", body, bodies[0])
				}
			}
			if test.status == 401 {
				if text, err := io.ReadAll(response.Body); err != nil || string(text) != "refused" {
					t.Errorf("the answer is %q, %v", text, err)
				}
			}
			// The next caller gets the token in the secret.
			expectToken(t, reader, test.stored)
		})
	}
}

func TestTransportSendsTheWholeBodyAgain(t *testing.T) {
	r := newRig(t, hangsUp)
	r.store("t-1", time.Hour)
	reader := r.reader()
	expectToken(t, reader, "t-1")
	r.store("t-2", time.Hour)
	var bodies []string
	answer := &closed{Reader: strings.NewReader("refused")}
	transport := token.NewTransport(reader, parse(t, "https://api.payments.example"),
		roundTripper(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, string(body))
			if len(bodies) == 1 {
				return &http.Response{StatusCode: http.StatusUnauthorized, Body: answer, Request: r}, nil
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.payments.example",
		strings.NewReader("payment"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if strings.Join(bodies, ",") != "payment,payment" {
		t.Errorf("bodies: %q", bodies)
	}
	if answer.times != 1 {
		t.Errorf("the first answer was closed %d times", answer.times)
	}
}

// unauthorized sends a request with the reader's token to a service that answers each with
// 401, and returns how many it got.
func unauthorized(t *testing.T, reader *token.Reader, request *http.Request) (requests int) {
	t.Helper()
	transport := token.NewTransport(reader, parse(t, "https://api.payments.example"),
		roundTripper(func(r *http.Request) (*http.Response, error) {
			requests++
			return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: r}, nil
		}))
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.Body.Close(); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", response.StatusCode)
	}
	return requests
}

func TestTransportReturnsTheAnswerIfNoOtherTokenCanBeRead(t *testing.T) {
	r := newRig(t, hangsUp)
	r.store("t-1", time.Hour)
	reader := r.reader()
	expectToken(t, reader, "t-1")
	r.secrets.Before = func(awstest.SecretCall) (string, bool) { return "AccessDeniedException", false }
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.payments.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := unauthorized(t, reader, request); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// replacedToken returns a reader whose token was replaced after it was read.
func replacedToken(t *testing.T) *token.Reader {
	t.Helper()
	r := newRig(t, hangsUp)
	r.store("t-1", time.Hour)
	reader := r.reader()
	expectToken(t, reader, "t-1")
	r.store("t-2", time.Hour)
	return reader
}

func TestTransportSendsARequestWithoutABodyAgain(t *testing.T) {
	for name, body := range map[string]io.ReadCloser{"nil": nil, "NoBody": http.NoBody} {
		t.Run(name, func(t *testing.T) {
			request := &http.Request{Method: http.MethodPost, URL: parse(t, "https://api.payments.example"),
				Header: http.Header{}, Body: body}
			if n := unauthorized(t, replacedToken(t), request.WithContext(t.Context())); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestTransportReturnsTheAnswerIfTheBodyCannotBeReadAgain(t *testing.T) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.payments.example",
		strings.NewReader("payment"))
	if err != nil {
		t.Fatal(err)
	}
	request.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
	if n := unauthorized(t, replacedToken(t), request); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestClientReplacesRevokedTokens(t *testing.T) {
	r := newRig(t, hangsUp)
	s := r.service(t, paymenttest.Options{})
	r.run(t, token.Refreshed)
	client := token.NewClient(r.reader(), parse(t, s.URL))
	if got := status(t, client, http.MethodGet, s.URL+paymenttest.ProtectedPath, nil); got != http.StatusOK {
		t.Fatalf("status %d", got)
	}
	s.RevokeTokens()
	if got := status(t, client, http.MethodGet, s.URL+paymenttest.ProtectedPath, nil); got != http.StatusUnauthorized {
		t.Fatalf("status %d", got)
	}
	if report, err := r.refresher.Refresh(t.Context()); report.Outcome != token.Refreshed {
		t.Fatalf("Refresh = %+v, %v", report, err)
	}
	r.Advance(time.Second)
	if got := status(t, client, http.MethodGet, s.URL+paymenttest.ProtectedPath, nil); got != http.StatusOK {
		t.Errorf("status %d", got)
	}
}

type closed struct {
	io.Reader
	times int
}

func (c *closed) Close() error { c.times++; return nil }

func TestTransportSendsNothingWithoutAToken(t *testing.T) {
	r := newRig(t, hangsUp)
	s := r.service(t, paymenttest.Options{})
	body := &closed{Reader: strings.NewReader("payment")}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+paymenttest.ProtectedPath, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := token.NewClient(r.reader(), parse(t, s.URL)).Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	if !errors.Is(err, token.ErrNone) {
		t.Errorf("%v, want ErrNone", err)
	}
	if n := s.Count(paymenttest.API); n > 0 || body.times != 1 {
		t.Errorf("%d requests, and the body was closed %d times", n, body.times)
	}
}

// Only a 401 makes the client read the secret again.
func TestClientReadsTheSecretOnce(t *testing.T) {
	r := newRig(t, hangsUp)
	r.store("t-1", time.Hour)
	answer := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) }))
	defer s.Close()
	client := token.NewClient(r.reader(), parse(t, s.URL))
	for _, answer = range []int{http.StatusOK, http.StatusForbidden, http.StatusServiceUnavailable} {
		if got := status(t, client, http.MethodGet, s.URL, nil); got != answer {
			t.Errorf("status %d, want %d", got, answer)
		}
	}
	if n := len(r.secrets.Calls("GetSecretValue")); n != 1 {
		t.Errorf("%d reads of the secret", n)
	}
}
