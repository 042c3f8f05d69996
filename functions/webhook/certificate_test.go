package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const (
	apiDomain = "hook.bank.example"
	apiID     = "a1b2c3d4e5"
)

// withCertificates are the settings of a deployment that requires client
// certificates of these CAs.
func withCertificates(t *testing.T, authentication string, cas ...*x509.Certificate) map[string]string {
	t.Helper()
	var text bytes.Buffer
	for _, c := range cas {
		text.Write(paymenttest.EncodeCertificate(c))
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, names.TruststoreFile), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		settings.Authentication.Env(): authentication, settings.DomainName.Env(): apiDomain, names.APIIDEnv: apiID,
		"LAMBDA_TASK_ROOT": folder,
	}
}

// throughAPI makes r an event of the API with a client certificate.
func throughAPI(r events.APIGatewayV2HTTPRequest, certificate tls.Certificate) events.APIGatewayV2HTTPRequest {
	r.RequestContext.DomainName, r.RequestContext.APIID = apiDomain, apiID
	r.RequestContext.Authentication.ClientCert = clientCert(certificate.Certificate[0])
	return r
}

func clientCert(der []byte) (out events.APIGatewayV2HTTPRequestContextAuthenticationClientCert) {
	out.ClientCertPem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return out
	}
	date := func(at time.Time) string { return at.UTC().Format("Jan _2 15:04:05 2006") + " GMT" }
	out.SubjectDN, out.IssuerDN, out.SerialNumber = c.Subject.String(), c.Issuer.String(), c.SerialNumber.String()
	out.Validity.NotBefore, out.Validity.NotAfter = date(c.NotBefore), date(c.NotAfter)
	return out
}

// unsigned returns a webhook without any proof in its headers.
func unsigned(payload []byte) events.APIGatewayV2HTTPRequest {
	r := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: "/", Headers: map[string]string{},
		Body: string(payload)}
	r.RequestContext.HTTP.Method = http.MethodPost
	return r
}

func TestMTLSNeedsOnlyACertificate(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	issuing := ca.NewIntermediate("Issuing CA", nil)
	e := newEndpoint(t, withCertificates(t, settings.ByMTLS, issuing.Certificate, ca.Certificate))
	client := issuing.Client(nil)
	event := paymenttest.Event()
	for i, want := range []string{`"recorded":1`, `"duplicates":1`} { // only the ledger detects a replay
		r := e.handle(t, throughAPI(unsigned(paymenttest.Delivery(event)), client))
		if r.StatusCode != 200 || !strings.Contains(r.Body, want) {
			t.Fatalf("%d: %d %s %s", i, r.StatusCode, r.Body, e.log)
		}
	}
	if n := len(e.bus.Entries()); n != 1 {
		t.Errorf("%d events on the bus", n)
	}
	if n := len(e.service.Requests(paymenttest.Keys)); n != 0 {
		t.Errorf("the key endpoint was called %d times", n)
	}
	line := e.line(t)
	if line["authentication"] != "mtls" || line["CertificateRejected"] != nil || line["keyId"] != nil {
		t.Errorf("logged as %v", line)
	}
	if diff := cmp.Diff(map[string]any{
		"subject": "CN=webhooks.payments.example,O=Payment Service", "issuer": "CN=Issuing CA,O=Payment Service",
		"serialNumber": client.Leaf.SerialNumber.Text(16), "fingerprint": clientcert.Fingerprint(client.Leaf),
	}, line["certificate"]); diff != "" {
		t.Error(diff)
	}
	last, err := keys.LastCertificate(t.Context(), e.db, "keys")
	if err != nil || last == nil || last.Fingerprint != clientcert.Fingerprint(client.Leaf) ||
		!last.NotAfter.Equal(client.Leaf.NotAfter) {
		t.Errorf("the last accepted certificate is %+v, %v", last, err)
	}
	if n := e.db.Calls("PutItem"); n != 3 { // one event, its duplicate, one certificate
		t.Errorf("%d writes for two webhooks", n)
	}
}

func TestBothRequiresCertificateAndSignature(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	e := newEndpoint(t, withCertificates(t, settings.ByBoth, ca.Certificate))
	client := ca.Client(nil)
	signed := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})

	changed := throughAPI(signed, client)
	changed.Body += " "
	alone := throughAPI(unsigned([]byte(signed.Body)), client)
	without := throughAPI(signed, client)
	without.RequestContext.Authentication = events.APIGatewayV2HTTPRequestContextAuthentication{}
	var answers []events.LambdaFunctionURLResponse
	for outcome, r := range map[string]events.APIGatewayV2HTTPRequest{
		"signature-mismatch": changed, "signature-missing": alone, "certificate-missing": without,
		"certificate-wrong-origin": signed,
	} {
		r := e.handle(t, r)
		if got := e.line(t); r.StatusCode != 401 || got["outcome"] != outcome || got["authentication"] != "both" {
			t.Errorf("%d, %v, want %s", r.StatusCode, got, outcome)
		}
		answers = append(answers, r)
	}
	for _, a := range answers[1:] {
		if diff := cmp.Diff(answers[0], a); diff != "" {
			t.Errorf("rejections differ:\n%s", diff)
		}
	}
	e.nothingHappened(t)
	if last, err := keys.LastCertificate(t.Context(), e.db, "keys"); err != nil || last != nil {
		t.Errorf("a certificate of a rejected webhook counts as accepted: %+v, %v", last, err)
	}
	if r := e.handle(t, throughAPI(signed, client)); r.StatusCode != 200 {
		t.Errorf("%d %s", r.StatusCode, e.log)
	}
}

// nothingHappened fails the test if anything was recorded, published, stored or parked.
func (e *endpoint) nothingHappened(t *testing.T) {
	t.Helper()
	e.untouched(t)
	if n := len(e.buckets.Objects("claims")) + len(e.buckets.Objects("parking")); n != 0 {
		t.Errorf("%d objects were written", n)
	}
}

// flawReasons has the reason for which each flaw is rejected, if the truststore has the
// CA that the flaw needs.
var flawReasons = map[paymenttest.CertificateFlaw]clientcert.Reason{
	paymenttest.CertificateExpired:       clientcert.Expired,
	paymenttest.CertificateNotYetValid:   clientcert.NotYetValid,
	paymenttest.UnknownCA:                clientcert.Untrusted,
	paymenttest.SameSubjectOtherCA:       clientcert.Untrusted,
	paymenttest.SelfSignedAsCA:           clientcert.Untrusted,
	paymenttest.LeafAsCA:                 clientcert.Untrusted,
	paymenttest.ChainTooLong:             clientcert.Untrusted,
	paymenttest.NoBasicConstraints:       clientcert.Untrusted,
	paymenttest.PathTooLong:              clientcert.Untrusted,
	paymenttest.NameConstraints:          clientcert.Untrusted,
	paymenttest.ServerUsage:              clientcert.WrongUsage,
	paymenttest.SHA1:                     clientcert.Weak,
	paymenttest.MD5:                      clientcert.Weak,
	paymenttest.RSA1024:                  clientcert.Weak,
	paymenttest.RSAExponent3:             clientcert.Weak,
	paymenttest.RSAEvenModulus:           clientcert.Weak,
	paymenttest.P224:                     clientcert.Weak,
	paymenttest.Ed25519:                  clientcert.Weak,
	paymenttest.DuplicateExtension:       clientcert.Malformed,
	paymenttest.UnknownCriticalExtension: clientcert.Untrusted,
	paymenttest.NegativeSerial:           clientcert.Malformed,
	paymenttest.ZeroSerial:               clientcert.Malformed,
	paymenttest.LongSerial:               clientcert.Malformed,
	paymenttest.ForgedSignature:          clientcert.Untrusted,
}

// badProof is a webhook without a valid proof.
type badProof struct {
	name    string
	reason  clientcert.Reason
	change  func(r *events.APIGatewayV2HTTPRequest)
	above   []*x509.Certificate // further trusted CAs
	setting *settings.Setting   // one that rejects a valid certificate
	value   string
}

// badProofs returns every case for a CA and one of its client certificates.
func badProofs(t *testing.T, ca *paymenttest.CA, client tls.Certificate) (cases []badProof) {
	t.Helper()
	for _, flaw := range paymenttest.CertificateFlaws() {
		flawed, above, err := ca.Flawed(flaw)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, badProof{name: string(flaw), reason: flawReasons[flaw], above: above,
			change: func(r *events.APIGatewayV2HTTPRequest) {
				r.RequestContext.Authentication.ClientCert = clientCert(flawed.Certificate[0])
			}})
	}
	valid := clientCert(client.Certificate[0])
	add := func(name string, reason clientcert.Reason, change func(*events.APIGatewayV2HTTPRequest)) {
		cases = append(cases, badProof{name: name, reason: reason, change: change})
	}
	addPEM := func(name, text string) {
		add(name, clientcert.Malformed, func(r *events.APIGatewayV2HTTPRequest) {
			r.RequestContext.Authentication.ClientCert.ClientCertPem = text
		})
	}
	addPEM("two certificates", valid.ClientCertPem+valid.ClientCertPem)
	addPEM("two certificates, the first broken", "-----BEGIN CERTIFICATE-----\n!\n"+valid.ClientCertPem)
	addPEM("text before", "subject=CN = a\n"+valid.ClientCertPem)
	addPEM("text after", valid.ClientCertPem+"a")
	addPEM("another PEM type", strings.ReplaceAll(valid.ClientCertPem, "CERTIFICATE", "TRUSTED CERTIFICATE"))
	addPEM("percent-encoded", strings.ReplaceAll(valid.ClientCertPem, "\n", "%0A"))
	addPEM("a byte missing", strings.Replace(valid.ClientCertPem, "\nMII", "\nII", 1))

	type presentedCert = events.APIGatewayV2HTTPRequestContextAuthenticationClientCert
	addField := func(name string, change func(*presentedCert)) {
		add(name, clientcert.Contradicts,
			func(r *events.APIGatewayV2HTTPRequest) { change(&r.RequestContext.Authentication.ClientCert) })
	}
	addField("another subject beside it", func(c *presentedCert) { c.SubjectDN = "CN=admin,O=Payment Service" })
	addField("another issuer beside it", func(c *presentedCert) { c.IssuerDN = "CN=Other CA" })
	addField("another serial number beside it", func(c *presentedCert) { c.SerialNumber = "12" })
	addField("another end beside it", func(c *presentedCert) { c.Validity.NotAfter = "Aug  5 00:28:21 2120 GMT" })
	addField("another beginning beside it",
		func(c *presentedCert) { c.Validity.NotBefore = "Aug  5 00:28:21 2020 GMT" })

	none := func(r *events.APIGatewayV2HTTPRequest) {
		r.RequestContext.Authentication = events.APIGatewayV2HTTPRequestContextAuthentication{}
	}
	add("no certificate", clientcert.Missing, none)
	for _, header := range []string{"x-amzn-mtls-clientcert", "X-Amzn-Mtls-Clientcert-Leaf", "x-forwarded-client-cert",
		"x-client-cert", "ssl-client-cert"} {
		add("in the header "+header, clientcert.Missing, func(r *events.APIGatewayV2HTTPRequest) {
			none(r)
			r.Headers = maps.Clone(r.Headers)
			r.Headers[header] = valid.ClientCertPem
		})
	}
	add("from a function URL", clientcert.WrongOrigin, func(r *events.APIGatewayV2HTTPRequest) {
		r.RequestContext.DomainName, r.RequestContext.APIID = "abcdefg.lambda-url.eu-central-1.on.aws", "abcdefg"
	})
	add("from Invoke without a domain", clientcert.WrongOrigin, func(r *events.APIGatewayV2HTTPRequest) {
		r.RequestContext.DomainName, r.RequestContext.APIID = "", ""
	})
	add("from execute-api", clientcert.WrongOrigin, func(r *events.APIGatewayV2HTTPRequest) {
		r.RequestContext.DomainName = apiID + ".execute-api.eu-central-1.amazonaws.com"
	})
	add("from another domain of the API", clientcert.WrongOrigin, func(r *events.APIGatewayV2HTTPRequest) {
		r.RequestContext.DomainName = "other.bank.example"
	})
	add("from another API of the domain", clientcert.WrongOrigin,
		func(r *events.APIGatewayV2HTTPRequest) { r.RequestContext.APIID = "b2c3d4e5f6" })
	add("in payload format 1.0", clientcert.WrongOrigin, func(r *events.APIGatewayV2HTTPRequest) { r.Version = "1.0" })
	add("without a payload format", clientcert.WrongOrigin, func(r *events.APIGatewayV2HTTPRequest) { r.Version = "" })

	addSetting := func(name string, reason clientcert.Reason, s *settings.Setting, value string) {
		cases = append(cases, badProof{name: name, reason: reason, change: func(*events.APIGatewayV2HTTPRequest) {},
			setting: s, value: value})
	}
	subject := clientcert.Subject(client.Leaf)
	other := sha256.Sum256(nil)
	addSetting("pinned to another key", clientcert.NotPinned, settings.ClientCertPins, hex.EncodeToString(other[:]))
	addSetting("subject in other case", clientcert.NotPinned, settings.ClientCertSubjects, strings.ToUpper(subject))
	addSetting("a part of its subject", clientcert.NotPinned, settings.ClientCertSubjects,
		"CN=webhooks.payments.example")
	addSetting("a part of its DNS name", clientcert.NotPinned, settings.ClientCertSubjects, "payments.example")
	addSetting("revoked, as openssl writes it", clientcert.Revoked, settings.RevokedSerials,
		clientcert.SerialOf(client.Leaf).Number+"@O = Payment Service, CN = Operator CA")
	addSetting("its CA is revoked", clientcert.Revoked, settings.RevokedSerials,
		clientcert.SerialOf(ca.Certificate).Number+"@"+clientcert.Issuer(ca.Certificate))
	return cases
}

// With both, each webhook is signed, so that only the certificate decides.
func TestInvalidCertificatesAreRejectedForTheirReasons(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(nil)
	cases := badProofs(t, ca, client)
	if len(cases) < 30 {
		t.Fatalf("only %d cases", len(cases))
	}
	seen := map[clientcert.Reason]bool{}
	for authentication, challenge := range map[string]string{settings.ByMTLS: "ClientCertificate",
		settings.ByBoth: "Signature"} {
		plain := newEndpoint(t, withCertificates(t, authentication, ca.Certificate))
		signed := plain.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
		want := plain.handle(t, signed) // without an API
		if want.StatusCode != 401 || want.Headers["WWW-Authenticate"] != challenge ||
			!strings.Contains(want.Body, "The webhook is not authentic.") {
			t.Fatalf("%+v", want)
		}
		for _, c := range cases {
			t.Run(authentication+" "+c.name, func(t *testing.T) {
				seen[c.reason] = true
				e := plain
				if c.above != nil || c.setting != nil {
					change := withCertificates(t, authentication, append(c.above, ca.Certificate)...)
					if c.setting != nil {
						change[c.setting.Env()] = c.value
					}
					e = newEndpoint(t, change)
				}
				e.log.Reset()
				r := throughAPI(signed, client)
				c.change(&r)
				if diff := cmp.Diff(want, e.handle(t, r)); diff != "" {
					t.Errorf("differs from other rejections (-other +this)\n%s", diff)
				}
				line := e.line(t)
				if line["outcome"] != string(c.reason) || line["CertificateRejected"] != 1.0 ||
					line["Unauthenticated"] != 1.0 {
					t.Errorf("logged as %v, want %s", line, c.reason)
				}
				if strings.Contains(e.log.String(), "BEGIN") || strings.Contains(e.log.String(), "MII") {
					t.Errorf("the log holds the PEM: %s", e.log)
				}
				parsed, err := clientcert.Parse(r.RequestContext.Authentication.ClientCert.ClientCertPem)
				if err == nil && c.reason != clientcert.WrongOrigin {
					logged, _ := line["certificate"].(map[string]any)
					if logged["fingerprint"] != clientcert.Fingerprint(parsed) ||
						logged["subject"] != clientcert.Subject(parsed) {
						t.Errorf("the log does not name the certificate: %v", line)
					}
				}
				e.nothingHappened(t)
			})
		}
		if n := len(plain.service.Requests(paymenttest.Keys)); n != 0 {
			t.Errorf("the key endpoint was called %d times", n)
		}
		if r := plain.handle(t, throughAPI(signed, client)); r.StatusCode != 200 {
			t.Errorf("the webhook is not accepted without any of this: %d %s", r.StatusCode, plain.log)
		}
	}
	for _, reason := range clientcert.Reasons() {
		if !seen[reason] {
			t.Errorf("no case is rejected for %s", reason)
		}
	}
}

// Host names are compared without case (RFC 9110, section 4.2.3).
func TestTheDomainIsComparedWithoutCase(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	e := newEndpoint(t, withCertificates(t, settings.ByMTLS, ca.Certificate))
	r := throughAPI(unsigned(paymenttest.Delivery(paymenttest.Event())), ca.Client(nil))
	r.RequestContext.DomainName = "Hook.BANK.example"
	if r := e.handle(t, r); r.StatusCode != 200 {
		t.Errorf("%d %s", r.StatusCode, e.log)
	}
}

// How API Gateway writes names with such characters is not documented.
func TestACertificateWithAnUnusualNameIsAccepted(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: "Zahlungen, Köln", Organization: []string{`A "B" + C`},
			ExtraNames: []pkix.AttributeTypeAndValue{
				{Type: []int{1, 2, 840, 113549, 1, 9, 1}, Value: "a@b.example"},
			}}
	})
	for _, subject := range []string{
		client.Leaf.Subject.String(), `emailAddress=a@b.example,O=A \"B\" \+ C,CN=Zahlungen\, K\C3\B6ln`,
		`CN="Zahlungen, Köln", O="A ""B"" + C", 1.2.840.113549.1.9.1=#160b`,
	} {
		e := newEndpoint(t, withCertificates(t, settings.ByMTLS, ca.Certificate))
		r := throughAPI(unsigned(paymenttest.Delivery(paymenttest.Event())), client)
		r.RequestContext.Authentication.ClientCert.SubjectDN = subject
		if r := e.handle(t, r); r.StatusCode != 200 {
			t.Errorf("%s: %d %s", subject, r.StatusCode, e.log)
		}
	}
}

// Parking works as with a signature.
func TestADeliveryByMTLSIsParkedOnceWithItsCertificate(t *testing.T) {
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		ca := paymenttest.NewCA("Operator CA")
		e := newEndpoint(t, withCertificates(t, authentication, ca.Certificate))
		client := ca.Client(nil)
		event := paymenttest.Event()
		payload := bytes.Replace(paymenttest.Delivery(event), []byte(`"eventName"`), []byte(`"eventname"`), 1)
		signed := throughAPI(e.request(t, paymenttest.Webhook{Payload: payload}), client)
		for range 2 {
			if r := e.handle(t, signed); r.StatusCode != 422 {
				t.Fatalf("%d %s", r.StatusCode, e.log)
			}
		}
		if line := e.line(t); line["Parked"] != nil {
			t.Errorf("%s: the second one is parked again: %v", authentication, line)
		}
		p := e.parked(t)
		digest := sha256.Sum256(payload)
		c := p.Certificate
		if c == nil || !bytes.Equal(c.PayloadDigest, digest[:]) || len(c.Chain) != 2 ||
			c.Fingerprint != clientcert.Fingerprint(client.Leaf) || time.Since(c.AcceptedAt) > time.Hour {
			t.Fatalf("%s: parked with %+v", authentication, c)
		}
		if authentication == settings.ByBoth {
			proves(t, p, payload)
		} else if p.Signature != "" || p.KeyID != "" || p.Timestamp != "" || p.JWK != nil ||
			!bytes.Equal(p.Payload, payload) {
			t.Errorf("parked with %+v", p)
		}
		var name string
		if err := parking.NewStore(e.buckets, "parking").List(t.Context(), time.Time{}, time.Time{},
			func(n string) bool { name = n; return true }); err != nil {
			t.Fatal(err)
		}
		at, err := parking.TimeOf(name)
		if err != nil || time.Since(at) > 24*time.Hour || time.Since(at) < -24*time.Hour {
			t.Errorf("%s: %s has the time %s, %v", authentication, name, at, err)
		}
	}
}

// The event is an example of the documentation of API Gateway.
func TestTheDocumentedEventIsDecoded(t *testing.T) {
	const text = `{"version":"2.0","routeKey":"POST /","rawPath":"/","rawQueryString":"","headers":{"a":"b"},
		"requestContext":{"accountId":"123456789012","apiId":"api-id","authentication":{"clientCert":{
			"clientCertPem":"CERT_CONTENT","subjectDN":"www.example.com","issuerDN":"Example issuer",
			"serialNumber":"a1:a1:a1",
			"validity":{"notBefore":"May 28 12:30:02 2019 GMT","notAfter":"Aug  5 09:36:04 2021 GMT"}}},
		"domainName":"id.execute-api.us-east-1.amazonaws.com",
		"http":{"method":"POST","path":"/","protocol":"HTTP/1.1","sourceIp":"192.0.2.1"}},"body":"x"}`
	r, err := decodeRequest([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := clientcert.Presented{PEM: "CERT_CONTENT", SubjectDN: "www.example.com", IssuerDN: "Example issuer",
		SerialNumber: "a1:a1:a1",
		NotBefore:    "May 28 12:30:02 2019 GMT", NotAfter: "Aug  5 09:36:04 2021 GMT"}
	if got := r.certificate; got != want {
		t.Errorf("got %+v", got)
	}
	if err := (origin{"id.execute-api.us-east-1.amazonaws.com", "api-id"}).check(r); err != nil ||
		sourceIP(r).String() != "192.0.2.1" {
		t.Errorf("%v, %s", err, sourceIP(r))
	}
}

func init() {
	// A webhook is accepted, and rejected with a setting.
	certificate := func(s *settings.Setting, values func(client *x509.Certificate) map[string]int) func(*testing.T) {
		return func(t *testing.T) {
			ca := paymenttest.NewCA("Operator CA")
			client := ca.Client(nil)
			for value, want := range values(client.Leaf) {
				change := withCertificates(t, settings.ByMTLS, ca.Certificate)
				change[s.Env()] = value
				e := newEndpoint(t, change)
				if got := e.handle(t, throughAPI(unsigned(paymenttest.Delivery(paymenttest.Event())),
					client)).StatusCode; got != want {
					t.Errorf("%s=%s: answered %d, want %d", s.Key, value, got, want)
				}
			}
		}
	}
	effects[settings.DomainName] = certificate(settings.DomainName, func(*x509.Certificate) map[string]int {
		return map[string]int{apiDomain: 200, "other.bank.example": 401}
	})
	effects[settings.ClientCertPins] = certificate(settings.ClientCertPins, func(c *x509.Certificate) map[string]int {
		pin := clientcert.PinOf(c)
		other := strings.Repeat("ab", 32)
		return map[string]int{other: 401, other + ";" + fmt.Sprintf("%X", pin[:]): 200, "": 200}
	})
	effects[settings.ClientCertSubjects] = certificate(settings.ClientCertSubjects,
		func(c *x509.Certificate) map[string]int {
			return map[string]int{"CN=other": 401, "CN=other;" + clientcert.Subject(c): 200,
				"webhooks.payments.example": 200}
		})
	effects[settings.RevokedSerials] = certificate(settings.RevokedSerials, func(c *x509.Certificate) map[string]int {
		number := clientcert.SerialOf(c).Number
		return map[string]int{number + "@" + clientcert.Issuer(c): 401, number + "@CN=Other": 200}
	})
	effects[settings.Authentication] = func(t *testing.T) {
		ca := paymenttest.NewCA("Operator CA")
		for authentication, want := range map[string][3]int{ // signed; with a certificate; both
			settings.BySignature: {200, 401, 200}, settings.ByMTLS: {401, 200, 200}, settings.ByBoth: {401, 401, 200},
		} {
			e := newEndpoint(t, withCertificates(t, authentication, ca.Certificate))
			signed := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
			got := [3]int{
				e.handle(t, signed).StatusCode,
				e.handle(t, throughAPI(unsigned([]byte(signed.Body)), ca.Client(nil))).StatusCode,
				e.handle(t, throughAPI(signed, ca.Client(nil))).StatusCode,
			}
			if got != want {
				t.Errorf("%s: answered %v, want %v", authentication, got, want)
			}
			logged, ok := e.line(t)["authentication"]
			if ok != (authentication != settings.BySignature) || ok && logged != authentication {
				t.Errorf("%s is logged as %v", authentication, logged)
			}
		}
	}
}
