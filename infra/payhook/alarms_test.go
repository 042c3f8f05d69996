package payhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/awsenv"
	"payhook.example/shared/names"
)

// alarmNamed returns an alarm's properties.
func (tm *template) alarmNamed(t *testing.T, name string) map[string]any {
	t.Helper()
	return tm.get(t, "Alarms/"+name, "AWS::CloudWatch::Alarm").Properties
}

// watched returns the metrics that an alarm watches, with their statistics and
// periods: the one that it is on, and those that are subtracted from it.
func (tm *template) watched(alarm map[string]any) (metrics []map[string]any) {
	if alarm["Metrics"] == nil {
		return []map[string]any{alarm}
	}
	for _, query := range list(alarm["Metrics"]) {
		if stat, ok := at(query, "MetricStat").(map[string]any); ok {
			metric := maps.Clone(at(stat, "Metric").(map[string]any))
			metric["Statistic"], metric["Period"] = stat["Stat"], stat["Period"]
			metrics = append(metrics, metric)
		}
	}
	return metrics
}

// alarmRow writes an alarm as a row of the table in infra/cmd/payhook/RUNBOOK.md,
// using only the template.
func (tm *template) alarmRow(t *testing.T, stack string, alarm map[string]any) string {
	t.Helper()
	name, ok := strings.CutPrefix(alarm["AlarmName"].(string), stack+"-")
	means, step, split := strings.Cut(alarm["AlarmDescription"].(string), whatToDo)
	if !ok || !split {
		t.Fatalf("%v: %v", alarm["AlarmName"], alarm["AlarmDescription"])
	}
	watched := tm.watched(alarm)
	alarm = maps.Clone(alarm)
	maps.Copy(alarm, watched[0])
	of := map[any]string{
		names.MetricDimension: "", "ApiId": " of the HTTP API", "QueueName": " of the dead-letter queue of the bus",
		"FunctionName": " of the webhook function", "DeliveryStreamName": " of the stream",
	}[at(alarm, "Dimensions", 0, "Name")]
	sign := map[any]string{"GreaterThanOrEqualToThreshold": "≥", "LessThanThreshold": "<"}[alarm["ComparisonOperator"]]
	figure := fmt.Sprintf("`%s`", alarm["MetricName"])
	for _, subtracted := range watched[1:] {
		figure += fmt.Sprintf(" less `%s`", subtracted["MetricName"])
	}
	condition := fmt.Sprintf("%s of %s%s %s %v in %v min",
		strings.ToLower(alarm["Statistic"].(string)), figure, of, sign, alarm["Threshold"],
		alarm["Period"].(float64)/60)
	switch m, n := alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]; {
	case m != n:
		condition += fmt.Sprintf(", %v times of %v", m, n)
	case m != 1.0:
		condition += fmt.Sprintf(", %v times in a row", m)
	}
	if alarm["TreatMissingData"] == "breaching" {
		condition += ", or no data"
	}
	return fmt.Sprintf("| `%s` | %s<br>%s | %s |", name, means, condition, step)
}

// alarmTable writes the table of alarms in infra/cmd/payhook/RUNBOOK.md: those of
// each kind of endpoint, and those that a key of the stack adds.
func alarmTable(t *testing.T) string {
	t.Helper()
	var rows []string
	for _, conf := range []map[string]any{nil, mtls("both"),
		{"encryption": "cmk", "alarmSilence": "6h", "evidence": "7y"}} {
		tm := payhook(t, conf)
		for _, alarm := range tm.all(t, "AWS::CloudWatch::Alarm") {
			rows = append(rows, tm.alarmRow(t, "Payhook", alarm.Properties))
		}
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	for _, name := range alarmNames(t) {
		if !slices.ContainsFunc(rows, func(row string) bool { return strings.HasPrefix(row, "| `"+name+"` |") }) {
			t.Errorf("no configuration of this test has the alarm %s: add one", name)
		}
	}
	return "| alarm | raised when | what to do |\n|---|---|---|\n" + strings.Join(rows, "\n")
}

// alarmNames returns the names of the alarms in the source of the package, whatever settings they need.
func alarmNames(t *testing.T) (found []string) {
	t.Helper()
	files, _ := filepath.Glob("*.go")
	for _, file := range files {
		parsed, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			fields := map[string]ast.Expr{}
			if literal, ok := n.(*ast.CompositeLit); ok {
				for _, element := range literal.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						fields[fmt.Sprint(pair.Key)] = pair.Value
					}
				}
			}
			if fields["action"] != nil { // of an alarm
				name, _ := strconv.Unquote(fields["name"].(*ast.BasicLit).Value)
				found = append(found, name)
			}
			return true
		})
	}
	return found
}

func TestRunbookListsEveryAlarm(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "cmd", "payhook", "RUNBOOK.md"))
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- alarms -->", "<!-- /alarms -->"
	want := alarmTable(t)
	_, rest, begun := strings.Cut(string(text), begin)
	got, _, ended := strings.Cut(rest, end)
	if !begun || !ended {
		t.Fatalf(
			"infra/cmd/payhook/RUNBOOK.md has no table of alarms between the lines %s and %s; it is\n\n%s",
			begin,
			end,
			want,
		)
	}
	if got = strings.TrimSpace(got); got != want {
		t.Errorf(
			"infra/cmd/payhook/RUNBOOK.md's table of alarms (-the template's +the document's)\n%s\nIt must be\n\n%s",
			cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")),
			want,
		)
	}
}

// At least one alarm must report each problem, and no metric is written for nothing.
func TestEveryMetricHasAnAlarm(t *testing.T) {
	got := map[string]bool{}
	for _, conf := range []map[string]any{nil, mtls("both")} {
		for _, alarm := range payhook(t, conf).all(t, "AWS::CloudWatch::Alarm") {
			for _, metric := range payhook(t, conf).watched(alarm.Properties) {
				got[fmt.Sprintf("%s %s", metric["Namespace"], metric["MetricName"])] = true
			}
		}
	}
	want := map[string]bool{"AWS/Lambda Errors": true, "AWS/Lambda Throttles": true, "AWS/Lambda Url4xxCount": true,
		"Payhook " + notInvokedMetric: true, "Payhook " + forbiddenMetric: true}
	for _, m := range names.Metrics() {
		if m != names.AcceptedMetric && m.Status/100 != 4 { // for the main chart
			want["Payhook "+m.Name] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEveryAlarmNotifiesTheTopicWithAnAction(t *testing.T) {
	tm := payhook(t, map[string]any{"stackName": "PayhookStaging"})
	for path, alarm := range tm.all(t, "AWS::CloudWatch::Alarm") {
		p := alarm.Properties
		if want := "PayhookStaging-" + strings.TrimPrefix(path, "Alarms/"); p["AlarmName"] != want {
			t.Errorf("%v, want %s", p["AlarmName"], want)
		}
		if actions := list(p["AlarmActions"]); len(actions) != 1 || tm.render(actions[0]) != "Alarms/Topic" {
			t.Errorf("%s tells %v", path, actions)
		}
		if p["OKActions"] != nil && tm.render(list(p["OKActions"])[0]) != "Alarms/Topic" {
			t.Errorf("%s: OK notifies %v", path, p["OKActions"])
		}
		if p["ActionsEnabled"] == false {
			t.Errorf("%s notifies no topic", path)
		}
		description, _ := p["AlarmDescription"].(string)
		means, step, _ := strings.Cut(description, whatToDo)
		if len(means) < 30 || len(step) < 30 || len([]rune(description)) > 1024 {
			t.Errorf("%s: %q", path, description)
		}
		// The emulator does not support metric math, so local runs do not have such alarms.
		if (p["Metrics"] != nil) != (path == "Alarms/rejected-by-aws") {
			t.Errorf("%s: on metric math: %t", path, p["Metrics"] != nil)
		}
		// AWS: an alarm evaluates at most a day.
		if tm.watched(p)[0]["Period"].(float64)*p["EvaluationPeriods"].(float64) > 86400 {
			t.Errorf("%s looks back too far", path)
		}
	}
}

// Parked deliveries and conflicts are not solved because five minutes passed without
// another one.
func TestOKIsNotifiedOnlyIfTheProblemIsSolved(t *testing.T) {
	var silent []string
	for name, alarm := range payhook(t, nil).all(t, "AWS::CloudWatch::Alarm") {
		if alarm.Properties["OKActions"] == nil {
			silent = append(silent, strings.TrimPrefix(name, "Alarms/"))
		}
	}
	slices.Sort(silent)
	if diff := cmp.Diff([]string{"conflicts", "key-withdrawn", "parked", "refused"}, silent); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A run that is not started, is throttled, is killed or cannot read its data writes none of
// these two metrics. TestTheLineOfEachRun and TestARunWritesOneLine show the last case.
func TestMissingRunsOfAScheduleRaiseAlarms(t *testing.T) {
	tm := payhook(t, mtls("both"))
	for name, alarm := range tm.all(t, "AWS::CloudWatch::Alarm") {
		want := "notBreaching"
		if name == "Alarms/oldest-pending" || name == "Alarms/token-life" || name == "Alarms/trust-expires" {
			want = "breaching"
		}
		p := alarm.Properties
		if got := p["TreatMissingData"]; got != want {
			t.Errorf("%s: missing data are %v", name, got)
		}
		// With consecutive periods of a metric that is not always written, CloudWatch would look
		// at older data.
		if p["TreatMissingData"] == "notBreaching" && p["DatapointsToAlarm"] == p["EvaluationPeriods"] &&
			p["EvaluationPeriods"] != 1.0 {
			t.Errorf("%s needs consecutive periods", name)
		}
	}
}

func TestAlarmsFollowTheSettings(t *testing.T) {
	for _, c := range []struct {
		alarm    string
		settings map[string]any
		want     float64
	}{
		{"refused", nil, 10},
		{"refused", map[string]any{"alarmRefused": 250}, 250},
		{"oldest-pending", nil, 300},
		{"oldest-pending", map[string]any{"webhookTimeout": "2m"}, 390},
	} {
		if got := payhook(t, c.settings).alarmNamed(t, c.alarm)["Threshold"]; got != c.want {
			t.Errorf("%s with %v: %v, want %v", c.alarm, c.settings, got, c.want)
		}
	}
}

func TestAlarmsWatchMetricsThatTheFunctionsWrite(t *testing.T) {
	var line bytes.Buffer
	awsenv.NewLog(&line, "Payhook").Outcome(context.Background(), slog.LevelInfo, "token",
		[]awsenv.Value{{Metric: names.TokenFailedMetric, Value: 1}})
	var written map[string]any
	if err := json.Unmarshal(line.Bytes(), &written); err != nil {
		t.Fatal(err)
	}
	metrics := at(written, "_aws", "CloudWatchMetrics", 0)
	dimension, _ := at(metrics, "Dimensions", 0, 0).(string)
	if written[dimension] != "Payhook" {
		t.Errorf("the dimension is %v", written[dimension])
	}

	tm := payhook(t, nil)
	for name, alarm := range tm.all(t, "AWS::CloudWatch::Alarm") {
		for _, metric := range tm.watched(alarm.Properties) {
			if at(metric, "Dimensions", 1) != nil {
				t.Errorf("%s watches several dimensions", name)
			}
			if strings.HasPrefix(metric["Namespace"].(string), "AWS/") {
				continue
			}
			if got := metric["Namespace"]; got != at(metrics, "Namespace") {
				t.Errorf("%s watches namespace %v, written is %v", name, got, at(metrics, "Namespace"))
			}
			if got := at(metric, "Dimensions", 0); at(got, "Name") != dimension || at(got, "Value") != "Payhook" {
				t.Errorf("%s watches dimension %v, written is %s", name, got, dimension)
			}
		}
	}
}

// Lambda answers 413 to requests that are too large, and 429 when it throttles. The
// function counts the others.
func TestRequestsRejectedByAWSRaiseAnAlarm(t *testing.T) {
	tm := payhook(t, nil)
	alarm := tm.alarmNamed(t, "rejected-by-aws")
	var watched []string
	for _, metric := range tm.watched(alarm) {
		watched = append(watched, fmt.Sprintf("%s %s of %s %s: %s in %v", metric["Namespace"], metric["MetricName"],
			at(metric, "Dimensions", 0, "Name"), tm.render(at(metric, "Dimensions", 0, "Value")), metric["Statistic"],
			metric["Period"]))
	}
	want := []string{
		"AWS/Lambda Url4xxCount of FunctionName Webhook/Function: Sum in 300",
		"Payhook ClientErrors of StackName Payhook: Sum in 300",
		"AWS/Lambda Throttles of FunctionName Webhook/Function: Sum in 300",
	}
	if diff := cmp.Diff(want, watched); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	returned := 0
	for _, query := range list(alarm["Metrics"]) {
		if at(query, "ReturnData") != true {
			continue
		}
		if returned++; at(query, "Expression") != "FILL(m0,0)-FILL(m1,0)-FILL(m2,0)" {
			t.Errorf("got %v", query)
		}
	}
	if returned != 1 || alarm["Threshold"] != 1.0 || alarm["ComparisonOperator"] != "GreaterThanOrEqualToThreshold" ||
		alarm["DatapointsToAlarm"] != 2.0 || alarm["EvaluationPeriods"] != 12.0 || alarm["Period"] != nil ||
		alarm["MetricName"] != nil {
		t.Errorf("got %v", alarm)
	}
}

// A pause that is shorter than alarmSilence raises nothing. A sender that stops does, once the
// time has passed.
func TestSilenceIsNotAQuietWeekend(t *testing.T) {
	alarm := payhook(t, map[string]any{"alarmSilence": "3d"}).alarmNamed(t, "silence")
	watched := alarmPeriods(t, alarm)
	const friday, monday = 4*24 + 18, 7*24 + 8 // hours of the last webhook before the weekend, and the first after it
	accepted := func(hour int) float64 {
		if of := hour % 24; hour/24%7 < 5 && of >= 8 && of <= 18 && hour < 14*24 {
			return 100
		}
		return 0 // FILL
	}
	stopped := 11*24 + 18 + 1 // the Friday of the second week is its last day
	for now := watched; now < 21*24; now++ {
		raised := true
		for hour := now - watched; hour < now; hour++ {
			raised = raised && accepted(hour) < alarm["Threshold"].(float64)
		}
		if want := now >= stopped+72; raised != want {
			t.Fatalf("%d hours after the begin of a week: raised is %t (a weekend is from %d to %d, the end at %d)",
				now, raised, friday, monday, stopped)
		}
	}
	if payhook(t, nil).Resources["Alarms/silence"] != nil {
		t.Error("it is there by default")
	}
}

// alarmPeriods returns the number of periods of an hour that all must have too few webhooks. A
// period without data has the value 0 or, without any data, is breaching.
func alarmPeriods(t *testing.T, alarm map[string]any) int {
	t.Helper()
	expression, stat := at(alarm, "Metrics", 1), at(alarm, "Metrics", 0, "MetricStat")
	if at(expression, "Expression") != "FILL(m0,0)" || at(stat, "Stat") != "Sum" || at(stat, "Period") != 3600.0 ||
		at(stat, "Metric", "MetricName") != "Accepted" || alarm["TreatMissingData"] != "breaching" ||
		alarm["ComparisonOperator"] != "LessThanThreshold" || alarm["DatapointsToAlarm"] != alarm["EvaluationPeriods"] {
		t.Fatalf("got %v", alarm)
	}
	return int(alarm["EvaluationPeriods"].(float64))
}

func TestTopicAcceptsOnlyAlarmsOfThisStackOverTLS(t *testing.T) {
	tm := payhook(t, map[string]any{"stackName": "PayhookStaging"})
	if topics := tm.all(t, "AWS::SNS::Topic"); len(topics) != 1 {
		t.Errorf("%d topics", len(topics))
	}
	policies := tm.all(t, "AWS::SNS::TopicPolicy")
	if len(policies) != 1 {
		t.Fatalf("%d policies: one takes the place of the other", len(policies))
	}
	var refused, allowed int
	for _, policy := range policies {
		if got := tm.render(at(policy.Properties, "Topics", 0)); got != "Alarms/Topic" {
			t.Errorf("the policy is of %s", got)
		}
		for _, s := range at(policy.Properties, "PolicyDocument", "Statement").([]any) {
			if at(s, "Action") != "sns:Publish" || tm.render(at(s, "Resource")) != "Alarms/Topic" {
				t.Errorf("got %v", s)
			}
			switch at(s, "Effect") {
			case "Deny":
				refused++
				if at(s, "Principal") != "*" || at(s, "Condition", "Bool", "aws:SecureTransport") != "false" {
					t.Errorf("got %v", s)
				}
			case "Allow":
				allowed++
				if at(s, "Principal", "Service") != "cloudwatch.amazonaws.com" ||
					tm.render(at(s, "Condition", "StringEquals", "aws:SourceAccount")) != "AWS::AccountId" {
					t.Errorf("got %v", s)
				}
				got := tm.render(at(s, "Condition", "ArnLike", "aws:SourceArn"))
				if got != "arn:AWS::Partition:cloudwatch:AWS::Region:AWS::AccountId:alarm:PayhookStaging-*" {
					t.Errorf("alarms that may publish: %s", got)
				}
			}
		}
	}
	if refused != 1 || allowed != 1 {
		t.Errorf("%d statements refuse, %d allow", refused, allowed)
	}
}

func TestAlarmEmailIsSubscribed(t *testing.T) {
	for name, r := range payhook(t, nil).Resources {
		if r.Type == "AWS::SNS::Subscription" {
			t.Errorf("%s: unexpected subscription", name)
		}
	}
	tm := payhook(t, map[string]any{"alarmEmail": "ops@payments.example"})
	got := tm.get(t, "Alarms/Email", "AWS::SNS::Subscription").Properties
	if got["Protocol"] != "email" || got["Endpoint"] != "ops@payments.example" ||
		tm.render(got["TopicArn"]) != "Alarms/Topic" {
		t.Errorf("got %v", slices.Collect(maps.Values(got)))
	}
}

// A run that could not be started leaves a message, which must be retained and
// encrypted.
func TestFailureQueueRetainsMessagesForTwoWeeks(t *testing.T) {
	tm := payhook(t, nil)
	queues := tm.all(t, "AWS::SQS::Queue")
	if diff := cmp.Diff([]string{"Redrive/ScheduleFailures", "Token/ScheduleFailures"},
		slices.Sorted(maps.Keys(queues))); diff != "" {
		t.Error(diff)
	}
	for name, queue := range queues {
		if queue.Properties["MessageRetentionPeriod"] != 14*24*3600.0 ||
			queue.Properties["SqsManagedSseEnabled"] != true {
			t.Errorf("%s: %v", name, queue.Properties)
		}
		statement := at(tm.get(t, name+"/Policy", "AWS::SQS::QueuePolicy").Properties, "PolicyDocument", "Statement", 0)
		if at(statement, "Effect") != "Deny" || at(statement, "Action") != "sqs:*" ||
			tm.render(at(statement, "Resource")) != name+".Arn" ||
			at(statement, "Condition", "Bool", "aws:SecureTransport") != "false" {
			t.Errorf("%s can be reached without TLS: %v", name, statement)
		}
	}
}
