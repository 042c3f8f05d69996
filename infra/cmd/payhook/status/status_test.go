package status

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/storetest"
	"payhook.example/shared/token"
)

// world is a healthy deployment in memory.
type world struct {
	t       *testing.T
	now     time.Time
	table   ledger.Memory
	parking storetest.Bucket
	ends    string // the setting claimRetention
	tokens  token.Memory
	source  token.Source // of the token
	// metrics are the values of the last minute, by dimension, a space, and name.
	metrics   map[string]float64
	before    map[string]float64           // those of the minute before
	age       time.Duration                // of these values
	older     map[string]time.Duration     // how much older some of them are
	alarms    map[string]types.StateValue  // of all stacks; those of API Gateway are on the metric of its id
	named     []string                     // the alarms of the stack; nil: all
	functions map[string]map[string]string // the files of each package; nil: without --code
	digest    string                       // of the packages; "": the right one
	twice     bool                         // a second bootstrap is the program
	arch      lambdatypes.Architecture
	denied    string       // the operation of CloudWatch, CloudFormation or Lambda that is denied
	change    func(*stack) // of the deployment; nil: none
}

// deny returns an error if the operation is denied.
func (w *world) deny(operation string) error {
	if w.denied != operation {
		return nil
	}
	return &smithy.GenericAPIError{Code: "AccessDenied", Message: "User: somebody is not authorized:\n" + operation}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Now().UTC().Truncate(time.Millisecond), age: time.Minute,
		metrics: map[string]float64{"Payhook OldestPending": 0, "Payhook TokenShortfallSeconds": 0,
			"Payhook Accepted": 17, "Payhook Unauthenticated": 3},
		alarms: map[string]types.StateValue{"Payhook-parked": types.StateValueOk,
			"Payhook-token-life": types.StateValueOk}}
	w.source = &w.tokens
	w.storeToken(time.Hour, 59*time.Minute)
	return w
}

const accessToken1 = "CANARY-of-the-token"

func (w *world) storeToken(lifetime, left time.Duration) {
	text := fmt.Sprintf(`{"access_token":%q,"token_type":"Bearer","issued_at":%q,"expires_at":%q}`,
		accessToken1, w.now.Add(left-lifetime).Format(time.RFC3339Nano), w.now.Add(left).Format(time.RFC3339Nano))
	if err := w.tokens.Save(w.t.Context(), text); err != nil {
		w.t.Fatal(err)
	}
}

// disabled is a secret whose key is disabled.
type disabled struct{}

func (disabled) Load(context.Context) (string, error) {
	return "", &token.StoreError{Store: "the secret", Err: errors.New("DecryptionFailure")}
}

func (w *world) GetMetricData(_ context.Context, in *cloudwatch.GetMetricDataInput,
	_ ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error) {
	if err := w.deny("GetMetricData"); err != nil {
		return nil, err
	}
	out := &cloudwatch.GetMetricDataOutput{}
	for _, q := range in.MetricDataQueries {
		m := q.MetricStat.Metric
		r := types.MetricDataResult{Id: q.Id}
		name := aws.ToString(m.Dimensions[0].Value) + " " + aws.ToString(m.MetricName)
		at := w.now.Add(-w.age - w.older[name])
		value, ok := w.metrics[name]
		if ok && !at.Before(*in.StartTime) {
			r.Values, r.Timestamps = []float64{value}, []time.Time{at}
		}
		if value, ok := w.before[name]; ok {
			r.Values, r.Timestamps = append(r.Values, value), append(r.Timestamps, at.Add(-time.Minute))
		}
		out.MetricDataResults = append(out.MetricDataResults, r)
	}
	return out, nil
}

func (w *world) DescribeAlarms(_ context.Context, in *cloudwatch.DescribeAlarmsInput,
	_ ...func(*cloudwatch.Options)) (*cloudwatch.DescribeAlarmsOutput, error) {
	if err := w.deny("DescribeAlarms"); err != nil {
		return nil, err
	}
	if len(in.AlarmNames) > 100 || aws.ToInt32(in.MaxRecords) < int32(len(in.AlarmNames)) {
		return nil, fmt.Errorf("ValidationError: %d names for %d records", len(in.AlarmNames),
			aws.ToInt32(in.MaxRecords))
	}
	out := &cloudwatch.DescribeAlarmsOutput{}
	for _, name := range in.AlarmNames {
		if s, ok := w.alarms[name]; ok {
			out.MetricAlarms = append(out.MetricAlarms, types.MetricAlarm{AlarmName: &name, StateValue: s})
		}
	}
	return out, nil
}

// ListStackResources returns pages with one alarm and one other resource.
func (w *world) ListStackResources(_ context.Context, in *cloudformation.ListStackResourcesInput,
	_ ...func(*cloudformation.Options)) (*cloudformation.ListStackResourcesOutput, error) {
	if err := w.deny("ListStackResources"); err != nil {
		return nil, err
	}
	if w.named == nil {
		w.named = slices.Sorted(maps.Keys(w.alarms))
	}
	out, at := &cloudformation.ListStackResourcesOutput{}, 0
	if in.NextToken != nil {
		at, _ = strconv.Atoi(*in.NextToken)
	}
	if at < len(w.named) {
		out.NextToken = aws.String(strconv.Itoa(at + 1))
		out.StackResourceSummaries = []cftypes.StackResourceSummary{
			{ResourceType: aws.String("AWS::CloudWatch::Alarm"), PhysicalResourceId: &w.named[at]},
			{ResourceType: aws.String("AWS::SQS::Queue"), PhysicalResourceId: aws.String("queue")}}
	}
	return out, nil
}

// lambda answers with the settings of the redrive function.
func (w *world) lambda() aws.Config {
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/2015-03-31/functions/redrive:live/configuration" {
			w.t.Errorf("%s %s", r.Method, r.URL)
		}
		fmt.Fprintf(out, `{"Environment":{"Variables":{"PAYHOOK_CLAIM_RETENTION":%q}}}`, w.ends)
	}))
	w.t.Cleanup(server.Close)
	return deployment.EmulatorConfig(server.URL, "us-east-1")
}

// stack returns the deployment.
func (w *world) stack() *stack {
	return &stack{
		Deployment: &deployment.Deployment{Name: "stack Payhook (nowhere)", Stack: "Bank", FullName: "Payhook",
			Version: "commit 012", TokenSecret: "token", AWS: w.lambda(),
			Functions: map[string]string{"webhook": "webhook:live", "redrive": "redrive:live", "token": "token:live"}},
		ledger: &w.table, parking: &w.parking,
		token:   token.NewReader(w.source),
		metrics: w, stacks: w,
		hint:    func(command string) string { return "payhook " + command + " --stack Bank" },
		compare: w.functions != nil, functions: w,
		build: func(arch string) (map[string][]byte, error) {
			if arch != "arm64" {
				return nil, errors.New("build: no " + arch + "\nmore")
			}
			return map[string][]byte{"webhook": []byte("program"), "redrive": []byte("program"),
				"token": []byte("program")}, nil
		},
	}
}

// status runs the command, and returns what it prints and whether all is healthy.
func (w *world) status(asJSON bool) (text string, healthy bool) {
	w.t.Helper()
	var out bytes.Buffer
	p := &cli.Program{Out: &out, Err: &out, Now: func() time.Time { return w.now }, JSON: asJSON}
	d := w.stack()
	if w.change != nil {
		w.change(d)
	}
	err := d.status(w.t.Context(), p)
	if strings.Contains(out.String(), accessToken1) {
		w.t.Error("the access token is shown")
	}
	if err != nil && !errors.Is(err, cli.ErrAttention) {
		w.t.Error(err)
	}
	return out.String(), err == nil
}

func TestEachProblemNeedsAttention(t *testing.T) {
	for name, c := range map[string]struct {
		cause   func(*world)
		verdict string
		line    string
	}{
		"healthy":      {func(*world) {}, "healthy", "webhooks      ok     17 accepted, 3 × 401 in 15m\n"},
		"certificates": {func(*world) {}, "healthy", "certificates  ok     no client certificate is required"},
		"alarms":       {func(*world) {}, "healthy", "alarms        ok     none of 2 is raised"},
		"another stack's alarm": {func(w *world) {
			w.named = slices.Sorted(maps.Keys(w.alarms))
			w.alarms["Payhook-Staging-parked"] = types.StateValueAlarm
		}, "healthy", "none of 2 is raised"},
		"alarms of others in the stack": {func(w *world) {
			w.alarms["Payhook_Reports-parked"] = types.StateValueAlarm
			w.alarms["queue-is-full"] = types.StateValueAlarm
		}, "healthy", "none of 2 is raised"},
		"overdue": {func(w *world) { w.record(time.Hour) }, "NOT HEALTHY",
			"pending       attention  1 event, the oldest for 1h, 1 overdue\n" +
				"                           payhook logs redrive --since 1h --stack Bank\n"},
		"under way": {func(w *world) { w.record(time.Second) }, "healthy",
			"pending       ok     1 event, the oldest for 1s"},
		"failing": {func(w *world) { w.lease(w.record(time.Second), 2) }, "NOT HEALTHY",
			"pending       attention  1 event, the oldest for 1s, 1 failing\n"},
		"published since": {func(w *world) {
			i := w.record(time.Hour)
			w.table.Lag(true)
			w.publish(i)
		}, "healthy", "pending       ok     nothing is pending\n"},
		"damaged": {func(w *world) {
			i := w.record(2 * time.Second)
			i.Err = errors.New("can't decode attempts")
			w.table.Delete(w.t.Context(), i.EventID)
			w.table.Insert(w.t.Context(), []ledger.Item{i})
			w.record(time.Second)
		}, "NOT HEALTHY", "pending       attention  2 events, the oldest for 2s, 1 damaged\n"},
		"parked": {func(w *world) {
			w.park(proof.Proof{Reason: proof.Invalid})
			w.park(proof.Proof{Reason: proof.Conflict})
		}, "NOT HEALTHY", "parked        attention  0 events, 1 invalid, 1 conflict open\n"},
		"a parked event": {func(w *world) { w.parkEvent(w.record(time.Hour)) }, "NOT HEALTHY",
			"parked        attention  1 event, 0 invalid, 0 conflicts open\n"},
		"a parked event is not pending": {func(w *world) { w.parkEvent(w.record(time.Hour)) }, "NOT HEALTHY",
			"pending       ok         nothing is pending\n"},
		"a parked claim check": {func(w *world) {
			w.parkEvent(w.record(time.Hour).AsClaim([]byte(`{"eventName":"a"}`)))
		}, "NOT HEALTHY", "1 event, 0 invalid, 0 conflicts open\n"},
		"a parked claim check whose event ends soon": {func(w *world) {
			w.ends = "20d"
			w.parkEvent(w.record(time.Hour).AsClaim([]byte(`{"eventName":"a"}`)))
		}, "NOT HEALTHY", " (in 19d23h)\n"},
		"anybody can have sent a rejected webhook": {func(w *world) {
			w.park(proof.Proof{Reason: proof.Rejected, Request: &proof.Request{Outcome: "x"}})
		}, "healthy", "parked        ok     nothing is open; 1 rejected webhook is stored\n"},
		"a token that ends": {func(w *world) { w.storeToken(time.Hour, 184*time.Second) }, "NOT HEALTHY",
			"token         attention  valid for"},
		"a token that lives": {func(w *world) { w.storeToken(time.Hour, 190*time.Second) }, "healthy",
			"token         ok     valid for"},
		// It is due 198 s before its end, and the next run is a minute later.
		"a token of 5 minutes": {func(w *world) {
			w.storeToken(5*time.Minute, 137*time.Second)
			w.change = func(d *stack) { d.TokenSecret, d.TokenParameter = "", "token" }
		}, "healthy", "token         ok     valid for"},
		"a token of 5 minutes in a secret": {func(w *world) { w.storeToken(5*time.Minute, 137*time.Second) },
			"NOT HEALTHY", "                           " + token.ShortLived + "\n"},
		"a token of 5 minutes that is not replaced": {func(w *world) { w.storeToken(5*time.Minute, 77*time.Second) },
			"NOT HEALTHY", "                           payhook logs token --since 1h --stack Bank\n"},
		"an expired token": {func(w *world) { w.storeToken(time.Hour, -time.Second) }, "NOT HEALTHY",
			"token         attention"},
		"no token": {func(w *world) { w.source = &token.Memory{} }, "NOT HEALTHY",
			"token         attention"},
		"an answer of 503": {func(w *world) { w.metrics["Payhook NotStored"] = 1 }, "NOT HEALTHY",
			"3 × 401, 1 × 503 in"},
		"every answer": {func(w *world) {
			for i, m := range []string{"BadRequest", "Unauthenticated", "SourceNotAllowed", "MethodNotAllowed",
				"Invalid", "NotStored", "KeyUnavailable"} {
				w.metrics["Payhook "+m] = float64(i + 1)
			}
		}, "NOT HEALTHY", "17 accepted, 1 × 400, 2 × 401, 3 × 403, 4 × 405, 5 × 422, 13 × 503 in 15m"},
		"every webhook is rejected": {func(w *world) { delete(w.metrics, "Payhook Accepted") }, "NOT HEALTHY",
			"webhooks      attention  0 accepted, 3 × 401 in 15m"},
		"no webhooks": {func(w *world) {
			delete(w.metrics, "Payhook Accepted")
			delete(w.metrics, "Payhook Unauthenticated")
		}, "healthy", "webhooks      ok     0 accepted in 15m"},
		// Before the function runs.
		"every webhook is too large for Lambda": {func(w *world) {
			delete(w.metrics, "Payhook Accepted")
			w.metrics["Payhook ClientErrors"], w.metrics["webhook Url4xxCount"] = 3, 5
		}, "NOT HEALTHY", "0 accepted, 3 × 401, 2 × 4xx by AWS, or not counted by the function yet in 15m"},
		"every 4xx is of the function, or a throttle": {func(w *world) {
			w.metrics["Payhook ClientErrors"], w.metrics["webhook Url4xxCount"] = 3, 4
			w.metrics["webhook Throttles"] = 1
		}, "NOT HEALTHY", "17 accepted, 3 × 401 in 15m; 1 run failed or did not start"},
		"every certificate is rejected": {func(w *world) {
			delete(w.metrics, "Payhook Accepted")
			delete(w.metrics, "Payhook Unauthenticated")
			w.metrics["Payhook ClientErrors"] = 2
		}, "NOT HEALTHY", "webhooks      attention  0 accepted, 2 × 403 by API Gateway in 15m"},
		"requests that API Gateway does not pass on": {func(w *world) {
			w.metrics["Payhook NotInvoked"] = 2
		}, "healthy", "3 × 401, 2 × 429, 413 or 500 by API Gateway in 15m"},
		"a failed run": {func(w *world) { w.metrics["webhook Errors"] = 1 }, "NOT HEALTHY",
			"1 run failed or did not start"},
		"no bus": {func(w *world) {
			w.metrics["Payhook BusMissing"], w.older = 1, map[string]time.Duration{"Payhook OldestPending": time.Minute}
		}, "NOT HEALTHY", "redrive       attention  the bus does not exist: events are lost\n"},
		"no bus, and no run before": {func(w *world) {
			w.metrics["Payhook BusMissing"] = 1
			delete(w.metrics, "Payhook OldestPending")
		}, "NOT HEALTHY", "redrive       attention  the bus does not exist: events are lost\n"},
		"a bus that exists again": {func(w *world) {
			w.metrics["Payhook BusMissing"], w.older = 2, map[string]time.Duration{"Payhook BusMissing": time.Minute}
		}, "healthy", "redrive       ok     last run"},
		"redrive stopped": {func(w *world) { w.age = 6 * time.Minute }, "NOT HEALTHY", "redrive       attention"},
		"a CA": {func(w *world) { w.metrics["Payhook TrustDaysLeft"] = 29 }, "NOT HEALTHY",
			"certificates  attention  29 days left"},
		"the certificate of a webhook before the last run": {func(w *world) {
			w.metrics["Payhook TrustDaysLeft"], w.before = 400, map[string]float64{"Payhook TrustDaysLeft": 29}
		}, "NOT HEALTHY", "certificates  attention  29 days left"},
		"an alarm": {func(w *world) { w.alarms["Payhook-parked"] = types.StateValueAlarm }, "NOT HEALTHY",
			"alarms        attention  raised: parked"},
		// Nothing is healthy by default.
		"no metrics": {func(w *world) { w.metrics = nil }, "UNKNOWN", "webhooks      not measured"},
		"no metrics of redrive": {func(w *world) { delete(w.metrics, "Payhook OldestPending") }, "UNKNOWN",
			"certificates  not measured"},
		"no metrics of the token": {func(w *world) { delete(w.metrics, "Payhook TokenShortfallSeconds") }, "UNKNOWN",
			"token runs    not measured"},
		"no alarms": {func(w *world) { w.named = []string{} }, "UNKNOWN", "alarms        not measured"},
		"an alarm without data": {func(w *world) { w.alarms["Payhook-parked"] = types.StateValueInsufficientData },
			"UNKNOWN", "alarms        not measured  without data: parked"},
		"an alarm that is gone": {func(w *world) { w.named = append(w.named, "Payhook-gone") }, "UNKNOWN",
			"alarms        not measured  without data: gone"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.cause(w)
			out, healthy := w.status(false)
			asJSON, _ := w.status(true)
			var shown struct{ Checks []check }
			if err := json.Unmarshal([]byte(asJSON), &shown); err != nil {
				t.Fatal(err)
			}
			for _, c := range shown.Checks {
				if (c.Next == "") != (c.State == ok) {
					t.Errorf("what comes next: %+v", c)
				}
			}
			if !strings.Contains(out, "\n"+c.verdict+"\n") || !strings.Contains(out, c.line) ||
				healthy != (c.verdict == "healthy") {
				t.Errorf("healthy: %t\n%s", healthy, out)
			}
		})
	}
}

func TestAPartThatFailsHidesNoOther(t *testing.T) {
	every := []string{"pending", "parked", "token", "webhooks", "redrive", "token runs", "certificates", "alarms",
		"code"}
	for name, c := range map[string]struct {
		cause func(*world)
		want  string // the line of the part
		hides []string
	}{
		"no ledger": {func(w *world) {
			w.change = func(d *stack) {
				d.ledger = struct {
					ledger.Getter
					pendingDenied
				}{&w.table, pendingDenied{&w.table}}
			}
		}, "pending: ", nil},
		"no bucket": {func(w *world) {
			w.parking.Fails = func(context.Context, string, string) error { return errors.New("down") }
		}, "parked: ", nil},
		"a disabled key": {func(w *world) { w.source = disabled{} }, "token: ", nil},
		"metrics": {func(w *world) { w.denied = "GetMetricData" }, "metrics: ",
			[]string{"webhooks", "redrive", "token runs", "certificates"}},
		"alarms":       {func(w *world) { w.denied = "DescribeAlarms" }, "alarms: ", nil},
		"resources":    {func(w *world) { w.denied = "ListStackResources" }, "alarms: ", nil},
		"the function": {func(w *world) { w.denied = "GetFunction" }, "code: ", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.arch, w.functions = "arm64", map[string]map[string]string{}
			for _, f := range []string{"webhook", "redrive", "token"} {
				w.functions[f] = map[string]string{"bootstrap": "program"}
			}
			c.cause(w)
			text, healthy := w.status(false)
			if healthy || !strings.Contains(text, "\nUNKNOWN\n") {
				t.Errorf("healthy: %t\n%s", healthy, text)
			}
			out, _ := w.status(true)
			_, document, _ := strings.Cut(out, "\n") // after the progress
			var shown struct{ Checks []check }
			if err := json.Unmarshal([]byte(document), &shown); err != nil {
				t.Fatal(err)
			}
			var lines, bad []string
			for _, line := range shown.Checks {
				lines = append(lines, line.Name)
				if line.State != ok {
					bad = append(bad, line.Name+": "+line.Text)
				}
			}
			for _, line := range every {
				if !slices.Contains(lines, line) && !slices.Contains(c.hides, line) {
					t.Errorf("%s is hidden", line)
				}
			}
			if len(bad) != 1 || !strings.HasPrefix(bad[0], c.want) {
				t.Errorf("not ok: %q, want one that begins with %q", bad, c.want)
			}
		})
	}
}

func TestInterruptedStatusShowsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	p := &cli.Program{Out: &out, Err: &out, Now: time.Now}
	if err := newWorld(t).stack().status(ctx, p); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v: %s", err, &out)
	}
}

func TestStatusAsJSON(t *testing.T) {
	w := newWorld(t)
	w.metrics["Payhook NotStored"] = 2
	out, _ := w.status(true)
	var shown struct {
		Healthy                 bool
		Stack, Version, Program string
		Checks                  []check
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.Healthy || shown.Stack != "Bank" ||
		shown.Version != "commit 012" ||
		shown.Program == "" ||
		len(shown.Checks) != 8 {
		t.Errorf("%v: %s", err, out)
	}
}

// GetFunction returns a function with a URL of its package.
func (w *world) GetFunction(_ context.Context, in *lambda.GetFunctionInput,
	_ ...func(*lambda.Options)) (*lambda.GetFunctionOutput, error) {
	if err := w.deny("GetFunction"); err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(*in.FunctionName, ":")
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	for file, content := range w.functions[name] {
		f, _ := z.Create(file)
		f.Write([]byte(content))
	}
	if w.twice {
		f, _ := z.Create("bootstrap")
		f.Write([]byte("program"))
	}
	z.Close()
	sum := sha256.Sum256(packed.Bytes())
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Write(packed.Bytes())
	}))
	w.t.Cleanup(server.Close)
	return &lambda.GetFunctionOutput{Code: &lambdatypes.FunctionCodeLocation{Location: &server.URL},
		Configuration: &lambdatypes.FunctionConfiguration{Architectures: []lambdatypes.Architecture{w.arch},
			CodeSha256: aws.String(cmp.Or(w.digest, base64.StdEncoding.EncodeToString(sum[:])))}}, nil
}

func TestCodeIsComparedWithABuild(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*world)
		healthy bool
		want    string
	}{
		"the same": {func(*world) {}, true, "every function is the same; built from "},
		"truststore": {func(w *world) { w.functions["redrive"][settings.TruststoreFile] = "CA" }, true,
			"is the same"},
		"service's CA": {func(w *world) { w.functions["token"][settings.ServiceCAFile] = "CA" }, true, "is the same"},
		"version":      {func(*world) {}, true, ", the stack has commit 012"},
		"other code":   {func(w *world) { w.functions["redrive"]["bootstrap"] = "prograM" }, false, "redrive differ; "},
		"other file":   {func(w *world) { w.functions["token"]["x"] = "y" }, false, "token differ; "},
		"two programs": {func(w *world) { w.functions["token"]["bootstrap"], w.twice = "prograM", true }, false,
			"token differ; "},
		"no program": {func(w *world) { w.functions["webhook"] = map[string]string{} }, false, "webhook differ; "},
		"not built":  {func(w *world) { w.arch = "x86_64" }, false, "code          not measured  build: no amd64\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.arch, w.functions = "arm64", map[string]map[string]string{}
			for _, f := range []string{"webhook", "redrive", "token"} {
				w.functions[f] = map[string]string{"bootstrap": "program"}
			}
			test.change(w)
			out, healthy := w.status(false)
			if healthy != test.healthy || !strings.Contains(out, test.want) {
				t.Errorf("healthy: %t\n%s", healthy, out)
			}
			cut, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := code(cut, w.stack(), w.now); w.arch == "arm64" &&
				(err == nil || strings.Contains(err.Error(), "http://")) {
				t.Errorf("a download that fails: %v", err)
			}
			w.digest = "other"
			d, err := code(t.Context(), w.stack(), w.now)
			if w.arch == "arm64" && (err == nil || strings.Contains(err.Error(), "http://")) {
				t.Errorf("a download with another digest: %v, %v", d, err)
			}
		})
	}
}

// pendingDenied is an index of which the pending events can't be read.
type pendingDenied struct{ ledger.Querier }

func (d pendingDenied) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Cursor, error) {
	if strings.HasPrefix(q.Shard, string(ledger.Pending)) {
		return nil, nil, errors.New("down")
	}
	return d.Querier.Query(ctx, q)
}

// record records an event that was due that long ago, less a minute, and returns its item.
func (w *world) record(age time.Duration) ledger.Item {
	w.t.Helper()
	event, err := payment.DecodeRawEvent([]byte(fmt.Sprintf(`{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s",`+
		`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":1}}`, uuid.New().String())))
	if err != nil {
		w.t.Fatal(err)
	}
	at := w.now.Add(-age)
	l := ledger.New(&w.table, ledger.Options{Window: 30 * 24 * time.Hour, Now: func() time.Time { return at }})
	e := ledger.NewItem(event, uuid.New().String(), at)
	if r := l.Record(w.t.Context(), []ledger.Item{e}, ledger.NewHolder(), at.Add(time.Minute))[0]; r.Err != nil {
		w.t.Fatal(r.Err)
	}
	return w.table.Items()[e.EventID]
}

// ledger returns the ledger at the present time.
func (w *world) ledger() *ledger.Ledger {
	return ledger.New(&w.table, ledger.Options{Window: 30 * 24 * time.Hour, Now: func() time.Time { return w.now }})
}

// lease lets redrive lease an event so often.
func (w *world) lease(i ledger.Item, times int) {
	for range times {
		until := w.now.Add(time.Hour)
		w.ledger().Lease(w.t.Context(), []ledger.Item{i}, ledger.NewHolder(), until)
		i.Due = until
	}
}

func (w *world) publish(i ledger.Item) {
	w.t.Helper()
	if err := w.ledger().MarkPublished(w.t.Context(), []ledger.Item{i})[0]; err != nil {
		w.t.Fatal(err)
	}
}

// parkEvent parks an event, as it is.
func (w *world) parkEvent(i ledger.Item) {
	w.t.Helper()
	w.table.Delete(w.t.Context(), i.EventID)
	w.table.Insert(w.t.Context(), []ledger.Item{i})
	if err := w.ledger().Park(w.t.Context(), i, "attempts", "why"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) park(p proof.Proof) {
	w.t.Helper()
	if _, _, err := proof.Put(w.t.Context(), &w.parking, p); err != nil {
		w.t.Fatal(err)
	}
}

// The oldest events are listed, if one of them needs attention.
func TestTheOldestEventsAreListed(t *testing.T) {
	w := newWorld(t)
	for range mostListed {
		w.record(time.Second)
	}
	old := w.record(2 * time.Second)
	if out, _ := w.status(false); strings.Contains(out, old.EventID) {
		t.Error(out)
	}
	w.lease(old, 2)
	out, _ := w.status(false)
	asJSON, _ := w.status(true)
	var shown struct{ Oldest []waiting }
	if err := json.Unmarshal([]byte(asJSON), &shown); err != nil || len(shown.Oldest) != mostListed {
		t.Fatalf("%v: %s", err, asJSON)
	}
	want := waiting{old.RecordedAt, w.now.Add(time.Hour), 2, old.EventID, old.DeliveryID, ""}
	if shown.Oldest[0] != want || !strings.Contains(out, old.EventID+"  "+old.DeliveryID) {
		t.Errorf("%+v, want %+v\n%s", shown.Oldest[0], want, out)
	}
}
