package local

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

func send(t *testing.T, args ...string) (out, stderr string, status int) {
	t.Helper()
	return command(t, append([]string{"send"}, args...)...)
}

// standIn makes this folder one in which a local run is up. Its payment service is simulated, unless it is nil.
func standIn(t *testing.T, webhookURL string, service *paymenttest.Server) {
	t.Helper()
	emulator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><Outputs>`)
		for _, name := range []string{settings.WebhookURLOutput, settings.EventBusNameOutput,
			settings.LedgerTableOutput, settings.KeysTableOutput, settings.ClaimBucketOutput,
			settings.ParkingBucketOutput, settings.WebhookFunctionOutput, settings.RedriveFunctionOutput,
			settings.WebhookLogsOutput, settings.RedriveLogsOutput} {
			fmt.Fprintf(w, `<member><OutputKey>%s</OutputKey><OutputValue>%[1]s</OutputValue></member>`, name)
		}
		fmt.Fprint(w, `</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`)
	}))
	t.Cleanup(emulator.Close)
	d := deployment.Deployment{Stack: "Payhook", Endpoint: emulator.URL, Region: "us-east-1", WebhookURL: webhookURL,
		PaymentService: "http://127.0.0.1:2"}
	if service != nil {
		d.PaymentService, d.Simulated = service.URL, true
	}
	if err := d.Write(project(t)); err != nil {
		t.Fatal(err)
	}
}

// hook is a webhook URL that keeps what it gets. It answers 200 to what is authentic and 401 otherwise.
type hook struct {
	*httptest.Server
	payloads    []string
	certificate *x509.Certificate // of the last client
}

func newHook(t *testing.T, service *paymenttest.Server, withTLS *tls.Config) *hook {
	h := &hook{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, _ := io.ReadAll(r.Body)
		h.payloads = append(h.payloads, string(payload))
		if h.certificate = nil; r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			h.certificate = r.TLS.PeerCertificates[0]
		}
		headers := map[string]string{}
		for name := range r.Header {
			headers[name] = r.Header.Get(name)
		}
		proof, err := paymenttest.DefaultScheme().Extract(headers, r.URL.RawQuery)
		if err != nil || signature.Verify(&service.Key().Private.PublicKey, payload, proof) != nil ||
			signature.CheckTime(proof.Timestamp, time.Now(), time.Minute) != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	if h.TLS = withTLS; withTLS != nil {
		h.StartTLS()
	} else {
		h.Start()
	}
	t.Cleanup(h.Close)
	return h
}

// local makes this folder one in which a simulated service and a hook are up.
func local(t *testing.T) *hook {
	t.Helper()
	service := paymenttest.NewServer(paymenttest.Options{})
	t.Cleanup(service.Close)
	h := newHook(t, service, nil)
	standIn(t, h.URL, service)
	return h
}

func TestFlagsDescribeWhatIsSent(t *testing.T) {
	h := local(t)
	const text = " { \"not\": 'JSON' \n"
	if err := os.WriteFile("text", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"", "--local --events 2 --amount 100.00 --currency EUR",
		"--kind duplicate", "--kind conflict", "--file text"} {
		out, stderr, status := send(t, strings.Fields(args)...)
		if status != 0 || stderr != "" || !strings.HasPrefix(out, "200 in ") {
			t.Errorf("%s: %d, %s%s", args, status, out, stderr)
		}
	}
	p := h.payloads
	if len(p) != 5 || p[0] == p[1] || p[2] != p[1] || p[4] != text {
		t.Fatalf("sent %q", p)
	}
	var events []payment.Event
	for _, i := range []int{1, 3} {
		delivery, err := payment.DecodeDelivery([]byte(p[i]))
		if err != nil || len(delivery.Events) != 2-i/3 {
			t.Fatalf("%v: %s", err, p[i])
		}
		e, err := payment.DecodeEvent(delivery.Events[0].Bytes)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if a, b := events[0], events[1]; a.EventID != b.EventID || a.EventData.Amount != "100.00" ||
		b.EventData.Amount == "100.00" || a.EventData.PaymentCurrency != "EUR" {
		t.Errorf("sent %+v", events)
	}
}

func TestExitStatusTellsUnexpectedAnswers(t *testing.T) {
	h := local(t)
	for _, test := range []struct {
		args    string
		status  int
		message string
	}{
		{"", 0, ""},
		{"--age 10m", cli.StatusFailed, "the webhook was not answered with 2xx; --expect says what is expected"},
		{"--kind signature", cli.StatusFailed, "\n  payhook explain --local\n"},
		{"--kind signature --expect 401", 0, ""},
		{"--kind signature --expect 4xx", 0, ""},
		{"--expect 401", cli.StatusFailed, "not answered with 401"},
		{"--events 20001", cli.StatusFailed, "at most 20000 events"},
	} {
		out, stderr, status := send(t, append(strings.Fields(test.args), "--local")...)
		if status != test.status || !strings.Contains(stderr, test.message) {
			t.Errorf("%s: status %d, want %d\n%s%s", test.args, status, test.status, out, stderr)
		}
	}
	if out, _, _ := send(t, "--local", "--json", "--kind", "signature"); !regexp.MustCompile(
		`^{"answer":"","expected":false,"milliseconds":\d+,"status":401}\n$`).MatchString(out) {
		t.Error(out)
	}
	h.Close()
	if _, stderr, status := send(t); status != cli.StatusFailed || !strings.Contains(stderr, "refused") {
		t.Errorf("no answer: %d, %s", status, stderr)
	}
}

func TestAWrongCallSendsNothing(t *testing.T) {
	h := local(t)
	for _, args := range []string{"--events 0", "--amount ten", "--kind nothing", "--file missing", "stray",
		"--age soon", "--certificate unheard-of", "--certificate expired", "--region eu-west-1", "--profile p",
		"--expect 4x", "--expect 99"} {
		if out, stderr, status := send(t, strings.Fields(args)...); status != cli.StatusUsage || stderr == "" {
			t.Errorf("%s: status %d\n%s%s", args, status, out, stderr)
		}
	}
	if _, stderr, _ := send(t, "--certificate", "expired"); !strings.Contains(stderr,
		`make down && make up SETTINGS="authentication=both"`) {
		t.Errorf("no mTLS: %s", stderr)
	}
	standIn(t, h.URL, nil)
	if _, stderr, status := send(t); status != cli.StatusUsage || !strings.Contains(stderr, "only the simulated") {
		t.Errorf("the payment service of somebody else: %d, %s", status, stderr)
	}
	t.Chdir(t.TempDir())
	if _, stderr, status := send(t); status != cli.StatusUnreachable || !strings.Contains(stderr, "nothing is up") {
		t.Errorf("nothing is up: %d, %s", status, stderr)
	}
	if len(h.payloads) > 0 {
		t.Errorf("sent %q", h.payloads)
	}
}

func TestAWebhookHasTheRequestedClientCertificate(t *testing.T) {
	servers := paymenttest.NewCA("Server CA")
	identity := paymenttest.NewIdentity(servers.Certificate)
	service := paymenttest.NewServer(paymenttest.Options{Identity: identity})
	t.Cleanup(service.Close)
	h := newHook(t, service,
		&tls.Config{Certificates: []tls.Certificate{servers.Server()}, ClientAuth: tls.RequestClientCert})
	standIn(t, h.URL, service)
	for _, test := range []struct {
		args  []string
		right func(c *x509.Certificate) bool
	}{
		{nil, identity.Certificate().Leaf.Equal},
		{[]string{"--certificate", "none"}, func(c *x509.Certificate) bool { return c == nil }},
		{[]string{"--certificate", "expired"},
			func(c *x509.Certificate) bool { return c != nil && c.NotAfter.Before(time.Now()) }},
	} {
		if out, stderr, status := send(t, slices.Concat(test.args, []string{"--local"})...); status != 0 ||
			!test.right(h.certificate) {
			t.Errorf("%v: %d, %s%s", test.args, status, out, stderr)
		}
	}
}
