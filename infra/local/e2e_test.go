package local

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// waitTimeout is how long a test waits for something that must happen. It fails after
// that.
const waitTimeout = time.Minute

// everything is what the end-to-end tests share; nil if they do not run.
var everything *fixture

// fixture is a stack with the proxy between its functions and the emulator.
type fixture struct {
	*stack
	machine    *machine
	service    *paymenttest.Server
	mechanisms []*stack
	proxy      *proxy
	arrivals   *scenario.Arrivals
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getenv("PAYHOOK_E2E") != "1" {
		return m.Run()
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	top, err := ProjectTop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p := newProxy()
	defer p.Close()
	state := filepath.Join(top, ".local", "test")
	all, main, mechanisms, err := start(ctx, options{
		top: top, state: state,
		settings: map[string]string{
			// With these, nothing waits long for redrive.
			settings.WebhookTimeout.Key: "4s", settings.RedriveTimeout.Key: "5s", settings.RedriveGrace.Key: "1s",
		},
		endpointFor: func(own string) (string, error) {
			p.emulator = own
			return p.URL, nil
		},
		mechanisms: true,
		progress:   emulator.NewProgress(os.Stdout),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p.credentials = main.AWS.Credentials
	everything = &fixture{stack: main, machine: all, service: all.service, mechanisms: mechanisms, proxy: p,
		arrivals: scenario.Receive(main.AWS, main.Queues)}
	var once sync.Once
	stop := func() {
		once.Do(func() {
			everything.arrivals.Stop()
			all.stop()
		})
	}
	defer stop()
	go func() {
		if <-ctx.Done(); ctx.Err() != nil {
			stop()
		}
	}()
	status := m.Run()
	stop()
	if left := processes(state); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "these processes still run:\n%s\n", strings.Join(left, "\n"))
		return 1
	}
	if ctx.Err() != nil {
		return 130
	}
	return status
}

// deployed returns what is deployed, with the service behaving and the proxy
// forwarding everything. It skips the test if nothing is deployed.
func deployed(t *testing.T) *fixture {
	t.Helper()
	if everything == nil {
		t.Skip("an end-to-end test, which deploys everything into an emulator: make test-e2e, or PAYHOOK_E2E=1")
	}
	everything.proxy.forget()
	t.Cleanup(func() {
		if denied := everything.proxy.denied(); len(denied) > 0 {
			t.Errorf("IAM denied %q", denied)
		}
		if err := everything.service.Misbehave(paymenttest.Keys, ""); err != nil {
			t.Error(err)
		}
	})
	return everything
}

// processes returns the lines that ps has of the processes out of a folder.
func processes(folder string) []string {
	listing, err := exec.Command("ps", "-A", "-ww", "-o", "pid=", "-o", "stat=", "-o", "command=").Output()
	if err != nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(listing)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1][0] != 'Z' &&
			strings.Contains(line, folder+string(filepath.Separator)) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// answer is the body of an answer of the webhook function, with every field that one can have.
type answer struct {
	status                          int
	header                          http.Header
	Recorded, Duplicates, Conflicts int
	Detail                          string
}

func (f *fixture) send(t *testing.T, payload []byte) answer {
	t.Helper()
	got, err := f.service.Send(t.Context(), paymenttest.Webhook{URL: f.WebhookURL, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: got.Status, header: got.Header}
	if err := json.Unmarshal(got.Body, &a); err != nil {
		t.Fatalf("answered %d %q", got.Status, got.Body)
	}
	return a
}

func (a answer) want(t *testing.T, status, recorded, duplicates int) {
	t.Helper()
	if a.status != status || a.Recorded != recorded || a.Duplicates != duplicates {
		t.Fatalf("answered %d (%s) with %d recorded and %d duplicates, want %d with %d and %d",
			a.status, a.Detail, a.Recorded, a.Duplicates, status, recorded, duplicates)
	}
}

// arriveOnce fails the test unless the queue behind the rule for released payments
// receives each event exactly once.
func (f *fixture) arriveOnce(t *testing.T, events ...payment.Event) {
	t.Helper()
	count := func(all []scenario.Arrival) map[string]int {
		seen := map[string]int{}
		for _, a := range all {
			if a.Rule == scenario.Released {
				seen[a.EventID]++
			}
		}
		return seen
	}
	if _, err := f.arrivals.Await(t.Context(), waitTimeout, func(all []scenario.Arrival) bool {
		seen := count(all)
		for _, e := range events {
			if seen[e.EventID] == 0 {
				return false
			}
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	// What was published before this one has arrived when it has.
	last := paymenttest.Event()
	f.send(t, paymenttest.Delivery(last)).want(t, http.StatusOK, 1, 0)
	all, err := f.arrivals.Await(t.Context(), waitTimeout,
		func(all []scenario.Arrival) bool { return count(all)[last.EventID] > 0 })
	if err != nil {
		t.Fatal(err)
	}
	seen := count(all)
	for _, e := range events {
		if n := seen[e.EventID]; n != 1 {
			t.Errorf("event %s arrived %d times, want once", e.EventID, n)
		}
	}
}

// redrive runs the redrive function until nothing of those events is pending.
func (f *fixture) redrive(t *testing.T, events ...payment.Event) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(200 * time.Millisecond) {
		if err := f.Invoke(t.Context(), "redrive", scenario.AsScheduled, &struct{}{}); err != nil {
			t.Fatal(err)
		}
		if len(f.pending(t, events...)) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("redrive did not publish everything")
		}
	}
}

// pending returns the ids of those of the events that the ledger has as pending.
// It fails the test if one is not in the ledger at all.
func (f *fixture) pending(t *testing.T, events ...payment.Event) []string {
	t.Helper()
	inspector := ledger.NewInspector(dynamodb.NewFromConfig(f.AWS), f.LedgerTable)
	var ids []string
	for _, e := range events {
		item, found, err := inspector.Find(t.Context(), e.EventID)
		if err != nil || !found {
			t.Fatalf("event %s is not in the ledger: %v", e.EventID, err)
		}
		if item.Pending() {
			ids = append(ids, e.EventID)
		}
	}
	return ids
}

// webhookProcesses returns the numbers of the processes that run the webhook
// function now.
func (f *fixture) webhookProcesses(t *testing.T) []int {
	t.Helper()
	name := f.Functions["webhook"]
	out, err := lambda.NewFromConfig(f.AWS).GetFunction(t.Context(), &lambda.GetFunctionInput{FunctionName: &name})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := base64.StdEncoding.DecodeString(*out.Configuration.CodeSha256)
	if err != nil {
		t.Fatal(err)
	}
	// The emulator unpacks a function into a folder that is named by its digest.
	var pids []int
	for _, line := range processes(f.machine.emulator.Folder) {
		if strings.Contains(line, hex.EncodeToString(digest)) {
			pid, err := strconv.Atoi(strings.Fields(line)[0])
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// Every row of make run is right.
func TestScenarioIsRight(t *testing.T) {
	f := deployed(t)
	report, err := f.Show(t.Context(), f.arrivals, func(ctx context.Context) ([]scenario.Section, error) {
		return f.machine.showMechanisms(ctx, f.mechanisms)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Parts) != 6+2*len(mechanisms) || !report.Right {
		var out bytes.Buffer
		report.Print(&out, true)
		t.Errorf("%s", &out)
	}
}

// program builds payhook as make does, and returns what runs it beside the file of
// this run. It fails the test unless the exit status is status, and returns what the
// program writes.
func (f *fixture) program(t *testing.T) func(status int, args ...string) string {
	t.Helper()
	call := f.programIn(t, t.TempDir())
	return func(status int, args ...string) string {
		t.Helper()
		out, stderr, got := call(args...)
		if got != status {
			t.Errorf("payhook %v: exit status %d, want %d\n%s%s", args, got, status, out, stderr)
		}
		return out
	}
}

// programIn builds payhook in a folder as make does, and returns what runs it there, beside
// the file of this run.
func (f *fixture) programIn(t *testing.T, folder string) func(args ...string) (out, stderr string, status int) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(folder, filepath.Dir(deployment.Path)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(folder); err != nil {
		t.Fatal(err)
	}
	f.build(t, filepath.Join(folder, "payhook"))
	return func(args ...string) (out, stderr string, status int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "payhook"), args...)
		cmd.Dir = folder
		// Without --local, AWS is this emulator.
		cmd.Env = append(emulator.EnvironmentWithout("AWS_"), "AWS_ENDPOINT_URL="+f.Endpoint, "AWS_REGION="+f.Region,
			"AWS_ACCESS_KEY_ID="+deployment.AccessKey, "AWS_SECRET_ACCESS_KEY="+deployment.AccessKey)
		written, err := cmd.Output()
		if failure, ok := errors.AsType[*exec.ExitError](err); ok {
			stderr = string(failure.Stderr)
		} else if err != nil {
			t.Fatal(err)
		}
		return string(written), stderr, cmd.ProcessState.ExitCode()
	}
}

// build builds the program payhook.
func (f *fixture) build(t *testing.T, path string) {
	t.Helper()
	build := exec.Command("go", "build", "-o", path, "./infra/cmd/payhook")
	build.Dir = f.machine.opts.top
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// TestSendAndInvokeWork runs the commands send and invoke.
func TestSendAndInvokeWork(t *testing.T) {
	f := deployed(t)
	payhook, folder := f.program(t), t.TempDir()
	contains := func(output string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(output, w) {
				t.Errorf("%q is missing in:\n%s", w, output)
			}
		}
	}
	send := func(status int, args ...string) string {
		t.Helper()
		return payhook(status, append([]string{"send", "--local"}, args...)...)
	}
	contains(send(0, "--count", "2", "--duplicates", "1", "--events", "2"), "1: 200", "3: 200",
		`"recorded":0,"duplicates":2`)
	contains(send(1, "--corrupt", "signature"), "1: 401")
	contains(send(0, "--age", "10m", "--expect", "401"), "1: 401")
	contains(send(0, "--pad", "6300000", "--expect", "413"), "1: 413")
	id := uuid.New().String()
	contains(send(0, "--event-id", id), "1: 200")
	contains(send(0, "--event-id", id, "--amount", "7.00"), `"conflicts":1`)
	contains(send(0, "--conflict"), "1: 200", `"conflicts":1`)
	contains(send(1, "--fault", "keys=down", "--rotate"), "1: 503")
	contains(send(0, "--fault", "keys="), "1: 200")
	contains(send(0, "--events", "500"), `"recorded":500`)

	// With another key, and the URL of the stack.
	key := f.service.Key()
	der, err := x509.MarshalPKCS8PrivateKey(key.Private)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(payhook(0, "send", "--key", file, "--key-id", key.ID, "--url", f.WebhookURL), "1: 200")
	sample := func(name string) string { return filepath.Join(f.machine.opts.top, "events", name+".json") }
	one := sample("webhook/one-event")
	contains(payhook(0, "invoke", "--aws", "--stack", f.Stack, "webhook", "--fresh", one, "--key", file, "--key-id",
		key.ID), "200 OK", `"recorded":1`)

	samples := map[string]string{
		"one-event": "200", "several-events": "200", "base64-body": "200", "conflict": "200", "not-json": "422",
		"missing-event-id": "422", "no-events": "422", "wrong-method": "405", "empty": "400",
	}
	files, err := filepath.Glob(filepath.Join(f.machine.opts.top, "events", "webhook", "*.json"))
	if err != nil || len(files) != len(samples) {
		t.Errorf("%d samples in events/webhook, want %d, %v", len(files), len(samples), err)
	}
	for name, want := range samples {
		output := payhook(0, "invoke", "webhook", sample("webhook/"+name), "--local")
		if !strings.HasPrefix(output, want+" ") {
			t.Errorf("%s: %s, want %s", name, output, want)
		}
		if name == "conflict" {
			contains(output, `"conflicts":1`)
		}
	}
	// Sent as a webhook, each has the same answer.
	for name, want := range samples {
		contains(send(0, "--file", sample("webhook/"+name), "--expect", want), "1: "+want+" ")
	}
	contains(payhook(0, "invoke", "webhook", one, "--fresh", "--local"), `"recorded":1`)
	contains(payhook(0, "invoke", "webhook", one, "--fresh", "--corrupt", "payload", "--local"), "401 Unauthorized")
	contains(payhook(0, "invoke", "redrive", sample("redrive/scheduled"), "--local"), `"found"`)
}
