package handler

import (
	"crypto/x509"
	"math"
	"strings"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
	"payhook.example/shared/settings"
)

// daysLeft returns the metric of a run, or NaN.
func (d *deployment) daysLeft() float64 {
	d.t.Helper()
	d.handle(redrive.Request{})
	days, ok := d.line()[settings.TrustDaysLeftMetric.Name].(float64)
	if !ok {
		return math.NaN()
	}
	return days
}

// If a CA has expired, no webhook arrives: only the schedule reports it.
func TestEachRunWritesTheDaysThatTheTrustLasts(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		d := deploy(t, withCertificates(t, authentication, ca))
		now := ca.Certificate.NotAfter.Add(-20 * 24 * time.Hour)
		d.now = func() time.Time { return now }
		if got := d.daysLeft(); got != 20 {
			t.Errorf("%s: %v days, want 20", authentication, got)
		}
		now = ca.Certificate.NotAfter.Add(time.Hour)
		if got := d.daysLeft(); got != 0 {
			t.Errorf("%s: %v days after the end", authentication, got)
		}
	}
	if got := deploy(t, nil).daysLeft(); !math.IsNaN(got) {
		t.Errorf("%v days, although no certificate is required", got)
	}
}

func TestCertificatesAreReported(t *testing.T) {
	root := paymenttest.NewCA("Root CA")
	ca := root.NewIntermediate("Issuing CA", nil)
	d := deploy(t, withCertificates(t, settings.ByBoth, ca))
	d.now = time.Now
	r, err := d.Handle(t.Context(), redrive.Request{Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Certificates
	if c.Authentication != "both" || c.DaysLeft < 365 || len(c.CAs) != 2 ||
		c.CAs[0].Subject != "CN=Issuing CA,O=Payment Service" ||
		c.CAs[1].Fingerprint != clientcert.Fingerprint(root.Certificate) ||
		c.CAs[0].Pin != clientcert.PinOf(ca.Certificate) ||
		!c.CAs[0].NotAfter.Equal(ca.Certificate.NotAfter) {
		t.Errorf("got %+v", c)
	}
	if r, err = deploy(t, nil).Handle(t.Context(), redrive.Request{Certificates: true}); err != nil ||
		r.Certificates == nil || r.Certificates.Authentication != "signature" {
		t.Errorf("with signatures: %+v, %v", r.Certificates, err)
	}
}

// A replay verifies the client certificate with the truststore of the deployment.
func TestAReplayUsesTheTruststore(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(nil).Leaf
	d := deploy(t, withCertificates(t, settings.ByMTLS, ca))
	id := uuid.New().String()
	payload := paymenttest.RawDelivery(id, newEvent())
	name := d.parkIt(proof.Proof{
		Reason: proof.Invalid, StoredAt: time.Now(), DeliveryID: id, Payload: payload,
		Certificate: proof.NewCertificate(payload, []*x509.Certificate{client, ca.Certificate}, time.Now()),
	})
	if r := d.replayed(redrive.Request{}, name); r.Outcome != "accepted" || r.Unverified == "" ||
		strings.Contains(r.Unverified, "truststore") {
		t.Errorf("%+v", r)
	}
}
