package local

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// standIn makes this folder one in which a local run is up.
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
		PaymentService: service.URL}
	if err := d.Write(project(t)); err != nil {
		t.Fatal(err)
	}
}

// hook is a webhook URL that keeps what it gets. It answers 200 to what is authentic and 401 otherwise.
type hook struct {
	*httptest.Server
	payloads []string
}

func newHook(t *testing.T, service *paymenttest.Server) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, _ := io.ReadAll(r.Body)
		h.payloads = append(h.payloads, string(payload))
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
	t.Cleanup(h.Close)
	return h
}

// The service sends what the JSON describes to the stack, and the status says whether it was accepted.
func TestSendHasTheServiceSendAWebhook(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{})
	t.Cleanup(service.Close)
	h := newHook(t, service)
	standIn(t, h.URL, service)
	for _, test := range []struct {
		args        []string
		status      int
		out, stderr string
	}{
		{nil, 0, "200 \n", ""},
		{[]string{"--local", `{"events": 2, "amount": 100.10}`}, 0, "200 \n", ""},
		{[]string{`{"kind": "duplicate"}`}, 0, "200 \n", ""},
		{[]string{`{"kind": "signature"}`}, cli.StatusFailed, "401 \n", ""},
		{[]string{`{"age": "10m"}`, "--json"}, cli.StatusFailed,
			`{"keyId":"` + service.Key().ID + `","faults":{},"status":401}` + "\n", ""},
		{[]string{`{"url": "http://127.0.0.1:1"}`}, cli.StatusUsage, "", "refused"},
		{[]string{`{"kind": "nothing"}`}, cli.StatusUsage, "", `unknown flaw "nothing"`},
		{[]string{`{"evnts": 2}`}, cli.StatusUsage, "", `"evnts"`},
		{[]string{`{"certificate": "expired"}`}, cli.StatusUsage, "", "needs an https URL"},
		{[]string{"2"}, cli.StatusUsage, "", "not a JSON object"},
		{[]string{"--region", "eu-west-1"}, cli.StatusUsage, "", "takes no --region"},
	} {
		out, stderr, status := command(t, append([]string{"send"}, test.args...)...)
		if status != test.status || out != test.out || !strings.Contains(stderr, test.stderr) {
			t.Errorf("%q: %d, %s%s", test.args, status, out, stderr)
		}
	}
	if p := h.payloads; len(p) != 5 || p[1] != p[2] || strings.Count(p[1], "100.10") != 2 {
		t.Errorf("sent %q", p)
	}
	h.Close()
	if _, stderr, status := command(t, "send"); status != cli.StatusUsage || !strings.Contains(stderr, "refused") {
		t.Errorf("no answer: %d, %s", status, stderr)
	}
	t.Chdir(t.TempDir())
	if _, stderr, status := command(t, "send"); status != cli.StatusUnreachable ||
		!strings.Contains(stderr, "nothing is up") {
		t.Errorf("nothing is up: %d, %s", status, stderr)
	}
}
