package local

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"golang.org/x/sync/errgroup"

	"payhook.example/infra/checks"
	"payhook.example/infra/stack"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// waitTimeout is how long a test waits for something that must happen. It fails after
// that.
const waitTimeout = time.Minute

// fixture is the deployed stack with the proxy between its functions and the emulator.
type fixture struct {
	*checks.Subject
	machine *machine
	proxy   *proxy
	folder  string // of a clone whose local run this is
}

// The end-to-end tests share one deployment, so their order counts. It has the settings of make
// up, but keys need a token, and nothing waits long for redrive.
func TestDeployedStack(t *testing.T) {
	if os.Getenv("PAYHOOK_E2E") != "1" {
		t.Skip("an end-to-end test, which deploys everything into an emulator: make test-e2e, or PAYHOOK_E2E=1")
	}
	ctx, cancel := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	top, err := stack.Top()
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy()
	m, err := start(ctx, options{
		top: top, state: filepath.Join(top, ".local", "test"),
		settings: map[string]string{
			"webhookTimeout": "4s", "keyEndpointAuth": "bearer", "storeRejected": "1h",
		},
		forFunctions: func(endpoint string) string {
			p.emulator = endpoint
			return p.URL
		},
		progress: NewProgress(t.Output()),
	})
	if err != nil {
		t.Fatal(err)
	}
	shared.once.Do(func() { shared.emulator = m.emulator })
	m.end = slices.Insert(m.end, 0, p.Close) // the last
	shared.stop = m.stop
	if err := m.firstToken(ctx); err != nil { // with which keys are fetched
		t.Error(err)
	}
	f := &fixture{m.main, m, p, t.TempDir()}
	run := *f.Stack
	run.PaymentService = m.service.URL
	mod := os.WriteFile(filepath.Join(f.folder, "go.mod"), []byte("module payhook.example\n"), 0o600)
	if err := errors.Join(mod, run.Write(f.folder)); err != nil {
		t.Fatal(err)
	}
	f.Arrivals, f.Command = checks.NewArrivals(m.main.Stack.AWS, m.main.Stack.Queues), f.program(m.main)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"every row of the table is right", f.testChecks},
		{"the stores are like those in memory", f.testStores},
		{"commands work", f.testCommands},
		{"a wrong setting loses no webhook", f.testRejected},
		{"faults under load lose no event", f.testFaults},
		{"every permission is needed and none is missing", f.testPermissions},
		{"a deployment loses no webhook", f.testDeployment},
		{"an app of another module has two Payhooks", f.testBank},
		{"the tutorial is right", f.testTutorial},
	} {
		if ctx.Err() == nil {
			t.Run(test.name, test.run)
		}
		p.forget()
	}
}

// processes returns the lines of ps about the processes whose command names a folder.
func processes(folder string) (lines []string) {
	listing, _ := exec.Command("ps", "-A", "-ww", "-o", "pid=", "-o", "stat=", "-o", "command=").Output()
	for line := range strings.Lines(string(listing)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1][0] != 'Z' &&
			strings.Contains(line, folder+"/") {
			lines = append(lines, line)
		}
	}
	return lines
}

func (f *fixture) testChecks(t *testing.T) {
	rows, further := f.Rows()
	var mechanisms []checks.Check // the second goroutine's until both have ended
	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() error { return f.Run(ctx, rows) })
	group.Go(func() (err error) {
		mechanisms, err = f.runMechanisms(ctx)
		return err
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := f.Run(t.Context(), further); err != nil {
		t.Fatal(err)
	}
	areRight(t, slices.Concat(rows, mechanisms, further), 80)
	if denied := f.proxy.denied(); len(denied) > 0 {
		t.Errorf("IAM denied %q", denied)
	}
}

// runMechanisms deploys a stack for each mechanism with client certificates, and does its checks.
func (f *fixture) runMechanisms(ctx context.Context) (rows []checks.Check, err error) {
	certificates, named := checks.NewCertificates(f.machine.identity)
	pattern, err := os.ReadFile("../../events/rules/" + checks.Released + ".json")
	if err != nil {
		return nil, err
	}
	// One after another: they change the certificate that the service presents.
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		values := maps.Clone(f.Stack.Settings)
		maps.Copy(values, named)
		maps.Copy(values, map[string]string{"authentication": authentication, "stackName": "Payhook-" + authentication,
			"domainName": authentication + ".payhook.test", "storeRejected": "off"}) // which needs signatures
		if authentication == settings.ByMTLS {
			values["tokenStore"] = settings.InParameter
		}
		s, err := f.deployed(ctx, values)
		if err != nil {
			return nil, err
		}
		queue, err := subscribe(ctx, s.Stack.AWS, s.Stack.Bus, string(pattern))
		if err != nil {
			return nil, err
		}
		s.Certificates, s.Command = certificates, f.program(s)
		s.Stack.Queues = map[string]string{checks.Released: queue}
		s.Arrivals = checks.NewArrivals(s.Stack.AWS, s.Stack.Queues)
		own := s.Mechanism()
		if err := s.Run(ctx, own); err != nil {
			return nil, err
		}
		rows = append(rows, own...)
	}
	return rows, nil
}

// subscribe makes a queue behind a rule of a bus, and returns its URL.
func subscribe(ctx context.Context, config aws.Config, bus, pattern string) (string, error) {
	rules, name := eventbridge.NewFromConfig(config), "for-"+bus
	queue, err := sqs.NewFromConfig(config).CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name})
	if err != nil {
		return "", err
	}
	rule, err := rules.PutRule(ctx, &eventbridge.PutRuleInput{Name: &name, EventBusName: &bus, EventPattern: &pattern})
	if err != nil {
		return "", err
	}
	// arn:aws:events:REGION:ACCOUNT:rule/BUS/NAME
	part := strings.Split(*rule.RuleArn, ":")
	arn := strings.Join([]string{part[0], part[1], "sqs", part[3], part[4], name}, ":")
	_, err = rules.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: &name, EventBusName: &bus,
		Targets: []eventbridgetypes.Target{{Id: aws.String("queue"), Arn: &arn}}})
	return *queue.QueueUrl, err
}

// deployed returns a stack with settings, after its deployment.
func (f *fixture) deployed(ctx context.Context, values map[string]string) (*checks.Subject, error) {
	s, err := f.machine.newStack(values)
	if err != nil {
		return nil, err
	}
	assembly, err := f.machine.cdk.Synth(ctx, f.machine.options.top, s.Stack.StackName+".out",
		f.machine.context(s.Stack.Settings))
	if err != nil {
		return nil, err
	}
	return s, f.machine.deploy(ctx, s, assembly)
}

// send sends a delivery and returns its answer, which must have a status.
func (f *fixture) send(ctx context.Context, payload []byte, status int) (a answer, err error) {
	got, err := f.machine.service.Send(ctx, paymenttest.Webhook{URL: f.Stack.WebhookURL, Payload: payload})
	if err == nil {
		err = json.Unmarshal(got.Body, &a)
	}
	if err != nil || got.Status != status {
		return a, fmt.Errorf("answered %d %s, want %d: %w", got.Status, got.Body, status, err)
	}
	return a, nil
}

// answer is the body of an answer of the webhook function.
type answer struct{ Recorded, Duplicates, Conflicts int }

// program returns what makes a command of payhook for a stack. AWS is this emulator.
func (f *fixture) program(s *checks.Subject) func(ctx context.Context, args ...string) *exec.Cmd {
	return func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(f.machine.options.top, ".local", "bin", "payhook"),
			append(args, "--stack", s.Stack.StackName)...)
		cmd.Dir, cmd.Env = f.folder, f.machine.cdk.Environment
		return cmd
	}
}

// The commands that send, and those that show what the checks have left.
func (f *fixture) testCommands(t *testing.T) {
	event := paymenttest.Event()
	payload := base64.StdEncoding.EncodeToString(paymenttest.Delivery(event))
	endToEndID := event.EventData.Identifiers.PaymentEndToEndID
	list, today := filepath.Join(t.TempDir(), "list"), time.Now().UTC().Format(time.DateOnly)
	if err := os.WriteFile(list, []byte("id\n"+endToEndID+"\nE2E-unknown\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	call := func(args string, status int, fields checks.Fields) checks.Check {
		return checks.Check{What: fmt.Sprintf("%.60s", args), Call: strings.Fields(args),
			Want: checks.Seen{Status: status, Fields: fields}}
	}
	const mismatch = "signature-mismatch"
	rows := []checks.Check{
		call(`local send {"events":60}`, 0, checks.Fields{"status": 200}),
		call(`local send {"kind":"duplicate"}`, 0, checks.Fields{"status": 200}),
		call(`local send {"kind":"conflict"}`, 0, checks.Fields{"status": 200}),
		call(`local send {"age":"10m"}`, 1, checks.Fields{"status": 401}),
		call(`local send {"kind":"signature"}`, 1, checks.Fields{"status": 401}),
		call("explain", 1, checks.Fields{"outcome": mismatch}),
		call("parked list --kind rejected", 0, checks.Fields{"cause": mismatch}),
		call("logs --not-accepted --since 1h", 1, checks.Fields{"outcome": mismatch}),
		call(`local send {"payload":"`+payload+`"}`, 0, checks.Fields{"status": 200}),
		call("status", 1, checks.Fields{"healthy": false}),
		call("parked list", 0, checks.Fields{"kind": "conflict", "state": "open"}),
		call("keys", 0, checks.Fields{"lines": 1}),
		call("reconcile "+list+" --column id --by paymentEndToEndId --from "+today+" --all", 1,
			checks.Fields{"finding": "published", "id": endToEndID}),
	}
	if err := f.Run(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	areRight(t, rows, len(rows))
}

// areRight logs the report of checks, which must be right. There are at least a number.
func areRight(t *testing.T, rows []checks.Check, least int) {
	t.Helper()
	var out bytes.Buffer
	wrong, _ := checks.Print(&out, rows)
	t.Logf("%s", &out)
	if len(rows) < least || wrong > 0 {
		t.Errorf("a check is wrong, or there are only %d", len(rows))
	}
}

// What a wrong setting rejects is stored, and published once when the setting is right.
func (f *fixture) testRejected(t *testing.T) {
	client, name := lambda.NewFromConfig(f.Stack.AWS), f.Stack.Functions["webhook"]
	conf, err := client.GetFunctionConfiguration(t.Context(),
		&lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		t.Fatal(err)
	}
	environment := maps.Clone(conf.Environment.Variables)
	environment["PAYHOOK_TIMESTAMP_TOLERANCE"] = "1s"
	deploy := func(variables map[string]string) {
		t.Helper()
		changed, err := client.UpdateFunctionConfiguration(t.Context(), &lambda.UpdateFunctionConfigurationInput{
			FunctionName: conf.FunctionName, Environment: &types.Environment{Variables: variables}})
		if err != nil {
			t.Fatal(err)
		}
		version, err := client.PublishVersion(t.Context(),
			&lambda.PublishVersionInput{FunctionName: changed.FunctionName})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.UpdateAlias(t.Context(), &lambda.UpdateAliasInput{FunctionName: conf.FunctionName,
			Name: aws.String("live"), FunctionVersion: version.Version}); err != nil {
			t.Fatal(err)
		}
	}
	deploy(environment)
	event := paymenttest.Event()
	got, rejected := f.machine.service.Send(t.Context(), paymenttest.Webhook{URL: f.Stack.WebhookURL,
		Payload: paymenttest.Delivery(event), Age: time.Minute})
	if rejected == nil && got.Status != http.StatusUnauthorized {
		rejected = wrong("not rejected", got.Status)
	}
	deploy(conf.Environment.Variables)
	for o, err := range proof.List(t.Context(), f.parking(), proof.Rejected, time.Time{}, time.Time{}) {
		if err := errors.Join(rejected, err); err != nil {
			t.Fatal(err)
		}
		name = o.Key
	}
	for _, want := range []string{"recorded=1", "duplicates=1"} {
		out, err := f.Command(t.Context(), "replay", name, "--reason", "wrong timestampTolerance", "--again").Output()
		if err != nil || !strings.Contains(string(out), "outcome=accepted  "+want) {
			t.Errorf("%v: %s", err, out)
		}
	}
	f.awaitReleased(t, event.EventID)
	if d, note, err := proof.DecisionOn(t.Context(), f.parking(), name); d != proof.Replayed ||
		note.By == "" || note.Reason != "wrong timestampTolerance" {
		t.Errorf("%s, noted %+v, %v", d, note, err)
	}
}

// drain runs the redrive function until nothing is pending. An item becomes due when no receiver
// can work on it any more, and later if a run of the schedule could not publish it.
func (f *fixture) drain(t *testing.T) {
	t.Helper()
	inspector := dynamodb.NewLedgerReader(dynamodb.NewClient(f.Stack.AWS), f.Stack.LedgerTable)
	var pending []ledger.Item
	var due time.Time // the time of the first one. The index follows the table with a delay.
	var failed error
	if err := checks.Poll(t.Context(), 5*waitTimeout, 200*time.Millisecond, func() (_ bool, err error) {
		if time.Now().Before(due) {
			return false, nil
		}
		failed = f.Invoke(t.Context(), "redrive", checks.AsScheduled, &struct{}{})
		if pending, err = ledger.List(t.Context(), inspector, ledger.Pending); len(pending) > 0 {
			due = pending[0].IndexTime()
		}
		return len(pending) == 0, err
	}); err != nil {
		t.Fatalf("%d events are still pending: %v, %v", len(pending), err, failed)
	}
}

// awaitReleased waits until events have arrived behind the rule for released payments, and
// returns the details that did, by eventId.
func (f *fixture) awaitReleased(t *testing.T, ids ...string) map[string][]byte {
	t.Helper()
	arrived := map[string][]byte{}
	if _, err := f.Arrivals.Await(t.Context(), waitTimeout, func(all []checks.Arrival) bool {
		for _, a := range all {
			if a.Rule == checks.Released {
				arrived[a.EventID] = a.Detail
			}
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return arrived[id] == nil })
	}); err != nil {
		t.Errorf("of %d events, at least one did not arrive: %v", len(ids), err)
	}
	return arrived
}

// A new version is deployed while webhooks arrive. The status of an answer shows which version
// gave it.
func (f *fixture) testDeployment(t *testing.T) {
	var (
		mu      sync.Mutex
		ids     []string
		answers = map[int]int{} // by status
	)
	send := func() {
		event := paymenttest.Event()
		got, err := f.machine.service.Send(t.Context(),
			paymenttest.Webhook{URL: f.Stack.WebhookURL, Payload: paymenttest.Delivery(event)})
		if err != nil || got.Status/100 != 2 {
			t.Errorf("answered %d %s, %v", got.Status, got.Body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, event.EventID)
		answers[got.Status]++
	}
	deployed := make(chan struct{})
	var senders sync.WaitGroup
	for range 2 {
		senders.Go(func() {
			for !t.Failed() {
				select {
				case <-deployed:
					return
				case <-time.After(100 * time.Millisecond):
					send()
				}
			}
		})
	}
	values := maps.Clone(f.Stack.Settings)
	values["successStatus"], values["keyMaxAge"] = "202", "25h"
	if _, err := f.deployed(t.Context(), values); err != nil {
		t.Error(err)
	}
	close(deployed)
	senders.Wait()
	send()
	if len(answers) != 2 || answers[http.StatusOK] == 0 || answers[http.StatusAccepted] == 0 {
		t.Errorf("answered %v, want 200, and 202 at the end", answers)
	}
	f.awaitReleased(t, ids...)
}

// wrong returns the error of a result that is not the expected one.
func wrong(what string, got any) error { return fmt.Errorf("%s: %+v", what, got) }
