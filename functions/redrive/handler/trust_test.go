package handler

import (
	"context"
	"crypto/x509"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
	"payhook.example/shared/settings"
)

// daysLeft returns the metric of a run, or NaN.
func (d *deployment) daysLeft() float64 {
	d.t.Helper()
	d.handle(redrive.Request{})
	days, ok := d.line()[names.TrustDaysLeftMetric.Name].(float64)
	if !ok {
		return math.NaN()
	}
	return days
}

// If a certificate has expired, no webhook arrives: only the schedule reports it.
func TestEachRunWritesTheDaysThatTheTrustLasts(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		d := deploy(t, withCertificates(t, authentication, ca))
		client := ca.Client(nil).Leaf
		now := client.NotAfter.Add(-20 * 24 * time.Hour)
		d.now = func() time.Time { return now }
		if got := d.daysLeft(); math.Round(got) != math.Round(ca.Certificate.NotAfter.Sub(now).Hours()/24) {
			t.Errorf("%s: %v days before the first webhook", authentication, got)
		}
		if err := keys.NewCertificates(&d.keys).Record(t.Context(), client, now); err != nil {
			t.Fatal(err)
		}
		if got := d.daysLeft(); got != 20 {
			t.Errorf("%s: %v days, want 20", authentication, got)
		}
		now = client.NotAfter.Add(time.Hour)
		if got := d.daysLeft(); got != 0 {
			t.Errorf("%s: %v days after the end", authentication, got)
		}
	}
	if got := deploy(t, nil).daysLeft(); !math.IsNaN(got) {
		t.Errorf("%v days, although no certificate is required", got)
	}
}

func TestTheDaysOfTheCAsAreWrittenWhenTheTableDoesNotAnswer(t *testing.T) {
	conf := withCertificates(t, settings.ByMTLS, paymenttest.NewCA("Operator CA"))
	synctest.Test(t, func(t *testing.T) {
		d := deploy(t, conf)
		d.trust.accepted = hangingKeys{}
		// A run ends a second before the function does.
		for left, want := range map[time.Duration]time.Duration{time.Minute: time.Second,
			time.Second: time.Second / 2} {
			d.log.Reset()
			ctx, cancel := context.WithTimeout(t.Context(), left)
			start := time.Now()
			_, _ = d.write(ctx, intake.Redriven{}, nil)
			if line := d.line(); time.Since(start) != want || line[names.TrustDaysLeftMetric.Name] == nil ||
				line["certificateCause"] != context.DeadlineExceeded.Error() {
				t.Errorf("after %s: %s", time.Since(start), d.log.String())
			}
			cancel()
		}
		if _, err := d.Handle(t.Context(), redrive.Request{Certificates: true}); err == nil ||
			!strings.HasPrefix(err.Error(),
				"redrive: ") {
			t.Error("the report lacks the certificate without an error")
		}
	})
}

func TestCertificatesAreReported(t *testing.T) {
	root := paymenttest.NewCA("Root CA")
	ca := root.NewIntermediate("Issuing CA", nil)
	client := ca.Client(nil).Leaf
	d := deploy(t, withCertificates(t, settings.ByBoth, ca))
	d.now = time.Now
	if err := keys.NewCertificates(&d.keys).Record(t.Context(), client, time.Now()); err != nil {
		t.Fatal(err)
	}
	r, err := d.Handle(t.Context(), redrive.Request{Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Certificates
	if c.Authentication != "both" || math.Round(c.DaysLeft) != 365 || len(c.CAs) != 2 ||
		c.CAs[0].Subject != "CN=Issuing CA,O=Payment Service" ||
		c.CAs[1].Fingerprint != clientcert.Fingerprint(root.Certificate) ||
		c.CAs[0].Pin != clientcert.PinOf(ca.Certificate).String() ||
		!c.CAs[0].NotAfter.Equal(ca.Certificate.NotAfter) ||
		c.Last == nil || c.Last.Fingerprint != clientcert.Fingerprint(client) {
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

// hangingKeys is a table that does not answer.
type hangingKeys struct{}

func (hangingKeys) LastCertificate(ctx context.Context) (*keys.AcceptedCertificate, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
