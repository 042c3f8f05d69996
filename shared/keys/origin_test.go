package keys

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
	"uuid"
)

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
