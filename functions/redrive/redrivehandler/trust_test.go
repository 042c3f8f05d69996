package redrivehandler

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/wire"
)

// If a CA has expired, no webhook arrives: only the schedule reports it.
func TestEachRunWritesTheDaysThatTheTrustLasts(t *testing.T) {
	root := paymenttest.NewCA("Root CA")
	ca := root.NewIntermediate("Issuing CA", nil)
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		d := deploy(t, functiontest.WithCertificates(t, authentication, ca))
		for days, at := range map[float64]time.Time{20: ca.Certificate.NotAfter.AddDate(0, 0, -20),
			0: ca.Certificate.NotAfter.Add(time.Hour)} {
			d.now = func() time.Time { return at }
			c := d.handle(wire.RedriveRequest{Certificates: true}).Certificates
			if c.Authentication != authentication || c.DaysLeft != days || len(c.CAs) != 2 ||
				c.CAs[0].Subject != "CN=Issuing CA,O=Payment Service" ||
				c.CAs[1].Fingerprint != clientcert.Fingerprint(root.Certificate) ||
				c.CAs[0].Pin != clientcert.PinOf(ca.Certificate) ||
				!c.CAs[0].NotAfter.Equal(ca.Certificate.NotAfter) {
				t.Errorf("reported %+v", c)
			}
			if d.handle(wire.RedriveRequest{}); d.Line()[settings.TrustDaysLeftMetric.Name] != days {
				t.Errorf("%v, want %v days", d.Line(), days)
			}
		}
	}
	d := deploy(t, nil)
	c := d.handle(wire.RedriveRequest{Certificates: true}).Certificates
	if d.handle(wire.RedriveRequest{}); c.Authentication != settings.BySignature ||
		d.Line()[settings.TrustDaysLeftMetric.Name] != nil {
		t.Errorf("no certificate is required: %+v, %v", c, d.Line())
	}
}

// A replay verifies with the truststore and the revoked keys of the settings. Package intake tests how.
func TestAReplayUsesTheTruststoreAndRevokedKeys(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(nil).Leaf
	for revoked, want := range map[string]string{"": "accepted", clientcert.PinOf(client): "certificate-revoked",
		functiontest.SigningKey().ID: "key-revoked"} {
		env := functiontest.WithCertificates(t, settings.ByBoth, ca)
		env["PAYHOOK_REVOKED_KEYS"] = revoked
		d := deploy(t, env)
		p := d.signed(proof.Invalid, newEvent())
		p.Certificate = proof.NewCertificate(p.Payload, []*x509.Certificate{client, ca.Certificate}, time.Now())
		if r := d.replayed(wire.RedriveRequest{}, d.parkIt(p)); r.Outcome != want ||
			(len(d.Bus.Entries()) == 1) != (want == "accepted") || strings.Contains(r.Unverified, "truststore") {
			t.Errorf("%q is revoked: %+v, want %s", revoked, r, want)
		}
	}
}
