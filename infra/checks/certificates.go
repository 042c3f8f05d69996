package checks

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// Certificates are further client certificates of the payment service. In the zero value, the
// settings name none.
type Certificates struct {
	Next    tls.Certificate // the next one, which is pinned already
	Revoked tls.Certificate // its key is pinned and revoked
	// Unpinned is not pinned, and its key is not revoked.
	Unpinned tls.Certificate
}

// NewCertificates issues certificates by the CA of an identity. It also returns the settings that name them and the
// current one of the identity.
func NewCertificates(identity *paymenttest.Identity) (Certificates, map[string]string) {
	c := Certificates{Next: identity.Next(), Revoked: identity.Next(), Unpinned: identity.Next()}
	revoked := clientcert.PinOf(c.Revoked.Leaf).String()
	return c, map[string]string{"revokedKeys": revoked, "clientCertPins": strings.Join([]string{
		clientcert.PinOf(identity.Certificate().Leaf).String(), clientcert.PinOf(c.Next.Leaf).String(), revoked}, ";")}
}

// certificateFlaws are flaws of client certificates with the expected result. The endpoint answers 403, the
// function 401. The first two are shown with every mechanism.
var certificateFlaws = []struct {
	flaw           paymenttest.CertificateFlaw
	what, expected string
}{
	// AWS does not document whether the connection fails.
	{paymenttest.NoCertificate, "no client certificate", "no connection, or 403 by AWS"},
	{paymenttest.UnknownCA, "client certificate of an unknown CA", "403 by AWS"},
	{paymenttest.CertificateExpired, "client certificate expired", "403 by AWS"},
	{paymenttest.ForgedSignature, "client certificate with a forged signature", "403 by AWS"},
	{paymenttest.ServerUsage, "certificate for servers only", "401"},
}

// with returns a check that presents another client certificate.
func (s *Scenario) with(certificate tls.Certificate, c *Check) *Check {
	do := c.Do
	c.Do = func(ctx context.Context) string {
		own := s.Identity.Certificate()
		s.Identity.Use(certificate)
		defer s.Identity.Use(own)
		return do(ctx)
	}
	return c
}

// certificateChecks returns the checks of client certificates.
func (s *Scenario) certificateChecks() []*Check {
	event := func() paymenttest.Webhook { return deliver(paymenttest.Event()) }
	var checks []*Check
	flaws := certificateFlaws
	if s.Certificates.Revoked.Leaf != nil {
		checks = []*Check{
			s.with(s.Certificates.Next, s.accepted("one with the service's next client certificate", event())),
			s.with(s.Certificates.Revoked, s.webhook("client certificate with a revoked key", "401", "", event())),
			s.with(s.Certificates.Unpinned, s.webhook("client certificate not pinned", "401", "", event()))}
	}
	if UsesSignature(s.Settings) {
		unsigned, forged := event(), event()
		unsigned.Flaw, forged.Flaw = paymenttest.SignatureMissing, paymenttest.SignatureChanged
		checks = append(checks, s.webhook("valid certificate, invalid signature", "401", "", forged),
			s.webhook("valid certificate, no signature", "401", "", unsigned))
		flaws = flaws[:2]
	}
	for _, f := range flaws {
		w := event()
		w.Certificate = f.flaw
		checks = append(checks, s.webhook(f.what, f.expected, "", w))
	}
	// Other gateways pass on certificates in these headers.
	own := s.Identity.Certificate().Leaf
	text := strings.ReplaceAll(string(paymenttest.EncodeCertificate(own)), "\n", "%0A")
	imitated := event()
	imitated.Certificate, imitated.Header = paymenttest.UnknownCA, http.Header{
		"X-Amzn-Mtls-Clientcert":  {text},
		"X-Forwarded-Client-Cert": {fmt.Sprintf("Hash=%s;Cert=%q", clientcert.Fingerprint(own), text)},
	}
	return append(checks, s.webhook("the right certificate in headers, another in TLS", "403 by AWS", "", imitated))
}

// ShowMechanism does the checks of a stack that is there for its authentication only.
func (s *Scenario) ShowMechanism(ctx context.Context) ([]Section, error) {
	what, one := "one event", deliver(paymenttest.Event())
	if !UsesSignature(s.Settings) {
		what, one.Flaw = "one event, without a signature", paymenttest.SignatureMissing
	}
	// Keys may be fetched with a token.
	checks := slices.Concat([]*Check{s.FirstToken(), s.accepted(what, one)}, s.certificateChecks(),
		[]*Check{s.nothingElse()})
	if s.TokenParameter != "" {
		checks = append(checks, s.replacementCheck())
	}
	if s.EvidenceBucket != "" {
		checks = append(checks, s.evidenceChecks()[0])
	}
	sections := []Section{{s.Stack + ": client certificates", checks}}
	return sections, s.run(ctx, "sending with client certificates to "+s.Stack, sections)
}
