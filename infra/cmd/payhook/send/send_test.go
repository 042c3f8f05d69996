package send

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
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
	root.AddCommand(Command(p, &meant))
	status = p.Run(t.Context(), root, append([]string{"send"}, args...))
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
	service := paymenttest.NewServer(paymenttest.Options{Control: true})
	t.Cleanup(service.Close)
	h := newHook(t, service.Key)
	t.Chdir(t.TempDir())
	isUp(t, deployment.Deployment{WebhookURL: h.URL, PaymentService: service.URL, Simulated: true})
	return service, h
}

// isUp makes this folder one in which a local run is up.
func isUp(t *testing.T, d deployment.Deployment) {
	t.Helper()
	emulator := httptest.NewServer(nil)
	t.Cleanup(emulator.Close)
	d.Endpoint = emulator.URL
	if err := errors.Join(os.WriteFile("go.mod", []byte("module payhook.example\n"), 0o600), d.Write(".")); err != nil {
		t.Fatal(err)
	}
}

func TestFlagsDescribeTheDeliveries(t *testing.T) {
	_, h := local(t)
	out := works(t, strings.Fields("--local --count 2 --duplicates 1 --events 2 --amount 100.00 --currency EUR "+
		"--name PAYMENT_STATUS.OTHER --pad 2")...)
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
	if e.EventName != "PAYMENT_STATUS.OTHER" || e.EventData.Amount != "100.00" ||
		e.EventData.PaymentCurrency != "EUR" ||
		!strings.HasSuffix(h.payloads[1], "]}  ") {
		t.Errorf("sent %s", h.payloads[1])
	}
}

func TestConflictIsSentAfterItsFirstVersion(t *testing.T) {
	_, h := local(t)
	works(t, "--local", "--conflict")
	if len(h.payloads) != 2 {
		t.Fatalf("%d deliveries were sent, want 2", len(h.payloads))
	}
	var events [2]payment.Event
	for i, payload := range h.payloads {
		delivery, err := payment.DecodeDelivery([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		if events[i], err = payment.DecodeEvent(delivery.Events[0].Bytes); err != nil {
			t.Fatal(err)
		}
	}
	if events[0].EventID != events[1].EventID || events[0].EventData.Amount == events[1].EventData.Amount {
		t.Errorf("sent %+v", events)
	}
}

func TestFileIsSentByteForByte(t *testing.T) {
	_, h := local(t)
	const text = " { \"not\": 'JSON' \n"
	works(t, "--local", "--file", writeFile(t, []byte(text)))
	fromInput := &cli.Program{In: strings.NewReader(text)}
	if _, stderr, status := runWith(t, fromInput, "--local", "--count", "2", "--file", "-"); status != 0 {
		t.Errorf("%d, %s", status, stderr)
	}
	if !slices.Equal(h.payloads, []string{text, text, text}) {
		t.Errorf("sent %q, want %q", h.payloads, text)
	}
}

// The samples in events/webhook are events of a function URL.
func TestSampleEventIsSentAsItsPayload(t *testing.T) {
	file, err := filepath.Abs("../../../../events/webhook/base64-body.json")
	if err != nil {
		t.Fatal(err)
	}
	_, h := local(t)
	works(t, "--local", "--file", file)
	if len(h.payloads) != 1 || !strings.HasPrefix(h.payloads[0], `{"deliveryId"`) {
		t.Errorf("sent %q", h.payloads)
	}
}

func TestExitStatusTellsUnexpectedAnswers(t *testing.T) {
	local(t)
	for _, test := range []struct {
		args    string
		status  int
		message string
	}{
		{"", 0, ""},
		{"--corrupt signature", cli.StatusFailed,
			"1 webhook was not answered with 2xx; --expect says what is expected"},
		{"--corrupt signature --count 3", cli.StatusFailed, "3 webhooks were not answered with 2xx"},
		{"--corrupt signature --expect 401", 0, ""},
		{"--corrupt signature --expect 503,4xx", 0, ""},
		{"--expect 401", cli.StatusFailed, "not answered with 401"},
		{"--url http://127.0.0.1:1", cli.StatusUnreachable, "no answer"},
		{"--url http://127.0.0.1:1 --expect none", 0, ""},
		{"--expect none", cli.StatusFailed, "not answered with none"},
		{"--expect 2xx,4x", cli.StatusUsage, "--expect"},
		{"--expect 99", cli.StatusUsage, "--expect"},
	} {
		out, stderr, status := run(t, append(strings.Fields(test.args), "--local")...)
		if status != test.status || !strings.Contains(stderr, test.message) {
			t.Errorf("%s: status %d, want %d\n%s%s", test.args, status, test.status, out, stderr)
		}
	}
}

func TestAnswerIsOneLineOfJSON(t *testing.T) {
	local(t)
	out, _, status := run(t, "--local", "--json", "--count", "2", "--corrupt", "signature")
	if status != cli.StatusFailed || strings.Count(out, "\n") != 2 {
		t.Fatalf("%d, %s", status, out)
	}
	var r result
	if err := json.Unmarshal([]byte(strings.Split(out, "\n")[1]), &r); err != nil || r.Number != 2 || r.Status != 401 ||
		r.Expected {
		t.Errorf("%+v, %v", r, err)
	}
}

// Each flag changes only what it is for.
func TestProofIsCarriedWhereTheFlagsSay(t *testing.T) {
	service, _ := local(t)
	key := service.Key()
	var requests []*http.Request
	var payload []byte
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		payload, _ = io.ReadAll(r.Body)
		requests = append(requests, r)
	}))
	t.Cleanup(hook.Close)
	// With a key, what no flag says is as in the settings of the local run. The simulated service knows them.
	isUp(t, deployment.Deployment{WebhookURL: hook.URL, PaymentService: service.URL, Simulated: true,
		Settings: map[string]string{"timestampCarrier": "query:at"}})
	own := "--key " + writeKey(t, key) + " --key-id " + key.ID
	for flags, want := range map[string]paymenttest.Carriers{
		"--timestamp-carrier header:X-Brand-Time": {Timestamp: "header:X-Brand-Time"},
		"--key-id-carrier static:" + key.ID:       {KeyID: "static:" + key.ID},
		own:                                       {Timestamp: "query:at"},
		own + " --signature-header X-Brand-Signature": {SignatureHeader: "X-Brand-Signature", Timestamp: "query:at"},
		own + " --timestamp-format unix-milliseconds --timestamp-carrier query:ts --key-id-carrier query:kid": {
			TimestampFormat: "unix-milliseconds", Timestamp: "query:ts", KeyID: "query:kid"},
	} {
		requests = nil
		works(t, append(strings.Fields(flags), "--local")...)
		as, err := paymenttest.Sender{}.With(want)
		if err != nil || len(requests) != 1 {
			t.Fatalf("%s: %d requests, %v", flags, len(requests), err)
		}
		headers := map[string]string{}
		for name := range requests[0].Header {
			headers[name] = requests[0].Header.Get(name)
		}
		proof, err := as.Scheme.Extract(headers, requests[0].URL.RawQuery)
		if err == nil {
			err = signature.Verify(&key.Private.PublicKey, payload, proof)
		}
		if err == nil {
			err = (&signature.Window{Format: as.Format, Tolerance: time.Minute}).Check(proof.Timestamp, time.Now())
		}
		if err != nil {
			t.Errorf("%s: %v in %v, %s", flags, err, headers, requests[0].URL.RawQuery)
		}
	}
}

func TestRejectedWebhookNamesTheWayToTheReason(t *testing.T) {
	_, h := local(t)
	for args, named := range map[string]bool{
		"--timestamp-carrier query:ts": true, "--corrupt signature": true, "--corrupt signature --expect 401": false,
		"--expect 503": false, "--corrupt signature --url " + h.URL: false,
	} {
		_, stderr, _ := run(t, append(strings.Fields(args), "--local")...)
		if strings.Contains(stderr, "\n  payhook explain --last --local\n") != named {
			t.Errorf("%s: %s", args, stderr)
		}
	}
}

// Each flaw and fault is explained on request, and where it is misspelled.
func TestFlawsAndFaultsAreListed(t *testing.T) {
	_, h := local(t)
	for flag, want := range map[string][]string{
		"--corrupt": {"  signature            one bit of", "\n  keyid-repeated       the key id is sent twice\n"},
		"--fault":   {"\n  token=down     503\n", "\n  api=           no fault any more\n", "keys=slow "},
	} {
		out, stderr, status := run(t, flag, "list")
		if status != 0 || stderr != "" {
			t.Errorf("%s list: %d, %s", flag, status, stderr)
		}
		if _, stderr, status = run(t, flag, "lost"); status != cli.StatusUsage ||
			!strings.Contains(stderr, " must be one of\n"+out) {
			t.Errorf("%s lost: %d, %s", flag, status, stderr)
		}
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%s: no %q in\n%s", flag, text, out)
			}
		}
		for line := range strings.Lines(out) {
			if len(strings.Fields(line)) < 2 {
				t.Errorf("%s: not explained: %s", flag, line)
			}
		}
	}
	if len(h.payloads) > 0 {
		t.Errorf("sent %q", h.payloads)
	}
}

// A wrong number ends with Ctrl-C, and not when the memory is full.
func TestWebhooksAreMadeOneAfterAnother(t *testing.T) {
	_, h := local(t)
	made := 0
	all, err := (&options{count: 1e12, events: 1, duplicates: 1}).webhooks()
	if err != nil {
		t.Fatal(err)
	}
	for w := range all {
		if made++; len(w.Payload) == 0 || made == 1000 {
			break
		}
	}
	if made != 1000 {
		t.Errorf("%d are made", made)
	}
	works(t, "--local", "--count", "2", "--duplicates", "3", "--conflict")
	if p := h.payloads; len(p) != 6 || p[2] != p[0] || p[3] != p[1] || p[4] != p[0] || p[0] == p[1] || p[5] == p[0] {
		t.Errorf("sent %q", p)
	}
}

func TestSimulatedServiceRotatesAndFails(t *testing.T) {
	service, _ := local(t)
	before := service.Key()
	works(t, "--local", "--rotate", "--fault", "keys=down")
	if service.Key().ID == before.ID {
		t.Error("the key is the same")
	}
	resp, err := http.Get(service.URL + "/v1/keys/" + before.ID)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("key lookup answers %d, want 503", resp.StatusCode)
	}
}

// writeKey writes a private key to a file.
func writeKey(t *testing.T, key paymenttest.Key) string {
	t.Helper()
	return writeFile(t, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key.Private)}))
}

func TestPrivateKeySigns(t *testing.T) {
	key := paymenttest.NewKey(2048)
	h := newHook(t, func() paymenttest.Key { return key })
	t.Chdir(t.TempDir()) // where nothing is up
	file := writeKey(t, key)
	if out := works(t, "--key", file, "--key-id", key.ID, "--url", h.URL); !strings.HasPrefix(out, "1: 200 in ") {
		t.Errorf("output: %s", out)
	}

	// Without --url, the stack says where.
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		describeStack(w, h.URL)
	}))
	t.Cleanup(api.Close)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": api.URL, "AWS_REGION": "eu-north-1",
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "NO_PROXY": "127.0.0.1"} {
		t.Setenv(name, value)
	}
	for flag, said := range map[string]string{"": "this is stack Payhook (account 123456789012, eu-north-1 at ",
		" --stack Payhook": "", " --region eu-west-1": ""} {
		_, stderr, status := run(t, strings.Fields("--key "+file+" --key-id "+key.ID+flag)...)
		if status != 0 || !strings.HasPrefix(stderr, said) || said == "" && stderr != "" {
			t.Errorf("%q: %d, %s", flag, status, stderr)
		}
	}
	if len(h.payloads) != 4 {
		t.Errorf("%d webhooks arrived, want 4", len(h.payloads))
	}
}

func TestWithoutFlagsItIsTheLocalRun(t *testing.T) {
	_, h := local(t)
	t.Setenv("AWS_REGION", "eu-west-1")
	if _, stderr, status := run(t); status != 0 || len(h.payloads) != 1 ||
		!strings.HasPrefix(stderr, "this is the local run") {
		t.Errorf("send: %d, %s", status, stderr)
	}
	key := paymenttest.NewKey(2048)
	if _, stderr, _ := run(t, "--key", writeKey(t, key), "--key-id", key.ID, "--url", h.URL); strings.Contains(stderr,
		"local run") {
		t.Errorf("send --url: %s", stderr)
	}
	var stderr bytes.Buffer
	target := &deployment.Target{}
	cmd := InvokeCommand(&cli.Program{Out: io.Discard, Err: &stderr}, target)
	cmd.SetArgs([]string{"token", writeFile(t, []byte("{}"))})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !target.Local ||
		!strings.HasPrefix(stderr.String(), "this is the local run") {
		t.Errorf("invoke: %v, local %t, %s", err, target.Local, &stderr)
	}
}

func TestWrongCallSendsNothing(t *testing.T) {
	_, h := local(t)
	for _, args := range []string{
		"--count -1", "--count 0 --duplicates 2", "--events 20001", "--pad 104857601", "--events -1", "--amount ten",
		"--corrupt nothing", "--file missing",
		"--fault keys=nonsense", "--fault nothing=down", "--fault down", "--key missing.pem",
		"--key missing.pem --key-id not-a-uuid", "stray", "--age soon",
		"--certificate unheard-of", "--certificate expired", "--conflict --events 0", "--key x --rotate",
		"--timestamp-carrier json:sentAt",
		"--timestamp-format rfc1123",
	} {
		if out, stderr, status := run(t, append(strings.Fields(args), "--local")...); status != cli.StatusUsage ||
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
		!strings.Contains(stderr, "a key is needed") {
		t.Errorf("the payment service of somebody else: %d, %s", status, stderr)
	}
	t.Chdir(t.TempDir())
	if _, stderr, status := run(t, "--local"); status != cli.StatusUnreachable ||
		!strings.Contains(stderr, "nothing is up") {
		t.Errorf("nothing is up: %d, %s", status, stderr)
	}
	if _, stderr, status := run(t); status != cli.StatusUsage || !strings.Contains(stderr, "--local") ||
		!strings.Contains(stderr, "--key") {
		t.Errorf("without --local: %d, %s", status, stderr)
	}
}

// writeIdentity writes the client certificate of an identity, and its key.
func writeIdentity(t *testing.T, identity *paymenttest.Identity) (certificate, key string) {
	t.Helper()
	text, err := paymenttest.EncodePrivateKey(identity.Certificate().PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, paymenttest.EncodeCertificate(identity.Certificate().Leaf)), writeFile(t, text)
}

func TestWebhookHasTheRequestedClientCertificate(t *testing.T) {
	servers := paymenttest.NewCA("Server CA")
	identity := paymenttest.NewIdentity(servers.Certificate)
	service := paymenttest.NewServer(paymenttest.Options{Control: true, Identity: identity})
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
	up := deployment.Deployment{WebhookURL: hook.URL, PaymentService: service.URL, Simulated: true,
		Settings: map[string]string{"authentication": "mtls"},
		ServerCA: writeFile(t, servers.PEM())}
	up.ClientCert, up.ClientKey = writeIdentity(t, identity)
	isUp(t, up)
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
	// With a private key, the certificate is that of the file.
	key := paymenttest.NewKey(2048)
	if c := send("--key", writeKey(t, key), "--key-id", key.ID); !first.Equal(c) {
		t.Error("the certificate is not that of the file")
	}
}
