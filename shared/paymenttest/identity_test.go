package paymenttest_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"payhook.example/shared/paymenttest"
)

func TestSendPresentsTheRequestedCertificate(t *testing.T) {
	var presented []*x509.Certificate
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		presented = r.TLS.PeerCertificates
	}))
	servers := paymenttest.NewCA("Server CA")
	hook.TLS = &tls.Config{Certificates: []tls.Certificate{servers.Server()}, ClientAuth: tls.RequestClientCert}
	hook.StartTLS()
	defer hook.Close()
	identity := paymenttest.NewIdentity(servers.Certificate)
	service := paymenttest.NewServer(paymenttest.Options{Control: true, Identity: identity})
	defer service.Close()
	remote := paymenttest.Remote{URL: service.URL}
	send := func(flaw paymenttest.CertificateFlaw) {
		t.Helper()
		presented = nil
		w := paymenttest.Webhook{URL: hook.URL, Payload: []byte("{}"), Certificate: flaw}
		if answer, err := remote.Send(t.Context(), w); err != nil || answer.Status != http.StatusOK {
			t.Fatalf("answered %d, %v", answer.Status, err)
		}
	}

	send("")
	if len(presented) != 1 || !presented[0].Equal(identity.Certificate().Leaf) {
		t.Errorf("presented %v, want the current certificate", presented)
	}
	text, err := remote.RotateCertificate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(text))
	send("")
	if block == nil || len(presented) != 1 || string(presented[0].Raw) != string(block.Bytes) {
		t.Errorf("presented %v, want the next certificate", presented)
	}
	send(paymenttest.CertificateExpired)
	if len(presented) != 1 || presented[0].NotAfter.After(presented[0].NotBefore.AddDate(0, 0, 2)) {
		t.Errorf("presented %v, want an expired one", presented)
	}
	send(paymenttest.NoCertificate)
	if len(presented) != 0 {
		t.Errorf("presented %v, want none", presented)
	}
	if _, err := remote.Send(t.Context(), paymenttest.Webhook{URL: hook.URL, Certificate: "unheard-of"}); err == nil {
		t.Error("a flaw that does not exist was taken")
	}
}
