package webhookhandler

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const (
	apiDomain = "hook.bank.example"
	apiID     = "a1b2c3d4e5"
)

// withAPI is the environment of a function behind an API that requires client certificates of a CA.
func withAPI(t *testing.T, authentication string, ca *paymenttest.CA) map[string]string {
	t.Helper()
	env := functiontest.WithCertificates(t, authentication, ca)
	env["PAYHOOK_DOMAIN_NAME"], env[settings.APIIDEnv] = apiDomain, apiID
	return env
}

// throughAPI makes r an event of the API with a client certificate.
func throughAPI(r events.APIGatewayV2HTTPRequest, certificate tls.Certificate) events.APIGatewayV2HTTPRequest {
	r.RequestContext.DomainName, r.RequestContext.APIID = apiDomain, apiID
	r.RequestContext.Authentication.ClientCert = clientCert(certificate.Certificate[0])
	return r
}

func clientCert(der []byte) events.APIGatewayV2HTTPRequestContextAuthenticationClientCert {
	return events.APIGatewayV2HTTPRequestContextAuthenticationClientCert{
		ClientCertPem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// The client can present an intermediate that is not in the truststore.
func TestAWebhookByMTLSNeedsOnlyACertificateAndWritesTheDaysThatItsChainLasts(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	expires := func(days int) func(c *x509.Certificate) {
		return func(c *x509.Certificate) { c.NotAfter = time.Now().AddDate(0, 0, days) }
	}
	issuing := ca.NewIntermediate("Issuing CA", expires(20))
	for issuer, c := range map[string]struct {
		client tls.Certificate
		added  []byte // after the certificate
		days   float64
	}{
		"Operator CA": {ca.Client(expires(10)), nil, 10},
		"Issuing CA":  {issuing.Client(expires(40)), paymenttest.EncodeCertificate(issuing.Certificate), 20},
	} {
		e := newEndpoint(t, withAPI(t, settings.ByMTLS, ca))
		r := throughAPI(unsigned(paymenttest.Delivery(paymenttest.Event())), c.client)
		r.RequestContext.Authentication.ClientCert.ClientCertPem += string(c.added)
		answer, line := e.handle(t, r), e.Line()
		days, _ := line[settings.TrustDaysLeftMetric.Name].(float64)
		if answer.StatusCode != 200 || math.Round(days) != c.days || len(e.service.Requests(paymenttest.Keys)) > 0 {
			t.Errorf("%s: %d, %v days, want %v", issuer, answer.StatusCode, days, c.days)
		}
		if diff := cmp.Diff(map[string]any{"subject": "CN=webhooks.payments.example,O=Payment Service",
			"issuer":       "CN=" + issuer + ",O=Payment Service",
			"serialNumber": c.client.Leaf.SerialNumber.Text(16), "fingerprint": clientcert.Fingerprint(c.client.Leaf),
			"pin": clientcert.PinOf(c.client.Leaf),
		}, line["certificate"]); diff != "" {
			t.Error(diff)
		}
	}
}

// The certificate and the API of an event decide, and no header.
func TestUnacceptedCertificatesHaveTheSameAnswer(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(nil)
	expired := ca.Client(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	type request = events.APIGatewayV2HTTPRequest
	from := func(domain, api string) func(*request) {
		return func(r *request) { r.RequestContext.DomainName, r.RequestContext.APIID = domain, api }
	}
	cases := map[string]struct {
		reason clientcert.Reason
		change func(r *request)
	}{
		"expired": {clientcert.Expired, func(r *request) {
			r.RequestContext.Authentication.ClientCert = clientCert(expired.Certificate[0])
		}},
		"in a header": {clientcert.Missing, func(r *request) {
			r.RequestContext.Authentication = request{}.RequestContext.Authentication
		}},
		"from a function URL": {clientcert.WrongOrigin, from("abcdefg.lambda-url.eu-central-1.on.aws", "abcdefg")},
		"from Invoke":         {clientcert.WrongOrigin, from("", apiID)},
		"from another domain": {clientcert.WrongOrigin, from("other.example", apiID)},
		"from another API":    {clientcert.WrongOrigin, from(apiDomain, "b2c3d4e5f6")},
		"format 1.0":          {clientcert.WrongOrigin, func(r *request) { r.Version = "1.0" }},
		"no format":           {clientcert.WrongOrigin, func(r *request) { r.Version = "" }},
	}
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		e := newEndpoint(t, withAPI(t, authentication, ca))
		// With both, each webhook is signed, so that only the certificate decides.
		signed := e.signed(t, paymenttest.Event())
		signed.Headers["x-amzn-mtls-clientcert"] = clientCert(client.Certificate[0]).ClientCertPem
		want := e.handle(t, signed) // without an API
		for name, c := range cases {
			e.Log.Reset()
			r := throughAPI(signed, client)
			c.change(&r)
			if diff := cmp.Diff(want, e.handle(t, r)); want.StatusCode != 401 || diff != "" {
				t.Errorf("%s, %s: %d differs from other rejections (-other +this)\n%s", authentication, name,
					want.StatusCode, diff)
			}
			line := e.Line()
			logged, _ := line["certificate"].(map[string]any)
			if line["outcome"] != string(c.reason) || line["Unauthenticated"] != 1.0 ||
				line[settings.TrustDaysLeftMetric.Name] != nil || strings.Contains(e.Log.String(), "MII") ||
				c.reason == clientcert.Expired && logged["fingerprint"] != clientcert.Fingerprint(expired.Leaf) {
				t.Errorf("%s, %s: logged as %v, want %s", authentication, name, line, c.reason)
			}
		}
		e.NothingHappened()
		// A host name has no case (RFC 9110, section 4.2.3).
		r := throughAPI(signed, client)
		r.RequestContext.DomainName = strings.ToUpper(apiDomain)
		if r := e.handle(t, r); r.StatusCode != 200 {
			t.Errorf("the webhook itself is answered %d: %s", r.StatusCode, &e.Log)
		}
	}
}
