package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// world is a deployment in memory, and somebody who operates it.
type world struct {
	t      *testing.T
	now    time.Time
	clock  func() time.Time
	db     *awstest.DynamoDB
	s3     *awstest.S3
	ledger *ledger.Ledger
	store  *parking.Store
	outs   map[string]string

	invoked [][]string
	version string // of the last replay
	bus     string
	again   bool
	moved   []request
	ofMove  []string // what the function answers to each move
	settled []request
	// redrive is the function; nil: it accepts everything.
	redrive func(list []string) (payload string, functionError string, err error)

	certificates string // what the function reports of them

	answer   io.Reader // what the person types
	terminal bool
	ctx      context.Context
	meant    deployment.Target
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, now: noon, db: awstest.NewDynamoDB(), s3: awstest.NewS3(), answer: strings.NewReader(""),
		ctx: t.Context(),
		outs: map[string]string{names.LedgerTableOutput: "ledger", names.KeysTableOutput: "keys",
			names.ParkingBucketOutput: "parking", names.RedriveFunctionOutput: "redrive",
			names.EventBusNameOutput: "bus"},
	}
	w.clock = func() time.Time { return w.now }
	w.db.CreateLedger("ledger")
	w.db.CreateTable("keys", names.KeysKey)
	w.s3.MakeBucket("parking")
	w.ledger = ledger.New(w.db, "ledger", "bus", ledger.Options{Now: func() time.Time { return w.now }})
	w.store = parking.NewStore(w.s3, "parking")
	return w
}

// Invoke is the redrive function.
func (w *world) Invoke(ctx context.Context, in *lambda.InvokeInput,
	_ ...func(*lambda.Options)) (*lambda.InvokeOutput, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if aws.ToString(in.FunctionName) != "redrive" {
		w.t.Errorf("invoked %s", aws.ToString(in.FunctionName))
	}
	if string(in.Payload) == `{"certificates":true}` {
		return &lambda.InvokeOutput{StatusCode: 200, Payload: []byte(w.certificates)}, nil
	}
	var request request
	if err := json.Unmarshal(in.Payload, &request); err != nil ||
		request.MoveFrom == "" &&
			((len(request.Replay) == 0) == (len(request.Settle) == 0) || request.By != callerARN) {
		w.t.Errorf("invoked with %s: %v", in.Payload, err)
	}
	if request.MoveFrom != "" {
		return w.move(request)
	}
	if len(request.Settle) > 0 {
		w.settled = append(w.settled, request)
		return w.settle(request)
	}
	w.invoked, w.version, w.bus, w.again = append(w.invoked, request.Replay), request.Version,
		request.Bus, request.Again
	redrive := w.redrive
	if redrive == nil {
		redrive = func(list []string) (string, string, error) {
			return report(list, func(string) string {
				return `"outcome":"accepted","recorded":1,"duplicates":0,"conflicts":0`
			}), "", nil
		}
	}
	payload, failed, err := redrive(request.Replay)
	if err != nil {
		return nil, err
	}
	out := &lambda.InvokeOutput{StatusCode: 200, Payload: []byte(payload)}
	if failed != "" {
		out.FunctionError = aws.String(failed)
	}
	return out, nil
}

const callerARN = "arn:aws:iam::123456789012:user/ann"

// GetCallerIdentity is STS.
func (w *world) GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput,
	...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error) {
	return &sts.GetCallerIdentityOutput{Arn: aws.String(callerARN)}, nil
}

// report is what the redrive function answers, with an outcome for each name.
func report(list []string, outcome func(name string) string) string {
	var results []string
	for _, name := range list {
		if o := outcome(name); o != "" {
			results = append(results, fmt.Sprintf(`{"name":%q,%s}`, name, o))
		}
	}
	return `{"found":0,"published":0,"failed":0,"left":false,"replayed":[` + strings.Join(results, ",") + `]}`
}

// operate calls the program and returns what it wrote and its exit status.
func (w *world) operate(args ...string) (out, err string, status int) {
	w.t.Helper()
	var o, e bytes.Buffer
	c := &cli.Program{In: w.answer, Out: &o, Err: &e, Terminal: w.terminal, Now: w.clock}
	var meant deployment.Target
	p := &program{c, &meant, func(_ context.Context, t deployment.Target) (*stack, error) {
		w.meant = t
		d := &deployment.Deployment{Name: "stack Payhook (nowhere)", Stack: "Payhook", Outputs: w.outs}
		return &stack{Deployment: d, db: w.db, buckets: w.s3, lambda: w, sts: w}, nil
	}}
	root := c.Root("")
	cli.TargetFlags(root, &meant)
	root.AddCommand(p.commands()...)
	status = c.Run(w.ctx, root, args)
	return o.String(), e.String(), status
}

// expect is operate that holds the exit status against what it must be.
func (w *world) expect(status int, args ...string) (out, err string) {
	w.t.Helper()
	out, err, got := w.operate(args...)
	if got != status {
		w.t.Fatalf("payhook %s: exit status %d, want %d\n%s%s", strings.Join(args, " "), got, status, out, err)
	}
	return out, err
}

// contains holds that every text is part of what was written.
func (w *world) contains(written string, texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		if !strings.Contains(written, text) {
			w.t.Errorf("%q is not in:\n%s", text, written)
		}
	}
}

// document reads one document as a script would.
func document[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if d.More() {
		t.Errorf("more than one document: %s", text)
	}
	return v
}

// lines reads one document a line.
func lines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		all = append(all, document[T](t, line))
	}
	return all
}

const secretAmount = "987654321.10"

// entry returns a new event that was accepted that long ago.
func (w *world) entry(age time.Duration) ledger.Entry {
	w.t.Helper()
	raw := fmt.Sprintf(`{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s",`+
		`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%s}}`, uuid.New().String(), secretAmount)
	event, err := payment.DecodeRawEvent([]byte(raw))
	if err != nil {
		w.t.Fatal(err)
	}
	return ledger.NewEntry(event, uuid.New().String(), w.now.Add(-age))
}

// record records an event that was accepted that long ago.
func (w *world) record(age time.Duration) ledger.Entry {
	w.t.Helper()
	e := w.entry(age)
	if r := w.ledger.Record(w.t.Context(), []ledger.Entry{e}, ledger.NewHolder(),
		e.RecordedAt.Add(time.Minute))[0]; r.Outcome != ledger.Recorded {
		w.t.Fatalf("%+v", r)
	}
	return e
}

// try lets redrive lease an event once more, and leave it alone until then.
func (w *world) try(e ledger.Entry, until time.Time) {
	w.t.Helper()
	item, ok, err := ledger.NewInspector(w.db, "ledger").Find(w.t.Context(), e.EventID)
	if err != nil || !ok {
		w.t.Fatal(ok, err)
	}
	if r := w.ledger.Lease(w.t.Context(), []ledger.Pending{{EventID: e.EventID, Due: item.Due}}, ledger.NewHolder(),
		until)[0]; r.Err != nil || !r.Held {
		w.t.Fatal(ok, err)
	}
}

// park parks a delivery, that long ago.
func (w *world) park(age time.Duration, reason parking.Reason,
	change ...func(*parking.Parked)) (string, parking.Parked) {
	w.t.Helper()
	p := parking.Parked{
		Reason: reason, Cause: "why", ParkedAt: w.now.Add(-age), DeliveryID: uuid.New().String(),
		EventIDs:  []string{uuid.New().String()},
		Payload:   []byte("\x00 " + secretAmount + " \xff\n"),
		Timestamp: signature.FormatMilliseconds.Text(w.now.Add(-age)), KeyID: uuid.New().String(),
		Signature: "c2ln",
		JWK:       []byte(`{"kty":"RSA"}`),
	}
	for _, c := range change {
		c(&p)
	}
	name, _, err := w.store.Park(w.t.Context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	return name, p
}

func (w *world) replayed(name string) {
	w.t.Helper()
	if err := w.store.MarkReplayed(w.t.Context(), name, parking.Note{By: "ann", At: w.now}); err != nil {
		w.t.Fatal(err)
	}
}

func TestAWrongCallChangesNothingAndSaysWhatIsWrong(t *testing.T) {
	name := "2026/01/31/12/20260131T120000.000Z-invalid-0b7e4c1e.json"
	conflict := strings.ReplaceAll(name, "invalid", "conflict")
	for _, test := range []struct {
		call string
		says string
	}{
		{"", "needs a command"},
		{"nonsense", `unknown command "nonsense"`},
		{"--nonsense pending", "--nonsense"},
		{"pendin", "did you mean pending?"},
		{"parked setle", "did you mean settle?"},
		{"pending --local --region eu-north-1", "cannot be used with --local"},
		{"pending extra", `"extra"`},
		{"pending --oldest many", "oldest"},
		{"pending --oldest -1", "negative"},
		{"pending --overdue soon", "overdue"},
		{"parked", "payhook parked needs a command"},
		{"parked nonsense", `unknown command "nonsense" for "payhook parked"`},
		{"parked list --from yesterday", "24h"},
		{"parked list --from -5m", "how long ago"},
		{"parked list --from 2026-01-31T2:00:00Z", "how long ago"},
		{"parked list --reason bad", "invalid, conflict, unpublishable"},
		{"parked list --event 7", "UUID"},
		{"parked list --delivery 7", "UUID"},
		{"parked list --state maybe", "open, replayed, settled, any"},
		{"parked list --all", "--all"},
		{"parked show", "takes NAME"},
		{"parked show a b", "arguments is 2"},
		{"parked show a", `"a" is not a name`},
		{"parked show ../x", "is not a name"},
		{"parked show " + name + " --payload --json", "cannot be used with --json"},
		{"parked replay", "names are missing"},
		{"parked replay --all " + name, "cannot be used with names"},
		{"parked replay --reason invalid " + name, "are used with --all"},
		{"parked replay nonsense", "is not a name"},
		{"parked replay " + conflict, "is a conflict: choose with --version"},
		{"parked replay " + name + " " + conflict, "is a conflict: choose with --version"},
		{"parked replay --version second " + conflict, "first, parked"},
		{"parked replay --version first " + name, "is not a conflict"},
		{"parked replay --version parked " + name + " " + conflict, "is not a conflict"},
		{"parked replay --version first " + strings.ReplaceAll(name, "invalid", "unpublishable"), "is not a conflict"},
		{"parked replay --all --version parked", "by its name"},
		{"parked replay --all --reason conflict", "by its name"},
		{"parked settle", "names are missing"},
		{"parked settle " + name, "--reason is missing"},
		{"parked settle --reason= " + name, "--reason is missing"},
		{"parked settle --reason why nonsense", "is not a name"},
		{"event", "takes ID"},
		{"event 7", "not an eventId"},
		{"key", "takes ID"},
		{"key misses#1 --drop", "not a key id"},
	} {
		t.Run(test.call, func(t *testing.T) {
			w := newWorld(t)
			out, err := w.expect(cli.StatusUsage, strings.Fields(test.call)...)
			w.contains(err, test.says, "payhook: ")
			if out != "" || len(w.invoked) > 0 || w.meant != (deployment.Target{}) {
				t.Errorf("wrote %q, invoked %v, connected to %v", out, w.invoked, w.meant)
			}
		})
	}
}

func TestFlagsStandWhereverOneLikes(t *testing.T) {
	for _, call := range []string{
		"--stack Other --local --json event %s",
		"event --stack Other --local --json %s",
		"event %s --json --local --stack=Other",
		"--local event %s --stack Other --json",
	} {
		w := newWorld(t)
		id := uuid.New().String()
		out, _ := w.expect(cli.StatusFailed, strings.Fields(fmt.Sprintf(call, id))...)
		if s := document[eventState](t, out); s.EventID != id {
			t.Errorf("%s: %s", call, out)
		}
		if (w.meant != deployment.Target{Stack: "Other", Local: true}) {
			t.Errorf("%s: %+v", call, w.meant)
		}
	}
}

func TestAnOutputThatIsNotThereSaysWhatToDo(t *testing.T) {
	for verb, output := range map[string]string{
		"pending": names.LedgerTableOutput, "parked list": names.ParkingBucketOutput,
		"key " + uuid.New().String():   names.KeysTableOutput,
		"event " + uuid.New().String(): names.ParkingBucketOutput, "certificates": names.RedriveFunctionOutput,
	} {
		w := newWorld(t)
		delete(w.outs, output)
		_, err := w.expect(cli.StatusUnreachable, strings.Fields(verb)...)
		w.contains(err, "no output "+output, "deploy it again")
	}
}

func TestWhatAWSRefusesIsNoEmptyAnswer(t *testing.T) {
	for _, call := range []string{
		"pending", "parked list", "parked list --event " + uuid.New().String(),
		"parked show 2026/01/31/12/20260131T120000.000Z-invalid-0b7e4c1e.json",
		"event " + uuid.New().String(), "key " + uuid.New().String(), "key --drop " + uuid.New().String(),
		"parked replay --all",
	} {
		w := newWorld(t)
		w.outs[names.LedgerTableOutput], w.outs[names.KeysTableOutput] = "no table", "no table"
		w.s3.Fails = func(string, string) error { return errors.New("refused") }
		out, err := w.expect(cli.StatusUnreachable, strings.Fields(call)...)
		if out != "" || !strings.HasPrefix(err, "payhook: ") {
			t.Errorf("%s: %q, %q", call, out, err)
		}
	}
}

func TestCtrlCEndsEveryCommand(t *testing.T) {
	for _, call := range []string{"pending", "parked list", "event " + uuid.New().String(),
		"key " + uuid.New().String(), "parked replay --all --yes"} {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.ctx = ctx
		_, err := w.expect(cli.StatusInterrupted, strings.Fields(call)...)
		w.contains(err, "interrupted")
	}
}

// No command shows what is in a payload, but for the one flag that asks for it.
func TestNoPayloadIsShownUnlessAskedFor(t *testing.T) {
	w := newWorld(t)
	pending := w.record(time.Hour)
	name, _ := w.park(time.Hour, parking.Invalid)
	event, _ := w.park(time.Hour, parking.Unpublishable, asEvent(pending))
	for _, call := range []string{
		"pending", "parked list --long", "parked show " + name, "parked show " + event, "event " + pending.EventID,
		"parked replay --all --yes",
	} {
		for _, flag := range []string{"", " --json"} {
			out, err, _ := w.operate(strings.Fields(call + flag)...)
			if strings.Contains(out+err, secretAmount) {
				t.Errorf("%s%s shows it:\n%s%s", call, flag, out, err)
			}
		}
	}
	for _, name := range []string{name, event} {
		out, _ := w.expect(0, "parked", "show", name, "--payload")
		w.contains(out, secretAmount)
	}
}

// asEvent makes what is parked one event instead of a delivery.
func asEvent(e ledger.Entry) func(*parking.Parked) {
	return func(p *parking.Parked) {
		*p = parking.Parked{
			Reason: p.Reason, ParkedAt: p.ParkedAt, DeliveryID: e.DeliveryID, EventIDs: []string{e.EventID},
			Event: e.Detail, Digest: e.Digest[:], RecordedAt: e.RecordedAt, Attempts: 20,
		}
	}
}

func TestWhatATerminalWouldObeyIsQuoted(t *testing.T) {
	w := newWorld(t)
	name, _ := w.park(time.Minute, parking.Invalid, func(p *parking.Parked) {
		p.DeliveryID, p.Cause, p.Timestamp, p.EventIDs = "\x1b[2J", "a\nb", "\x07", []string{"\x1b]0;x\x07"}
	})
	for _, call := range [][]string{{"parked", "show", name}, {"parked", "list", "--long"}} {
		out, _, _ := w.operate(call...)
		if strings.ContainsAny(out, "\x1b\x07") || strings.Contains(out, "a\nb") {
			t.Errorf("%q", out)
		}
	}
}

func list(all []listed) (list []string) {
	for _, l := range all {
		list = append(list, l.Name)
	}
	return list
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}
