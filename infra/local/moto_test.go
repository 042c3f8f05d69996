package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// installMoto returns the Python that has moto, which pip installs once.
func installMoto(t *testing.T, top string) string {
	t.Helper()
	system, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("moto needs Python")
	}
	version, err := exec.CommandContext(t.Context(), system, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(top, ".local", "moto")
	requirements := filepath.Join(top, "infra", "local", "moto", "requirements.txt")
	want, err := fingerprint(requirements, string(version), folder)
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(folder, "bin", "python")
	if installed(folder, want) {
		return python
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{system, "-m", "venv", folder},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--require-virtualenv",
			"--no-deps", "--require-hashes", "-r", requirements},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("moto can't be installed: %v\n%s", err, out)
		}
	}
	if err := stamp(folder, want); err != nil {
		t.Fatal(err)
	}
	return python
}

// archived is a bus with an archive and two rules in moto, and the ledger.
type archived struct {
	endpoint string
	program  string
	aws      aws.Config
	queues   map[string]string // URLs, by the names of the rules
}

// startMoto starts moto behind a server that answers with the outputs of the stack.
func startMoto(t *testing.T) *archived {
	t.Helper()
	if os.Getenv("PAYHOOK_E2E") == "" {
		t.Skip("an end-to-end test, which installs moto: make test-e2e, or PAYHOOK_E2E=moto")
	}
	top, err := projectTop()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "payhook")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./infra/cmd/payhook")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := exec.CommandContext(t.Context(), installMoto(t, top),
		filepath.Join(top, "infra", "local", "moto", "start.py"))
	server.Dir = t.TempDir()
	port := startEngine(t, "moto", server)
	moto := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The rest of the query protocol is not used.
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
			writeOutputs(w)
			return
		}
		moto.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	a := &archived{endpoint: front.URL, program: program, queues: map[string]string{}, aws: aws.Config{
		Region: region, BaseEndpoint: &front.URL, Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
	}}
	if err := a.create(t); err != nil {
		t.Fatal(err)
	}
	return a
}

// motoAccount is the account of everything in moto.
const motoAccount = "123456789012"

func writeOutputs(w http.ResponseWriter) {
	fmt.Fprint(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>Payhook</StackName>`+
		`<CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus><Outputs>`)
	for key, value := range map[string]string{
		names.EventBusNameOutput: "payhook", names.ArchiveOutput: "payhook", names.LedgerTableOutput: "ledger",
		names.EventBusARNOutput: "arn:aws:events:" + region + ":" + motoAccount + ":event-bus/payhook",
	} {
		fmt.Fprintf(w, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>`, key, value)
	}
	fmt.Fprint(w, `</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`)
}

// create creates the bus, its archive as the stack has it, two rules with a queue each, and
// the ledger.
func (a *archived) create(t *testing.T) error {
	ctx, events, queues := t.Context(), eventbridge.NewFromConfig(a.aws), sqs.NewFromConfig(a.aws)
	made, err := events.CreateEventBus(ctx, &eventbridge.CreateEventBusInput{Name: aws.String("payhook")})
	if err != nil {
		return err
	}
	pattern := aws.String(`{"source":["payhook"]}`)
	if _, err := events.CreateArchive(ctx, &eventbridge.CreateArchiveInput{ArchiveName: aws.String("payhook"),
		EventSourceArn: made.EventBusArn, EventPattern: pattern, RetentionDays: aws.Int32(30)}); err != nil {
		return err
	}
	for _, name := range []string{"released", "other"} {
		queue, err := queues.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name})
		if err != nil {
			return err
		}
		a.queues[name] = *queue.QueueUrl
		if _, err := events.PutRule(ctx, &eventbridge.PutRuleInput{Name: &name, EventBusName: aws.String("payhook"),
			EventPattern: pattern}); err != nil {
			return err
		}
		if _, err := events.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: &name,
			EventBusName: aws.String("payhook"), Targets: []eventbridgetypes.Target{{Id: aws.String("queue"),
				Arn: aws.String("arn:aws:sqs:" + region + ":" + motoAccount + ":" + name)}}}); err != nil {
			return err
		}
	}
	_, err = dynamodb.NewFromConfig(a.aws).CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: aws.String("ledger"), BillingMode: dynamodbtypes.BillingModePayPerRequest,
		AttributeDefinitions: []dynamodbtypes.AttributeDefinition{{AttributeName: aws.String(names.LedgerKey),
			AttributeType: dynamodbtypes.ScalarAttributeTypeS}},
		KeySchema: []dynamodbtypes.KeySchemaElement{{AttributeName: aws.String(names.LedgerKey),
			KeyType: dynamodbtypes.KeyTypeHash}},
	})
	return err
}

// publish records, publishes and marks an event as the functions do, an hour ago.
func (a *archived) publish(t *testing.T, at time.Time) (eventID string) {
	t.Helper()
	event := paymenttest.Event()
	event.EventTimestamp = at
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(event))
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-time.Hour)
	l := ledger.New(dynamodb.NewFromConfig(a.aws), "ledger", ledger.Options{Now: func() time.Time { return before }})
	e := ledger.NewEntry(raw, "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60", before)
	recorded := l.Record(t.Context(), []ledger.Entry{e}, ledger.NewHolder(), before)[0].Err
	b := bus.New(eventbridge.NewFromConfig(a.aws), "payhook", "payhook", bus.Options{})
	published := b.Publish(t.Context(), []bus.Event{{DetailType: e.EventName, Detail: e.Detail, Time: e.EventTimestamp,
		DeliveryID: e.DeliveryID}})[0]
	if err := errors.Join(recorded, published, l.MarkPublished(t.Context(), []ledger.Entry{e})[0]); err != nil {
		t.Fatal(err)
	}
	return e.EventID
}

// replayedEvent is an event that was taken out of a queue.
type replayedEvent struct {
	ReplayName string `json:"replay-name"`
	Detail     struct {
		EventID string `json:"eventId"`
	} `json:"detail"`
}

// take takes everything out of a queue. Moto delivers before it answers.
func (a *archived) take(t *testing.T, rule string) (all []replayedEvent) {
	t.Helper()
	client, queue := sqs.NewFromConfig(a.aws), a.queues[rule]
	for {
		out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &queue,
			MaxNumberOfMessages: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return all
		}
		for _, m := range out.Messages {
			all = append(all, a.read(t, queue, m))
		}
	}
}

func (a *archived) read(t *testing.T, queue string, m sqstypes.Message) (got replayedEvent) {
	t.Helper()
	if err := json.Unmarshal([]byte(*m.Body), &got); err != nil {
		t.Fatal(err)
	}
	if _, err := sqs.NewFromConfig(a.aws).DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &queue,
		ReceiptHandle: m.ReceiptHandle}); err != nil {
		t.Fatal(err)
	}
	return got
}

// replay runs payhook replay, as often as it says that another replay was started in the
// same second.
func (a *archived) replay(t *testing.T, args ...string) (out string, status int) {
	t.Helper()
	for {
		cmd := exec.CommandContext(t.Context(), a.program, append([]string{"replay", "--json"}, args...)...)
		cmd.Dir = t.TempDir()
		cmd.Env = []string{"AWS_ENDPOINT_URL=" + a.endpoint, "AWS_REGION=" + region, "AWS_ACCESS_KEY_ID=k",
			"AWS_SECRET_ACCESS_KEY=s", "HOME=" + cmd.Dir, "AWS_EC2_METADATA_DISABLED=true"}
		var problems strings.Builder
		cmd.Stderr = &problems
		text, err := cmd.Output()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			t.Fatal(err)
		}
		if strings.Contains(problems.String(), "in the same second") {
			continue
		}
		t.Logf("%v: %d\n%s%s", args, cmd.ProcessState.ExitCode(), text, &problems)
		return string(text), cmd.ProcessState.ExitCode()
	}
}

// The command replays events of an engine with archives, to the rules that it names alone.
// Moto has no delay, no limits and no IAM, and completes a replay at once.
func TestPublishedEventsAreReplayed(t *testing.T) {
	a := startMoto(t)
	minute := time.Now().Add(-3 * time.Hour).UTC().Truncate(time.Minute)
	var ids []string
	for _, at := range []time.Duration{-time.Second, 0, 59_999 * time.Millisecond, time.Minute} {
		ids = append(ids, a.publish(t, minute.Add(at)))
	}
	for rule := range a.queues {
		if n := len(a.take(t, rule)); n != len(ids) {
			t.Fatalf("%d of %d events arrived at %s", n, len(ids), rule)
		}
	}
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"the minute of an event": {[]string{"--event", ids[1]}, ids[1:3]},
		"a time": {[]string{"--from", minute.Format(time.RFC3339), "--to",
			minute.Add(2 * time.Minute).Format(time.RFC3339)}, ids[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			out, status := a.replay(t, append(test.args, "--rule", "released", "--yes")...)
			var r struct{ Name, State string }
			if err := json.Unmarshal([]byte(out), &r); err != nil || status != 0 || r.State != "COMPLETED" {
				t.Fatalf("%d, %+v, %v", status, r, err)
			}
			var got []string
			for _, event := range a.take(t, "released") {
				got = append(got, event.Detail.EventID)
				if event.ReplayName != r.Name {
					t.Errorf("the replay-name is %q, want %q", event.ReplayName, r.Name)
				}
			}
			want := slices.Clone(test.want)
			slices.Sort(want)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%q arrived, want %q", got, want)
			}
			if other := a.take(t, "other"); len(other) > 0 {
				t.Errorf("a rule that was not named got %v", other)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		if out, status := a.replay(t, "--from", "9h", "--to", "8h", "--all-rules", "--yes"); status != 1 {
			t.Errorf("%d %s", status, out)
		}
	})
	t.Run("list", func(t *testing.T) {
		if out, status := a.replay(t, "list"); status != 0 || strings.Count(out, `"state":"COMPLETED"`) != 3 {
			t.Errorf("%d %s", status, out)
		}
	})
	archive, err := eventbridge.NewFromConfig(a.aws).DescribeArchive(t.Context(),
		&eventbridge.DescribeArchiveInput{ArchiveName: aws.String("payhook")})
	if err != nil || archive.EventCount != int64(len(ids)) {
		t.Errorf("the archive has %d events, want %d, as before the replays: %v", archive.EventCount, len(ids), err)
	}
}

// The rows of payhook acceptance about replays are right on moto, too, as far as it can show them.
func TestTheRowsOfReplaysAreShownOnMoto(t *testing.T) {
	a := startMoto(t)
	top, err := projectTop()
	if err != nil {
		t.Fatal(err)
	}
	rows := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "^TestReplaysOnMoto$",
		"./infra/acceptance")
	rows.Dir = top
	rows.Env = append(os.Environ(), "PAYHOOK_E2E=", "PAYHOOK_MOTO_ENDPOINT="+a.endpoint)
	text, err := rows.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "--- PASS: TestReplaysOnMoto") {
		t.Errorf("%v:\n%s", err, text)
	}
	t.Logf("%s", text)
}
