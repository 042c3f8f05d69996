package commands

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
	"strings"
	"testing"
	"time"
	"uuid"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/signature"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// world is a deployment in memory, and somebody who operates it.
type world struct {
	t        *testing.T
	now      time.Time
	table    ledger.Memory
	keys     keys.Memory
	parking  objects.Memory
	claims   objects.Memory
	evidence objects.Memory
	at       deployment.Deployment
	down     bool             // the tables
	noToken  bool             // it may not be read
	requests []intake.Request // of the redrive function, in order
	// redrive answers them; an error is one of Lambda. nil: it accepts everything.
	redrive func(intake.Request) (payload string, err error)
	setting map[string]string // of the functions, by the environment variables

	answer   io.Reader // what the person types
	terminal bool
	ctx      context.Context
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: noon, answer: strings.NewReader(""), ctx: t.Context()}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.at = deployment.Deployment{Name: "stack Payhook (nowhere)", ClaimBucket: "claims", TokenSecret: "token",
		Functions: map[string]string{"webhook": "webhook:live", "redrive": "redrive:live"},
		AWS:       deployment.EmulatorConfig(server.URL, "us-east-1")}
	return w
}

const callerARN = "arn:aws:iam::123456789012:user/ann"

// ServeHTTP answers as Lambda and STS do.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/2015-03-31/functions/redrive:live/invocations":
		var given intake.Request
		if err := json.UnmarshalRead(r.Body, &given, json.RejectUnknownMembers(true)); err != nil {
			w.t.Error(err)
		}
		w.requests = append(w.requests, given)
		answer := w.redrive
		if answer == nil {
			answer = accepts
		}
		payload, err := answer(given)
		if err != nil {
			out.Header().Set("X-Amzn-ErrorType", "AccessDeniedException")
			out.WriteHeader(http.StatusBadRequest)
			io.WriteString(out, `{"__type":"AccessDeniedException","message":"not authorized to perform this"}`)
			return
		}
		if strings.Contains(payload, "errorMessage") {
			out.Header().Set("X-Amz-Function-Error", "Unhandled")
		}
		io.WriteString(out, payload)
	case strings.HasSuffix(r.URL.Path, ":live/configuration"):
		json.MarshalWrite(out, map[string]any{"Environment": map[string]any{"Variables": w.setting}})
	case r.Header.Get("X-Amz-Target") == "secretsmanager.GetSecretValue" && w.noToken:
		out.WriteHeader(http.StatusBadRequest)
		io.WriteString(out, `{"__type":"AccessDeniedException"}`)
	case r.Header.Get("X-Amz-Target") == "secretsmanager.GetSecretValue":
		now := time.Now().UTC()
		fmt.Fprintf(out, `{"SecretString":%q}`, fmt.Sprintf(`{"access_token":"access-1","token_type":"Bearer",`+
			`"issued_at":%q,"expires_at":%q}`, now.Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	case r.FormValue("Action") == "GetCallerIdentity":
		fmt.Fprintf(out, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>%s</Arn></GetCallerIdentityResult>
			</GetCallerIdentityResponse>`, callerARN)
	default:
		w.t.Errorf("%s %s", r.Method, r.URL)
	}
}

// accepts is a redrive function that does everything it is asked.
func accepts(r intake.Request) (string, error) {
	if len(r.Dismiss) > 0 {
		return fmt.Sprintf(`{"decided":[{"name":%q}]}`, r.Dismiss[0]), nil
	}
	outcome := intake.Accepted.Name
	if r.Version == intake.FirstVersion {
		outcome = intake.FirstKept.Name
	}
	return fmt.Sprintf(`{"decided":[{"name":%q,"outcome":%q,"recorded":1}]}`, r.Replay[0], outcome), nil
}

var errDown = errors.New("down")

func (w *world) Get(ctx context.Context, ids []string, content bool) (map[string]ledger.Item, error) {
	if w.down {
		return nil, errDown
	}
	return w.table.Get(ctx, ids, content)
}

func (w *world) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	if w.down {
		return nil, nil, errDown
	}
	return w.table.Query(ctx, q)
}

// downKeys is a table of keys that can't be read.
type downKeys struct{ keys.InspectStore }

func (downKeys) Get(context.Context, string) (*keys.Record, error) { return nil, errDown }
func (downKeys) Records(context.Context) ([]keys.Record, error)    { return nil, errDown }

// operate calls the program and returns what it wrote and its exit status.
func (w *world) operate(args ...string) (out, err string, status int) {
	w.t.Helper()
	var o, e bytes.Buffer
	c := &cli.Program{In: w.answer, Out: &o, Err: &e, Terminal: w.terminal, Now: func() time.Time { return w.now },
		Stack: &w.at}
	p := &program{c, func(d *deployment.Deployment) *stack {
		store := keys.InspectStore(&w.keys)
		if w.down {
			store = downKeys{}
		}
		return &stack{d, w, store, &w.parking, &w.claims, &w.evidence}
	}}
	status = c.Run(w.ctx, p.root(), args)
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
func documents[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		all = append(all, document[T](t, line))
	}
	return all
}

const secretAmount = "987654321.10"

// paymentOf returns an event with an amount.
func paymentOf(id, amount string) payment.RawEvent {
	event, err := payment.DecodeRawEvent(fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":%q,`+
		`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%s,"paymentCurrency":"EUR",`+
		`"paymentStatus":{"status":"RELEASED"}}}`, id, amount))
	if err != nil {
		panic(err)
	}
	return event
}

// newItem returns an event that was accepted that long ago.
func (w *world) newItem(age time.Duration) ledger.Item {
	return ledger.NewItem(paymentOf(uuid.New().String(), secretAmount), uuid.New().String(), w.now.Add(-age))
}

// insert inserts an event in a state that it has got now, and returns the item of the table.
func (w *world) insert(state ledger.State, i ledger.Item) ledger.Item {
	i.State, i.Shard, i.Due = state, string(state)+"/0", i.RecordedAt.Add(time.Minute)
	switch state {
	case ledger.Pending:
		i.EventTimestamp = time.Time{}
	case ledger.Parked:
		i.Due, i.Cause, i.Problem, i.EventTimestamp = w.now, "attempts", "it failed", time.Time{}
	case ledger.Published:
		i.Shard, i.Due, i.PublishedAt, i.ExpiresAt, i.Detail = "", time.Time{}, w.now, w.now.Add(30*24*time.Hour), nil
	}
	w.table.Delete(w.t.Context(), i.EventID)
	w.table.Write(w.t.Context(), []ledger.Write{{Item: i}})
	return w.table.Items()[i.EventID]
}

// park parks a delivery, that long ago.
func (w *world) park(age time.Duration, reason proof.Reason, change ...func(*proof.Proof)) (string, proof.Proof) {
	w.t.Helper()
	p := proof.Proof{
		Reason: reason, StoredAt: w.now.Add(-age), DeliveryID: uuid.New().String(),
		EventIDs:  []string{uuid.New().String()},
		Payload:   []byte("\x00 " + secretAmount + " \xff\n"),
		Timestamp: signature.FormatTime(w.now.Add(-age)), KeyID: uuid.New().String(),
		Signature: "c2ln",
		JWK:       []byte(`{"kty":"RSA"}`),
	}
	if reason == proof.Invalid {
		p.Cause = "why"
	}
	for _, c := range change {
		c(&p)
	}
	return w.put(p), p
}

func (w *world) put(p proof.Proof) string {
	w.t.Helper()
	name, _, err := proof.Put(w.t.Context(), &w.parking, p)
	if err != nil {
		w.t.Fatal(err)
	}
	return name
}

// about says which events what is parked is about.
func about(ids ...string) func(*proof.Proof) {
	return func(p *proof.Proof) { p.EventIDs = ids }
}

// rejected stores a rejected webhook.
func (w *world) rejected(payload []byte, size int) string {
	return w.put(proof.Proof{Reason: proof.Rejected, Cause: "the key is unknown", Payload: payload,
		Request: &proof.Request{ReceivedAt: noon, RequestID: "request-1", Outcome: "key-unknown", Method: "POST",
			Path: "/", RawQuery: "a=b", Headers: map[string]string{"X-Key": "k\x1b"}, PayloadBytes: size,
			Settings: map[string]string{"timestampTolerance": "5m"}}})
}

// decide stores a decision about a delivery.
func (w *world) decide(d proof.Decision, name string, n proof.Note) {
	w.t.Helper()
	if err := proof.Decide(w.t.Context(), &w.parking, d, name, n); err != nil {
		w.t.Fatal(err)
	}
}

const invalidName = "invalid/2026/01/31/12/20260131T120000.000Z-unknown-00000000000000000000000000000000.json"

func TestWrongCallSaysWhatIsWrong(t *testing.T) {
	conflict, rejected := strings.ReplaceAll(invalidName, "invalid", "conflict"),
		"rejected/2026/01/31/12/20260131T120000.000Z-unknown-AAAAAAAAAAAAAAAAAAAAAAAAAA.json"
	id := uuid.New().String()
	for call, says := range map[string]string{
		"keys --local --region eu-north-1":                 "cannot be used with --local",
		"parked list extra":                                `"extra"`,
		"parked list --from yesterday":                     "24h",
		"parked list --from -5m":                           "how long ago",
		"parked list --kind bad":                           "event, invalid, conflict, rejected",
		"parked list --event 7":                            "UUID",
		"parked list --delivery 7":                         "UUID",
		"parked list --event " + id + " --delivery " + id:  "cannot be used together",
		"parked list --kind rejected --event " + id:        "are not known",
		"parked list --state maybe":                        "open, replayed, dismissed, any",
		"parked show":                                      "takes NAME",
		"parked show " + invalidName + " --payload --json": "cannot be used with --json",
		"replay":                                    "names are missing",
		"replay --all " + invalidName:               "cannot be used with names",
		"replay --kind invalid " + invalidName:      "are used with --all",
		"replay " + invalidName + " " + conflict:    "choose with --version",
		"replay --version second " + conflict:       "first, parked",
		"replay --all --version parked":             "by its name",
		"replay --all --kind conflict":              "by its name",
		"replay " + rejected:                        "--reason is missing",
		"replay --reason= --accept-age " + rejected: "--reason is missing",
		"dismiss --reason why":                      "names are missing",
		"dismiss " + invalidName:                    "--reason is missing",
		"dismiss --all":                             "--reason is missing",
		"event 7":                                   "must be a UUID",
		"keys misses#1 --drop":                      "must be a UUID",
		"keys --drop":                               "takes ID",
		"keys --drop " + id:                         "--reason is missing",
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
	id := uuid.New().String()
	for _, call := range []string{
		"parked list", "parked list --kind event", "parked list --kind rejected", "parked list --event " + id,
		"parked list --kind event --delivery " + id, "parked list --delivery " + id, "parked show " + invalidName,
		"parked show inv", "parked show invalid/2026", "parked show " + id, "event " + id, "keys " + id,
		"keys --reason why --drop " + id, "replay --all", "replay 0b7e", "dismiss --all --reason why", "keys",
	} {
		w := newWorld(t)
		w.down = true
		w.parking.Fails = func(context.Context, string, string) error { return errDown }
		w.redrive = func(intake.Request) (string, error) { return "", errDown }
		out, err := w.expect(cli.StatusUnreachable, strings.Fields(call)...)
		if out != "" || !strings.HasPrefix(err, "payhook: ") {
			t.Errorf("%s: %q, %q", call, out, err)
		}
	}
}

// No command shows what is in a payload, but for the one flag that asks for it.
func TestNoPayloadIsShownUnlessAskedFor(t *testing.T) {
	w := newWorld(t)
	event := w.insert(ledger.Parked, w.newItem(time.Hour))
	name, delivery := w.park(time.Hour, proof.Invalid)
	rejected := w.rejected(delivery.Payload, len(delivery.Payload))
	for _, call := range []string{
		"parked list", "parked list --kind rejected", "parked show " + name, "parked show " + event.EventID,
		"parked show " + rejected, "event " + event.EventID, "replay --all --yes",
	} {
		for _, flag := range []string{"", " --json"} {
			out, err, _ := w.operate(strings.Fields(call + flag)...)
			for _, secret := range []string{secretAmount, base64.StdEncoding.EncodeToString(delivery.Payload),
				base64.StdEncoding.EncodeToString(event.Detail)} {
				if strings.Contains(out+err, secret) {
					t.Errorf("%s%s shows it:\n%s%s", call, flag, out, err)
				}
			}
		}
	}
	for name, want := range map[string][]byte{name: delivery.Payload, event.EventID: event.Detail,
		rejected: delivery.Payload} {
		if out, _ := w.expect(0, "parked", "show", name, "--payload"); out != string(want) {
			t.Errorf("%s: %q", name, out)
		}
	}
	large := w.rejected(nil, proof.MaxCapturedPayload+1)
	_, said := w.expect(cli.StatusFailed, "parked", "show", large, "--payload")
	w.contains(said, "it has 262145 bytes")
}

// conflict returns a delivery in which an event is 9250.00, and which is in conflict with a first version.
func (w *world) conflict(id string, first ledger.Item) (name string, p proof.Proof) {
	w.t.Helper()
	event := paymentOf(id, "9250.00")
	digest := ledger.DigestOf(event.Bytes)
	return w.park(time.Minute, proof.Conflict, func(p *proof.Proof) {
		p.EventIDs = []string{id}
		p.Contents = []proof.Content{{EventID: id, Digest: digest[:], Amount: event.Amount, Currency: event.Currency,
			First: proof.First{DeliveryID: first.DeliveryID, Digest: first.Digest[:], Amount: first.Amount,
				Currency: first.Currency, RecordedAt: first.RecordedAt, State: string(first.State)}}}
		p.Payload = paymenttest.RawDelivery(p.DeliveryID, event.Bytes)
	})
}

// published publishes an event of 100.00.
func (w *world) published() ledger.Item {
	return w.insert(ledger.Published,
		ledger.NewItem(paymentOf(uuid.New().String(), "100.00"), uuid.New().String(), w.now.Add(-time.Hour)))
}
