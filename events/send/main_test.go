package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"payhook.example/infra/local/up"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

// hook is a client's URL that keeps what it gets, and answers 200 if it is
// authentic and 401 otherwise.
type hook struct {
	*httptest.Server
	mu       sync.Mutex
	payloads []string
}

func newHook(t *testing.T, key func() paymenttest.Key) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		h.payloads = append(h.payloads, string(payload))
		h.mu.Unlock()
		headers := map[string]string{}
		for name := range r.Header {
			headers[name] = r.Header.Get(name)
		}
		proof, err := paymenttest.DefaultScheme().Extract(headers, r.URL.RawQuery)
		if err != nil || signature.Verify(&key().Private.PublicKey, payload, proof) != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// local makes this folder one in which a simulated service and a hook are up.
func local(t *testing.T) (*paymenttest.Server, *hook) {
	t.Helper()
	service := paymenttest.NewServer(paymenttest.Options{Control: true})
	t.Cleanup(service.Close)
	h := newHook(t, service.Key)
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, filepath.Dir(up.Path)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (up.File{WebhookURL: h.URL, PaymentService: service.URL, Simulated: true}).Write(folder); err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	return service, h
}

func TestWhatIsSentIsWhatWasAskedFor(t *testing.T) {
	_, h := local(t)
	var out bytes.Buffer
	args := strings.Fields("-count 3 -duplicates 1 -events 2 -amount 100.00 -currency EUR -flags returns,cases -name PAYMENT_STATUS.OTHER -pad 2")
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	if len(h.payloads) != 3 || h.payloads[2] != h.payloads[0] || h.payloads[1] == h.payloads[0] {
		t.Fatalf("%d deliveries were sent, want 3, of which the last is the first again", len(h.payloads))
	}
	if strings.Count(out.String(), ": 200 in ") != 3 {
		t.Errorf("it says\n%s", &out)
	}
	delivery, err := payment.DecodeDelivery([]byte(h.payloads[1]))
	if err != nil || len(delivery.Events) != 2 {
		t.Fatalf("%d events, want 2, %v", len(delivery.Events), err)
	}
	e, err := payment.DecodeEvent(delivery.Events[1].Bytes)
	if err != nil {
		t.Fatal(err)
	}
	d := e.EventData
	if e.EventName != "PAYMENT_STATUS.OTHER" || d.Amount != "100.00" || d.PaymentCurrency != "EUR" ||
		!d.Returns.HasReturnDetails || d.Cancelations.HasCancelationDetails || !d.Cases.HasLinkedCases || !strings.HasSuffix(h.payloads[1], "]}  ") {
		t.Errorf("sent %s", h.payloads[1])
	}
}

func TestAFileIsSentByteForByte(t *testing.T) {
	_, h := local(t)
	const text = " { \"not\": 'JSON' \n"
	if err := os.WriteFile("payload", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-file", "payload"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(h.payloads) != 1 || h.payloads[0] != text {
		t.Errorf("sent %q, want %q", h.payloads, text)
	}
}

func TestACorruptedWebhookIsNotAuthentic(t *testing.T) {
	_, _ = local(t)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-corrupt", "list"}, &out); err != nil {
		t.Fatal(err)
	}
	for flaw := range strings.FieldsSeq(out.String()) {
		var said bytes.Buffer
		if err := run(t.Context(), []string{"-corrupt", flaw}, &said); err != nil {
			t.Fatal(err)
		}
		// The hook looks at nothing but the first signature, and does not know what
		// a key id is.
		if strings.HasSuffix(flaw, "-repeated") {
			continue
		}
		if !strings.Contains(said.String(), ": 401 in ") {
			t.Errorf("%s: %s", flaw, &said)
		}
	}
}

func TestTheSimulatedServiceRotatesAndMisbehaves(t *testing.T) {
	service, _ := local(t)
	before := service.Key()
	if err := run(t.Context(), []string{"-rotate", "-fault", "keys=down"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if service.Key().ID == before.ID {
		t.Error("the key is the same")
	}
	resp, err := http.Get(service.URL + "/v1/keys/" + before.ID)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("key lookup answers %d, want 503", resp.StatusCode)
	}
}

func TestAKeyOfOnesOwnSigns(t *testing.T) {
	key := paymenttest.NewKey(2048)
	h := newHook(t, func() paymenttest.Key { return key })
	t.Chdir(t.TempDir()) // where nothing is up
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key.Private)})
	if err := os.WriteFile("key.pem", text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-key", "key.pem", "-key-id", key.ID, "-url", h.URL}, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "1: 200 in ") {
		t.Errorf("it says %s", &out)
	}
}

func TestWhatCantBeSentIsAnError(t *testing.T) {
	local(t)
	for _, args := range []string{
		"-count 0", "-count 2 -duplicates 2", "-events -1", "-amount ten", "-flags none", "-corrupt nothing", "-file missing",
		"-fault keys=nonsense", "-key missing.pem", "-key missing.pem -key-id not-a-uuid", "-url http://127.0.0.1:1", "stray",
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	t.Chdir(t.TempDir())
	if err := run(t.Context(), nil, io.Discard); err == nil {
		t.Error("nothing is up, and it was sent")
	}
}

// tlsHook makes the hook of a local run one that needs client certificates of the
// simulated service.
func tlsHook(t *testing.T) (presented func() []*x509.Certificate) {
	t.Helper()
	servers := paymenttest.NewCA("Server CA")
	identity := paymenttest.NewIdentity(servers.Certificate)
	service := paymenttest.NewServer(paymenttest.Options{Control: true, Identity: identity})
	t.Cleanup(service.Close)
	var last []*x509.Certificate
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { last = r.TLS.PeerCertificates }))
	hook.TLS = &tls.Config{Certificates: []tls.Certificate{servers.Server()}, ClientAuth: tls.RequestClientCert}
	hook.StartTLS()
	t.Cleanup(hook.Close)
	folder := t.TempDir()
	t.Chdir(folder)
	key, err := paymenttest.EncodePrivateKey(identity.Certificate().PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"ca.pem": servers.PEM(), "cert.pem": paymenttest.EncodeCertificate(identity.Certificate().Leaf), "key.pem": key} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Dir(up.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	file := up.File{WebhookURL: hook.URL, PaymentService: service.URL, Simulated: true, ServerCA: "ca.pem", ClientCert: "cert.pem", ClientKey: "key.pem"}
	if err := file.Write(folder); err != nil {
		t.Fatal(err)
	}
	return func() []*x509.Certificate { return last }
}

func TestAWebhookIsSentWithTheClientCertificateThatWasAskedFor(t *testing.T) {
	presented := tlsHook(t)
	send := func(args ...string) *x509.Certificate {
		t.Helper()
		if err := run(t.Context(), args, io.Discard); err != nil {
			t.Fatal(err)
		}
		if len(presented()) == 0 {
			return nil
		}
		return presented()[0]
	}
	first := send()
	if first == nil || !first.NotAfter.After(time.Now()) {
		t.Fatal("no valid certificate was presented")
	}
	if c := send("-certificate", "none"); c != nil {
		t.Error("a certificate was presented")
	}
	if c := send("-certificate", "expired"); c == nil || c.NotAfter.After(time.Now()) {
		t.Error("the certificate is not expired")
	}
	if c := send("-rotate-certificate"); c == nil || c.Equal(first) {
		t.Error("the certificate is not a new one")
	}
	if err := run(t.Context(), []string{"-certificate", "unheard-of"}, io.Discard); err == nil {
		t.Error("a flaw that does not exist was taken")
	}

	// With a key of one's own, the certificate is that of the file.
	key := paymenttest.NewKey(2048)
	text, err := x509.MarshalPKCS8PrivateKey(key.Private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("signing.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := send("-key", "signing.pem", "-key-id", key.ID); c == nil || !c.Equal(first) {
		t.Error("the certificate is not that of the file")
	}
}
