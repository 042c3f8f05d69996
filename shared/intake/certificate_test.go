package intake_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

// deliverWith receives a delivery with a client certificate, and with a signature
// unless the certificate is proof enough.
func (w *world) deliverWith(client tls.Certificate, payload []byte) intake.Result {
	w.t.Helper()
	d := intake.Delivery{Payload: payload}
	if w.mechanisms.Signature != nil {
		d = w.signed(payload)
	}
	d.Certificate = string(paymenttest.EncodeCertificate(client.Leaf))
	return w.receive(w.ctx(), d)
}

// certified returns a world in which webhooks need a client certificate, and a
// delivery that is parked with the certificate, as invalid; its event is valid.
func certified(t *testing.T, alone bool) (w *world, p proof.Proof) {
	t.Helper()
	w = newWorld(t)
	w.now = time.Now()
	ca := paymenttest.NewCA("Operator CA")
	issuing := ca.NewIntermediate("Issuing CA", nil)
	truststore := clientcert.Truststore{ca.Certificate, issuing.Certificate}
	w.mechanisms.MTLS = clientcert.NewVerifier(truststore, clientcert.Policy{})
	if alone {
		w.mechanisms.Signature = nil
	}
	w.truststore = truststore
	client := issuing.Client(func(c *x509.Certificate) { c.NotAfter = w.now.Add(time.Hour) })
	first, changed := twoContents()
	if r := w.deliverWith(client, paymenttest.RawDelivery(uuid.New().String(), first)); r.Outcome != intake.Accepted {
		t.Fatalf("%+v", r)
	}
	r := w.deliverWith(client, paymenttest.RawDelivery(uuid.New().String(), changed))
	if r.Outcome != intake.Conflict || r.ParkedAs.Name == "" {
		t.Fatalf("%+v", r)
	}
	// The certificate has expired since.
	w.now = w.now.Add(48 * time.Hour)
	return w, w.parked(r.ParkedAs.Name)
}

func TestADeliveryByMTLSIsReplayedAndSaysWhatIsNotVerified(t *testing.T) {
	for _, alone := range []bool{true, false} {
		// The CA was replaced since, or no certificates are required any more.
		for n, rotated := range []clientcert.Truststore{nil,
			clientcert.Truststore{paymenttest.NewCA("Next CA").Certificate}, nil} {
			w, p := certified(t, alone)
			if n > 0 {
				w.truststore = rotated
			}
			r := w.replay(p, wire.ParkedContent)
			if r.Outcome != intake.Accepted || r.Recorded != 1 ||
				strings.Contains(r.By.Unverified, "no signature") != alone ||
				strings.Contains(r.By.Unverified, "the truststore does not trust") != (n > 0) ||
				(r.By.Unverified == "") != (!alone && n == 0) {
				t.Errorf("%t, %d: %+v", alone, n, r)
			}
		}
	}
}

// The certificate has expired when the delivery is parked anew, and is verified as of the time of its acceptance, in
// milliseconds, ever after.
func TestAReplayThatParksADeliveryAnewKeepsTheTimeOfItsCertificate(t *testing.T) {
	for _, alone := range []bool{true, false} {
		w, p := certified(t, alone)
		accepted := p.Certificate.AcceptedAt
		if accepted != w.now.Add(-48*time.Hour).Truncate(time.Millisecond).UTC() {
			t.Errorf("accepted at %s", accepted)
		}
		p.Reason, p.Cause, p.Contents = proof.Invalid, "payment: payload: is not well-formed JSON in UTF-8", nil
		for _, name := range w.parking.Keys() { // it has been a conflict before
			w.parking.Delete(name)
		}
		r := w.replay(p, wire.NoContent)
		if r.Outcome != intake.Conflict || !r.ParkedAs.New() {
			t.Fatalf("%+v", r)
		}
		anew := w.parked(r.ParkedAs.Name)
		if anew.Certificate.AcceptedAt != accepted {
			t.Errorf("parked anew as accepted at %s, was %s", anew.Certificate.AcceptedAt, accepted)
		}
		if r := w.replay(anew, wire.ParkedContent); r.Outcome != intake.Accepted {
			t.Errorf("%+v", r)
		}
	}
}

// certificateOf returns a certificate of the chain of p.
func certificateOf(t *testing.T, p proof.Proof, n int) *x509.Certificate {
	t.Helper()
	c, err := clientcert.Parse(p.Certificate.Chain[n])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A replay publishes nothing that the webhook function rejects by now.
func TestNothingThatIsRevokedIsReplayed(t *testing.T) {
	key, revoked := &serviceKey().Private.PublicKey, intake.CertificateOutcome(clientcert.Revoked)
	for _, alone := range []bool{false, true} {
		w, p := certified(t, alone)
		client, issuing := certificateOf(t, p, 0), certificateOf(t, p, 1)
		names := map[string]intake.Outcome{clientcert.PinOf(client): revoked,
			clientcert.PinOf(issuing): revoked}
		if !alone {
			names[strings.ToUpper(serviceKey().ID)], names[keys.Thumbprint(key)] = intake.KeyRevoked, intake.KeyRevoked
		}
		before := len(w.table.Items())
		for _, trusted := range []clientcert.Truststore{w.truststore, nil} {
			w.truststore = trusted
			for name, want := range names {
				w.revoked = clientcert.Revocations{parsed(t, name)}
				if r := w.replay(p, wire.ParkedContent); r.Outcome != want || r.Err == nil ||
					len(w.table.Items()) != before {
					t.Errorf("%s is revoked: %+v, want %s", name, r, want)
				}
			}
		}
		w.revoked = clientcert.Revocations{parsed(t, clientcert.PinOf(paymenttest.NewCA("Other CA").Certificate))}
		if r := w.replay(p, wire.ParkedContent); r.Outcome != intake.Accepted {
			t.Errorf("another is revoked: %+v", r)
		}
	}
}

// The stored CAs must not help a certificate that the truststore finds revoked.
func TestARevokedCAOfTheTruststoreIsNotAvoided(t *testing.T) {
	w, p := certified(t, true)
	issuing := certificateOf(t, p, 1)
	other := paymenttest.NewCA("Other CA")
	der, err := x509.CreateCertificate(rand.Reader, issuing, other.Certificate, issuing.PublicKey, other.Key)
	if err != nil {
		t.Fatal(err)
	}
	cross, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	w.truststore = clientcert.Truststore{cross, other.Certificate}
	w.revoked = clientcert.Revocations{clientcert.PinOf(other.Certificate)}
	if r := w.replay(p, wire.ParkedContent); r.Outcome != intake.CertificateOutcome(clientcert.Revoked) {
		t.Errorf("%+v", r)
	}
}

func parsed(t *testing.T, name string) string {
	t.Helper()
	text, err := clientcert.ParseRevocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAForgedDeliveryByMTLSIsNotReplayed(t *testing.T) {
	stranger := paymenttest.NewCA("Operator CA").Client(nil).Leaf
	for name, c := range map[string]struct {
		both   bool // each of the two proofs is verified
		change func(p *proof.Proof)
		want   intake.Outcome
	}{
		"the payload is changed": {false, func(p *proof.Proof) {
			p.Payload = bytes.Replace(p.Payload, []byte("0.01"), []byte("9.99"), 1)
		}, intake.DigestMismatch},
		"a stranger's certificate": {false, func(p *proof.Proof) {
			p.Certificate = proof.NewCertificate(p.Payload, []*x509.Certificate{stranger}, p.Certificate.AcceptedAt)
		}, intake.CertificateOutcome(clientcert.Untrusted)},
		"it had expired": {false, func(p *proof.Proof) {
			client := []*x509.Certificate{certificateOf(t, *p, 0)}
			p.Certificate = proof.NewCertificate(p.Payload, client, p.StoredAt.Add(2*time.Hour))
		}, intake.CertificateOutcome(clientcert.Expired)},
		"no proof at all": {false, func(p *proof.Proof) { p.Certificate = nil }, intake.DigestMismatch},
		"another signature": {true, func(p *proof.Proof) {
			p.Signature = strings.Repeat("A", 8) + p.Signature[8:]
		}, intake.SignatureMismatch},
		"another digest": {true, func(p *proof.Proof) { p.Certificate.Digest[0] ^= 1 }, intake.DigestMismatch},
	} {
		w, p := certified(t, !c.both)
		c.change(&p)
		before := len(w.table.Items())
		r := w.replay(p, wire.ParkedContent)
		if r.Outcome != c.want || r.Err == nil || r.Recorded != 0 || len(w.table.Items()) != before {
			t.Errorf("%s: %+v, want %s", name, r, c.want)
		}
	}
}

// A client can complete the chain of its certificate. What is stored has that chain, so that it can be verified
// later with the truststore.
func TestADeliveryWithItsChainIsReplayed(t *testing.T) {
	w := newWorld(t)
	w.now, w.mechanisms.Signature = time.Now(), nil
	ca := paymenttest.NewCA("Operator CA")
	w.truststore = clientcert.Truststore{ca.Certificate}
	w.mechanisms.MTLS = clientcert.NewVerifier(w.truststore, clientcert.Policy{})
	issuing := ca.NewIntermediate("Issuing CA", nil)
	text := string(paymenttest.EncodeCertificate(issuing.Client(nil).Leaf)) + string(issuing.PEM())
	r := w.receive(w.ctx(), intake.Delivery{Payload: []byte(`{"events":[]}`), Certificate: text})
	if r.Outcome != intake.Invalid || r.ParkedAs.Name == "" {
		t.Fatalf("%+v", r)
	}
	p := w.parked(r.ParkedAs.Name)
	if got := w.replay(p, wire.NoContent); got.Outcome != intake.Invalid || len(p.Certificate.Chain) != 3 ||
		strings.Contains(got.By.Unverified, "the truststore does not trust") {
		t.Errorf("a chain of %d: %+v", len(p.Certificate.Chain), got)
	}
}
