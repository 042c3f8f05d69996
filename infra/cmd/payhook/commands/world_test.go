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
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cftypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logstypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

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
	t     *testing.T
	now   time.Time
	table ledger.Memory
	keys  keys.Memory

	parking, largeEvents, evidence objects.Memory

	bucket   bucket // with versions, in S3
	at       stack.Stack
	requests []wire.RedriveRequest                                 // of the redrive function, in order
	redrive  func(wire.RedriveRequest) (payload string, err error) // answers them; an error is one of Lambda
	setting  map[string]string                                     // of the functions, by the environment variables

	logs    *cloudWatch
	metrics map[string]float64          // the values, by dimension, a space, and name
	alarms  map[string]types.StateValue // of all stacks; those of API Gateway are on the metric of its id
	named   []string                    // the alarms of the stack; nil: all
	mu      sync.Mutex                  // serializes the calls of AWS
	denied  string                      // the operation that is denied
	missing string                      // the code of AWS for stores that do not exist any more
	change  func(*connected)            // of the deployment; nil: none
	gets    int                         // calls of the ledger
	lists   int                         // calls that list versions

	answer   io.Reader // what the person types
	terminal bool
	ctx      context.Context
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: noon, redrive: accepts, logs: &cloudWatch{}, answer: strings.NewReader(""), ctx: t.Context(),
		metrics: map[string]float64{"Payhook Accepted": 17, "Payhook Unauthenticated": 3},
		alarms: map[string]types.StateValue{"Payhook-parked": types.StateValueOk,
			"Payhook-token-life": types.StateValueOk},
		at: stack.Stack{Name: "stack Payhook (nowhere)", FullName: "Payhook", StackName: "Bank",
			Version: "commit 012", Status: "UPDATE_COMPLETE", LargeEventBucket: "large-events", TokenSecret: "token",
			CredentialsSecret: "credentials",
			Functions: map[string]string{"webhook": "webhook:live", "redrive": "redrive:live",
				"token": "token:live"},
			Logs: map[string]string{"webhook": "/logs/webhook", "redrive": "/logs/redrive",
				"token": "/logs/token"},
			AWS: stack.EmulatorConfig("http://127.0.0.1:1", "us-east-1")}}
	w.logToken(time.Hour, 59*time.Minute, "")
	w.at.AWS.APIOptions = append(w.at.AWS.APIOptions, w.intercept)
	return w
}

const callerARN = "arn:aws:iam::123456789012:user/ann"

// intercept answers the calls of AWS.
func (w *world) intercept(s *middleware.Stack) error {
	return s.Initialize.Add(middleware.InitializeMiddlewareFunc("World", func(ctx context.Context,
		call middleware.InitializeInput, next middleware.InitializeHandler) (out middleware.InitializeOutput,
		m middleware.Metadata, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch out.Result, err = w.called(s.ID(), call.Parameters); {
		case ctx.Err() != nil:
			err = ctx.Err()
		case out.Result == nil && err == nil:
			return next.HandleInitialize(ctx, call)
		}
		return out, m, err
	}), middleware.After)
}

// called answers a call; nil: the server of the bucket answers it.
func (w *world) called(operation string, input any) (any, error) {
	if logs, ok := input.(*cloudwatchlogs.FilterLogEventsInput); ok {
		operation += " of " + path.Base(*logs.LogGroupName)
	}
	denied := refused(http.StatusBadRequest, "AccessDeniedException")
	if w.denied == operation {
		return nil, denied
	}
	switch in := input.(type) {
	case *lambda.InvokeInput:
		given := document[wire.RedriveRequest](w.t, string(in.Payload))
		w.requests = append(w.requests, given)
		payload, err := w.redrive(given)
		if err != nil || *in.FunctionName != "redrive:live" {
			return nil, denied
		}
		out := &lambda.InvokeOutput{Payload: []byte(payload)}
		if strings.Contains(payload, "errorMessage") {
			out.FunctionError = aws.String("Unhandled")
		}
		return out, nil
	case *lambda.GetFunctionConfigurationInput:
		if strings.HasSuffix(*in.FunctionName, ":live") {
			return &lambda.GetFunctionConfigurationOutput{
				Environment: &lambdatypes.EnvironmentResponse{Variables: w.setting}}, nil
		}
	case *secretsmanager.GetSecretValueInput:
		now := time.Now().UTC()
		return &secretsmanager.GetSecretValueOutput{SecretString: aws.String(fmt.Sprintf(
			`{"access_token":"access-1","token_type":"Bearer","issued_at":%q,"expires_at":%q}`,
			now.Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))}, nil
	case *sts.GetCallerIdentityInput:
		return &sts.GetCallerIdentityOutput{Arn: aws.String(callerARN)}, nil
	case *cloudwatchlogs.FilterLogEventsInput:
		return w.logs.filter(in)
	case *cloudwatch.GetMetricDataInput:
		return w.metricData(in), nil
	case *cloudwatch.DescribeAlarmsInput:
		return w.describeAlarms(in), nil
	case *cloudformation.ListStackResourcesInput:
		return w.resources(aws.ToString(in.NextToken)), nil
	case *s3.ListObjectVersionsInput:
		w.lists++
	}
	if w.missing != "" {
		return nil, refused(http.StatusNotFound, w.missing)
	}
	if w.bucket == nil {
		w.t.Errorf("%s %+v", operation, input)
	}
	return nil, nil
}

// refused is an answer of AWS that is an error.
func refused(status int, code string) error {
	return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
		Err: &smithy.GenericAPIError{Code: code, Message: "no"}}
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
	w.gets++
	if sorted := slices.Sorted(slices.Values(ids)); len(slices.Compact(sorted)) < len(ids) {
		return nil, errors.New("DynamoDB: Provided list of item keys contains duplicates")
	}
	return w.table.Get(ctx, ids, content)
}

func (w *world) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	if state, _, _ := strings.Cut(q.Shard, "/"); w.denied == state {
		return nil, nil, errDown
	}
	return w.table.Query(ctx, q)
}

// stack returns the deployment, with its stores in memory.
func (w *world) stack(d *stack.Stack) *connected {
	s := &connected{Stack: d, ledger: w, keys: &w.keys, parking: &w.parking, largeEvents: &w.largeEvents,
		evidence: &w.evidence}
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
func (w *world) newItem(age time.Duration, change ...func(*ledger.Item)) ledger.Item {
	i := ledger.NewItem(paymentOf(uuid.New().String(), secretAmount), uuid.New().String(), w.now.Add(-age))
	for _, c := range change {
		c(&i)
	}
	return i
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
	w.logs.events = slices.DeleteFunc(w.logs.events, func(e logstypes.FilteredLogEvent) bool {
		return *e.LogStreamName == function
	})
	for i, line := range lines {
		w.logs.log(function, w.now.Add(time.Duration(i-len(lines))*time.Minute), line)
	}
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
	at, _ := strconv.Atoi(token)
	if at == len(w.named) {
		return &cloudformation.ListStackResourcesOutput{}
	}
	return &cloudformation.ListStackResourcesOutput{NextToken: aws.String(strconv.Itoa(at + 1)),
		StackResourceSummaries: []cftypes.StackResourceSummary{
			{ResourceType: aws.String("AWS::CloudWatch::Alarm"), PhysicalResourceId: &w.named[at]},
			{ResourceType: aws.String("AWS::SQS::Queue"), PhysicalResourceId: aws.String("queue")}}}
}
