package send

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// hook is a client's URL that keeps what it gets, and answers 200 if it is
// authentic and 401 otherwise.
type hook struct {
	*httptest.Server
	mu       sync.Mutex
	payloads []string
}

func newHook(t *testing.T, key func() paymenttest.Key) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		h.payloads = append(h.payloads, string(payload))
		h.mu.Unlock()
		headers := map[string]string{}
		for name := range r.Header {
			headers[name] = r.Header.Get(name)
		}
		proof, err := paymenttest.DefaultScheme().Extract(headers, r.URL.RawQuery)
		if err != nil || signature.Verify(&key().Private.PublicKey, payload, proof) != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// run calls the command as the program does, and returns what it wrote and its exit
// status.
func run(t *testing.T, args ...string) (out, stderr string, status int) {
	t.Helper()
	return runWith(t, &cli.Program{In: strings.NewReader("")}, args...)
}

func runWith(t *testing.T, p *cli.Program, args ...string) (out, stderr string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	p.Out, p.Now = &o, time.Now
	if p.Err == nil {
		p.Err = &e
	}
	root, meant := p.Root(""), deployment.Target{}
	cli.TargetFlags(root, &meant)
	root.AddCommand(Command(p, &meant), FaultCommand(p))
	if len(args) == 0 || args[0] != "fault" {
		args = append([]string{"send"}, args...)
	}
	status = p.Run(t.Context(), root, args)
	return o.String(), e.String(), status
}

// works is run that fails the test unless the exit status is 0.
func works(t *testing.T, args ...string) (out string) {
	t.Helper()
	out, stderr, status := run(t, args...)
	if status != 0 {
		t.Fatalf("send %s: exit status %d\n%s%s", strings.Join(args, " "), status, out, stderr)
	}
	return out
}

// local makes this folder one in which a simulated service and a hook are up.
func local(t *testing.T) (*paymenttest.Server, *hook) {
	t.Helper()
	service := paymenttest.NewServer(paymenttest.Options{})
	t.Cleanup(service.Close)
	h := newHook(t, service.Key)
	t.Chdir(t.TempDir())
	isUp(t, deployment.Deployment{WebhookURL: h.URL, PaymentService: service.URL, Simulated: true})
	return service, h
}

// describeStack answers DescribeStacks with the outputs of a stack.
func describeStack(w http.ResponseWriter) {
	var outputs strings.Builder
	for _, name := range []string{settings.WebhookURLOutput, settings.EventBusNameOutput, settings.LedgerTableOutput,
		settings.KeysTableOutput, settings.ClaimBucketOutput, settings.ParkingBucketOutput,
		settings.WebhookFunctionOutput,
		settings.RedriveFunctionOutput, settings.WebhookLogsOutput, settings.RedriveLogsOutput} {
		fmt.Fprintf(&outputs, `<member><OutputKey>%s</OutputKey><OutputValue>%[1]s</OutputValue></member>`, name)
	}
	fmt.Fprintf(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><Outputs>%s</Outputs></member>
		</Stacks></DescribeStacksResult></DescribeStacksResponse>`, &outputs)
}

// isUp makes this folder one in which a local run is up, whose webhook function has these settings.
func isUp(t *testing.T, d deployment.Deployment, conf ...string) {
	t.Helper()
	d.Stack = "Payhook"
	variables := map[string]string{}
	for _, pair := range conf {
		key, value, _ := strings.Cut(pair, "=")
		variables[settings.Named(key).Env()] = value
	}
	emulator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			describeStack(w)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/2015-03-31/functions/") {
			http.NotFound(w, r)
			return
		}
		text, _ := json.Marshal(map[string]any{"Environment": map[string]any{"Variables": variables}})
		_, _ = w.Write(text)
	}))
	t.Cleanup(emulator.Close)
	d.Endpoint, d.Region = emulator.URL, "us-east-1"
	if err := errors.Join(os.WriteFile("go.mod", []byte("module payhook.example\n"), 0o600), d.Write(".")); err != nil {
		t.Fatal(err)
	}
}

func TestFlagsDescribeTheDeliveries(t *testing.T) {
	_, h := local(t)
	out := works(t, strings.Fields(
		"--local --count 2 --duplicates 1 --events 2 --amount 100.00 --currency EUR --pad 2")...)
	if len(h.payloads) != 3 || h.payloads[2] != h.payloads[0] || h.payloads[1] == h.payloads[0] {
		t.Fatalf("%d deliveries were sent, want 3, of which the last is the first again", len(h.payloads))
	}
	if strings.Count(out, ": 200 in ") != 3 {
		t.Errorf("output:\n%s", out)
	}
	delivery, err := payment.DecodeDelivery([]byte(h.payloads[1]))
	if err != nil || len(delivery.Events) != 2 {
		t.Fatalf("%d events, want 2, %v", len(delivery.Events), err)
	}
	e, err := payment.DecodeEvent(delivery.Events[1].Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if e.EventData.Amount != "100.00" || e.EventData.PaymentCurrency != "EUR" ||
		!strings.HasSuffix(h.payloads[1], "]}  ") {
		t.Errorf("sent %s", h.payloads[1])
	}
}

func TestFileIsSentByteForByte(t *testing.T) {
	sample, err := filepath.Abs("../../../../events/webhook/base64-body.json") // an event of a function URL
	if err != nil {
		t.Fatal(err)
	}
	_, h := local(t)
	const text = " { \"not\": 'JSON' \n"
	if err := os.WriteFile("text", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	works(t, "--file", "text")
	works(t, "--file", sample)
	fromInput := &cli.Program{In: strings.NewReader(text)}
	if _, stderr, status := runWith(t, fromInput, "--count", "2", "--file", "-"); status != 0 {
		t.Errorf("%d, %s", status, stderr)
	}
	if p := h.payloads; len(p) != 4 || p[0] != text || !strings.HasPrefix(p[1], `{"deliveryId"`) || p[2] != text ||
		p[3] != text {
		t.Errorf("sent %q", h.payloads)
	}
}

func TestExitStatusTellsUnexpectedAnswers(t *testing.T) {
	service, h := local(t)
	silent := deployment.Deployment{WebhookURL: "http://127.0.0.1:1", PaymentService: service.URL, Simulated: true}
	for _, test := range []struct {
		args    string
		status  int
		message string
	}{
		{"", 0, ""},
		{"--corrupt signature", cli.StatusFailed,
			"1 webhook was not answered with 2xx; --expect says what is expected"},
		{"--corrupt signature", cli.StatusFailed, "\n  payhook explain --local\n"},
		{"--corrupt signature --count 3", cli.StatusFailed, "3 webhooks were not answered with 2xx"},
		{"--corrupt signature --expect 401", 0, ""},
		{"--corrupt signature --expect 503,4xx", 0, ""},
		{"--expect 401", cli.StatusFailed, "not answered with 401"},
		{"--expect none", cli.StatusFailed, "not answered with none"},
		{"--expect 2xx,4x", cli.StatusUsage, "--expect"},
		{"--expect 99", cli.StatusUsage, "--expect"},
	} {
		out, stderr, status := run(t, append(strings.Fields(test.args), "--local")...)
		if status != test.status || !strings.Contains(stderr, test.message) {
			t.Errorf("%s: status %d, want %d\n%s%s", test.args, status, test.status, out, stderr)
		}
	}
	h.Close()
	isUp(t, silent)
	if _, stderr, status := run(t); status != cli.StatusUnreachable || !strings.Contains(stderr, "no answer") {
		t.Errorf("no answer: %d, %s", status, stderr)
	}
	if _, stderr, status := run(t, "--expect", "none"); status != 0 {
		t.Errorf("no answer, as expected: %d, %s", status, stderr)
	}
}

func TestAnswerIsOneLineOfJSON(t *testing.T) {
	local(t)
	out, _, status := run(t, "--local", "--json", "--count", "2", "--corrupt", "signature")
	var a answer
	_, second, _ := strings.Cut(out, "\n")
	if err := json.Unmarshal([]byte(second), &a); err != nil || status != cli.StatusFailed || a.Number != 2 ||
		a.Status != 401 || a.Expected {
		t.Errorf("%d, %s, %v", status, out, err)
	}
}

func TestAWebhookIsLikeTheSampleEvent(t *testing.T) {
	service, _ := local(t)
	var got *http.Request
	var payload []byte
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		payload, _ = io.ReadAll(r.Body)
		got = r
	}))
	t.Cleanup(hook.Close)
	isUp(t, deployment.Deployment{WebhookURL: hook.URL, PaymentService: service.URL, Simulated: true})
	if err := os.WriteFile("sample", []byte(`{"version":"2.0","rawQueryString":"tenant=7","body":"e30=",
		"isBase64Encoded":true,"headers":{"content-type":"text/json"},"requestContext":{"http":{"method":"PUT"}}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	works(t, "--file", "sample")
	headers := map[string]string{}
	for name := range got.Header {
		headers[name] = got.Header.Get(name)
	}
	proof, err := paymenttest.DefaultScheme().Extract(headers, got.URL.RawQuery)
	if err == nil {
		err = signature.Verify(&service.Key().Private.PublicKey, payload, proof)
	}
	if err == nil {
		err = (&signature.Window{Tolerance: time.Minute}).Check(proof.Timestamp, time.Now())
	}
	if err != nil || got.Method != http.MethodPut || headers["Content-Type"] != "text/json" ||
		!strings.Contains(got.URL.RawQuery, "tenant=7") || string(payload) != "{}" {
		t.Errorf("%v in %s %v, %s: %s", err, got.Method, headers, got.URL.RawQuery, payload)
	}
}

func TestDuplicatesAreTheFirstDeliveriesAndTheConflictIsLast(t *testing.T) {
	_, h := local(t)
	works(t, "--local", "--count", "2", "--duplicates", "3", "--conflict")
	p := h.payloads
	if len(p) != 6 || p[2] != p[0] || p[3] != p[1] || p[4] != p[0] || p[0] == p[1] {
		t.Fatalf("sent %q", p)
	}
	var events [2]payment.Event
	for i, payload := range []string{p[0], p[5]} {
		delivery, err := payment.DecodeDelivery([]byte(payload))
		if err == nil {
			events[i], err = payment.DecodeEvent(delivery.Events[0].Bytes)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if events[0].EventID != events[1].EventID || events[0].EventData.Amount == events[1].EventData.Amount {
		t.Errorf("sent %+v", events)
	}
}

func TestSimulatedServiceRotatesAndFails(t *testing.T) {
	service, _ := local(t)
	before := service.Key()
	works(t, "--rotate")
	if service.Key().ID == before.ID {
		t.Error("the key is the same")
	}
	for _, step := range []struct {
		args, out string
		status    int // of the key service
	}{
		{"fault", "no endpoint fails\n", http.StatusOK},
		{"fault keys down", "keys  down\n", http.StatusServiceUnavailable},
		{"fault --json", `{"keys":"down"}` + "\n", http.StatusServiceUnavailable},
		{"fault keys none", "no endpoint fails\n", http.StatusOK},
	} {
		out, stderr, status := run(t, strings.Fields(step.args)...)
		if out != step.out || status != 0 {
			t.Errorf("%s: %d, %s%s", step.args, status, out, stderr)
		}
		resp, err := http.Get(service.URL + "/v1/keys/" + before.ID)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != step.status {
			t.Errorf("%s: key lookup answers %d, want %d", step.args, resp.StatusCode, step.status)
		}
	}
}

func TestWithoutFlagsItIsTheLocalRun(t *testing.T) {
	_, h := local(t)
	t.Setenv("AWS_REGION", "eu-west-1")
	if _, stderr, status := run(t); status != 0 || len(h.payloads) != 1 || stderr != "" {
		t.Errorf("send: %d, %s", status, stderr)
	}
}

func TestWrongCallSendsNothing(t *testing.T) {
	_, h := local(t)
	for _, args := range []string{
		"--count -1", "--count 0 --duplicates 2", "--events 20001", "--pad 104857601", "--events -1", "--amount ten",
		"--corrupt nothing", "--file missing",
		"fault keys nonsense", "fault nothing down", "fault down", "stray", "--age soon", "--certificate unheard-of",
		"--certificate expired", "--conflict --events 0", "--region eu-west-1", "--profile p", "fault --stack Other",
	} {
		if out, stderr, status := run(t, strings.Fields(args)...); status != cli.StatusUsage ||
			stderr == "" {
			t.Errorf("%s: status %d\n%s%s", args, status, out, stderr)
		}
	}
	if len(h.payloads) > 0 {
		t.Errorf("sent %q", h.payloads)
	}
	if _, stderr, _ := run(t, "--certificate", "expired", "--local"); !strings.Contains(stderr,
		`make down && make up SETTINGS="authentication=both"`) {
		t.Errorf("no mTLS: %s", stderr)
	}
	isUp(t, deployment.Deployment{WebhookURL: h.URL, PaymentService: "http://127.0.0.1:2"})
	if _, stderr, status := run(t, "--local"); status != cli.StatusUsage ||
		!strings.Contains(stderr, "only the simulated") {
		t.Errorf("the payment service of somebody else: %d, %s", status, stderr)
	}
	t.Chdir(t.TempDir())
	if _, stderr, status := run(t, "--local"); status != cli.StatusUnreachable ||
		!strings.Contains(stderr, "nothing is up") {
		t.Errorf("nothing is up: %d, %s", status, stderr)
	}
}

func TestWebhookHasTheRequestedClientCertificate(t *testing.T) {
	servers := paymenttest.NewCA("Server CA")
	identity := paymenttest.NewIdentity(servers.Certificate)
	service := paymenttest.NewServer(paymenttest.Options{Identity: identity})
	t.Cleanup(service.Close)
	var presented *x509.Certificate
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		presented = nil
		if len(r.TLS.PeerCertificates) > 0 {
			presented = r.TLS.PeerCertificates[0]
		}
	}))
	hook.TLS = &tls.Config{Certificates: []tls.Certificate{servers.Server()}, ClientAuth: tls.RequestClientCert}
	hook.StartTLS()
	t.Cleanup(hook.Close)
	t.Chdir(t.TempDir())
	isUp(t, deployment.Deployment{WebhookURL: hook.URL, PaymentService: service.URL, Simulated: true},
		"authentication=mtls")
	send := func(args ...string) *x509.Certificate {
		t.Helper()
		works(t, append(args, "--local")...)
		return presented
	}
	first := identity.Certificate().Leaf
	if c := send(); !first.Equal(c) {
		t.Error("the certificate is not that of the simulated service")
	}
	if c := send("--certificate", "none"); c != nil {
		t.Error("a certificate was presented")
	}
	if c := send("--certificate", string(paymenttest.CertificateExpired)); c == nil || c.NotAfter.After(time.Now()) {
		t.Error("the certificate has not expired")
	}
	if c := send("--rotate-certificate"); c == nil || c.Equal(first) {
		t.Error("the certificate is not a new one")
	}
}
