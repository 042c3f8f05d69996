package keys

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/payment"
)

// An answer other than 200, or one that is too long, is an error without data of the answer.
func TestFetchReturnsAnAnswerOrAnErrorWithoutItsData(t *testing.T) {
	answer := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Location", "https://192.0.2.1/") // nothing is there
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const jsonType = "application/json"
	key := string(text(t, members(generated(0).N, 65537)))
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   error
		text   string // the end of the error
	}{
		"a key":  {answer(200, "application/jwk+json", key), nil, ""},
		"64 KiB": {answer(200, jsonType, key+strings.Repeat(" ", 64<<10-len(key))), nil, ""},
		"more than 64 KiB": {answer(200, jsonType, key+strings.Repeat(" ", 64<<10-len(key)+1)), ErrUnavailable,
			"64 KiB"},
		"no content": {answer(204, jsonType, ""), ErrUnavailable, "status 204"},
		"a redirect": {answer(302, jsonType, "CANARY"), ErrUnavailable, "status 302"},
		"401":        {answer(401, jsonType, "CANARY"), ErrUnavailable, "status 401"},
		"404":        {answer(404, jsonType, "CANARY"), ErrUnknown, ""},
		"429":        {answer(429, jsonType, "CANARY"), ErrUnavailable, "status 429"},
		"JSON":       {answer(200, jsonType, `{"a":"CANARY"}`), ErrUnavailable, "no kty"},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnavailable,
			"request: EOF"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "CANARY")
		}, ErrUnavailable, "answer: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			got, _, err := endpoint(t, server.Client(), server.URL).Fetch(t.Context(), id)
			if !errors.Is(err, test.want) || (got != nil) != (test.want == nil) || err != nil &&
				(!strings.HasSuffix(err.Error(), test.text) || strings.Contains(err.Error(), "CANARY")) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// The error names the cause, and neither the URL nor what the TLS library quotes of a certificate.
func TestFetchWithoutAnAnswer(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	for name, test := range map[string]struct {
		id, scheme, host string
		want             error
		text             string // the end of the error
	}{
		"no UUID":      {id: "../x", scheme: "https", host: server.Listener.Addr().String(), want: ErrMalformedID},
		"no such host": {id: id, scheme: "http", host: "a b", want: ErrUnavailable},
		"no server":    {id: id, scheme: "http", host: "127.0.0.1:1", want: ErrUnavailable, text: "connection refused"},
		"another CA": {id: id, scheme: "https", host: server.Listener.Addr().String(), want: ErrUnavailable,
			text: ": request: its TLS certificate is from an unknown CA"},
	} {
		got, _, err := NewEndpoint(http.DefaultClient, &url.URL{Scheme: test.scheme, Host: test.host}, time.Minute).
			Fetch(t.Context(), test.id)
		if got != nil || !errors.Is(err, test.want) || !strings.HasSuffix(err.Error(), test.text) ||
			strings.Contains(err.Error(), "/v1/keys") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// The request must be that of section 4.2 of the interface, and accept JSON.
func TestFetchSendsTheRequestOfTheInterface(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("Content-Type", "application/json")
	}))
	defer server.Close()
	_, _, _ = endpoint(t, server.Client(), server.URL+"/base").Fetch(t.Context(), id)
	if got.Method != http.MethodGet || got.URL.Path != "/base/v1/keys/"+id || got.URL.RawQuery != "" ||
		got.Header.Get("Accept") != "application/json, */*;q=0.5" ||
		got.Header.Get("User-Agent") != "payhook/"+payment.Version() {
		t.Errorf("got request %s %s, %v", got.Method, got.URL, got.Header)
	}
}

// endpoint returns the key lookup at a URL.
func endpoint(t *testing.T, client *http.Client, base string) *Endpoint {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return NewEndpoint(client, u, 10*time.Second)
}
