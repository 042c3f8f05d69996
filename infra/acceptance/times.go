package acceptance

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/bench/result"
	"payhook.example/infra/local"
	output "payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
)

// The rows of infra/bench that correspond to rows of a run.
var (
	benchOne     = result.Events(1)
	benchHundred = result.Events(100)
	benchFirst   = result.First(true, true, 1)
)

// readBench reads the output of infra/bench -json.
func readBench(file string) (*result.File, error) {
	b, err := result.Read(file)
	if err != nil {
		return nil, err
	}
	if _, ok := b.Of(benchOne); !ok {
		return nil, fmt.Errorf("%s has no row %q of the webhook function", file, benchOne)
	}
	return &b, nil
}

// benchTimes returns the times and calls of a row of the webhook function; "" if there is none.
func benchTimes(b *result.File, row string) string {
	if b == nil {
		return ""
	}
	l, ok := b.Of(row)
	if !ok {
		return ""
	}
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, %.1f calls; calls answered after %s", l.P50, l.P99, l.Calls, b.Delay)
}

// window is a time in which webhooks of one kind were sent, and nothing else.
type window struct {
	start, end time.Time
	webhooks   int
}

// loads are the webhooks that are measured.
var loads = []struct {
	what             string
	webhooks, events int
	bench            string
}{
	{"200 webhooks of 1 event", 200, 1, benchOne},
	{"20 webhooks of 100 events", 20, 100, benchHundred},
}

// sendWindow sends webhooks, one after another, in full minutes of their own: CloudWatch adds up
// metrics by minutes.
func (d *deployed) sendWindow(ctx context.Context, webhooks, events int) (w window, err error) {
	next := func() error {
		return smithytime.SleepWithContext(ctx, time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
	}
	// The first one starts a process, if there is none.
	if err := d.authentic(ctx); err != nil {
		return w, err
	}
	if err := next(); err != nil {
		return w, err
	}
	w.start = time.Now().Truncate(time.Minute)
	for range webhooks {
		answer, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(events)...)})
		if err != nil {
			return w, err
		}
		if answer.Status/100 != 2 {
			return w, fmt.Errorf("answered %d %s", answer.Status, answer.Body)
		}
		w.webhooks++
	}
	if err := next(); err != nil {
		return w, err
	}
	w.end = time.Now().Truncate(time.Minute)
	return w, nil
}

// The queries of times. REPORT lines are Lambda's. A step of less than half a millisecond is not
// in the line of a webhook.
const (
	warmQuery = `filter @type = "REPORT" and not ispresent(@initDuration) | stats count(*) as runs, ` +
		`pct(@duration, 50) as p50, pct(@duration, 99) as p99`
	coldQuery = `filter @type = "REPORT" and ispresent(@initDuration) | stats count(*) as runs, ` +
		`pct(@initDuration, 50) as initP50, pct(@initDuration, 99) as initP99, ` +
		`pct(@duration, 50) as p50, pct(@duration, 99) as p99, max(@maxMemoryUsed / 1048576) as maxMiB`
)

var steps = []string{"authenticate", "decode", "record", "publish", "mark"}

func stepQuery() string {
	var fields, columns []string
	for _, step := range steps {
		fields = append(fields, fmt.Sprintf("coalesce(ms.%s, 0) as %sMs", step, step))
		columns = append(columns, fmt.Sprintf("pct(%[1]sMs, 50) as %[1]sP50, pct(%[1]sMs, 99) as %[1]sP99", step))
	}
	return `filter msg = "webhook" and status < 300 | fields ` + strings.Join(fields, ", ") + " | stats " +
		strings.Join(columns, ", ")
}

// awaitRuns repeats a query until it counts that many runs, because logs are late.
func awaitRuns(ctx context.Context, client queryAPI, group, text string, w window) (map[string]string, error) {
	for deadline := time.Now().Add(10 * time.Minute); ; {
		lines, err := query(ctx, client, group, text, w.start, w.end)
		if err != nil {
			return nil, err
		}
		if len(lines) == 1 {
			if n, _ := strconv.ParseFloat(lines[0]["runs"], 64); int(n) >= w.webhooks {
				return lines[0], nil
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the log does not have %d runs: %v", w.webhooks, lines)
		}
		if err := smithytime.SleepWithContext(ctx, 10*time.Second); err != nil {
			return nil, err
		}
	}
}

// millisecondsOf returns a number of a query's line with a tenth.
func millisecondsOf(line map[string]string, field string) string {
	n, err := strconv.ParseFloat(line[field], 64)
	if err != nil {
		return "no value"
	}
	return strconv.FormatFloat(n, 'f', 1, 64)
}

// total returns the sum of a metric in a time; known is false if there is no data.
func total(ctx context.Context, client metricsAPI, stat string, metric cwtypes.Metric, start,
	end time.Time) (sum float64, known bool, err error) {
	pages := cloudwatch.NewGetMetricDataPaginator(client, &cloudwatch.GetMetricDataInput{
		StartTime: &start, EndTime: &end,
		MetricDataQueries: []cwtypes.MetricDataQuery{{Id: aws.String("m"), MetricStat: &cwtypes.MetricStat{
			Metric: &metric, Period: aws.Int32(60), Stat: &stat}}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, false, err
		}
		for _, r := range page.MetricDataResults {
			for _, v := range r.Values {
				sum, known = sum+v, true
			}
		}
	}
	return sum, known, nil
}

// units states the write units of the ledger and its index for each webhook of a window. Metrics
// of DynamoDB are a few minutes late.
func (d *deployed) units(ctx context.Context, client metricsAPI, w window) (string, error) {
	of := func(dimensions ...string) cwtypes.Metric {
		m := cwtypes.Metric{Namespace: aws.String("AWS/DynamoDB"), MetricName: aws.String("ConsumedWriteCapacityUnits")}
		for i := 0; i < len(dimensions); i += 2 {
			m.Dimensions = append(m.Dimensions, cwtypes.Dimension{Name: &dimensions[i], Value: &dimensions[i+1]})
		}
		return m
	}
	for deadline := time.Now().Add(15 * time.Minute); ; {
		table, known, err := total(ctx, client, "Sum", of("TableName", d.LedgerTable), w.start, w.end)
		if err != nil {
			return "", err
		}
		index, _, err := total(ctx, client, "Sum", of("TableName", d.LedgerTable, "GlobalSecondaryIndexName",
			output.LedgerPendingIndex), w.start, w.end)
		if err != nil {
			return "", err
		}
		if known {
			n := float64(w.webhooks)
			return fmt.Sprintf("%.1f: %.1f of the table, %.1f of its index", (table+index)/n, table/n, index/n), nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("CloudWatch has no write units of %s", d.LedgerTable)
		}
		if err := smithytime.SleepWithContext(ctx, 30*time.Second); err != nil {
			return "", err
		}
	}
}

// calls states how many requests of each operation the ledger got for each webhook of a window.
func (d *deployed) calls(ctx context.Context, client *cloudwatch.Client, w window) (string, error) {
	var parts []string
	pages := cloudwatch.NewListMetricsPaginator(client, &cloudwatch.ListMetricsInput{
		Namespace: aws.String("AWS/DynamoDB"), MetricName: aws.String("SuccessfulRequestLatency"),
		Dimensions: []cwtypes.DimensionFilter{{Name: aws.String("TableName"), Value: &d.LedgerTable}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", err
		}
		for _, m := range page.Metrics {
			n, known, err := total(ctx, client, "SampleCount", m, w.start, w.end)
			if err != nil {
				return "", err
			}
			for _, dimension := range m.Dimensions {
				if aws.ToString(dimension.Name) == "Operation" && known {
					parts = append(parts, fmt.Sprintf("%s %.1f", aws.ToString(dimension.Value), n/float64(w.webhooks)))
				}
			}
		}
	}
	if len(parts) == 0 {
		return "CloudWatch lists no operations of the ledger", nil
	}
	return strings.Join(parts, ", "), nil
}

// timeChecks measure webhooks of one and of many events, and the first runs of all processes.
func (d *deployed) timeChecks() []check {
	metrics, logs := cloudwatch.NewFromConfig(d.AWS), cloudwatchlogs.NewFromConfig(d.AWS)
	group := d.outputs[output.WebhookLogsOutput]
	measured := func(what, bench string, do func(context.Context) (string, error)) check {
		return check{what: what, measured: true, needs: []local.Need{Times}, bench: bench,
			do: func(ctx context.Context) (string, bool, error) {
				text, err := do(ctx)
				return text, true, err
			}}
	}
	var checks []check
	for _, load := range loads {
		var w window
		checks = append(checks,
			measured(load.what+": a run of the webhook function", benchTimes(d.run.opts.bench, load.bench),
				func(ctx context.Context) (text string, err error) {
					if w, err = d.sendWindow(ctx, load.webhooks, load.events); err != nil {
						return "", err
					}
					line, err := awaitRuns(ctx, logs, group, warmQuery, w)
					return fmt.Sprintf("p50 %s ms, p99 %s ms, %s runs", millisecondsOf(line, "p50"),
						millisecondsOf(line, "p99"), line["runs"]), err
				}),
			measured(load.what+": its steps, p50 and p99", "", func(ctx context.Context) (string, error) {
				lines, err := query(ctx, logs, group, stepQuery(), w.start, w.end)
				if err != nil || len(lines) != 1 {
					return fmt.Sprintf("%d lines", len(lines)), err
				}
				var parts []string
				for _, step := range steps {
					parts = append(parts, fmt.Sprintf("%s %s and %s ms", step, millisecondsOf(lines[0], step+"P50"),
						millisecondsOf(lines[0], step+"P99")))
				}
				return strings.Join(parts, ", "), nil
			}),
			measured(load.what+": write units of each", "", func(ctx context.Context) (string, error) {
				return d.units(ctx, metrics, w)
			}),
			measured(load.what+": requests to the ledger of each", "", func(ctx context.Context) (string, error) {
				return d.calls(ctx, metrics, w)
			}))
	}
	for _, name := range []string{"webhook", "redrive", "token"} {
		group, bench := d.outputs[logsOutput[name]], ""
		if name == "webhook" {
			bench = benchTimes(d.run.opts.bench, benchFirst)
		}
		checks = append(checks, measured("the first runs of processes of the "+name+" function, in all", bench,
			func(ctx context.Context) (string, error) {
				lines, err := query(ctx, logs, group, coldQuery, d.run.start, time.Now())
				if err != nil || len(lines) != 1 {
					return fmt.Sprintf("%d lines", len(lines)), err
				}
				l := lines[0]
				return fmt.Sprintf("%s processes; start p50 %s ms, p99 %s ms; first run p50 %s ms, p99 %s ms; "+
					"at most %s MiB", l["runs"], millisecondsOf(l, "initP50"), millisecondsOf(l, "initP99"),
					millisecondsOf(l, "p50"), millisecondsOf(l, "p99"), millisecondsOf(l, "maxMiB")), nil
			}))
	}
	return checks
}

// logsOutput are the outputs of the stack with the functions' log groups.
var logsOutput = map[string]string{
	"webhook": output.WebhookLogsOutput, "redrive": output.RedriveLogsOutput, "token": output.TokenLogsOutput,
}
