package acceptance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"payhook.example/infra/bench/result"
	"payhook.example/infra/local"
	output "payhook.example/shared/names"
)

// metricsInMemory has values by namespace, name, dimensions and statistic, as "Payhook Parked
// FunctionName=f Sum". It returns one series a page.
type metricsInMemory struct {
	values map[string][]float64
	asked  []*cloudwatch.GetMetricDataInput
}

func (m *metricsInMemory) GetMetricData(_ context.Context, in *cloudwatch.GetMetricDataInput,
	_ ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error) {
	m.asked = append(m.asked, in)
	var page int
	fmt.Sscan(aws.ToString(in.NextToken), &page)
	q := in.MetricDataQueries[page]
	key := []string{*q.MetricStat.Metric.Namespace, *q.MetricStat.Metric.MetricName}
	for _, dimension := range q.MetricStat.Metric.Dimensions {
		key = append(key, *dimension.Name+"="+*dimension.Value)
	}
	out := &cloudwatch.GetMetricDataOutput{MetricDataResults: []cwtypes.MetricDataResult{{Id: q.Id,
		Values: m.values[strings.Join(append(key, *q.MetricStat.Stat), " ")]}}}
	if page+1 < len(in.MetricDataQueries) {
		out.NextToken = aws.String(fmt.Sprint(page + 1))
	}
	return out, nil
}

func parse(t *testing.T, body string) []widget {
	t.Helper()
	widgets, err := parseDashboard(body)
	if err != nil {
		t.Fatal(err)
	}
	return widgets
}

func TestAChartIsRightOnlyIfEachMetricHasDataOrAReason(t *testing.T) {
	const chart = `{"widgets":[{"type":"text","properties":{"markdown":"x"}},{"type":"metric","properties":{"title":"C",
		"period":300,"metrics":[["Payhook","Parked","FunctionName","f",{"stat":"Sum"}],
		["Payhook",%q,"FunctionName","f",{"stat":"Maximum","label":"L"}]]}}]}`
	start := time.Date(2026, 1, 31, 12, 3, 20, 0, time.UTC)
	for _, c := range []struct {
		second string
		values map[string][]float64
		right  bool
		text   string
	}{
		{"Open", map[string][]float64{"Payhook Parked FunctionName=f Sum": {1},
			"Payhook Open FunctionName=f Maximum": {0}}, true, "data: Parked, Open (L)"},
		{"Open", map[string][]float64{"Payhook Parked FunctionName=f Sum": {1}}, false,
			"no data: Open (L): unexpected"},
		{"Open", map[string][]float64{"Payhook Parked FunctionName=f Sum": {1}, "Payhook Open FunctionName=f Sum": {1}},
			false, "no data: Open (L)"},
		{"Open", nil, false, "no data: Parked: unexpected"},
	} {
		metrics := &metricsInMemory{values: c.values}
		w := parse(t, fmt.Sprintf(chart, c.second))[0]
		text, right, err := w.showMetrics(t.Context(), metrics, start, start.Add(time.Hour))
		if err != nil || right != c.right || !strings.Contains(text, c.text) {
			t.Errorf("%v: %q, %t, %v", c.values, text, right, err)
		}
		if from := *metrics.asked[0].StartTime; !from.Equal(start.Truncate(5 * time.Minute)) {
			t.Errorf("the period in which the run began is not asked for: %s", from)
		}
	}
	bare := strings.Replace(fmt.Sprintf(chart, output.KeyTableFailedMetric), `,"label":"L"`, "", 1)
	text, right, err := parse(t, bare)[0].showMetrics(t.Context(),
		&metricsInMemory{values: map[string][]float64{"Payhook Parked FunctionName=f Sum": {1}}}, start,
		start.Add(time.Hour))
	if err != nil || !right || !strings.Contains(text, mayBeEmpty[output.KeyTableFailedMetric]) {
		t.Errorf("%q, %t, %v", text, right, err)
	}
	for _, body := range []string{`{}`, `{"widgets":[{"type":"text"}]}`, `x`} {
		if _, err := parseDashboard(body); err == nil {
			t.Errorf("%s is a dashboard", body)
		}
	}
}

// A chart that the emulator could show only in part is not shown there.
func TestTheEmulatorLacksWholeCharts(t *testing.T) {
	metric := func(namespace, name string) string {
		return fmt.Sprintf(`{"widgets":[{"type":"metric","properties":{"title":"C","period":300,
			"metrics":[["Payhook","Parked","FunctionName","f"],[%q,%q,"FunctionName","f"]]}}]}`, namespace, name)
	}
	for body, want := range map[string]string{
		metric("Payhook", "Open"): "", metric("AWS/Lambda", "Errors"): "",
		metric("AWS/Lambda", "Url4xxCount"):                            "function URLs",
		metric("AWS/SQS", "ApproximateNumberOfMessagesVisible"):        "queues",
		metric("Payhook", output.KeyStaleMetric):                       "keyFreshness",
		`{"widgets":[{"type":"alarm","properties":{"alarms":["a"]}}]}`: "composite",
		`{"widgets":[{"type":"log","properties":{"query":"q"}}]}`:      "query",
	} {
		if got := parse(t, body)[0].emulatorLacks(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", body, got)
		}
	}
}

func TestAnAlarmChartHasEveryAlarmOfTheStack(t *testing.T) {
	w := parse(t, `{"widgets":[{"type":"alarm","properties":{"alarms":["arn:aws:cloudwatch:us-east-1:1:alarm:Stack-a",
		"arn:aws:cloudwatch:us-east-1:1:alarm:Stack-unhealthy"]}}]}`)[0]
	for want, states := range map[string]map[string]cwtypes.StateValue{
		"2 alarms, and the stack has 2": {"Stack-a": isOK, "Stack-unhealthy": isOK},
		"2 alarms, and the stack has 3": {"Stack-a": isOK, "Stack-unhealthy": isOK,
			"Stack-b": isOK},
		"no such alarm: arn:aws:cloudwatch:us-east-1:1:alarm:Stack-a": {"Stack-unhealthy": isOK, "Stack-b": isOK},
	} {
		text, right, err := w.showStates(t.Context(), &raiser{client: &alarmsInMemory{states: states}, stack: "Stack"})
		if err != nil || text != want || right != (len(states) == 2 && !strings.HasPrefix(want, "no")) {
			t.Errorf("%v: %q, %t, %v", states, text, right, err)
		}
	}
}

// queriesInMemory returns lines after it was asked a number of times.
type queriesInMemory struct {
	t            *testing.T
	group, query string
	after        int // queries with no line
	lines        [][]logtypes.ResultField
	status       logtypes.QueryStatus
	polls        int
}

func (q *queriesInMemory) StartQuery(_ context.Context, in *cloudwatchlogs.StartQueryInput,
	_ ...func(*cloudwatchlogs.Options)) (*cloudwatchlogs.StartQueryOutput, error) {
	if *in.LogGroupName != q.group || *in.QueryString != q.query || *in.EndTime <= *in.StartTime {
		q.t.Errorf("asked for %s of %s", *in.QueryString, *in.LogGroupName)
	}
	q.polls = 0
	return &cloudwatchlogs.StartQueryOutput{QueryId: aws.String("1")}, nil
}

func (q *queriesInMemory) GetQueryResults(context.Context, *cloudwatchlogs.GetQueryResultsInput,
	...func(*cloudwatchlogs.Options)) (*cloudwatchlogs.GetQueryResultsOutput, error) {
	if q.polls++; q.polls < 3 {
		return &cloudwatchlogs.GetQueryResultsOutput{Status: logtypes.QueryStatusRunning}, nil
	}
	out := &cloudwatchlogs.GetQueryResultsOutput{Status: q.status}
	if q.after--; q.after < 0 {
		out.Results = q.lines
	}
	return out, nil
}

func fields(pairs ...string) (line []logtypes.ResultField) {
	for pair := range slices.Chunk(pairs, 2) {
		line = append(line, logtypes.ResultField{Field: &pair[0], Value: &pair[1]})
	}
	return line
}

func TestAQueryIsRightOnlyIfItReturnsLines(t *testing.T) {
	const text = `filter a = \"b\"\n| stats count(*)`
	w := parse(t, `{"widgets":[{"type":"log","properties":{"query":"SOURCE 'group' | `+text+`"}}]}`)[0]
	for _, c := range []struct {
		status logtypes.QueryStatus
		lines  [][]logtypes.ResultField
		right  bool
		failed bool
	}{
		{logtypes.QueryStatusComplete, [][]logtypes.ResultField{fields("count", "1")}, true, false},
		{logtypes.QueryStatusComplete, nil, false, false},
		{logtypes.QueryStatusFailed, nil, false, true},
		{logtypes.QueryStatusTimeout, [][]logtypes.ResultField{fields("count", "1")}, false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			logs := &queriesInMemory{t: t, group: "group", query: "filter a = \"b\"\n| stats count(*)",
				status: c.status, lines: c.lines}
			_, right, err := w.showQuery(t.Context(), logs, time.Now().Add(-time.Hour), time.Now())
			if right != c.right || (err != nil) != c.failed {
				t.Errorf("%s, %d lines: %t, %v", c.status, len(c.lines), right, err)
			}
		})
	}
}

func TestTimesAreReadWhenTheLogHasEveryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &queriesInMemory{t: t, group: "group", query: warmQuery, status: logtypes.QueryStatusComplete, after: 2,
			lines: [][]logtypes.ResultField{fields("runs", "20", "p50", "12.34", "p99", "56.78")}}
		w := window{time.Now(), time.Now().Add(time.Minute), 20}
		line, err := awaitRuns(t.Context(), logs, "group", warmQuery, w)
		if err != nil || millisecondsOf(line, "p50") != "12.3" || millisecondsOf(line, "none") != "no value" {
			t.Errorf("%v, %v", line, err)
		}
		w.webhooks = 21
		if _, err := awaitRuns(t.Context(), logs, "group", warmQuery, w); err == nil {
			t.Error("a run is missing in the log, and the times are read")
		}
	})
}

func TestWriteUnitsAreThoseOfTheTableAndItsIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const table = "AWS/DynamoDB ConsumedWriteCapacityUnits TableName=L"
		d := &deployed{Deployment: local.Deployment{}}
		d.LedgerTable = "L"
		metrics := &metricsInMemory{values: map[string][]float64{table + " Sum": {30, 10},
			table + " GlobalSecondaryIndexName=pending Sum": {40}}}
		w := window{time.Now(), time.Now().Add(time.Minute), 20}
		text, err := d.units(t.Context(), metrics, w)
		if err != nil || text != "4.0: 2.0 of the table, 2.0 of its index" {
			t.Errorf("%q, %v", text, err)
		}
		if text, err := d.units(t.Context(), &metricsInMemory{}, w); err == nil {
			t.Errorf("without data: %q", text)
		}
	})
}

// The file is what the benchmark writes, with its own types.
func TestTheBenchIsComparedByItsRows(t *testing.T) {
	name := filepath.Join(t.TempDir(), "bench.json")
	write := func(f result.File) {
		var text strings.Builder
		if err := f.Write(&text); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(result.File{Delay: "10ms", Lines: []result.Line{{Row: "1 event", Program: "empty", P50: 1},
		{Row: "1 event", Program: "webhook", P50: 33.21, P99: 40, Calls: 3},
		{Row: "100 events", Program: "webhook", P50: 43.4, P99: 48, Calls: 18},
		{Row: "first, TLS, key in the table, 1 event", Program: "webhook", P50: 46.2, P99: 49, Calls: 5}}})
	b, err := readBench(name)
	if err != nil {
		t.Fatal(err)
	}
	d := &deployed{run: &Run{opts: Options{bench: b}}}
	report := (&Run{ID: "abcd2345"}).newReport()
	for _, s := range d.sections() {
		if strings.HasPrefix(s.title, "Times") {
			d.Lacks = map[local.Need]string{Times: "no metrics"}
			rows, err := s.show(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			report.add(s.title, "", rows)
		}
	}
	var out strings.Builder
	if err := report.Markdown(&out); err != nil ||
		!strings.Contains(out.String(), "| make bench |\n|---|---|---|---|---|") {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, want := range []string{"p50 33.2 ms, p99 40.0 ms, 3.0 calls; calls answered after 10ms",
		"p50 43.4 ms, p99 48.0 ms, 18.0 calls; calls answered after 10ms",
		"p50 46.2 ms, p99 49.0 ms, 5.0 calls; calls answered after 10ms"} {
		if strings.Count(out.String(), "| "+want+" |\n") != 1 {
			t.Errorf("%q is not in one row:\n%s", want, &out)
		}
	}
	write(result.File{Lines: []result.Line{{Row: "1 event", Program: "empty"}}})
	if _, err := readBench(name); err == nil {
		t.Error("a result without the webhook function is read")
	}
	if err := os.WriteFile(name, []byte("p50 33 ms"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readBench(name); err == nil {
		t.Error("the table of the benchmark is read as its JSON")
	}
	if got := benchTimes(nil, benchOne); got != "" {
		t.Errorf("without a result: %q", got)
	}
}
