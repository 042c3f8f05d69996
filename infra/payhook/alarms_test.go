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
