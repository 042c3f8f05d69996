package scenario

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/infra/local/emulator"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// Certificates are further client certificates of the payment service. In the zero value, the
// settings name none.
type Certificates struct {
	Next    tls.Certificate // the next one, which is pinned already
	Revoked tls.Certificate // its key is pinned and revoked
	// Unpinned is not pinned, and its key is not revoked.
	Unpinned tls.Certificate
}

// NewCertificates issues certificates by the CA of an identity.
func NewCertificates(identity *paymenttest.Identity) Certificates {
	return Certificates{Next: identity.Next(), Revoked: identity.Next(), Unpinned: identity.Next()}
}

// Settings are the settings that name the certificates and the current one of the identity.
func (c Certificates) Settings(identity *paymenttest.Identity) map[string]string {
	var pins []string
	for _, one := range []tls.Certificate{identity.Certificate(), c.Next, c.Revoked} {
		pins = append(pins, clientcert.PinOf(one.Leaf).String())
	}
	return map[string]string{
		settings.ClientCertPins.Key: strings.Join(pins, ";"),
		settings.RevokedKeys.Key:    clientcert.PinOf(c.Revoked.Leaf).String(),
	}
}

// certificateFlaws are flaws of client certificates with the expected status: the endpoint
// answers 403, the function 401. 0 is for a connection that fails; AWS does not document whether
// API Gateway answers 403 instead.
var certificateFlaws = []struct {
	flaw   paymenttest.CertificateFlaw
	what   string
	status int
}{
	{paymenttest.NoCertificate, "no client certificate", 0},
	{paymenttest.CertificateExpired, "client certificate expired", 403},
	{paymenttest.UnknownCA, "client certificate of an unknown CA", 403},
	{paymenttest.SameSubjectOtherCA, "client certificate of another CA with the CA's name", 403},
	{paymenttest.ForgedSignature, "client certificate with a forged signature", 403},
	{paymenttest.ServerUsage, "certificate for servers only", 401},
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

// certificateChecks returns the checks of the next client certificate and of flawed ones.
func (s *Scenario) certificateChecks() []*Check {
	event := func() paymenttest.Webhook { return deliver(paymenttest.Event()) }
	next := s.Certificates.Next
	if next.Leaf == nil {
		next = s.Identity.Next()
	}
	checks := []*Check{s.with(next, s.accepted("one with the service's next client certificate", event()))}
	if s.Certificates.Revoked.Leaf != nil {
		checks = append(checks, s.with(s.Certificates.Revoked, s.rejected("client certificate with a revoked key", event())),
			s.with(s.Certificates.Unpinned, s.rejected("client certificate not pinned", event())))
	}
	for _, f := range certificateFlaws {
		w := event()
		w.Certificate = f.flaw
		checks = append(checks, s.webhook(f.what, w,
			answer{status: f.status, byAWS: f.status == http.StatusForbidden, none: f.status == 0}, ""))
	}
	// Other gateways pass on certificates in these headers.
	own := s.Identity.Certificate().Leaf
	text := strings.ReplaceAll(string(paymenttest.EncodeCertificate(own)), "\n", "%0A")
	imitated := event()
	imitated.Certificate, imitated.Header = paymenttest.UnknownCA, http.Header{
		"X-Amzn-Mtls-Clientcert":  {text},
		"X-Forwarded-Client-Cert": {fmt.Sprintf("Hash=%s;Cert=%q", clientcert.Fingerprint(own), text)},
	}
	return append(checks, s.webhook("the right certificate in headers, another in TLS", imitated,
		answer{status: http.StatusForbidden, byAWS: true}, ""))
}

// ShowMechanism does the checks of a stack that is there for its authentication only.
func (s *Scenario) ShowMechanism(ctx context.Context) ([]Section, error) {
	webhooks, direct, evidence := s.mechanismChecks(), s.directChecks(), s.evidenceChecks()[:1]
	return []Section{{s.Stack + ": client certificates", webhooks},
			{s.Stack + ": the function invoked past the endpoint", direct},
			{s.Stack + ": evidence of what was accepted", evidence}},
		s.Progress.Step("sending with client certificates to "+s.Stack, func() error {
			in := Receive(s.AWS, s.Queues)
			defer in.Stop()
			return errors.Join(s.send(ctx, in, webhooks), s.Run(ctx, append(direct, evidence...)...))
		})
}

// mechanismChecks returns the checks of webhooks with client certificates.
func (s *Scenario) mechanismChecks() []*Check {
	one, unsigned, forged := deliver(paymenttest.Event()), deliver(paymenttest.Event()), deliver(paymenttest.Event())
	unsigned.Flaw, forged.Flaw = paymenttest.SignatureMissing, paymenttest.SignatureChanged
	checks := append([]*Check{s.accepted("one event", one),
		s.webhook("the same again", one, s.published(0, 1), "")}, s.certificateChecks()...)
	if UsesSignature(s.Settings) {
		checks = append(checks, s.rejected("valid certificate, invalid signature", forged),
			s.rejected("valid certificate, no signature", unsigned))
	} else {
		checks = append(checks, s.accepted("valid certificate, no signature", unsigned))
	}
	return checks
}

// directChecks returns checks that invoke the webhook function without the endpoint, which
// needs the permission to invoke it: with an authentic webhook and the service's certificate, in
// events that do not come from the domain of the API.
func (s *Scenario) directChecks() []*Check {
	var checks []*Check
	for _, c := range []struct {
		what   string
		change func(*events.APIGatewayV2HTTPRequestContext)
	}{
		{"the domain of a function URL", func(c *events.APIGatewayV2HTTPRequestContext) {
			c.DomainName = "abcdefghij.lambda-url." + emulator.Region + ".on.aws"
		}},
		{"the domain of execute-api", func(c *events.APIGatewayV2HTTPRequestContext) {
			c.DomainName = c.APIID + ".execute-api." + emulator.Region + ".amazonaws.com"
		}},
		{"the id of another API", func(c *events.APIGatewayV2HTTPRequestContext) { c.APIID = "another" }},
	} {
		checks = append(checks, NewCheck("invoked with "+c.what, "401", func(ctx context.Context) string {
			w := deliver(paymenttest.Event())
			w.URL = s.WebhookURL
			var event events.APIGatewayV2HTTPRequest
			text := Must(s.Event(Must(s.Service.Sender().Request(ctx, w)), w.Payload))
			Require(json.Unmarshal(text, &event))
			c.change(&event.RequestContext)
			var answer struct{ StatusCode int }
			Require(s.Invoke(ctx, "webhook", string(Must(json.Marshal(event))), &answer))
			return fmt.Sprint(answer.StatusCode)
		}))
	}
	return checks
}
