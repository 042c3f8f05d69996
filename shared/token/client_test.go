package token_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/token"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportSendsTheTokenOnlyToItsHost(t *testing.T) {
	r := newRig(t, hangsUp)
	r.put(canaryToken, time.Hour)
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
	for name, test := range map[string]struct {
		url     string
		carries []bool // each request on the way
	}{
		"the host itself":       {own.URL + "/api/x", []bool{true}},
		"a redirect to another": {own.URL + "/?to=" + other.URL, []bool{true, false}},
		"a redirect there and back": {own.URL + "/?to=" + url.QueryEscape(other.URL+"/?to="+own.URL),
			[]bool{true, false, true}},
		"another name for it": {strings.Replace(own.URL, "127.0.0.1", "localhost", 1), []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			seen = nil
			response, err := client.Get(test.url)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
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
	r := newRig(t, hangsUp)
	r.put(canaryToken, time.Hour)
	for target, want := range map[string]bool{
		"https://api.payments.example/x":      true,
		"https://API.payments.example:443/x":  true,
		"HTTPS://api.payments.example":        true,
		"http://api.payments.example/x":       false,
		"http://api.payments.example:443/x":   false,
		"https://api.payments.example:8443/x": false,
		"https://payments.example/x":          false,
		"https://api.payments.example.evil/x": false,
		"https://user@api.payments.example/x": true,
		"https://api.payments.example@evil/x": false,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		carries := false
		response, err := token.NewTransport(r.reader(), parse(t, "https://api.payments.example/base"),
			roundTripper(func(r *http.Request) (*http.Response, error) {
				carries = r.Header.Get("Authorization") != ""
				return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
			})).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if carries != want || len(request.Header) > 0 {
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
	again := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("payment")), nil }
	gone := func() (io.ReadCloser, error) { return nil, errors.New("gone") }
	for name, test := range map[string]struct {
		body    io.ReadCloser
		getBody func() (io.ReadCloser, error)
		stored  string // the token in the secret; "": it cannot be read
		status  int
		sent    string // tokens and bodies
	}{
		"no body": {nil, nil, "t-2", 200, "t-1: t-2:"},
		"NoBody":  {http.NoBody, nil, "t-2", 200, "t-1: t-2:"},
		"a body to be sent again": {&closed{Reader: strings.NewReader("payment")}, again, "t-2", 200,
			"t-1:payment t-2:payment"},
		"a body without GetBody":    {&closed{Reader: strings.NewReader("payment")}, nil, "t-2", 401, "t-1:payment"},
		"a body that is gone":       {&closed{Reader: strings.NewReader("payment")}, gone, "t-2", 401, "t-1:payment"},
		"no other token":            {nil, nil, "t-1", 401, "t-1:"},
		"another rejected token":    {nil, nil, "t-3", 401, "t-1: t-3:"},
		"a secret that is not read": {nil, nil, "", 401, "t-1:"},
		"403":                       {nil, nil, "t-2", 403, "t-1:"},
		"503":                       {nil, nil, "t-2", 503, "t-1:"},
	} {
		bubble(t, name, func(t *testing.T) {
			r, reader := heldToken(t, time.Hour)
			r.put(test.stored, time.Hour)
			if test.stored == "" {
				r.store.before = func(string) error { return r.store.denied() }
			}
			var sent []string
			var rejections []*closed
			transport := token.NewTransport(reader, parse(t, "https://api.example"),
				roundTripper(func(r *http.Request) (*http.Response, error) {
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
					return &http.Response{
						StatusCode: max(test.status, http.StatusUnauthorized),
						Body:       rejections[len(rejections)-1],
						Request:    r,
					}, nil
				}))
			request := &http.Request{
				Method:  http.MethodPost,
				URL:     parse(t, "https://api.example"),
				Header:  http.Header{},
				Body:    test.body,
				GetBody: test.getBody,
			}
			response, err := transport.RoundTrip(request.WithContext(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(sent, " "); response.StatusCode != test.status || got != test.sent {
				t.Errorf("status %d with %q, want %d with %q", response.StatusCode, got, test.status, test.sent)
			}
			if text, err := io.ReadAll(response.Body); test.status != 200 &&
				(err != nil || string(text) != "rejected") {
				t.Errorf("the answer is %q, %v", text, err)
			}
			_ = response.Body.Close()
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
