package scenario

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
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
	Revoked tls.Certificate
	// Unpinned is neither pinned nor revoked.
	Unpinned tls.Certificate
}

// NewCertificates issues certificates by the CA of an identity.
func NewCertificates(identity *paymenttest.Identity) Certificates {
	return Certificates{Next: identity.Next(), Revoked: identity.Next(), Unpinned: identity.Next()}
}

// Settings are the settings that name the certificates and the current one of the identity.
func (c Certificates) Settings(identity *paymenttest.Identity) map[string]string {
	return map[string]string{
		settings.ClientCertPins.Key: strings.Join([]string{Pin(identity.Certificate()), Pin(c.Next), Pin(c.Revoked)},
			";"),
		settings.RevokedSerials.Key: RevokedSerial(c.Revoked),
	}
}

// Pin returns the pin of a certificate's key for the setting clientCertPins.
func Pin(c tls.Certificate) string {
	pin := clientcert.PinOf(c.Leaf)
	return hex.EncodeToString(pin[:])
}

// RevokedSerial returns a certificate for the setting revokedSerials.
func RevokedSerial(c tls.Certificate) string {
	return clientcert.SerialOf(c.Leaf).Number + "@" + clientcert.Issuer(c.Leaf)
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
	c.Do = func(ctx context.Context) (string, bool, error) {
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
		checks = append(checks, s.with(s.Certificates.Revoked, s.rejected("client certificate revoked", event())),
			s.with(s.Certificates.Unpinned, s.rejected("client certificate not pinned", event())))
	}
	for _, f := range certificateFlaws {
		w := event()
		w.Certificate = f.flaw
		checks = append(checks, s.webhook(f.what, w,
			answer{status: f.status, byAWS: f.status == http.StatusForbidden, none: f.status == 0}, nil))
	}
	imitated := event()
	imitated.Certificate, imitated.Header = paymenttest.UnknownCA, Imitations(s.Identity.Certificate())
	return about(ofCertificates, append(checks, s.webhook("the right certificate in headers, another in TLS", imitated,
		answer{status: http.StatusForbidden, byAWS: true}, nil))...)
}

// Imitations are headers in which other gateways pass on certificates.
func Imitations(certificate tls.Certificate) map[string][]string {
	text := strings.ReplaceAll(string(paymenttest.EncodeCertificate(certificate.Leaf)), "\n", "%0A")
	return map[string][]string{
		"X-Amzn-Mtls-Clientcert":  {text},
		"X-Forwarded-Client-Cert": {fmt.Sprintf("Hash=%s;Cert=%q", clientcert.Fingerprint(certificate.Leaf), text)},
	}
}

// ShowMechanism does the checks of a stack that is there for its authentication only.
func (s *Scenario) ShowMechanism(ctx context.Context) (Section, error) {
	section := Section{Title: s.Stack, Webhooks: s.mechanismChecks(), Checks: s.directChecks()}
	return section, s.Progress.Step("sending with client certificates to "+s.Stack, func() error {
		in := Receive(s.AWS, s.Queues)
		defer in.Stop()
		if err := s.Send(ctx, in, section.Webhooks); err != nil {
			return err
		}
		return s.Run(ctx, section.Checks...)
	})
}

// mechanismChecks returns the checks of webhooks with client certificates.
func (s *Scenario) mechanismChecks() []*Check {
	one := deliver(paymenttest.Event())
	checks := append([]*Check{s.accepted("one event", one),
		s.webhook("the same again", one, s.published(0, 1), nil)}, s.certificateChecks()...)
	unsigned, forged := deliver(paymenttest.Event()), deliver(paymenttest.Event())
	unsigned.Flaw, forged.Flaw = paymenttest.SignatureMissing, paymenttest.SignatureChanged
	if UsesSignature(s.Settings) {
		return about(ofCertificates, append(checks, s.rejected("valid certificate, invalid signature", forged),
			s.rejected("valid certificate, no signature", unsigned))...)
	}
	return about(ofCertificates, append(checks, s.accepted("valid certificate, no signature", unsigned))...)
}

// directChecks returns checks that invoke the webhook function without the endpoint, which
// needs the permission to invoke it: with the service's certificate in events that do not come
// from the domain of the API.
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
		checks = append(checks, Exactly("invoked with "+c.what, "401", func(ctx context.Context) (string, error) {
			event, err := s.DirectEvent(ctx,
				func(e *events.APIGatewayV2HTTPRequest) { c.change(&e.RequestContext) })
			if err != nil {
				return "", err
			}
			var answer struct{ StatusCode int }
			err = s.Invoke(ctx, "webhook", string(event), &answer)
			return fmt.Sprint(answer.StatusCode), err
		}))
	}
	return about(ofDirect, checks...)
}

// DirectEvent returns the event that the endpoint makes of an authentic webhook, changed.
func (s *Scenario) DirectEvent(ctx context.Context, change func(*events.APIGatewayV2HTTPRequest)) ([]byte, error) {
	r, err := s.Service.Sender().Request(ctx,
		paymenttest.Webhook{URL: s.WebhookURL, Payload: paymenttest.Delivery(paymenttest.Event())})
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	text, err := s.Event(r, body)
	if err != nil {
		return nil, err
	}
	var event events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(text, &event); err != nil {
		return nil, err
	}
	change(&event)
	return json.Marshal(event)
}
