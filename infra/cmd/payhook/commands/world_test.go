package commands

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cftypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// world is a deployment in memory, and somebody who operates it.
type world struct {
	t           *testing.T
	now         time.Time
	table       ledger.Memory
	keys        keys.Memory
	parking     objects.Memory
	largeEvents objects.Memory
	evidence    objects.Memory
	bucket      bucket // with versions, in S3; nil: none
	at          stack.Stack
	down        bool                  // the tables
	noToken     bool                  // it may not be read
	requests    []wire.RedriveRequest // of the redrive function, in order
	// redrive answers them; an error is one of Lambda. nil: it accepts everything.
	redrive func(wire.RedriveRequest) (payload string, err error)
	setting map[string]string // of the functions, by the environment variables

	logs    *cloudWatch
	lists   int                         // calls that list versions
	missing string                      // the code of AWS for what does not exist any more
	metrics map[string]float64          // the values, by dimension, a space, and name
	alarms  map[string]types.StateValue // of all stacks; those of API Gateway are on the metric of its id
	named   []string                    // the alarms of the stack; nil: all
	denied  string                      // the operation that is denied
	change  func(*connected)            // of the deployment; nil: none
	gets    int                         // calls of the ledger

	answer   io.Reader // what the person types
	terminal bool
	ctx      context.Context
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: noon, answer: strings.NewReader(""), ctx: t.Context(),
		metrics: map[string]float64{"Payhook Accepted": 17, "Payhook Unauthenticated": 3},
		alarms: map[string]types.StateValue{"Payhook-parked": types.StateValueOk,
			"Payhook-token-life": types.StateValueOk}}
	w.logs = &cloudWatch{fail: func(function string, _ int) (status int, code string) {
		if w.denied == "FilterLogEvents of "+function {
			return http.StatusBadRequest, "AccessDeniedException"
		}
		return 0, ""
	}}
	w.logToken(time.Hour, 59*time.Minute, "")
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.at = stack.Stack{Name: "stack Payhook (nowhere)", FullName: "Payhook", StackName: "Bank",
		Version: "commit 012", Status: "UPDATE_COMPLETE", LargeEventBucket: "large-events", TokenSecret: "token",
		CredentialsSecret: "credentials",
		Functions: map[string]string{"webhook": "webhook:live", "redrive": "redrive:live",
			"token": "token:live"},
		Logs: map[string]string{"webhook": "/logs/webhook", "redrive": "/logs/redrive",
			"token": "/logs/token"},
		AWS: stack.EmulatorConfig(server.URL, "us-east-1")}
	w.at.AWS.APIOptions = append(w.at.AWS.APIOptions, w.monitor)
	return w
}

const callerARN = "arn:aws:iam::123456789012:user/ann"

// ServeHTTP answers as Lambda and STS do.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	switch target := r.Header.Get("X-Amz-Target"); {
	case r.URL.Path == "/2015-03-31/functions/redrive:live/invocations":
		var given wire.RedriveRequest
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
			refuse(out, "AccessDeniedException")
			return
		}
		if strings.Contains(payload, "errorMessage") {
			out.Header().Set("X-Amz-Function-Error", "Unhandled")
		}
		io.WriteString(out, payload)
	case strings.HasSuffix(r.URL.Path, ":live/configuration"):
		json.MarshalWrite(out, map[string]any{"Environment": map[string]any{"Variables": w.setting}})
	case target == "secretsmanager.GetSecretValue" && w.noToken:
		refuse(out, "AccessDeniedException")
	case target == "secretsmanager.GetSecretValue":
		now := time.Now().UTC()
		fmt.Fprintf(out, `{"SecretString":%q}`, fmt.Sprintf(`{"access_token":"access-1","token_type":"Bearer",`+
			`"issued_at":%q,"expires_at":%q}`, now.Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	case r.FormValue("Action") == "GetCallerIdentity":
		fmt.Fprintf(out, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>%s</Arn></GetCallerIdentityResult>
			</GetCallerIdentityResponse>`, callerARN)
	case target == "Logs_20140328.FilterLogEvents":
		w.logs.ServeHTTP(out, r)
	case w.bucket != nil && strings.HasPrefix(r.URL.Path, "/evidence-1"):
		if r.URL.Query().Has("versions") {
			w.lists++
		}
		w.bucket.ServeHTTP(out, r)
	case w.missing != "" && r.Method == http.MethodPost:
		refuse(out, w.missing)
	case w.missing != "":
		out.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(out, `<Error><Code>%s</Code></Error>`, w.missing)
	default:
		w.t.Errorf("%s %s", r.Method, r.URL)
	}
}

// refuse answers with an error of AWS.
func refuse(out http.ResponseWriter, code string) {
	out.Header().Set("X-Amzn-ErrorType", code)
	out.WriteHeader(http.StatusBadRequest)
	fmt.Fprintf(out, `{"__type":%q,"message":"not authorized, or not found"}`, code)
}

// accepts is a redrive function that does everything it is asked.
func accepts(r wire.RedriveRequest) (string, error) {
	if len(r.Dismiss) > 0 {
		return fmt.Sprintf(`{"decided":[{"name":%q}]}`, r.Dismiss[0]), nil
	}
	outcome := intake.Accepted.Name
	if r.Content == wire.FirstContent {
		outcome = intake.ConflictDismissed.Name
	}
	return fmt.Sprintf(`{"decided":[{"name":%q,"outcome":%q,"recorded":1}]}`, r.Replay[0], outcome), nil
}

var errDown = errors.New("down")

func (w *world) Get(ctx context.Context, ids []string, content bool) (map[string]ledger.Item, error) {
	if w.gets++; w.down {
		return nil, errDown
	}
	if sorted := slices.Sorted(slices.Values(ids)); len(slices.Compact(sorted)) < len(ids) {
		return nil, errors.New("DynamoDB: Provided list of item keys contains duplicates")
	}
	return w.table.Get(ctx, ids, content)
}

func (w *world) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	if state, _, _ := strings.Cut(q.Shard, "/"); w.down || w.denied == state {
		return nil, nil, errDown
	}
	return w.table.Query(ctx, q)
}

// downKeys is a table of keys that can't be read.
type downKeys struct{ keys.InspectStore }

func (downKeys) Get(context.Context, string) (*keys.Record, error) { return nil, errDown }
func (downKeys) Records(context.Context) ([]keys.Record, error)    { return nil, errDown }

// stack returns the deployment, with its stores in memory.
func (w *world) stack(d *stack.Stack) *connected {
	s := &connected{Stack: d, ledger: w, keys: &w.keys, parking: &w.parking, largeEvents: &w.largeEvents,
		evidence: &w.evidence}
	if w.down {
		s.keys = downKeys{}
	}
	if w.change != nil {
		w.change(s)
	}
	return s
}

// operate calls the program and returns what it wrote and its exit status.
func (w *world) operate(args ...string) (out, err string, status int) {
	w.t.Helper()
	var o, e bytes.Buffer
	at := w.at
	c := &cli.Program{In: w.answer, Out: &o, Err: &e, Terminal: w.terminal, Now: func() time.Time { return w.now },
		Stack: &at}
	p := &program{c, w.stack}
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

// documents reads one document a line.
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
	i.State, i.Shard, i.LeasedUntil = state, string(state)+"/0", i.RecordedAt.Add(time.Minute)
	switch state {
	case ledger.Pending:
		i.EventTimestamp = time.Time{}
	case ledger.Parked:
		i.LeasedUntil, i.ParkedAt, i.EventTimestamp = time.Time{}, w.now, time.Time{}
		i.Cause, i.Problem = "attempts", "it failed"
	case ledger.Published:
		i.Shard, i.LeasedUntil, i.Detail = "", time.Time{}, nil
		i.PublishedAt, i.ExpiresAt = w.now, w.now.Add(30*24*time.Hour)
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
		Request: &proof.RejectedRequest{ReceivedAt: noon, RequestID: "request-1", Outcome: "key-unknown",
			Method: "POST",
			Path:   "/", RawQuery: "a=b", Headers: map[string]string{"X-Key": "k\x1b"}, PayloadBytes: size,
			Settings: map[string]string{"timestampTolerance": "5m"}}})
}

// decide stores a decision about a delivery.
func (w *world) decide(d proof.Decision, name string, n proof.Note) {
	w.t.Helper()
	if err := proof.Decide(w.t.Context(), &w.parking, d, name, n); err != nil {
		w.t.Fatal(err)
	}
}

// logToken sets the line of the token function, with more members.
func (w *world) logToken(lifetime, left time.Duration, more string) {
	const line = `{"msg":"token","outcome":"fresh","lifetimeSeconds":%g,"remainingSeconds":%g%s}`
	w.log("token", fmt.Sprintf(line, lifetime.Seconds(), left.Seconds(), more))
}

// log sets the lines of a function, one a minute, the last one of a minute ago.
func (w *world) log(function string, lines ...string) {
	delete(w.logs.events, function)
	for i, line := range lines {
		w.logs.log(function, w.now.Add(time.Duration(i-len(lines))*time.Minute), line)
	}
}

// monitor answers the calls of CloudWatch, which are in CBOR, and of CloudFormation, and denies one operation.
func (w *world) monitor(s *middleware.Stack) error {
	return s.Initialize.Add(middleware.InitializeMiddlewareFunc("World", func(ctx context.Context,
		call middleware.InitializeInput, next middleware.InitializeHandler) (out middleware.InitializeOutput,
		_ middleware.Metadata, err error) {
		if w.denied == s.ID() {
			return out, middleware.Metadata{}, &smithy.GenericAPIError{Code: "AccessDenied", Message: "no:\n" + s.ID()}
		}
		switch in := call.Parameters.(type) {
		case *cloudwatch.GetMetricDataInput:
			out.Result = w.metricData(in)
		case *cloudwatch.DescribeAlarmsInput:
			out.Result = w.describeAlarms(in)
		case *cloudformation.ListStackResourcesInput:
			out.Result = w.resources(aws.ToString(in.NextToken))
		default:
			return next.HandleInitialize(ctx, call)
		}
		return out, middleware.Metadata{}, nil
	}), middleware.After)
}

func (w *world) metricData(in *cloudwatch.GetMetricDataInput) *cloudwatch.GetMetricDataOutput {
	out := &cloudwatch.GetMetricDataOutput{}
	for _, q := range in.MetricDataQueries {
		m := q.MetricStat.Metric
		r := types.MetricDataResult{Id: q.Id}
		if value, ok := w.metrics[aws.ToString(m.Dimensions[0].Value)+" "+aws.ToString(m.MetricName)]; ok {
			r.Values = []float64{value - 1, 1} // of two minutes
		}
		out.MetricDataResults = append(out.MetricDataResults, r)
	}
	return out
}

func (w *world) describeAlarms(in *cloudwatch.DescribeAlarmsInput) *cloudwatch.DescribeAlarmsOutput {
	if n := int32(len(in.AlarmNames)); n > 100 || aws.ToInt32(in.MaxRecords) < n {
		w.t.Errorf("ValidationError: %d names for %d records", n, aws.ToInt32(in.MaxRecords))
	}
	out := &cloudwatch.DescribeAlarmsOutput{}
	for _, name := range in.AlarmNames {
		if s, ok := w.alarms[name]; ok {
			out.MetricAlarms = append(out.MetricAlarms, types.MetricAlarm{AlarmName: &name, StateValue: s,
				StateTransitionedTimestamp: aws.Time(w.now.Add(-time.Hour)),
				AlarmDescription: aws.String(name + " is bad: `payhook keys`." + settings.WhatToDo +
					"Fix it with `payhook logs --since 1h` and `aws x y`.")})
		}
	}
	return out
}

// resources returns pages with one alarm and one other resource.
func (w *world) resources(token string) *cloudformation.ListStackResourcesOutput {
	if w.named == nil {
		w.named = slices.Sorted(maps.Keys(w.alarms))
	}
	out := &cloudformation.ListStackResourcesOutput{}
	if at, _ := strconv.Atoi(token); at < len(w.named) {
		out.NextToken = aws.String(strconv.Itoa(at + 1))
		out.StackResourceSummaries = []cftypes.StackResourceSummary{
			{ResourceType: aws.String("AWS::CloudWatch::Alarm"), PhysicalResourceId: &w.named[at]},
			{ResourceType: aws.String("AWS::SQS::Queue"), PhysicalResourceId: aws.String("queue")}}
	}
	return out
}
