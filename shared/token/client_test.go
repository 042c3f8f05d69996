package token_test

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"payhook.example/shared/token"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportSendsTheTokenOnlyToItsHost(t *testing.T) {
	const own, other = "https://api.payments.example", "https://other.example"
	r := newRig(t, hangsUp)
	r.put(canaryToken, time.Hour)
	var carries []bool // each request
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		authorization, contentType := r.Header.Get("Authorization"), r.Header.Get("Content-Type")
		carries = append(carries, authorization == "Bearer "+canaryToken && contentType == "application/json")
		if !carries[len(carries)-1] && (strings.Contains(authorization, canaryToken) || contentType != "") {
			t.Errorf("%s: %v", r.URL, r.Header)
		}
		response := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
		if to := r.URL.Query().Get("to"); to != "" {
			response.StatusCode = http.StatusTemporaryRedirect
			response.Header.Set("Location", to)
		}
		return response, nil
	})
	client := &http.Client{Transport: token.NewTransport(r.reader(), parse(t, own+"/base"), base)}
	for target, want := range map[string][]bool{
		own + "/x":                                         {true},
		"https://API.payments.example:443/x":               {true},
		"HTTPS://api.payments.example":                     {true},
		"https://user@api.payments.example/x":              {true},
		"http://api.payments.example/x":                    {false},
		"http://api.payments.example:443/x":                {false},
		"https://api.payments.example:8443/x":              {false},
		"https://payments.example/x":                       {false},
		"https://api.payments.example.evil/x":              {false},
		"https://api.payments.example@evil/x":              {false},
		own + "/?to=" + other:                              {true, false},
		own + "/?to=" + url.QueryEscape(other+"/?to="+own): {true, false, true},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		carries = nil
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if !slices.Equal(carries, want) || len(request.Header) > 0 {
			t.Errorf("%s carries the token: %t, want %t; the caller's request has %v", target, carries, want,
				request.Header)
		}
	}
}

// closed counts how often it is closed.
type closed struct {
	io.Reader
	times int
}

func (c *closed) Close() error { c.times++; return nil }

// The token t-1 is in memory. The service accepts t-2.
func TestTransportRetriesOnceWithANewToken(t *testing.T) {
	payment := func() io.ReadCloser { return io.NopCloser(strings.NewReader("payment")) }
	again := func() (io.ReadCloser, error) { return payment(), nil }
	gone := func() (io.ReadCloser, error) { return nil, errors.New("gone") }
	for name, test := range map[string]struct {
		body    io.ReadCloser
		getBody func() (io.ReadCloser, error)
		stored  string // the token in the secret; "": it cannot be read
		status  int    // 0: 200
		sent    string // tokens and bodies
	}{
		"no body":                   {stored: "t-2", sent: "t-1: t-2:"},
		"NoBody":                    {body: http.NoBody, stored: "t-2", sent: "t-1: t-2:"},
		"a body to be sent again":   {body: payment(), getBody: again, stored: "t-2", sent: "t-1:payment t-2:payment"},
		"a body without GetBody":    {body: payment(), stored: "t-2", status: 401, sent: "t-1:payment"},
		"a body that is gone":       {body: payment(), getBody: gone, stored: "t-2", status: 401, sent: "t-1:payment"},
		"no other token":            {stored: "t-1", status: 401, sent: "t-1:"},
		"another rejected token":    {stored: "t-3", status: 401, sent: "t-1: t-3:"},
		"a secret that is not read": {status: 401, sent: "t-1:"},
		"403":                       {stored: "t-2", status: 403, sent: "t-1:"},
		"503":                       {stored: "t-2", status: 503, sent: "t-1:"},
	} {
		bubble(t, name, func(t *testing.T) {
			r, reader := heldToken(t, time.Hour)
			r.put(test.stored, time.Hour)
			test.status = cmp.Or(test.status, 200)
			if test.stored == "" {
				down(r)
			}
			var sent []string
			var rejections []*closed
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				var body []byte
				if r.Body != nil {
					body, _ = io.ReadAll(r.Body)
				}
				access := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				sent = append(sent, access+":"+string(body))
				if access == "t-2" {
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
				}
				rejections = append(rejections, &closed{Reader: strings.NewReader("rejected")})
				return &http.Response{StatusCode: max(test.status, http.StatusUnauthorized),
					Body: rejections[len(rejections)-1], Request: r}, nil
			})
			request := &http.Request{Method: http.MethodPost, URL: parse(t, "https://api.example"),
				Header: http.Header{}, Body: test.body, GetBody: test.getBody}
			response, err := token.NewTransport(reader, request.URL, base).RoundTrip(request.WithContext(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if got := strings.Join(sent, " "); response.StatusCode != test.status || got != test.sent || err != nil ||
				(string(text) == "rejected") != (test.status != 200) {
				t.Errorf("status %d with %q, want %d with %q; %q, %v", response.StatusCode, got, test.status,
					test.sent, text, err)
			}
			for i, rejection := range rejections {
				if rejection.times != 1 {
					t.Errorf("answer %d was closed %d times", i, rejection.times)
				}
			}
			switch {
			case test.status > 401:
				r.expectReads(t, 1)
			case test.stored != "":
				expectToken(t, reader, test.stored) // what the next caller gets
			}
		})
	}
}

// Libraries that trace calls replace Go's default transport.
func TestAClientDoesNotNeedGosDefaultTransport(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = roundTripper(func(*http.Request) (*http.Response, error) { return nil, io.EOF })
	server := httptest.NewServer(returns("t-1", time.Hour))
	defer server.Close()
	base := parse(t, server.URL)
	if _, err := token.NewEndpoint(base, "manager-1", token.EndpointOptions{}).Fetch(t.Context(),
		testCredentials); err != nil {
		t.Error(err)
	}
	r := newRig(t, hangsUp)
	r.put("t-1", time.Hour)
	client := token.NewClient(r.reader(), base)
	response, err := client.Get(base.String())
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	// The proxy and the timeouts are Go's.
	got, want := token.Base(client), before.(*http.Transport)
	if reflect.ValueOf(got.Proxy).Pointer() != reflect.ValueOf(http.ProxyFromEnvironment).Pointer() ||
		got.TLSHandshakeTimeout != want.TLSHandshakeTimeout || got.IdleConnTimeout != want.IdleConnTimeout ||
		got.ExpectContinueTimeout != want.ExpectContinueTimeout || got.MaxIdleConns != want.MaxIdleConns ||
		got.DialContext == nil {
		t.Errorf("%+v", got)
	}
}

func TestTransportSendsNothingWithoutAToken(t *testing.T) {
	r := newRig(t, hangsUp)
	body := &closed{Reader: strings.NewReader("payment")}
	request := &http.Request{Method: http.MethodPost, URL: parse(t, "https://api.example"), Body: body}
	response, err := token.NewTransport(r.reader(), request.URL,
		roundTripper(func(*http.Request) (*http.Response, error) {
			t.Error("a request was sent")
			return nil, io.EOF
		})).RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
	}
	if !errors.Is(err, token.ErrNone) || body.times != 1 {
		t.Errorf("%v, want ErrNone; the body was closed %d times", err, body.times)
	}
}

// A network that loses its connections costs one call, however many were open. The server ends every connection at its
// second request.
func TestADeadConnectionCostsOneCall(t *testing.T) {
	var arrived, calls sync.WaitGroup
	var seen sync.Map // the connections
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor > 1 {
			t.Error("all calls share one connection of HTTP/2")
			return
		}
		if _, second := seen.LoadOrStore(r.RemoteAddr, true); second {
			panic(http.ErrAbortHandler)
		}
		arrived.Done()
		arrived.Wait()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	rig := newRig(t, hangsUp)
	rig.put(canaryToken, time.Hour)
	client := token.NewClient(rig.reader(), parse(t, server.URL))
	token.Base(client).TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	call := func() error {
		response, err := client.Post(server.URL, "", strings.NewReader("payment"))
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	arrived.Add(3)
	for range 3 {
		calls.Go(func() {
			if err := call(); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	arrived.Add(1)
	if first, second := call(), call(); first == nil || second != nil {
		t.Errorf("%v, then %v", first, second)
	}
}
