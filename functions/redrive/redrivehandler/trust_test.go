package redrivehandler

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// If a CA has expired, no webhook arrives: only the schedule reports it.
func TestEachRunWritesTheDaysThatTheTrustLasts(t *testing.T) {
	root := paymenttest.NewCA("Root CA")
	ca := root.NewIntermediate("Issuing CA", nil)
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		d := deploy(t, withCertificates(t, authentication, ca))
		for days, at := range map[float64]time.Time{20: ca.Certificate.NotAfter.AddDate(0, 0, -20),
			0: ca.Certificate.NotAfter.Add(time.Hour)} {
			d.now = func() time.Time { return at }
			c := d.handle(intake.Request{Certificates: true}).Certificates
			if c.Authentication != authentication || c.DaysLeft != days || len(c.CAs) != 2 ||
				c.CAs[0].Subject != "CN=Issuing CA,O=Payment Service" ||
				c.CAs[1].Fingerprint != clientcert.Fingerprint(root.Certificate) ||
				c.CAs[0].Pin != clientcert.PinOf(ca.Certificate) ||
				!c.CAs[0].NotAfter.Equal(ca.Certificate.NotAfter) {
				t.Errorf("reported %+v", c)
			}
			if d.handle(intake.Request{}); d.line()[settings.TrustDaysLeftMetric.Name] != days {
				t.Errorf("%v, want %v days", d.line(), days)
			}
		}
	}
	d := deploy(t, nil)
	c := d.handle(intake.Request{Certificates: true}).Certificates
	if d.handle(intake.Request{}); c.Authentication != settings.BySignature ||
		d.line()[settings.TrustDaysLeftMetric.Name] != nil {
		t.Errorf("no certificate is required: %+v, %v", c, d.line())
	}
}

// withParked sets the function up with client certificates of a CA and these keys in revokedKeys, and returns the name
// of an authentic delivery that is parked.
func withParked(t *testing.T, authentication string, ca *paymenttest.CA, client *x509.Certificate,
	revoked string) (d *deployment, name string) {
	t.Helper()
	env := withCertificates(t, authentication, ca)
	env["PAYHOOK_REVOKED_KEYS"] = revoked
	d = deploy(t, env)
	p := d.signed(proof.Invalid, newEvent())
	p.Certificate = proof.NewCertificate(p.Payload, []*x509.Certificate{client, ca.Certificate}, time.Now())
	if authentication == settings.ByMTLS {
		p.Timestamp, p.KeyID, p.JWK, p.Signature = "", "", nil, ""
	}
	return d, d.parkIt(p)
}

// A replay verifies the client certificate with the truststore of the deployment.
func TestAReplayUsesTheTruststore(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	d, name := withParked(t, settings.ByMTLS, ca, ca.Client(nil).Leaf, "")
	if r := d.replayed(intake.Request{}, name); r.Outcome != "accepted" || r.Unverified == "" ||
		strings.Contains(r.Unverified, "truststore") {
		t.Errorf("%+v", r)
	}
}

// With mtls and both, the replayer is another one.
func TestAReplayUsesRevokedKeys(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(nil).Leaf
	const rejected = "certificate-revoked"
	for authentication, names := range map[string]map[string]string{
		settings.ByMTLS: {clientcert.PinOf(client): rejected, clientcert.PinOf(ca.Certificate): rejected,
			signingKey().ID: "accepted"},
		settings.ByBoth: {clientcert.PinOf(client): rejected, clientcert.PinOf(ca.Certificate): rejected,
			signingKey().ID: "key-revoked"},
	} {
		for revoked, want := range names {
			d, name := withParked(t, authentication, ca, client, revoked)
			if r := d.replayed(intake.Request{}, name); r.Outcome != want ||
				(len(d.bus.Entries()) == 0) != (want != "accepted") {
				t.Errorf("%s, %s is revoked: %+v, want %s", authentication, revoked, r, want)
			}
		}
	}
}
