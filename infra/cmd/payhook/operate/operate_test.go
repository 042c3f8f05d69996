package operate

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/aws/dynamodb"
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
	t        *testing.T
	now      time.Time
	db       *awstest.DynamoDB
	s3       *awstest.S3
	ledger   *ledger.Ledger
	store    *parking.Store
	at       deployment.Deployment
	requests []request // of the redrive function, in order
	// redrive answers them; an error is one of Lambda. nil: it accepts everything.
	redrive func(request) (payload string, err error)
	revoked string // the setting revokedKeys

	answer   io.Reader // what the person types
	terminal bool
	ctx      context.Context
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: noon, db: awstest.NewDynamoDB(), s3: awstest.NewS3(), answer: strings.NewReader(""),
		ctx: t.Context()}
	w.db.CreateLedger("ledger")
	w.db.CreateTable("keys", names.KeysKey)
	w.s3.MakeBucket("parking")
	w.s3.MakeBucket("claims")
	w.ledger = ledger.New(dynamodb.NewLedger(w.db, "ledger"), ledger.Options{Now: func() time.Time { return w.now }})
	w.store = parking.NewStore(w.s3, "parking")
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.at = deployment.Deployment{Name: "stack Payhook (nowhere)", Bus: "bus", LedgerTable: "ledger", KeysTable: "keys",
		ParkingBucket: "parking", ClaimBucket: "claims",
		Functions: map[string]string{"webhook": "webhook:live", "redrive": "redrive:live"},
		AWS:       deployment.EmulatorConfig(server.URL, "us-east-1")}
	return w
}

const callerARN = "arn:aws:iam::123456789012:user/ann"

// ServeHTTP answers as DynamoDB, Lambda and STS do.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	target := r.Header.Get(awstest.TargetHeader)
	switch {
	case target != "":
		awstest.Handler(w.db).ServeHTTP(out, r)
	case r.URL.Path == "/2015-03-31/functions/redrive:live/invocations":
		var given request
		if err := json.UnmarshalRead(r.Body, &given, json.RejectUnknownMembers(true)); err != nil {
			w.t.Error(err)
		}
		w.requests = append(w.requests, given)
		redrive := w.redrive
		if redrive == nil {
			redrive = accepts
		}
		payload, err := redrive(given)
		if err != nil {
			deny(out)
			return
		}
		if strings.Contains(payload, "errorMessage") {
			out.Header().Set("X-Amz-Function-Error", "Unhandled")
		}
		io.WriteString(out, payload)
	case r.URL.Path == "/2015-03-31/functions/webhook:live/configuration":
		fmt.Fprintf(out, `{"Environment":{"Variables":{"PAYHOOK_KEY_FRESHNESS":"30m","PAYHOOK_REVOKED_KEYS":%q}}}`,
			w.revoked)
	case r.FormValue("Action") == "GetCallerIdentity":
		fmt.Fprintf(out, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>%s</Arn></GetCallerIdentityResult>
			</GetCallerIdentityResponse>`, callerARN)
	default:
		w.t.Errorf("%s %s", r.Method, r.URL)
	}
}

func deny(out http.ResponseWriter) {
	out.Header().Set("X-Amzn-ErrorType", "AccessDeniedException")
	out.WriteHeader(http.StatusBadRequest)
	io.WriteString(out, `{"__type":"AccessDeniedException","message":"not authorized to perform this"}`)
}

// accepts is a redrive function that does everything it is asked.
func accepts(r request) (string, error) {
	if len(r.Dismiss) > 0 {
		return fmt.Sprintf(`{"dismissed":[{"name":%q}]}`, r.Dismiss[0]), nil
	}
	return fmt.Sprintf(`{"replayed":[{"name":%q,"outcome":"accepted","recorded":1}]}`,
		slices.Concat(r.Replay, r.Captured)[0]), nil
}

// operate calls the program and returns what it wrote and its exit status.
func (w *world) operate(args ...string) (out, err string, status int) {
	w.t.Helper()
	var o, e bytes.Buffer
	c := &cli.Program{In: w.answer, Out: &o, Err: &e, Terminal: w.terminal, Now: func() time.Time { return w.now }}
	var meant deployment.Target
	p := &program{c, &meant, func(context.Context) (*stack, error) {
		return newStack(&w.at, w.s3), nil
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
	if err := json.Unmarshal([]byte(text), &v, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%v in %s", err, text)
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

// record records an event that was accepted that long ago, and is due a minute later.
func (w *world) record(age time.Duration) ledger.Item {
	w.t.Helper()
	raw := fmt.Sprintf(`{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s",`+
		`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%s}}`, uuid.New().String(), secretAmount)
	event, err := payment.DecodeRawEvent([]byte(raw))
	if err != nil {
		w.t.Fatal(err)
	}
	e := ledger.NewItem(event, uuid.New().String(), w.now.Add(-age))
	l := ledger.New(dynamodb.NewLedger(w.db, "ledger"), ledger.Options{})
	if r := l.Record(w.t.Context(), []ledger.Item{e}, ledger.NewHolder(),
		e.RecordedAt.Add(time.Minute))[0]; r.Outcome != ledger.Recorded {
		w.t.Fatalf("%+v", r)
	}
	return e
}

// publish marks an event as published.
func (w *world) publish(e ledger.Item) {
	w.t.Helper()
	if err := w.ledger.MarkPublished(w.t.Context(), []ledger.Item{e})[0]; err != nil {
		w.t.Fatal(err)
	}
}

// lease lets redrive lease an event once more, and leave it alone until then.
func (w *world) lease(e ledger.Item, until time.Time) {
	w.t.Helper()
	item, _, err := ledger.Find(w.t.Context(), dynamodb.NewLedgerReader(w.db, "ledger"), e.EventID, false)
	if err != nil {
		w.t.Fatal(err)
	}
	if r := w.ledger.Lease(w.t.Context(), []ledger.Item{{EventID: e.EventID, Due: item.Due}}, ledger.NewHolder(),
		until)[0]; r.Err != nil || !r.Held {
		w.t.Fatalf("%+v", r)
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
		Timestamp: signature.FormatTime(w.now.Add(-age)), KeyID: uuid.New().String(),
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

func TestWrongCallSaysWhatIsWrong(t *testing.T) {
	name := "2026/01/31/12/20260131T120000.000Z-invalid-0b7e4c1e.json"
	conflict := strings.ReplaceAll(name, "invalid", "conflict")
	id := uuid.New().String()
	for call, says := range map[string]string{
		"pending --local --region eu-north-1":             "cannot be used with --local",
		"pending extra":                                   `"extra"`,
		"parked":                                          "payhook parked needs a command",
		"parked list --from yesterday":                    "24h",
		"parked list --from -5m":                          "how long ago",
		"parked list --reason bad":                        "invalid, conflict, unpublishable",
		"parked list --event 7":                           "UUID",
		"parked list --delivery 7":                        "UUID",
		"parked list --event " + id + " --delivery " + id: "cannot be used together",
		"parked list --state maybe":                       "open, replayed, dismissed, any",
		"parked show":                                     "takes NAME",
		"parked show ../x":                                "is not a name",
		"parked show " + name + " --payload --json":       "cannot be used with --json",
		"parked replay":                                   "names are missing",
		"parked replay --all " + name:                     "cannot be used with names",
		"parked replay --reason invalid " + name:          "are used with --all",
		"parked replay nonsense":                          "is not a name",
		"parked replay " + name + " " + conflict:          "is a conflict: choose with --version",
		"parked replay --version second " + conflict:      "first, parked",
		"parked replay --all --version parked":            "by its name",
		"parked replay --all --reason conflict":           "by its name",
		"parked dismiss --reason why":                     "names are missing",
		"parked dismiss " + name:                          "--reason is missing",
		"captured show " + name + " --payload --json":     "cannot be used with --json",
		"captured replay --reason why":                    "names are missing",
		"captured replay x":                               "--reason is missing",
		"event 7":                                         "must be a UUID",
		"keys misses#1 --drop":                            "must be a UUID",
		"keys --drop":                                     "takes ID",
	} {
		t.Run(call, func(t *testing.T) {
			w := newWorld(t)
			out, err := w.expect(cli.StatusUsage, strings.Fields(call)...)
			w.contains(err, says, "payhook: ")
			if out != "" || len(w.requests) > 0 {
				t.Errorf("wrote %q, invoked %v", out, w.requests)
			}
		})
	}
}

func TestErrorOfAWSIsNotAnEmptyAnswer(t *testing.T) {
	for _, call := range []string{
		"pending", "parked list", "parked list --event " + uuid.New().String(),
		"parked show 2026/01/31/12/20260131T120000.000Z-invalid-0b7e4c1e.json", "captured list", "captured show x",
		"event " + uuid.New().String(), "keys " + uuid.New().String(), "keys --drop " + uuid.New().String(),
		"parked replay --all", "keys",
	} {
		w := newWorld(t)
		w.at.LedgerTable, w.at.KeysTable = "no table", "no table"
		w.s3.Fails = func(string, string) error { return errors.New("down") }
		w.redrive = func(request) (string, error) { return "", errors.New("down") }
		out, err := w.expect(cli.StatusUnreachable, strings.Fields(call)...)
		if out != "" || !strings.HasPrefix(err, "payhook: ") {
			t.Errorf("%s: %q, %q", call, out, err)
		}
	}
}

// No command shows what is in a payload, but for the one flag that asks for it.
func TestNoPayloadIsShownUnlessAskedFor(t *testing.T) {
	w := newWorld(t)
	pending := w.record(time.Hour)
	name, delivery := w.park(time.Hour, parking.Invalid)
	event, _ := w.park(time.Hour, parking.Unpublishable, asEvent(pending))
	captured := w.capture(delivery.Payload)
	for _, call := range []string{
		"pending", "parked list", "parked show " + name, "parked show " + event, "event " + pending.EventID,
		"captured list", "captured show " + captured, "parked replay --all --yes",
	} {
		for _, flag := range []string{"", " --json"} {
			out, err, _ := w.operate(strings.Fields(call + flag)...)
			for _, secret := range []string{secretAmount, base64.StdEncoding.EncodeToString(delivery.Payload),
				base64.StdEncoding.EncodeToString(pending.Detail)} {
				if strings.Contains(out+err, secret) {
					t.Errorf("%s%s shows it:\n%s%s", call, flag, out, err)
				}
			}
		}
	}
	for call, want := range map[string][]byte{
		"parked show " + name: delivery.Payload, "parked show " + event: pending.Detail,
		"captured show " + captured: delivery.Payload,
	} {
		if out, _ := w.expect(0, strings.Fields(call+" --payload")...); out != string(want) {
			t.Errorf("%s: %q", call, out)
		}
	}
}

// asEvent makes what is parked one event instead of a delivery.
func asEvent(e ledger.Item) func(*parking.Parked) {
	return func(p *parking.Parked) {
		*p = parking.Parked{
			Reason: p.Reason, ParkedAt: p.ParkedAt, DeliveryID: e.DeliveryID, EventIDs: []string{e.EventID},
			Event: e.Detail, Digest: e.Digest[:], RecordedAt: e.RecordedAt, Attempts: 20,
		}
	}
}
