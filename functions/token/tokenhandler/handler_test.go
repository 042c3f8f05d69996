package tokenhandler

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

func TestTheLineAndTheReportOfARun(t *testing.T) {
	for name, c := range map[string]struct {
		run    token.Report
		err    error
		report Report
		line   map[string]any // beside the outcome
	}{
		"fresh": {token.Report{Outcome: token.Fresh}, nil, Report{Outcome: token.Fresh}, map[string]any{}},
		"refreshed": {token.Report{Outcome: token.Refreshed, Known: true, Remaining: 90 * time.Second,
			Shortfall: 30 * time.Second, Lifetime: time.Hour, Calls: 2}, nil,
			Report{Outcome: token.Refreshed, RemainingSeconds: 90},
			map[string]any{"lifetimeSeconds": 3600.0, "calls": 2.0,
				"remainingSeconds": 90.0, "StackName": "Payhook", "TokenShortfallSeconds": 30.0}},
		"fresh, after a refresh that failed": {token.Report{Outcome: token.Fresh, Known: true, Remaining: time.Hour,
			Lifetime: time.Hour, LastFailure: &token.EndpointError{Status: 401, Problem: "x"},
			NextCall: time.Date(2026, 1, 31, 13, 0, 0, 0, time.FixedZone("", 3600))}, nil,
			Report{token.Fresh, 3600, "the token endpoint answered 401: x"},
			map[string]any{"level": "WARN", "cause": "the token endpoint answered 401: x", "status": 401.0,
				"lifetimeSeconds": 3600.0, "remainingSeconds": 3600.0, "nextCall": "2026-01-31T12:00:00Z",
				"TokenShortfallSeconds": 0.0, "StackName": "Payhook"}},
		"no token": {token.Report{Outcome: token.Failed, Known: true, Shortfall: time.Minute}, errors.New("x"),
			Report{token.Failed, 0, "x"}, map[string]any{"level": "ERROR", "cause": "x", "remainingSeconds": 0.0,
				"TokenShortfallSeconds": 60.0, "StackName": "Payhook"}},
		"an answer of another type": {token.Report{Outcome: token.Refreshed, UnexpectedType: "text/html"}, nil,
			Report{Outcome: token.Refreshed}, map[string]any{"level": "WARN", "contentType": "text/html"}},
		"a token that could not be read": {token.Report{Outcome: token.Refreshed, Unreadable: errors.New("denied")},
			nil, Report{Outcome: token.Refreshed}, map[string]any{"level": "WARN", "unreadable": "denied"}},
		"an answer of the endpoint": {token.Report{Outcome: token.Failed, Known: true, Remaining: time.Minute},
			fmt.Errorf("run: %w", &token.EndpointError{Status: 400, Code: "invalid_client"}),
			Report{token.Failed, 60, "run: the token endpoint answered 400 invalid_client"},
			map[string]any{"level": "ERROR", "cause": "run: the token endpoint answered 400 invalid_client",
				"status": 400.0, "oauthError": "invalid_client", "remainingSeconds": 60.0,
				"TokenShortfallSeconds": 0.0, "StackName": "Payhook"}},
		"a short lifetime": {token.Report{Outcome: token.Refreshed, Lifetime: 10 * time.Minute, WritesTooOften: true},
			nil, Report{Outcome: token.Refreshed},
			map[string]any{"level": "WARN", "lifetimeSeconds": 600.0, "warning": token.ShortLived}},
	} {
		f := &functiontest.Function{T: t}
		h := &Handler{log: f.NewLog()}
		if diff := cmp.Diff(c.report, h.write(t.Context(), c.run, c.err)); diff != "" {
			t.Errorf("%s: the report (-want +got):\n%s", name, diff)
		}
		c.line["msg"], c.line["outcome"] = "token", string(c.run.Outcome)
		line := f.Line()
		// A run that does not know the life of the token, and did not fail, writes no metric: the
		// alarm token-life is raised by missing data.
		if text := f.Log.String(); strings.Contains(text, `"Unit":"Seconds"`) != c.run.Known {
			t.Errorf("%s: %s", name, text)
		}
		delete(line, "_aws")
		if diff := cmp.Diff(c.line, line); diff != "" {
			t.Errorf("%s: the line (-want +got):\n%s", name, diff)
		}
	}
}

// function returns the function, in which no setting has its default.
func function(t *testing.T, authURL string, env map[string]string) *functiontest.Function {
	t.Helper()
	values := map[string]string{"authUrl": authURL, "tokenManagerId": "manager 1", "scopes": "a b",
		"credentialEncoding": "form", "tokenStore": "secret"}
	for _, s := range settings.ReadBy("token") {
		if values[s.Key] == "" {
			t.Errorf("no test covers the effect of %s", s.Key)
		}
	}
	return functiontest.New(t, "token", values, env)
}

// The environment alone determines the settings. The log and the report contain no secret.
func TestATokenIsStored(t *testing.T) {
	var stored, credentials token.Memory
	if err := credentials.Save(t.Context(), `{"client_id":"client 1","client_secret":"CANARY"}`); err != nil {
		t.Fatal(err)
	}
	var requests []string
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		requests = append(requests, r.URL.String()+" "+r.FormValue("scope")+" "+user)
		w.Header().Set("Content-Type", "application/json")
		if len(requests) == 3 {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"CANARY-%d","token_type":"Bearer","expires_in":3600,"error":"CANARY"}`,
			len(requests))
	}))
	defer endpoint.Close()
	f := function(t, endpoint.URL+"/eu", nil)
	h := New(&stored, &credentials, f.Conf, f.NewLog())
	for i, step := range []struct {
		event Event
		want  token.Outcome
	}{{Event{}, token.Refreshed}, {Event{}, token.Fresh}, {Event{Refresh: true}, token.Refreshed},
		{Event{Refresh: true}, token.Failed}} {
		r, err := h.Handle(t.Context(), step.event)
		if err != nil || r.Outcome != step.want || strings.Contains(fmt.Sprintf("%+v", r), "CANARY") {
			t.Errorf("run %d: %+v, %v, want %s", i, r, err, step.want)
		}
	}
	const want = "/eu/as/token.oauth2?access_token_manager_id=manager+1 a b client+1"
	if text, err := stored.Load(t.Context()); len(requests) != 3 || requests[0] != want ||
		!strings.Contains(text, "CANARY-2") {
		t.Errorf("%s, %v after the requests %q", text, err, requests)
	}
	if f.Log.Len() == 0 || strings.Contains(f.Log.String(), "CANARY") {
		t.Errorf("logged %s", &f.Log)
	}
}

func TestTheSampleEventsAreDecoded(t *testing.T) {
	for file, want := range map[string]Event{"scheduled.json": {}, "refresh.json": {Refresh: true}} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "events", "token", file))
		if err != nil {
			t.Fatal(err)
		}
		var got Event
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
	}
}

// newTLS returns the function, its client credentials, and a file of CAs in its package.
func newTLS(t *testing.T, authURL string, serviceCA []byte) (*Handler, *token.Memory) {
	t.Helper()
	credentials, env := &token.Memory{}, map[string]string(nil)
	if err := credentials.Save(t.Context(), `{"client_id":"c","client_secret":"s"}`); err != nil {
		t.Fatal(err)
	}
	if serviceCA != nil {
		env = functiontest.InPackage(t, settings.ServiceCAFile, serviceCA)
	}
	f := function(t, authURL, env)
	return New(&token.Memory{}, credentials, f.Conf, f.NewLog()), credentials
}

// The token endpoint can have a private CA. The client certificate is that of the secret at each call, in all forms of
// its text.
func TestTheTokenEndpointGetsTheClientCertificateOfTheCredentials(t *testing.T) {
	ca, clients := paymenttest.NewCA("Service CA"), paymenttest.NewCA("Client CA").NewIntermediate("Issuing CA", nil)
	var seen []string // the certificates that the endpoint got
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, c := range r.TLS.PeerCertificates {
			seen = append(seen, c.Subject.CommonName)
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"t-%d","token_type":"Bearer","expires_in":3600}`, len(seen))
	}))
	named := x509.NewCertPool() // not the client's: some servers name other CAs than they accept
	named.AddCert(ca.Certificate)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server()}, ClientAuth: tls.RequireAnyClientCert,
		ClientCAs: named}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	h, credentials := newTLS(t, server.URL, append(paymenttest.NewCA("Other CA").PEM(), ca.PEM()...))
	for _, file := range [][]byte{nil, paymenttest.NewCA("Other CA").PEM()} {
		untrusting, _ := newTLS(t, server.URL, file)
		if r, err := untrusting.refresher.Run(t.Context(), true); r.Outcome != token.Failed ||
			!strings.Contains(err.Error(), "its TLS certificate is from an unknown CA") {
			t.Errorf("without the CA: %+v, %v", r, err)
		}
	}
	texts := func(name string) (certificate, key string) {
		client := clients.Client(func(c *x509.Certificate) { c.Subject.CommonName = name })
		for _, der := range client.Certificate {
			certificate += string(paymenttest.EncodeCertificate(&x509.Certificate{Raw: der}))
		}
		return certificate, string(paymenttest.EncodePrivateKey(client.PrivateKey))
	}
	put := func(certificate, key string) {
		text, err := json.Marshal(map[string]string{"client_id": "c", "client_secret": "s", "certificate": certificate,
			"private_key": key})
		if err != nil {
			t.Fatal(err)
		}
		if err := credentials.Save(t.Context(), string(text)); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(string) string{
		"lines":   func(s string) string { return s },
		"spaces":  func(s string) string { return strings.ReplaceAll(s, "\n", " ") },
		"escaped": func(s string) string { return strings.ReplaceAll(s, "\n", `\n`) },
		"joined":  func(s string) string { return strings.ReplaceAll(s, "\n", "") },
		"comment": func(s string) string { return "Bag Attributes\r\n" + strings.ReplaceAll(s, "\n", "\r\n") },
	} {
		certificate, key := texts(name)
		put(change(certificate), change(key))
		seen = nil
		if r, err := h.refresher.Run(t.Context(), true); err != nil || fmt.Sprint(seen) != "["+name+" Issuing CA]" {
			t.Errorf("%s: %+v, %v, the server got %v", name, r, err, seen)
		}
	}
	certificate, key := texts("a")
	_, other := texts("b")
	secret := strings.Split(key, "\n")[1]
	for _, c := range [][2]string{{certificate, ""}, {"", key}, {certificate, other}, {key, certificate}, {secret, key},
		{certificate, secret}, {certificate, strings.Replace(key, "BEGIN ", "BEGIN "+secret+" ", 1)}} {
		put(c[0], c[1])
		seen = nil
		r, err := h.refresher.Run(t.Context(), true)
		if r.Outcome != token.Failed || !strings.Contains(err.Error(), "not a pair in PEM") ||
			strings.Contains(err.Error(), secret) || len(seen) > 0 {
			t.Errorf("%q: %+v, %v", c, r, err)
		}
	}
}
