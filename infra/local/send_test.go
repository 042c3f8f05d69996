package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// standIn makes this folder one in which a local run is up.
func standIn(t *testing.T, webhookURL string, service *paymenttest.Server) {
	t.Helper()
	emulator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><Outputs>`)
		for _, name := range []string{settings.WebhookURLOutput, settings.EventBusNameOutput,
			settings.LedgerTableOutput, settings.KeysTableOutput, settings.LargeEventBucketOutput,
			settings.ParkingBucketOutput, settings.WebhookFunctionOutput, settings.RedriveFunctionOutput,
			settings.WebhookLogsOutput, settings.RedriveLogsOutput} {
			fmt.Fprintf(w, `<member><OutputKey>%s</OutputKey><OutputValue>%[1]s</OutputValue></member>`, name)
		}
		fmt.Fprint(w, `</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`)
	}))
	t.Cleanup(emulator.Close)
	d := stack.Stack{StackName: "Payhook", Endpoint: emulator.URL, Region: "us-east-1", WebhookURL: webhookURL,
		PaymentService: service.URL}
	if err := d.Write(project(t)); err != nil {
		t.Fatal(err)
	}
}

// The service sends what the JSON describes to the stack, and the status says whether it was accepted. The end-to-end
// tests have the kinds of webhooks.
func TestSendHasTheServiceSendAWebhook(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{})
	t.Cleanup(service.Close)
	var payloads []string
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, _ := io.ReadAll(r.Body)
		payloads = append(payloads, string(payload))
		switch r.URL.Path {
		case "/forbidden":
			w.WriteHeader(http.StatusForbidden)
		case "/unauthorized":
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(hook.Close)
	standIn(t, hook.URL, service)
	for _, test := range []struct {
		args        []string
		status      int
		out, stderr string
	}{
		{nil, 0, "200 \n", ""},
		{[]string{"--local", `{"events": 2, "amount": 100.10}`}, 0, "200 \n", ""},
		{[]string{`{"kind": "duplicate"}`}, 0, "200 \n", ""},
		{[]string{`{"url": "` + hook.URL + `/forbidden"}`, "--json"}, cli.StatusFailed,
			`{"keyId":"` + service.Key().ID + `","faults":{},"status":403}` + "\n", ""},
		{[]string{`{"url": "` + hook.URL + `/unauthorized"}`}, cli.StatusFailed, "401 \n",
			"this says why:\n  payhook explain --local\n"},
		{[]string{`{"url": "http://127.0.0.1:1"}`}, cli.StatusUsage, "", "refused"},
		{[]string{`{"kind": "nothing"}`}, cli.StatusUsage, "", `unknown flaw "nothing"; the flaws are [signature `},
		{[]string{`{"evnts": 2}`}, cli.StatusUsage, "", `"evnts"`},
		{[]string{`{"certificate": "expired"}`}, cli.StatusUsage, "", "needs an https URL"},
		{[]string{"2"}, cli.StatusUsage, "", "not a JSON object"},
		{[]string{"null"}, cli.StatusUsage, "", "not a JSON object"},
		{[]string{"--region", "eu-west-1"}, cli.StatusUsage, "", "takes no --region"},
	} {
		out, stderr, status := command(t, append([]string{"send"}, test.args...)...)
		if status != test.status || out != test.out || !strings.Contains(stderr, test.stderr) {
			t.Errorf("%q: %d, %s%s", test.args, status, out, stderr)
		}
	}
	if p := payloads; len(p) != 5 || p[1] != p[2] || strings.Count(p[1], "100.10") != 2 {
		t.Errorf("sent %q", p)
	}
	t.Chdir(t.TempDir())
	if _, stderr, status := command(t, "send"); status != cli.StatusUnreachable ||
		!strings.Contains(stderr, "nothing is up") {
		t.Errorf("nothing is up: %d, %s", status, stderr)
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then it notices that the caller has gone
		cancel()
		<-r.Context().Done()
	}))
	t.Cleanup(hook.Close)
	service := paymenttest.NewServer(paymenttest.Options{})
	t.Cleanup(service.Close)
	standIn(t, hook.URL, service)
	var out, stderr bytes.Buffer
	p := &cli.Program{Out: &out, Err: &stderr}
	root := p.Root()
	root.AddCommand(Command(p))
	if status := p.Run(ctx, root, []string{"local", "send"}); status != cli.StatusInterrupted {
		t.Errorf("%d, %s%s", status, &out, &stderr)
	}
}
