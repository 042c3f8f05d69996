package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// deployAuthentication deploys the stack with other settings of the endpoint, and
// returns it.
func (f *fixture) deployAuthentication(ctx context.Context, t *testing.T, conf map[string]string) *fixture {
	t.Helper()
	changed := f.with(conf)
	var err error
	if changed.opts.settings, err = changed.completeSettings(changed.opts.settings); err != nil {
		t.Fatal(err)
	}
	changed.synthesizeAndDeploy(ctx, t, "authentication")
	return &fixture{stack: changed, proxy: f.proxy, arrivals: f.arrivals}
}

// TestClientCertificates switches the stack from signatures to both, and back.
func TestClientCertificates(t *testing.T) {
	signed := deployed(t)
	first, second := signed.identity.Certificate(), signed.identity.Next()
	revoked := signed.identity.CA.Client(nil)
	back := sync.OnceFunc(func() {
		signed.identity.Use(first)
		again := signed.deployAuthentication(context.WithoutCancel(t.Context()), t, nil)
		// A function URL that is made again has another name.
		signed.WebhookURL = again.WebhookURL
	})
	t.Cleanup(back)
	conf := map[string]string{
		settings.Authentication.Key: settings.ByBoth, settings.ClientCertPins.Key: pinOf(first),
		settings.RevokedSerials.Key: clientcert.SerialOf(revoked.Leaf).Number + "@" + clientcert.Issuer(revoked.Leaf),
	}
	f := signed.deployAuthentication(t.Context(), t, conf)
	t.Cleanup(func() { f.endpoint.Close() })
	event := paymenttest.Event()
	f.send(t, paymenttest.Delivery(event)).want(t, http.StatusOK, 1, 0)

	t.Run("payhook invoke", func(t *testing.T) {
		output := f.program(t)(0, "invoke", "--local", "webhook", "--fresh",
			filepath.Join(f.opts.top, "events", "webhook", "one-event.json"))
		if !strings.HasPrefix(output, "200 OK") || !strings.Contains(output, `"recorded":1`) {
			t.Error(output)
		}
	})
	t.Run("invalid certificates", func(t *testing.T) { f.rejectsCertificates(t, revoked, second) })
	overlap := maps.Clone(conf)
	overlap[settings.ClientCertPins.Key] += ";" + pinOf(second)
	t.Run("rotation", func(t *testing.T) {
		f.rotates(t, second, func() { f.deployAuthentication(t.Context(), t, overlap) })
	})
	t.Run("switch on the same domain name", func(t *testing.T) {
		onDomain := &fixture{stack: signed.with(nil), proxy: f.proxy, arrivals: f.arrivals}
		onDomain.endpoint = f.endpoint
		onDomain.switches(t, f.WebhookURL, event, overlap)
	})
	back()
	signed.send(t, paymenttest.Delivery(event)).want(t, http.StatusOK, 0, 1)
	signed.arriveOnce(t, event)
}

// rotates sends webhooks while both pins are deployed and the service changes its
// certificate. None may be rejected.
func (f *fixture) rotates(t *testing.T, next tls.Certificate, deploy func()) {
	var sent []payment.Event
	send := func() {
		event := paymenttest.Event()
		got, err := f.service.Send(t.Context(),
			paymenttest.Webhook{URL: f.WebhookURL, Payload: paymenttest.Delivery(event)})
		if err != nil || got.Status != http.StatusOK {
			t.Errorf("answered %d %s, %v", got.Status, got.Body, err)
		}
		sent = append(sent, event)
	}
	deployed := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for !t.Failed() {
			select {
			case <-deployed:
				return
			default:
				send()
			}
		}
	})
	deploy()
	close(deployed)
	sender.Wait()
	before := len(sent)
	f.identity.Use(next)
	for range 10 {
		send()
	}
	t.Logf("%d webhooks before the change of the certificate, %d after it", before, len(sent)-before)
	f.arriveOnce(t, sent...)
}

// switches deploys signature on the domain name on which both is deployed, and both
// again.
func (f *fixture) switches(t *testing.T, url string, known payment.Event, both map[string]string) {
	for _, step := range []struct {
		settings  map[string]string
		mustServe bool // a webhook without a client certificate
	}{
		{map[string]string{settings.DomainName.Key: localDomain}, true},
		{both, false},
	} {
		now := f.deployAuthentication(t.Context(), t, step.settings)
		if now.WebhookURL != url {
			t.Fatalf("the URL is %s, was %s", now.WebhookURL, url)
		}
		event := paymenttest.Event()
		got, err := now.service.Send(t.Context(), paymenttest.Webhook{
			URL: url, Payload: paymenttest.Delivery(event), Certificate: paymenttest.NoCertificate,
		})
		if served := err == nil && got.Status == http.StatusOK; served != step.mustServe {
			t.Errorf("authentication=%s: without a client certificate, answered %d, %v",
				now.setting(settings.Authentication), got.Status, err)
		}
		recorded := 1
		if step.mustServe {
			recorded = 0
		}
		now.send(t, paymenttest.Delivery(event)).want(t, http.StatusOK, recorded, 1-recorded)
		now.send(t, paymenttest.Delivery(known)).want(t, http.StatusOK, 0, 1)
		now.arriveOnce(t, event)
	}
}

// certificateCase is a webhook that must be rejected.
type certificateCase struct {
	name   string
	change func(*events.APIGatewayV2HTTPRequest) // of the event, for the function
	reason clientcert.Reason
}

// byTheFunction are the defects that API Gateway does not check.
var byTheFunction = map[paymenttest.CertificateFlaw]clientcert.Reason{
	paymenttest.ServerUsage:  clientcert.WrongUsage,
	paymenttest.RSAExponent3: clientcert.Weak,
	paymenttest.ZeroSerial:   clientcert.Malformed,
	paymenttest.LongSerial:   clientcert.Malformed,
}

// reasons are the causes with which the function rejects the certificates that the
// endpoint rejects as well.
var reasons = map[paymenttest.CertificateFlaw]clientcert.Reason{
	paymenttest.CertificateExpired: clientcert.Expired, paymenttest.CertificateNotYetValid: clientcert.NotYetValid,
	paymenttest.SHA1: clientcert.Weak, paymenttest.MD5: clientcert.Weak, paymenttest.RSA1024: clientcert.Weak,
	paymenttest.RSAEvenModulus: clientcert.Weak, paymenttest.P224: clientcert.Weak,
	paymenttest.Ed25519:            clientcert.Weak,
	paymenttest.DuplicateExtension: clientcert.Malformed, paymenttest.NegativeSerial: clientcert.Malformed,
}

func (f *fixture) rejectsCertificates(t *testing.T, revoked, unpinned tls.Certificate) {
	parked := f.parkedObjects(t)
	f.proxy.forget()

	// Through the endpoint.
	for _, flaw := range append(paymenttest.CertificateFlaws(), paymenttest.NoCertificate) {
		want := []int{0, http.StatusForbidden} // 0: the connection fails
		if byTheFunction[flaw] != "" {
			want = []int{http.StatusUnauthorized}
		}
		got, _ := f.service.Send(t.Context(), paymenttest.Webhook{
			URL: f.WebhookURL, Payload: paymenttest.Delivery(paymenttest.Event()), Certificate: flaw,
			Header: imitations(f.identity.Certificate()),
		})
		if !slices.Contains(want, got.Status) {
			t.Errorf("%s: answered %d %s, want one of %d", flaw, got.Status, got.Body, want)
		}
	}
	current := f.identity.Certificate()
	for name, certificate := range map[string]tls.Certificate{"revoked": revoked, "not pinned": unpinned} {
		f.identity.Use(certificate)
		if a := f.send(t, paymenttest.Delivery(paymenttest.Event())); a.status != http.StatusUnauthorized {
			t.Errorf("%s: answered %d", name, a.status)
		}
	}
	f.identity.Use(current)
	for _, flaw := range []paymenttest.Flaw{paymenttest.SignatureChanged, paymenttest.SignatureMissing} {
		got, err := f.service.Send(t.Context(),
			paymenttest.Webhook{URL: f.WebhookURL, Payload: paymenttest.Delivery(paymenttest.Event()), Flaw: flaw})
		if err != nil || got.Status != http.StatusUnauthorized {
			t.Errorf("a valid certificate and %s: answered %d, %v", flaw, got.Status, err)
		}
	}

	// Without the endpoint, with an event that only a principal with the permission to
	// invoke the function can send.
	if status, outcome := f.invokeWith(t, func(*events.APIGatewayV2HTTPRequest) {}); status != http.StatusOK {
		t.Fatalf("the event of a valid webhook is answered %d, %s", status, outcome)
	}
	f.proxy.forget()
	for _, c := range f.certificateCases(t, revoked, unpinned) {
		t.Run(c.name, func(t *testing.T) {
			var status int
			var outcome string
			// A function's last line may reach the emulator after its answer, and is then
			// in the log of the next invocation.
			for range 5 {
				if status, outcome = f.invokeWith(t, c.change); status != http.StatusUnauthorized ||
					outcome == string(c.reason) {
					break
				}
			}
			if status != http.StatusUnauthorized || outcome != string(c.reason) {
				t.Errorf("answered %d, and the log says %q, want 401 and %q", status, outcome, c.reason)
			}
		})
	}
	for _, c := range f.proxy.to("") {
		if c.is("PutEvents") || c.on(f.LedgerTable) &&
			(c.is("PutItem") || c.is("UpdateItem") || c.is("BatchExecuteStatement")) {
			t.Errorf("a rejected webhook led to %s", c.target)
		}
	}
	if now := f.parkedObjects(t); now != parked {
		t.Errorf("%d objects are parked, want %d as before", now, parked)
	}
}

func (f *fixture) certificateCases(t *testing.T, revoked, unpinned tls.Certificate) []certificateCase {
	type clientCert = events.APIGatewayV2HTTPRequestContextAuthenticationClientCert
	certificate := func(e *events.APIGatewayV2HTTPRequest) *clientCert {
		return &e.RequestContext.Authentication.ClientCert
	}
	only := func(text string) func(*events.APIGatewayV2HTTPRequest) {
		return func(e *events.APIGatewayV2HTTPRequest) {
			*certificate(e) = events.APIGatewayV2HTTPRequestContextAuthenticationClientCert{ClientCertPem: text}
		}
	}
	pemOf := func(c tls.Certificate) string {
		return string(paymenttest.EncodeCertificate(&x509.Certificate{Raw: c.Certificate[0]}))
	}
	var cases []certificateCase
	for _, flaw := range paymenttest.CertificateFlaws() {
		c, err := f.identity.Flawed(flaw)
		if err != nil {
			t.Fatal(err)
		}
		reason := byTheFunction[flaw]
		if reason == "" {
			reason = reasons[flaw]
		}
		if reason == "" {
			reason = clientcert.Untrusted
		}
		cases = append(cases, certificateCase{string(flaw), only(pemOf(c)), reason})
	}
	good := pemOf(f.identity.Certificate())
	otherName := strings.NewReplacer("Payment Service", "payment service")
	return append(cases,
		certificateCase{"no certificate", only(""), clientcert.Missing},
		certificateCase{"headers that imitate it", func(e *events.APIGatewayV2HTTPRequest) {
			only("")(e)
			for name, values := range imitations(f.identity.Certificate()) {
				e.Headers[strings.ToLower(name)] = values[0]
			}
		}, clientcert.Missing},
		certificateCase{"revoked", only(pemOf(revoked)), clientcert.Revoked},
		certificateCase{"another key than the pinned one", only(pemOf(unpinned)), clientcert.NotPinned},
		certificateCase{"two certificates", only(good + good), clientcert.Malformed},
		certificateCase{"text before it", only("Bag Attributes\n" + good), clientcert.Malformed},
		certificateCase{"text after it", only(good + "text"), clientcert.Malformed},
		certificateCase{"another serial number",
			func(e *events.APIGatewayV2HTTPRequest) { certificate(e).SerialNumber = "a1:a1" }, clientcert.Contradicts},
		certificateCase{"another subject",
			func(e *events.APIGatewayV2HTTPRequest) { certificate(e).SubjectDN = "CN=somebody.example" },
			clientcert.Contradicts},
		certificateCase{"a subject in lower case", func(e *events.APIGatewayV2HTTPRequest) {
			certificate(e).SubjectDN = otherName.Replace(certificate(e).SubjectDN)
		}, clientcert.Contradicts},
		certificateCase{"another issuer",
			func(e *events.APIGatewayV2HTTPRequest) { certificate(e).IssuerDN = "CN=Another CA" },
			clientcert.Contradicts},
		certificateCase{"another validity", func(e *events.APIGatewayV2HTTPRequest) {
			certificate(e).Validity.NotAfter = "Aug  5 00:28:21 2120 GMT"
		}, clientcert.Contradicts},
		certificateCase{"an event of a function URL", func(e *events.APIGatewayV2HTTPRequest) {
			e.RequestContext.DomainName, e.RequestContext.APIID = "abcdefghij.lambda-url.us-east-1.on.aws", "abcdefghij"
		}, clientcert.WrongOrigin},
		certificateCase{"an event without the API's domain",
			func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.DomainName = "" }, clientcert.WrongOrigin},
		certificateCase{"an event of execute-api", func(e *events.APIGatewayV2HTTPRequest) {
			e.RequestContext.DomainName = e.RequestContext.APIID + ".execute-api.us-east-1.amazonaws.com"
		}, clientcert.WrongOrigin},
		certificateCase{"an event of another domain of the API",
			func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.DomainName = "other.payhook.test" },
			clientcert.WrongOrigin},
		certificateCase{"an event of another API",
			func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.APIID = "another" }, clientcert.WrongOrigin},
		certificateCase{"an event in payload format 1.0", func(e *events.APIGatewayV2HTTPRequest) { e.Version = "1.0" },
			clientcert.WrongOrigin},
	)
}

// invokeWith invokes the webhook function without the endpoint, with the event of an
// authentic webhook that is changed, and returns the status of its answer and the
// outcome in its log.
func (f *fixture) invokeWith(t *testing.T, change func(*events.APIGatewayV2HTTPRequest)) (status int, outcome string) {
	t.Helper()
	text, err := f.directEvent(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	name := f.Functions["webhook"]
	out, err := lambda.NewFromConfig(f.AWS).Invoke(t.Context(),
		&lambda.InvokeInput{FunctionName: &name, Payload: text, LogType: lambdatypes.LogTypeTail})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ StatusCode int }
	if err := json.Unmarshal(out.Payload, &answer); err != nil {
		t.Fatal(err)
	}
	if out.LogResult != nil {
		log, err := base64.StdEncoding.DecodeString(*out.LogResult)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			var entry struct{ Msg, Outcome string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Outcome != "" {
				outcome = entry.Outcome
			}
		}
		if strings.Contains(string(log), "BEGIN CERTIFICATE") {
			t.Error("the log holds a certificate in PEM")
		}
	}
	return answer.StatusCode, outcome
}

func (f *fixture) parkedObjects(t *testing.T) int {
	t.Helper()
	client := s3.NewFromConfig(f.AWS, func(o *s3.Options) { o.UsePathStyle = true })
	out, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &f.ParkingBucket})
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Contents)
}
