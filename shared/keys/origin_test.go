package keys

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"uuid"
)

// Each answer that is not a key is an error, and no text is returned with it.
func TestFetchReturnsNoTextWithAnError(t *testing.T) {
	valid := uuid.New().String()
	answer := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, test := range map[string]struct {
		id     string
		host   string // "" for the server
		answer http.HandlerFunc
		want   error
		text   string
		size   int // of the answer
	}{
		"a key":  {valid, "", answer("application/jwk+json", "{}"), nil, "", 2},
		"64 KiB": {valid, "", answer("application/json", strings.Repeat(" ", 64<<10)), nil, "", 64 << 10},
		"64 KiB and more": {valid, "", answer("application/json", strings.Repeat(" ", 64<<10+1)), ErrUnavailable,
			"answer is larger than 64 KiB", 0},
		"a page":       {valid, "", answer("text/html", "{}"), ErrUnavailable, "content type is not JSON", 0},
		"no UUID":      {"../x", "", nil, ErrMalformedID, "", 0},
		"no such host": {valid, "a b", nil, ErrUnavailable, "request: ", 0},
		"cut off": {valid, "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, ErrUnavailable, "answer: unexpected EOF", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			host := cmp.Or(test.host, strings.TrimPrefix(server.URL, "http://"))
			base := &url.URL{Scheme: "http", Host: host}
			got, err := NewOrigin(server.Client(), base, time.Minute).Fetch(t.Context(), test.id)
			if !errors.Is(err, test.want) || len(got) != test.size ||
				err != nil && !strings.Contains(err.Error(), test.text) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
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
	base, err := url.Parse(server.URL + "/base")
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.New().String()
	if _, err := NewOrigin(server.Client(), base, time.Minute).Fetch(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got.Method != http.MethodGet || got.URL.Path != "/base/v1/keys/"+id || got.URL.RawQuery != "" {
		t.Errorf("got request %s %s", got.Method, got.URL)
	}
	if accept := got.Header.Get("Accept"); accept != "application/json" {
		t.Errorf("accepts %q", accept)
	}
}
