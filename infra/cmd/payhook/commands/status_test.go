package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
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
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/smithy-go"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// world is a healthy deployment in memory.
type statusWorld struct {
	t       *testing.T
	now     time.Time
	table   ledger.Memory
	parking objects.Memory
	ends    string                      // the setting claimRetention
	logged  map[string][]string         // the lines of the functions, the last one of a minute ago
	pages   int                         // of a log that are not empty, and have a token for the next; 0: one
	reads   map[string]int              // of pages, by function
	missing string                      // the code of AWS for what does not exist any more
	metrics map[string]float64          // the values, by dimension, a space, and name
	alarms  map[string]types.StateValue // of all stacks; those of API Gateway are on the metric of its id
	named   []string                    // the alarms of the stack; nil: all
	denied  string                      // the operation that is denied
	change  func(*statusStack)          // of the deployment; nil: none
}

// deny returns an error if the operation is denied.
func (w *statusWorld) deny(operation string) error {
	if w.denied != operation {
		return nil
	}
	return &smithy.GenericAPIError{Code: "AccessDenied", Message: "User: somebody is not authorized:\n" + operation}
}

func newStatusWorld(t *testing.T) *statusWorld {
	w := &statusWorld{t: t, now: time.Now().UTC().Truncate(time.Millisecond),
		metrics: map[string]float64{"Payhook Accepted": 17, "Payhook Unauthenticated": 3},
		alarms: map[string]types.StateValue{"Payhook-parked": types.StateValueOk,
			"Payhook-token-life": types.StateValueOk}}
	w.logged, w.reads = map[string][]string{}, map[string]int{}
	w.logToken(time.Hour, 59*time.Minute, "")
	return w
}

// logToken sets the line of the token function, with more members.
func (w *statusWorld) logToken(lifetime, left time.Duration, more string) {
	const line = `{"msg":"token","outcome":"fresh","lifetimeSeconds":%g,"remainingSeconds":%g%s}`
	w.logged["token"] = []string{fmt.Sprintf(line,
		lifetime.Seconds(), left.Seconds(), more)}
}

func (w *statusWorld) GetMetricData(_ context.Context, in *cloudwatch.GetMetricDataInput,
	_ ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error) {
	if err := w.deny("GetMetricData"); err != nil {
		return nil, err
	}
	out := &cloudwatch.GetMetricDataOutput{}
	for _, q := range in.MetricDataQueries {
		m := q.MetricStat.Metric
		r := types.MetricDataResult{Id: q.Id}
		name := aws.ToString(m.Dimensions[0].Value) + " " + aws.ToString(m.MetricName)
		if value, ok := w.metrics[name]; ok {
			r.Values = []float64{value - 1, 1} // of two minutes
		}
		out.MetricDataResults = append(out.MetricDataResults, r)
	}
	return out, nil
}

func (w *statusWorld) DescribeAlarms(_ context.Context, in *cloudwatch.DescribeAlarmsInput,
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
			out.MetricAlarms = append(out.MetricAlarms, types.MetricAlarm{AlarmName: &name, StateValue: s,
				StateTransitionedTimestamp: aws.Time(w.now.Add(-time.Hour)),
				AlarmDescription: aws.String(name + " is bad: `payhook keys`." + settings.WhatToDo +
					"Fix it with `payhook logs --since 1h` and `aws x y`.")})
		}
	}
	return out, nil
}

// ListStackResources returns pages with one alarm and one other resource.
func (w *statusWorld) ListStackResources(_ context.Context, in *cloudformation.ListStackResourcesInput,
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

// cloud answers with the settings of the redrive function, the lines of the logs, and for other services that what they
// have is missing.
func (w *statusWorld) cloud() aws.Config {
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		switch target := r.Header.Get("X-Amz-Target"); {
		case r.URL.Path == "/2015-03-31/functions/redrive:live/configuration":
			fmt.Fprintf(out, `{"Environment":{"Variables":{"PAYHOOK_CLAIM_RETENTION":%q}}}`, w.ends)
		case target == "Logs_20140328.FilterLogEvents":
			w.filterLogEvents(out, r)
		case r.Method == http.MethodPost:
			out.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(out, `{"__type":"com.amazonaws#%s","message":"not found"}`, w.missing)
		default:
			out.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(out, `<Error><Code>%s</Code></Error>`, w.missing)
		}
	}))
	w.t.Cleanup(server.Close)
	return deployment.EmulatorConfig(server.URL, "us-east-1")
}

func (w *statusWorld) filterLogEvents(out http.ResponseWriter, r *http.Request) {
	var in struct {
		LogGroupName, FilterPattern, NextToken string
		StartTime                              int64
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.t.Error(err)
	}
	function, found := strings.CutPrefix(in.LogGroupName, "/logs/")
	if !found {
		out.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(out, `{"__type":%q}`, w.missing)
		return
	}
	if !strings.HasPrefix(in.FilterPattern, fmt.Sprintf("{ $.msg = %q", function)) {
		w.t.Errorf("%s: %s", in.LogGroupName, in.FilterPattern)
	}
	if w.deny("FilterLogEvents of "+function) != nil {
		out.WriteHeader(http.StatusBadRequest)
		io.WriteString(out, `{"__type":"AccessDeniedException"}`)
		return
	}
	w.reads[function]++
	type event struct {
		Timestamp int64  `json:"timestamp"`
		Message   string `json:"message"`
	}
	page := struct {
		Events    []event `json:"events"`
		NextToken string  `json:"nextToken,omitempty"`
	}{}
	for i, line := range w.logged[function] {
		at := w.now.Add(-time.Minute - time.Duration(len(w.logged[function])-1-i)*time.Minute).UnixMilli()
		if at >= in.StartTime {
			page.Events = append(page.Events, event{at, line})
		}
	}
	if w.reads[function] < w.pages {
		page.NextToken = "more"
	}
	json.NewEncoder(out).Encode(page)
}

// stack returns the deployment.
func (w *statusWorld) stack() *statusStack {
	cfg := w.cloud()
	return &statusStack{
		Deployment: &deployment.Deployment{Name: "stack Payhook (nowhere)", Stack: "Bank", FullName: "Payhook",
			Version: "commit 012", TokenSecret: "token", CredentialsSecret: "credentials", AWS: cfg,
			Status: "UPDATE_COMPLETE", Logs: map[string]string{"webhook": "/logs/webhook", "redrive": "/logs/redrive",
				"token": "/logs/token"},
			Functions: map[string]string{"webhook": "webhook:live", "redrive": "redrive:live", "token": "token:live"}},
		ledger: &w.table, parking: &w.parking,
		metrics: w, stacks: w, logs: cloudwatchlogs.NewFromConfig(cfg), open: map[string]int{},
		hint: func(command string) string { return "payhook " + command + " --stack Bank" },
		aws:  func(command string) string { return "aws " + command + " --region r" },
	}
}

// status runs the command, and returns what it prints and whether all is healthy.
func (w *statusWorld) status(asJSON bool) (text string, healthy bool) {
	w.t.Helper()
	var out bytes.Buffer
	p := &cli.Program{Out: &out, Err: &out, Now: func() time.Time { return w.now }, JSON: asJSON}
	d := w.stack()
	if w.change != nil {
		w.change(d)
	}
	err := d.status(w.t.Context(), p)
	if err != nil && !errors.Is(err, cli.ErrAttention) {
		w.t.Error(err)
	}
	return out.String(), err == nil
}

// shown is what is read of the JSON.
type shown struct {
	Checks []check
	Oldest []waiting
}

func (w *statusWorld) document() (s shown) {
	w.t.Helper()
	text, _ := w.status(true)
	if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):]), &s); err != nil { // after the progress
		w.t.Fatal(err)
	}
	return s
}

func TestEachProblemNeedsAttention(t *testing.T) {
	for name, c := range map[string]struct {
		cause   func(*statusWorld)
		verdict string
		line    string
	}{
		"healthy": {func(*statusWorld) {}, "healthy",
			"webhooks  ok     17 accepted, 3 × 401 in 15m; 401 in the last 3m: none\n"},
		"alarms": {func(*statusWorld) {}, "healthy", "alarms    ok     none of 2 is raised"},
		"another stack's alarm": {func(w *statusWorld) {
			w.named = slices.Sorted(maps.Keys(w.alarms))
			w.alarms["Payhook-Staging-parked"] = types.StateValueAlarm
		}, "healthy", "none of 2 is raised"},
		"alarms of others in the stack": {func(w *statusWorld) {
			w.alarms["Payhook_Reports-parked"] = types.StateValueAlarm
			w.alarms["queue-is-full"] = types.StateValueAlarm
		}, "healthy", "none of 2 is raised"},
		"left to redrive, and no alarm": {func(w *statusWorld) { w.insert(ledger.Pending, time.Hour) }, "healthy",
			"pending   ok     1 event, the oldest for 1h; redrive: it has logged nothing for 3m\n"},
		"under way": {func(w *statusWorld) { w.insert(ledger.Pending, time.Second) }, "healthy",
			"pending   ok     1 event, the oldest for 1s"},
		"published since": {func(w *statusWorld) {
			i := w.insert(ledger.Pending, time.Hour)
			w.table.Lag(true)
			w.table.Delete(w.t.Context(), i.EventID)
		}, "healthy", "pending   ok     nothing is pending\n"},
		"damaged": {func(w *statusWorld) {
			w.insert(ledger.Pending, 2*time.Second, func(i *ledger.Item) { i.Err = errors.New("no attempts") })
			w.insert(ledger.Pending, time.Second)
		}, "NOT HEALTHY", "pending   attention  2 events, the oldest for 2s, 1 damaged; redrive: it has logged " +
			"nothing for 3m\n" +
			"                       payhook logs redrive --since 1h --stack Bank\n"},
		"parked": {func(w *statusWorld) {
			w.park(proof.Proof{Reason: proof.Invalid})
			w.park(proof.Proof{Reason: proof.Conflict})
		}, "NOT HEALTHY", "parked    attention  0 events, 1 invalid, 1 conflict open\n"},
		"a parked event": {func(w *statusWorld) { w.insert(ledger.Parked, time.Hour) }, "NOT HEALTHY",
			"parked    attention  1 event, 0 invalid, 0 conflicts open\n"},
		"a parked event is not pending": {func(w *statusWorld) { w.insert(ledger.Parked, time.Hour) }, "NOT HEALTHY",
			"pending   ok         nothing is pending\n"},
		"a parked claim check": {func(w *statusWorld) { w.insert(ledger.Parked, time.Hour, claimed) }, "NOT HEALTHY",
			"1 event, 0 invalid, 0 conflicts open\n"},
		"a parked claim check whose event ends soon": {func(w *statusWorld) {
			w.ends = "20d"
			w.insert(ledger.Parked, time.Hour, claimed)
		}, "NOT HEALTHY", " (in 19d23h)\n"},
		"anybody can have sent a rejected webhook": {func(w *statusWorld) {
			w.park(proof.Proof{Reason: proof.Rejected, Request: &proof.Request{Outcome: "x"}})
		}, "healthy", "parked    ok     nothing is open; 1 rejected webhook is stored\n"},
		"a token that ends, and no alarm": {func(w *statusWorld) { w.logToken(time.Hour, 244*time.Second, "") }, "healthy",
			"token     ok     valid for 3m"},
		"a token of 5 minutes": {func(w *statusWorld) {
			w.logToken(5*time.Minute, 197*time.Second, "")
			w.change = func(d *statusStack) { d.TokenSecret, d.TokenParameter = "", "token" }
		}, "healthy", "token     ok     valid for"},
		"a token of 5 minutes in a secret": {func(w *statusWorld) { w.logToken(5*time.Minute, 197*time.Second, "") },
			"NOT HEALTHY", "                       the lifetime of the token is less than 20 minutes"},
		"a token that has expired since the line": {func(w *statusWorld) { w.logToken(time.Hour, 59*time.Second, "") },
			"NOT HEALTHY", "token     attention  there is no valid token\n"},
		"no token": {func(w *statusWorld) {
			w.logToken(0, 0, `,"cause":"the secret with the client credentials has no value yet"`)
		}, "NOT HEALTHY", "                       aws secretsmanager put-secret-value --secret-id credentials " +
			"--secret-string file://credentials.json --region r\n"},
		"no token, and why": {func(w *statusWorld) {
			w.logToken(0, 0, `,"cause":"the endpoint answered 401 invalid_client"`)
		},
			"NOT HEALTHY", "there is no valid token; the last refresh failed: the endpoint answered 401 " +
				"invalid_client\n"},
		"a refresh that failed": {func(w *statusWorld) {
			w.logToken(time.Hour, 30*time.Minute, `,"cause":"the endpoint answered 503"`)
		}, "NOT HEALTHY", "; the last refresh failed: the endpoint answered 503 " +
			"payhook logs token --since 1h --stack Bank"},
		"a store that cannot be read": {func(w *statusWorld) {
			w.logged["token"] = []string{`{"msg":"token","outcome":"failed","cause":"the secret: out of time"}`}
		}, "NOT HEALTHY", "it is not known whether there is a valid token; the last refresh failed: the secret: out"},
		"a secret that is marked for deletion": {func(w *statusWorld) {
			w.logged["token"] = []string{`{"msg":"token","outcome":"failed","cause":"the secret with the token: ` +
				`Secrets Manager GetSecretValue: InvalidRequestException"}`}
		}, "NOT HEALTHY", "infra/RUNBOOK.md, \"What is"},
		"a refresh that worked since": {func(w *statusWorld) {
			w.logToken(time.Hour, time.Hour, "")
			w.logged["token"] = append([]string{`{"msg":"token","cause":"x"}`}, w.logged["token"]...)
		}, "healthy", "token     ok     valid for 59m"},
		"a token function that does not run": {func(w *statusWorld) {
			w.logged["token"] = append(w.logged["token"], "START", "REPORT", `{"msg":"else"}`, "{", "x")
		}, "NOT HEALTHY", "token     attention  the token function has logged nothing for 5m\n" +
			"                       payhook logs token --since 1h --all --stack Bank\n"},
		"every answer": {func(w *statusWorld) {
			for i, m := range []string{"BadRequest", "Unauthenticated", "SourceNotAllowed", "MethodNotAllowed",
				"Invalid", "NotStored", "KeyUnavailable"} {
				w.metrics["Payhook "+m] = float64(i + 1)
			}
		}, "healthy", "17 accepted, 1 × 400, 2 × 401, 3 × 403, 4 × 405, 5 × 422, 13 × 503 in 15m;"},
		"one stranger at night": {func(w *statusWorld) { delete(w.metrics, "Payhook Accepted") }, "healthy",
			"webhooks  ok     0 accepted, 3 × 401 in 15m"},
		"401 by outcome": {func(w *statusWorld) {
			w.logged["webhook"] = []string{`{"msg":"webhook","status":401,"outcome":"too long ago"}`,
				`{"msg":"webhook","status":401,"outcome":"signature-invalid"}`,
				`{"msg":"webhook","status":200,"outcome":"accepted"}`, "START"}
			w.logged["webhook"] = append([]string{`{"msg":"webhook","status":401,"outcome":"key-unknown"}`,
				`{"msg":"webhook","status":401,"outcome":"signature-invalid"}`}, w.logged["webhook"][2:]...)
		}, "healthy", "3 × 401 in 15m; 401 in the last 3m: 1 signature-invalid\n"},
		"no 401, no reading": {func(w *statusWorld) {
			delete(w.metrics, "Payhook Unauthenticated")
			w.denied = "FilterLogEvents of webhook"
		}, "healthy", "webhooks  ok     17 accepted in 15m\n"},
		"a part of many 401": {func(w *statusWorld) {
			w.logged["webhook"], w.pages = []string{`{"msg":"webhook","status":401,"outcome":"key-unknown"}`}, 1000
		}, "healthy", "401 in the last 3m: 10 key-unknown, and more that were not read"},
		"redrive fails": {func(w *statusWorld) {
			w.insert(ledger.Pending, time.Hour)
			w.logged["redrive"] = []string{`{"msg":"redrive","cause":"old"}`,
				`{"msg":"redrive","cause":"PutEvents: denied"}`}
		}, "healthy", "pending   ok     1 event, the oldest for 1h; redrive: PutEvents: denied\n"},
		"redrive works": {func(w *statusWorld) {
			w.insert(ledger.Pending, time.Second)
			w.logged["redrive"] = []string{`{"msg":"redrive","cause":"old"}`, `{"msg":"redrive"}`}
		}, "healthy", "pending   ok     1 event, the oldest for 1s\n"},
		"nothing pending, no reading": {func(w *statusWorld) { w.denied = "FilterLogEvents of redrive" }, "healthy",
			"pending   ok     nothing is pending\n"},
		"a stack": {func(*statusWorld) {}, "healthy", "stack     ok     UPDATE_COMPLETE\n"},
		"a deployment": {func(w *statusWorld) { w.change = func(d *statusStack) { d.Status = "UPDATE_IN_PROGRESS" } }, "healthy",
			"stack     ok     UPDATE_IN_PROGRESS\n"},
		"a deployment that failed": {func(w *statusWorld) {
			w.change = func(d *statusStack) { d.Stack, d.Status = "A b", "UPDATE_ROLLBACK_COMPLETE" }
		}, "NOT HEALTHY", "aws cloudformation describe-stack-events --stack-name 'A b' --region r\n"},
		"a rollback that failed": {func(w *statusWorld) { w.change = func(d *statusStack) { d.Status = "UPDATE_ROLLBACK_FAILED" } },
			"NOT HEALTHY", "stack     attention  UPDATE_ROLLBACK_FAILED\n"},
		"a stack that is deleted": {func(w *statusWorld) { w.change = func(d *statusStack) { d.Status = "DELETE_IN_PROGRESS" } },
			"NOT HEALTHY", "infra/RUNBOOK.md, \"Delete a stack and use its data again\"\n"},
		"an alarm": {func(w *statusWorld) {
			w.alarms["Payhook-refused"] = types.StateValueAlarm
		}, "NOT HEALTHY", " (1h ago). Payhook-refused is bad: `payhook keys --stack Bank`. " +
			"Fix it with `payhook logs --since 1h --stack Bank` and `aws x y --region r`."},
		"an alarm of what is parked": {func(w *statusWorld) {
			w.alarms["Payhook-parked"] = types.StateValueAlarm
			w.park(proof.Proof{Reason: proof.Invalid})
		}, "NOT HEALTHY", " (1h ago). Payhook-parked is bad:"},
		"an alarm of what was decided": {func(w *statusWorld) {
			w.alarms["Payhook-parked"] = types.StateValueAlarm
			w.park(proof.Proof{Reason: proof.Conflict})
		}, "NOT HEALTHY", " (1h ago). Nothing is open any more.\n"},
		"an alarm of a conflict": {func(w *statusWorld) {
			w.alarms["Payhook-conflicts"] = types.StateValueAlarm
			w.park(proof.Proof{Reason: proof.Conflict})
		}, "NOT HEALTHY", " (1h ago). Payhook-conflicts is bad:"},
		"an alarm of what was published": {func(w *statusWorld) {
			w.alarms["Payhook-oldest-pending"] = types.StateValueAlarm
		}, "NOT HEALTHY", " (1h ago). Nothing is pending any more. Payhook-oldest-pending is bad:"},
		// Nothing is healthy by default.
		"no metrics": {func(w *statusWorld) { w.metrics = nil }, "healthy", "webhooks  ok     0 accepted in 15m"},
		"no alarms":  {func(w *statusWorld) { w.named = []string{} }, "UNKNOWN", "alarms    not measured"},
		"an alarm without data": {func(w *statusWorld) { w.alarms["Payhook-parked"] = types.StateValueInsufficientData },
			"UNKNOWN", "alarms    not measured  without data: parked"},
		"an alarm that is gone": {func(w *statusWorld) {
			w.named = append(slices.Sorted(maps.Keys(w.alarms)), "Payhook-gone")
		}, "NOT HEALTHY", "alarms    attention  missing: gone\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStatusWorld(t)
			c.cause(w)
			out, healthy := w.status(false)
			for _, c := range w.document().Checks {
				if c.Next == "" && c.State != ok {
					t.Errorf("what comes next: %+v", c)
				}
			}
			words := strings.Join(strings.Fields(out), " ") // where it wraps does not matter
			if !strings.Contains(out, "\n"+c.verdict+"\n") || !strings.Contains(out+words, c.line) ||
				healthy != (c.verdict == "healthy") {
				t.Errorf("healthy: %t\n%s", healthy, out)
			}
		})
	}
}

func TestAPartThatFailsHidesNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		cause func(*statusWorld)
		want  string // the line of the part
	}{
		"no ledger": {func(w *statusWorld) {
			w.change = func(d *statusStack) {
				d.ledger = struct {
					ledger.Getter
					pendingDenied
				}{&w.table, pendingDenied{&w.table}}
			}
		}, "pending: "},
		"no bucket": {func(w *statusWorld) {
			w.parking.Fails = func(context.Context, string, string) error { return errors.New("down") }
		}, "parked: "},
		"FilterLogEvents of token":   {nil, "token: "},
		"FilterLogEvents of webhook": {nil, "webhooks: "},
		"FilterLogEvents of redrive": {func(w *statusWorld) { w.insert(ledger.Pending, time.Second) }, "pending: "},
		"GetMetricData":              {nil, "webhooks: "},
		"DescribeAlarms":             {nil, "alarms: "},
		"ListStackResources":         {nil, "alarms: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStatusWorld(t)
			if w.denied = name; c.cause != nil {
				c.cause(w)
			}
			if text, healthy := w.status(false); healthy || !strings.Contains(text, "\nUNKNOWN\n") {
				t.Errorf("healthy: %t\n%s", healthy, text)
			}
			var lines, bad []string
			for _, line := range w.document().Checks {
				lines = append(lines, line.Name)
				if line.State != ok {
					bad = append(bad, line.Name+": "+line.Text)
				}
			}
			for _, line := range []string{"pending", "parked", "token", "webhooks", "alarms"} {
				if !slices.Contains(lines, line) {
					t.Errorf("%s is hidden", line)
				}
			}
			if len(bad) != 1 || !strings.HasPrefix(bad[0], c.want) {
				t.Errorf("not ok: %q, want one that begins with %q", bad, c.want)
			}
		})
	}
}

// What does not exist any more is no measurement that failed.
func TestWhatIsMissingNeedsAttention(t *testing.T) {
	for name, test := range map[string]struct {
		code   string
		change func(*statusStack)
		want   string
	}{
		"ledger": {"ResourceNotFoundException", func(d *statusStack) {
			d.ledger = dynamodb.NewLedgerReader(dynamodb.NewClient(d.AWS), "ledger")
		}, "Restore the ledger"},
		"bucket": {"NoSuchBucket", func(d *statusStack) { d.parking = s3.NewBucket(d.S3(), "parking") }, "What is lost"},
		"log":    {"ResourceNotFoundException", func(d *statusStack) { d.Logs["token"] = "/gone" }, "What is lost"},
		"denied": {"AccessDeniedException", func(d *statusStack) {
			d.ledger = dynamodb.NewLedgerReader(dynamodb.NewClient(d.AWS), "ledger")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStatusWorld(t)
			w.missing, w.change = test.code, test.change
			out, _ := w.status(false)
			out = strings.Join(strings.Fields(out), " ")
			if test.want == "" {
				if !strings.Contains(out, " UNKNOWN NAME") || !strings.Contains(out, "Sid names Status") {
					t.Error(out)
				}
			} else if !strings.Contains(out, " NOT HEALTHY NAME") || strings.Contains(out, "not measured") ||
				!strings.Contains(out, "infra/RUNBOOK.md, \""+test.want) {
				t.Error(out)
			}
		})
	}
}

// The sections of the runbook that status names exist.
func TestTheRunbookHasTheSections(t *testing.T) {
	runbook, err := os.ReadFile("../../../RUNBOOK.md")
	source, failed := os.ReadFile("status.go")
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	text := regexp.MustCompile(`" \+\n\t+"`).ReplaceAllString(string(source), "")
	sections := regexp.MustCompile(`RUNBOOK.md, \\"(.+?)\\"`).FindAllStringSubmatch(text, -1)
	for _, section := range sections {
		if !strings.Contains(string(runbook), "\n### "+section[1]+"\n") {
			t.Errorf("no section %s", section[1])
		}
	}
	if len(sections) != 3 {
		t.Errorf("%q", sections)
	}
}

// Whatever the alarm, the person who reads it has called status, and can copy the commands.
func TestAdviceCanBeCopied(t *testing.T) {
	all, err := os.ReadFile("../../../payhook/alarms.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for text := range strings.SplitSeq(string(all), "\n\n") {
		name, text, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		d := newStatusWorld(t).stack()
		c := d.raised(name, types.MetricAlarm{AlarmDescription: new(strings.ReplaceAll(text, "\n", " "))}, time.Now())
		for _, line := range append(wrap(c.Text), wrap(c.Next)...) {
			for i, command := range strings.Split(line, "`") {
				isOurs, isAWS := strings.Contains(command, "payhook "), strings.Contains(command, "aws ")
				n += i % 2
				wrong := isOurs && !strings.HasSuffix(command, " --stack Bank") ||
					isAWS && !strings.HasSuffix(command, " --region r")
				if i%2 == 1 && wrong || strings.Contains(command, "payhook status") {
					t.Errorf("%s: %s", name, line)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("%d commands", n)
	}
}

func TestInterruptedStatusShowsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	p := &cli.Program{Out: &out, Err: &out, Now: time.Now}
	if err := newStatusWorld(t).stack().status(ctx, p); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v: %s", err, &out)
	}
}

func TestOutputsAreShownWithTheirMeaning(t *testing.T) {
	var out bytes.Buffer
	p := &cli.Program{Out: &out, Stack: &deployment.Deployment{Outputs: []deployment.Output{
		{Name: "EventBusName", Value: "bus-1", Meaning: "the bus"},
		{Name: "Text", Value: "one\n  \x1btwo\n", Meaning: "for people"}}}}
	root := p.Root()
	root.AddCommand(statusCommand(p))
	if status := p.Run(t.Context(), root, []string{"status", "--outputs"}); status != 0 ||
		out.String() != "NAME          MEANING  VALUE\nEventBusName  the bus  bus-1\n"+
			"\nText: for people\n\none\n  \\u001btwo\n" {
		t.Errorf("%d, %s", status, &out)
	}
}

// pendingDenied is an index of which the pending events can't be read.
type pendingDenied struct{ ledger.Querier }

func (d pendingDenied) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	if strings.HasPrefix(q.Shard, string(ledger.Pending)) {
		return nil, nil, errors.New("down")
	}
	return d.Querier.Query(ctx, q)
}

// insert inserts an event that was recorded that long ago, and was due a minute later.
func (w *statusWorld) insert(state ledger.State, age time.Duration, change ...func(*ledger.Item)) ledger.Item {
	at := w.now.Add(-age)
	i := ledger.Item{EventID: uuid.New().String(), DeliveryID: uuid.New().String(), State: state, RecordedAt: at,
		Shard: string(state) + "/0", Due: at.Add(time.Minute)}
	for _, c := range change {
		c(&i)
	}
	w.table.Write(w.t.Context(), []ledger.Write{{Item: i}})
	return i
}

func claimed(i *ledger.Item) { i.Claimed = true }

func tried(i *ledger.Item) { i.Attempts, i.Due = 1, i.RecordedAt.Add(time.Hour) }

func (w *statusWorld) park(p proof.Proof) {
	w.t.Helper()
	if _, _, err := proof.Put(w.t.Context(), &w.parking, p); err != nil {
		w.t.Fatal(err)
	}
}

// The oldest events are listed that are left to redrive.
func TestTheOldestEventsAreListed(t *testing.T) {
	w := newStatusWorld(t)
	for range mostListed {
		w.insert(ledger.Pending, time.Second)
	}
	none, _ := w.status(false)
	old := w.insert(ledger.Pending, 2*time.Second, tried)
	out, _ := w.status(false)
	want := []waiting{{old.RecordedAt, old.Due, 1, old.EventID, old.DeliveryID, ""}}
	got := w.document().Oldest
	if !slices.Equal(got, want) || !strings.Contains(out, old.EventID+"  "+old.DeliveryID) ||
		!strings.Contains(out, "\nleft to redrive\nRECORDEDAT") || strings.Contains(none, "left to redrive") {
		t.Errorf("%+v, want %+v\n%s", got, want, out)
	}
}
