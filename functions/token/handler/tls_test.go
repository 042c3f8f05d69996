package handler

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payhook.example/shared/awsenv"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// newTLS returns the function, its client credentials, and a file of CAs in its package.
func newTLS(t *testing.T, authURL string, serviceCA []byte) (*Handler, *token.Memory) {
	t.Helper()
	credentials, folder := &token.Memory{}, t.TempDir()
	if err := credentials.Save(t.Context(), `{"client_id":"c","client_secret":"s"}`); err != nil {
		t.Fatal(err)
	}
	if serviceCA != nil {
		if err := os.WriteFile(filepath.Join(folder, settings.ServiceCAFile), serviceCA, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := environment(t, authURL)
	env["LAMBDA_TASK_ROOT"] = folder
	return New(&token.Memory{}, credentials, parse(t, env), awsenv.NewLog(io.Discard, "")), credentials
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
			!strings.Contains(err.Error(), "its TLS certificate is not valid") {
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
