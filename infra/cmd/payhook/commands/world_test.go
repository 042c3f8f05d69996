package commands

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cftypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logstypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
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

// world is a stack in memory, and somebody who operates it at noon.
type world struct {
	t     *testing.T
	at    stack.Stack
	table ledger.Memory
	keys  keys.Memory

	parking, largeEvents, evidence objects.Memory

	change   func(*connected)                 // of its clients
	setting  map[string]string                // of the functions, by the environment variables
	requests []wire.RedriveRequest            // of the redrive function, in order
	redrive  func(wire.RedriveRequest) string // answers them; "": Lambda denies the call
	bucket   bucket                           // with the versions of the evidence; nil: none
	logs     map[string][]logstypes.FilteredLogEvent
	metrics  map[string]float64          // the values, by dimension, a space, and name
	alarms   map[string]types.StateValue // of the stack; "": it does not exist any more
	fails    func(call string) error     // is called before each call of AWS or the ledger

	answer   io.Reader // what the person types
	terminal bool
	ctx      context.Context
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, redrive: accepts, change: func(*connected) {}, fails: func(string) error { return nil },
		logs: map[string][]logstypes.FilteredLogEvent{}, ctx: t.Context(),
		metrics: map[string]float64{"Payhook Accepted": 17, "Payhook Unauthenticated": 3},
		alarms:  map[string]types.StateValue{"Payhook-parked": "OK", "Payhook-token-life": "OK"},
		at: stack.Stack{Name: "stack Payhook (nowhere)", FullName: "Payhook", StackName: "Bank",
			Version: "commit 012", Status: "UPDATE_COMPLETE", LargeEventBucket: "large-events", TokenSecret: "token",
			CredentialsSecret: "credentials", AWS: stack.EmulatorConfig("http://127.0.0.1:1", "us-east-1"),
			Functions: map[string]string{"webhook": "webhook:live", "redrive": "redrive:live", "token": "token:live"},
			Logs: map[string]string{"webhook": "/logs/webhook", "redrive": "/logs/redrive",
				"token": "/logs/token"}}}
	w.logToken(time.Hour, 59*time.Minute, "")
	w.at.AWS.APIOptions = append(w.at.AWS.APIOptions, w.intercept)
	return w
}

// served returns a world with evidence, whose server is also that of the usual variables.
func served(t *testing.T, b bucket) *world {
	w := newWorld(t)
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.bucket, w.at.EvidenceBucket, w.at.AWS.BaseEndpoint = b, "evidence-1", &server.URL
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "eu-north-1",
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_MAX_ATTEMPTS": "1",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
		t.Setenv(name, value)
	}
	t.Chdir(t.TempDir())
	return w
}

// operate calls the program and returns what it wrote and its exit status.
func (w *world) operate(args ...string) (out, err string, status int) {
	var o, e bytes.Buffer
	at := w.at
	c := &cli.Program{In: w.answer, Out: &o, Err: &e, Terminal: w.terminal, Now: func() time.Time { return noon },
		Stack: &at}
	p := &program{c, func(d *stack.Stack) *connected {
		s := &connected{Stack: d, ledger: w, keys: &w.keys, parking: &w.parking, largeEvents: &w.largeEvents,
			evidence: &w.evidence}
		w.change(s)
		return s
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

// documents reads one document a line as a script would.
func documents[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		all = append(all, *new(T))
		if err := json.Unmarshal([]byte(line), &all[len(all)-1], json.RejectUnknownMembers(true)); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
	}
	return all
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

const denied = "AccessDeniedException"

// refused is an answer of AWS that is an error.
func refused(code string) error { return &smithy.GenericAPIError{Code: code, Message: "no"} }

// failing makes the calls fail that match a pattern.
func (w *world) failing(code, pattern string) {
	w.fails = func(call string) (err error) {
		if regexp.MustCompile(pattern).MatchString(call) {
			err = refused(code)
		}
		return err
	}
}

func (w *world) Get(ctx context.Context, ids []string, content bool) (map[string]ledger.Item, error) {
	if len(slices.Compact(slices.Sorted(slices.Values(ids)))) < len(ids) {
		return nil, refused("ValidationException")
	}
	items, _ := w.table.Get(ctx, ids, content)
	return items, w.fails("Get")
}

func (w *world) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	page, next, _ := w.table.Query(ctx, q)
	return page, next, w.fails("Query of " + q.Shard)
}

const callerARN = "arn:aws:iam::123456789012:user/ann"

// intercept answers the calls of AWS, except those of the bucket, which go to its server.
func (w *world) intercept(s *middleware.Stack) error {
	return s.Initialize.Add(middleware.InitializeMiddlewareFunc("World", func(ctx context.Context,
		call middleware.InitializeInput, next middleware.InitializeHandler) (out middleware.InitializeOutput,
		m middleware.Metadata, err error) {
		input, _ := json.Marshal(call.Parameters)
		name := fmt.Sprintf("%s %s %s", awsmiddleware.GetServiceID(ctx), s.ID(), input)
		if err = w.fails(name); err == nil {
			out.Result, err = w.answerTo(call.Parameters)
		}
		if out.Result != nil || err != nil {
			return out, m, err
		}
		if w.bucket == nil || !strings.HasPrefix(name, "S3 ") {
			w.t.Error(name, "is not expected")
		}
		return next.HandleInitialize(ctx, call)
	}), middleware.After)
}

// answerTo answers a call; nil for one that it does not know.
func (w *world) answerTo(call any) (any, error) {
	switch in := call.(type) {
	case *lambda.InvokeInput:
		w.requests = append(w.requests, documents[wire.RedriveRequest](w.t, string(in.Payload))...)
		out := &lambda.InvokeOutput{Payload: []byte(w.redrive(w.requests[len(w.requests)-1]))}
		if strings.Contains(string(out.Payload), "errorMessage") {
			out.FunctionError = aws.String("Unhandled")
		}
		if len(out.Payload) == 0 || *in.FunctionName != "redrive:live" {
			return nil, refused(denied)
		}
		return out, nil
	case *lambda.GetFunctionConfigurationInput:
		return &lambda.GetFunctionConfigurationOutput{
			Environment: &lambdatypes.EnvironmentResponse{Variables: w.setting}}, nil
	case *secretsmanager.GetSecretValueInput:
		at, _ := time.Now().MarshalText()
		end, _ := time.Now().Add(time.Hour).MarshalText()
		return &secretsmanager.GetSecretValueOutput{SecretString: aws.String(fmt.Sprintf(
			`{"access_token":"access-1","token_type":"Bearer","issued_at":%q,"expires_at":%q}`, at, end))}, nil
	case *sts.GetCallerIdentityInput:
		return &sts.GetCallerIdentityOutput{Arn: aws.String(callerARN)}, nil
	case *cloudwatchlogs.FilterLogEventsInput:
		return w.filter(in), nil
	case *cloudwatch.GetMetricDataInput:
		out := &cloudwatch.GetMetricDataOutput{}
		for _, q := range in.MetricDataQueries {
			m := q.MetricStat.Metric
			if n := w.metrics[*m.Dimensions[0].Value+" "+*m.MetricName]; n > 0 {
				out.MetricDataResults = append(out.MetricDataResults,
					types.MetricDataResult{Id: q.Id, Values: []float64{n - 1, 1}}) // of two minutes
			}
		}
		return out, nil
	case *cloudwatch.DescribeAlarmsInput:
		out := &cloudwatch.DescribeAlarmsOutput{}
		if n := len(in.AlarmNames); n > 100 || int(*in.MaxRecords) < n {
			w.t.Errorf("ValidationError: %d names for %d records", n, *in.MaxRecords)
		}
		for _, name := range in.AlarmNames {
			if w.alarms[name] != "" {
				out.MetricAlarms = append(out.MetricAlarms, types.MetricAlarm{AlarmName: &name,
					StateValue: w.alarms[name], StateTransitionedTimestamp: aws.Time(noon.Add(-time.Hour)),
					AlarmDescription: aws.String(name + " is bad: `payhook keys`." + settings.WhatToDo +
						"Fix it with `payhook logs --since 1h` and `aws x y`.")})
			}
		}
		return out, nil
	case *cloudformation.ListStackResourcesInput: // in pages with one alarm
		names, out := slices.Sorted(maps.Keys(w.alarms)), &cloudformation.ListStackResourcesOutput{}
		if page, _ := strconv.Atoi(aws.ToString(in.NextToken)); page < len(names) {
			out.NextToken = aws.String(strconv.Itoa(page + 1))
			out.StackResourceSummaries = []cftypes.StackResourceSummary{
				{ResourceType: aws.String("AWS::CloudWatch::Alarm"), PhysicalResourceId: &names[page]},
				{ResourceType: aws.String("AWS::SQS::Queue"), PhysicalResourceId: aws.String("Payhook-queue")}}
		}
		return out, nil
	}
	return nil, nil
}

// accepts is a redrive function that does everything it is asked.
func accepts(r wire.RedriveRequest) string {
	if len(r.Dismiss) > 0 {
		return fmt.Sprintf(`{"decided":[{"name":%q}]}`, r.Dismiss[0])
	}
	outcome := map[bool]string{false: "accepted", true: "conflict-dismissed"}[r.Content == wire.FirstContent]
	return fmt.Sprintf(`{"decided":[{"name":%q,"outcome":%q,"recorded":1}]}`, r.Replay[0], outcome)
}

// log adds a line of a function, that long after noon.
func (w *world) log(function string, at time.Duration, line string) {
	w.logs[function] = append(w.logs[function], logstypes.FilteredLogEvent{EventId: aws.String(uuid.New().String()),
		Timestamp: aws.Int64(noon.Add(at).UnixMilli()), Message: &line})
}

// logOnly sets the lines of a function, one a minute, the last one of a minute ago.
func (w *world) logOnly(function string, lines ...string) {
	delete(w.logs, function)
	for i, line := range lines {
		w.log(function, time.Duration(i-len(lines))*time.Minute, line)
	}
}

// logToken sets the line of the token function, with more members.
func (w *world) logToken(lifetime, left time.Duration, more string) {
	w.logOnly("token", fmt.Sprintf(`{"msg":"token","outcome":"fresh","lifetimeSeconds":%g,"remainingSeconds":%g%s}`,
		lifetime.Seconds(), left.Seconds(), more))
}

// filter returns a page of two log events. Each third page is empty.
func (w *world) filter(in *cloudwatchlogs.FilterLogEventsInput) *cloudwatchlogs.FilterLogEventsOutput {
	function, msg := strings.TrimPrefix(*in.LogGroupName, "/logs/"), ""
	_, _ = fmt.Sscanf(aws.ToString(in.FilterPattern), "{ $.msg = %q", &msg)
	all := slices.DeleteFunc(slices.Clone(w.logs[function]), func(e logstypes.FilteredLogEvent) bool {
		return *e.Timestamp < *in.StartTime || !slices.Contains([]string{"", function, "replay"}, msg)
	})
	slices.SortStableFunc(all, func(a, b logstypes.FilteredLogEvent) int { return int(*a.Timestamp - *b.Timestamp) })
	page, _ := strconv.Atoi(aws.ToString(in.NextToken))
	all = all[min(2*(page-page/3), len(all)):]
	out := &cloudwatchlogs.FilterLogEventsOutput{}
	if page%3 < 2 {
		out.Events = all[:min(2, len(all))]
	}
	if len(out.Events) < len(all) {
		out.NextToken = aws.String(strconv.Itoa(page + 1))
	}
	return out
}

// bucket is an S3 bucket with versions, by key?versionId, of which the highest is the latest. A version without content
// is a delete marker. Some versions are times: when they were stored.
type bucket map[string][]byte

// lockEnd is the end of the lock of each version, except "unknown".
var lockEnd = time.Date(2026, 3, 2, 12, 0, 1, 0, time.UTC)

// ServeHTTP is S3 with the bucket.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Has("versions") {
		w.bucket.list(out, query)
		return
	}
	version := query.Get("versionId")
	text, exists := w.bucket[strings.TrimPrefix(r.URL.Path, "/evidence-1/")+"?"+version]
	if !exists {
		w.t.Error(r.Method, r.URL, "is not expected")
	}
	if version != "unknown" {
		out.Header().Set("X-Amz-Object-Lock-Retain-Until-Date", lockEnd.Format(time.RFC3339))
	}
	if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" {
		sum := sha256.Sum256(text)
		out.Header().Set("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(sum[:]))
	}
	if version == "bad" {
		text = append(text, ' ')
	}
	out.Write(text)
}

// list lists versions in pages of two, so that those of a key can be on different pages, with encoded keys as S3 does.
func (b bucket) list(out io.Writer, query url.Values) {
	after, prefix := query.Get("key-marker")+"?"+query.Get("version-id-marker"), query.Get("prefix")
	var page []string
	for name := range b {
		below, listed := strings.CutPrefix(name, prefix)
		if folder, _, deeper := strings.Cut(below, "/"); deeper && query.Has("delimiter") {
			name = prefix + folder + "/?"
		}
		if listed && versionOrder(name, after) > 0 {
			page = append(page, name)
		}
	}
	slices.SortFunc(page, versionOrder)
	page = slices.Compact(page)
	fmt.Fprintf(out, `<ListVersionsResult><EncodingType>%s</EncodingType><IsTruncated>%t</IsTruncated>`,
		query.Get("encoding-type"), len(page) > 2)
	for _, name := range page[:min(2, len(page))] {
		key, version, _ := strings.Cut(name, "?")
		kind, at := "Version", "2026-01-31T12:00:01Z"
		if version == "" {
			kind = "CommonPrefixes"
		} else if b[name] == nil {
			kind = "DeleteMarker"
		}
		if strings.HasPrefix(version, "20") {
			at = version
		}
		fmt.Fprintf(out, `<%s><Key>%s</Key><Prefix>%[2]s</Prefix>
			<VersionId>%s</VersionId><LastModified>%s</LastModified></%[1]s>
			<NextKeyMarker>%[2]s</NextKeyMarker><NextVersionIdMarker>%[3]s</NextVersionIdMarker>`,
			kind, url.QueryEscape(key), version, at)
	}
	fmt.Fprint(out, `</ListVersionsResult>`)
}

func versionOrder(x, y string) int {
	keyX, versionX, _ := strings.Cut(x, "?")
	keyY, versionY, _ := strings.Cut(y, "?")
	return cmp.Or(strings.Compare(keyX, keyY), strings.Compare(versionY, versionX))
}

const secretAmount = "987654321.10"

// paymentOf returns an event with an amount.
func paymentOf(id, amount string) payment.RawEvent {
	return must(payment.DecodeRawEvent(fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":%q,`+
		`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%s,"paymentCurrency":"EUR",`+
		`"paymentStatus":{"status":"RELEASED"}}}`, id, amount)))
}

// newItem returns an event that was accepted that long ago.
func newItem(age time.Duration) ledger.Item {
	return ledger.NewItem(paymentOf(uuid.New().String(), secretAmount), uuid.New().String(), noon.Add(-age))
}

// insert inserts an event in a state that it has got now, and returns the item of the table.
func (w *world) insert(state ledger.State, i ledger.Item) ledger.Item {
	i.State, i.Shard, i.LeasedUntil = state, string(state)+"/0", i.RecordedAt.Add(time.Minute)
	switch state {
	case ledger.Pending:
		i.EventTimestamp = time.Time{}
	case ledger.Parked:
		i.LeasedUntil, i.ParkedAt, i.EventTimestamp = time.Time{}, noon, time.Time{}
		i.Cause, i.Problem = "attempts", "it failed"
	case ledger.Published:
		i.Shard, i.LeasedUntil, i.Detail = "", time.Time{}, nil
		i.PublishedAt, i.ExpiresAt = noon, cmp.Or(i.ExpiresAt, noon.Add(month))
	}
	w.table.Delete(w.t.Context(), i.EventID)
	w.table.Write(w.t.Context(), []ledger.Write{{Item: i}})
	return w.table.Items()[i.EventID]
}

// park parks a delivery, that long ago.
func (w *world) park(age time.Duration, reason proof.Reason, change ...func(*proof.Proof)) (string, proof.Proof) {
	at := noon.Add(-age)
	cause := map[proof.Reason]string{proof.Invalid: "why"}[reason]
	p := proof.Proof{Reason: reason, Cause: cause, StoredAt: at, DeliveryID: uuid.New().String(),
		EventIDs: []string{uuid.New().String()}, Payload: []byte("\x00 " + secretAmount + " \xff\n"),
		Timestamp: signature.FormatTime(at), KeyID: uuid.New().String(), Signature: "c2ln",
		JWK: []byte(`{"kty":"RSA"}`)}
	for _, c := range change {
		c(&p)
	}
	return w.put(p), p
}

func (w *world) put(p proof.Proof) string {
	name, _, err := proof.Put(w.t.Context(), &w.parking, p)
	return must(name, err)
}

// about says which events what is parked is about.
func about(ids ...string) func(*proof.Proof) {
	return func(p *proof.Proof) { p.EventIDs = ids }
}

// rejected stores a rejected webhook.
func (w *world) rejected(payload []byte, size int) string {
	return w.put(proof.Proof{Reason: proof.Rejected, Payload: payload, Request: &proof.RejectedRequest{ReceivedAt: noon,
		RequestID: "request-1", Outcome: "key-unknown", RawQuery: "a=b", Headers: map[string]string{"X-Key": "k\x1b"},
		PayloadBytes: size, Settings: map[string]string{"timestampTolerance": "5m"}}})
}

// decide stores a decision about a delivery.
func (w *world) decide(d proof.Decision, name string, n proof.Note) {
	must(0, proof.Decide(w.t.Context(), &w.parking, d, name, n))
}
