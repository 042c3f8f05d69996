package handler

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const (
	apiDomain = "hook.bank.example"
	apiID     = "a1b2c3d4e5"
)

// withCertificates are the settings of a deployment that requires client
// certificates of a CA.
func withCertificates(t *testing.T, authentication string, ca *paymenttest.CA) map[string]string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, settings.TruststoreFile), ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"PAYHOOK_AUTHENTICATION": authentication, "PAYHOOK_DOMAIN_NAME": apiDomain, settings.APIIDEnv: apiID,
		"LAMBDA_TASK_ROOT": folder,
	}
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

func TestMTLSNeedsOnlyACertificate(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	e := newEndpoint(t, withCertificates(t, settings.ByMTLS, ca))
	client := ca.Client(nil)
	if r := e.handle(t, throughAPI(unsigned(paymenttest.Delivery(paymenttest.Event())), client)); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, e.log)
	}
	if n := len(e.service.Requests(paymenttest.Keys)); n != 0 {
		t.Errorf("the key endpoint was called %d times", n)
	}
	if diff := cmp.Diff(map[string]any{
		"subject": "CN=webhooks.payments.example,O=Payment Service", "issuer": "CN=Operator CA,O=Payment Service",
		"serialNumber": client.Leaf.SerialNumber.Text(16), "fingerprint": clientcert.Fingerprint(client.Leaf),
		"pin": clientcert.PinOf(client.Leaf),
	}, e.line(t)["certificate"]); diff != "" {
		t.Error(diff)
	}
}

// The client can present an intermediate that is not in the truststore.
func TestAnAcceptedWebhookWritesTheDaysThatItsChainLasts(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	expires := func(days int) func(c *x509.Certificate) {
		return func(c *x509.Certificate) { c.NotAfter = time.Now().AddDate(0, 0, days) }
	}
	issuing := ca.NewIntermediate("Issuing CA", expires(20))
	for name, c := range map[string]struct {
		client tls.Certificate
		added  []byte // after the certificate
		want   float64
	}{
		"the certificate": {ca.Client(expires(10)), nil, 10},
		"a CA":            {issuing.Client(expires(40)), paymenttest.EncodeCertificate(issuing.Certificate), 20},
	} {
		e := newEndpoint(t, withCertificates(t, settings.ByMTLS, ca))
		r := throughAPI(unsigned(paymenttest.Delivery(paymenttest.Event())), c.client)
		r.RequestContext.Authentication.ClientCert.ClientCertPem += string(c.added)
		answer := e.handle(t, r)
		days, _ := e.line(t)[settings.TrustDaysLeftMetric.Name].(float64)
		if answer.StatusCode != 200 || math.Round(days) != c.want {
			t.Errorf("%s: %d, %v days, want %v", name, answer.StatusCode, days, c.want)
		}
	}
}

// The certificate and the API of an event decide, and no header.
func TestUnacceptedCertificatesHaveTheSameAnswer(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(nil)
	expired := ca.Client(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	type request = events.APIGatewayV2HTTPRequest
	none := func(r *request) { r.RequestContext.Authentication = request{}.RequestContext.Authentication }
	cases := map[string]struct {
		reason clientcert.Reason
		change func(r *request)
	}{
		"expired": {clientcert.Expired, func(r *request) {
			r.RequestContext.Authentication.ClientCert = clientCert(expired.Certificate[0])
		}},
		"no certificate": {clientcert.Missing, none},
		"in a header": {clientcert.Missing, func(r *request) {
			r.Headers["x-amzn-mtls-clientcert"] = clientCert(client.Certificate[0]).ClientCertPem
			none(r)
		}},
		"from a function URL": {clientcert.WrongOrigin, func(r *request) {
			r.RequestContext.DomainName, r.RequestContext.APIID = "abcdefg.lambda-url.eu-central-1.on.aws", "abcdefg"
		}},
		"from Invoke": {clientcert.WrongOrigin, func(r *request) { r.RequestContext.DomainName = "" }},
		"from another domain": {
			clientcert.WrongOrigin,
			func(r *request) { r.RequestContext.DomainName = "other.example" },
		},
		"from another API": {clientcert.WrongOrigin, func(r *request) { r.RequestContext.APIID = "b2c3d4e5f6" }},
		"format 1.0":       {clientcert.WrongOrigin, func(r *request) { r.Version = "1.0" }},
		"no format":        {clientcert.WrongOrigin, func(r *request) { r.Version = "" }},
	}
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		e := newEndpoint(t, withCertificates(t, authentication, ca))
		// With both, each webhook is signed, so that only the certificate decides.
		signed := e.signed(t, paymenttest.Event())
		want := e.handle(t, signed) // without an API
		for name, c := range cases {
			t.Run(authentication+" "+name, func(t *testing.T) {
				e.log.Reset()
				r := throughAPI(signed, client)
				r.Headers = maps.Clone(r.Headers)
				c.change(&r)
				if diff := cmp.Diff(want, e.handle(t, r)); want.StatusCode != 401 || diff != "" {
					t.Errorf("%d differs from other rejections (-other +this)\n%s", want.StatusCode, diff)
				}
				line := e.line(t)
				if line["outcome"] != string(c.reason) || line["Unauthenticated"] != 1.0 ||
					line[settings.TrustDaysLeftMetric.Name] != nil ||
					strings.Contains(e.log.String(), "MII") {
					t.Errorf("logged as %v, want %s", line, c.reason)
				}
				parsed, err := clientcert.Parse(r.RequestContext.Authentication.ClientCert.ClientCertPem)
				if err == nil && c.reason != clientcert.WrongOrigin {
					logged, _ := line["certificate"].(map[string]any)
					if logged["fingerprint"] != clientcert.Fingerprint(parsed) {
						t.Errorf("the log does not name the certificate: %v", line)
					}
				}
			})
		}
		e.nothingHappened(t)
		// A host name has no case (RFC 9110, section 4.2.3).
		r := throughAPI(signed, client)
		r.RequestContext.DomainName = strings.ToUpper(apiDomain)
		if r := e.handle(t, r); r.StatusCode != 200 {
			t.Errorf("the webhook itself is answered %d: %s", r.StatusCode, e.log)
		}
	}
}
