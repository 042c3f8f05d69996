package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/local"
	output "payhook.example/shared/names"
)

// metricsAPI is what of CloudWatch is used to read metrics.
type metricsAPI interface {
	GetMetricData(context.Context, *cloudwatch.GetMetricDataInput,
		...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error)
}

// queryAPI is what of CloudWatch Logs is used for queries.
type queryAPI interface {
	StartQuery(context.Context, *cloudwatchlogs.StartQueryInput,
		...func(*cloudwatchlogs.Options)) (*cloudwatchlogs.StartQueryOutput, error)
	GetQueryResults(context.Context, *cloudwatchlogs.GetQueryResultsInput,
		...func(*cloudwatchlogs.Options)) (*cloudwatchlogs.GetQueryResultsOutput, error)
}

// widget is a widget of a dashboard that shows data:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
type widget struct {
	Type       string // metric, log or alarm
	Properties struct {
		Title   string
		Metrics [][]any
		Period  int32
		Query   string
		Alarms  []string // ARNs
	}
}

// parseDashboard returns the widgets of a dashboard's body that show data.
func parseDashboard(body string) ([]widget, error) {
	var read struct{ Widgets []widget }
	if err := json.Unmarshal([]byte(body), &read); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(read.Widgets, func(w widget) bool { return w.Type == "text" })
	if len(all) == 0 {
		return nil, errors.New("the dashboard shows nothing")
	}
	return all, nil
}

// series is one metric of a widget.
type series struct {
	label string
	cwtypes.MetricStat
}

// allSeries returns the metrics of a widget. Each is a list: namespace, name, name and value of
// each dimension, and an object with further properties.
func (w widget) allSeries() ([]series, error) {
	var all []series
	for _, list := range w.Properties.Metrics {
		var texts []string
		options := map[string]any{}
		for _, value := range list {
			switch v := value.(type) {
			case string:
				texts = append(texts, v)
			case map[string]any:
				options = v
			}
		}
		if len(texts) < 2 || len(texts)%2 != 0 {
			return nil, fmt.Errorf("%s: %v is not a metric", w.Properties.Title, list)
		}
		metric := &cwtypes.Metric{Namespace: &texts[0], MetricName: &texts[1]}
		for pair := range slices.Chunk(texts[2:], 2) {
			metric.Dimensions = append(metric.Dimensions, cwtypes.Dimension{Name: &pair[0], Value: &pair[1]})
		}
		one := series{label: texts[1], Metric: metric, Period: &w.Properties.Period,
			Stat: aws.String("Average")}
		if stat, ok := options["stat"].(string); ok {
			one.Stat = &stat
		}
		if label, ok := options["label"].(string); ok && label != texts[1] {
			one.label += " (" + label + ")"
		}
		all = append(all, one)
	}
	return all, nil
}

// emulatorLacks returns why the emulator cannot show a widget; "" if it can.
func (w widget) emulatorLacks() string {
	switch w.Type {
	case "log":
		return "the emulator does not evaluate such a query: it returns every line of the log"
	case "alarm":
		return "the chart names the composite alarm and an alarm on metric math, which the emulator does not have"
	}
	all, err := w.allSeries()
	if err != nil {
		return "" // the row says it
	}
	for _, s := range all {
		switch namespace, name := aws.ToString(s.Metric.Namespace), aws.ToString(s.Metric.MetricName); {
		case name == output.KeyStaleMetric || name == output.KeyWithdrawnMetric:
			return noOldKeys
		case namespace == "AWS/Lambda" && strings.HasPrefix(name, "Url"):
			return "the emulator has no metrics of function URLs"
		case namespace == "AWS/SQS":
			return "the emulator has no metrics of queues"
		}
	}
	return ""
}

// mayBeEmpty are the metrics of which a run may have no data, each with the reason.
var mayBeEmpty = map[string]string{
	output.KeyTableFailedMetric: "it is written only if a key is looked up while its table cannot be read",
	"DaysToExpiry": "AWS Certificate Manager writes it twice a day: https://docs.aws.amazon.com/acm/latest/" +
		"userguide/cloudwatch-metrics.html",
	"ApproximateNumberOfMessagesVisible (bus)": "SQS writes it for queues that are used, and nothing uses this one",
}

// hasData returns whether a metric has a value in a time, for each series.
func hasData(ctx context.Context, client metricsAPI, all []series, start, end time.Time) ([]bool, error) {
	in := &cloudwatch.GetMetricDataInput{EndTime: &end}
	for i, s := range all {
		// A period that begins before the start of the time has its values too.
		from := start.Truncate(time.Duration(*s.Period) * time.Second)
		if in.StartTime == nil || from.Before(*in.StartTime) {
			in.StartTime = &from
		}
		in.MetricDataQueries = append(in.MetricDataQueries,
			cwtypes.MetricDataQuery{Id: aws.String(fmt.Sprintf("m%d", i)), MetricStat: &s.MetricStat})
	}
	found := make([]bool, len(all))
	pages := cloudwatch.NewGetMetricDataPaginator(client, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.MetricDataResults {
			var i int
			if _, err := fmt.Sscanf(aws.ToString(r.Id), "m%d", &i); err != nil || i < 0 || i >= len(all) {
				return nil, fmt.Errorf("CloudWatch returned data of %q, which was not asked for", aws.ToString(r.Id))
			}
			found[i] = found[i] || len(r.Values) > 0
		}
	}
	return found, nil
}

// showMetrics states which metrics of a widget have data. It is right if those without may have
// none.
func (w widget) showMetrics(ctx context.Context, client metricsAPI, start, end time.Time) (string, bool, error) {
	all, err := w.allSeries()
	if err != nil {
		return "", false, err
	}
	found, err := hasData(ctx, client, all, start, end)
	if err != nil {
		return "", false, err
	}
	var with, without []string
	right := len(all) > 0
	for i, s := range all {
		if found[i] {
			with = append(with, s.label)
			continue
		}
		reason := mayBeEmpty[s.label]
		if reason == "" {
			right = false
			reason = "unexpected"
		}
		without = append(without, s.label+": "+reason)
	}
	text := "data: " + strings.Join(with, ", ")
	if len(without) > 0 {
		text += "; no data: " + strings.Join(without, "; ")
	}
	return text, right, nil
}

// sourceOf matches the log group and the rest of a widget's query.
var sourceOf = regexp.MustCompile(`(?s)^SOURCE '([^']+)' \| (.*)$`)

// showQuery states how many lines the query of a widget returns.
func (w widget) showQuery(ctx context.Context, client queryAPI, start, end time.Time) (string, bool, error) {
	parts := sourceOf.FindStringSubmatch(w.Properties.Query)
	if parts == nil {
		return "", false, fmt.Errorf("%s: the query has no log group", w.Properties.Title)
	}
	lines, err := query(ctx, client, parts[1], parts[2], start, end)
	return fmt.Sprintf("%d lines", len(lines)), len(lines) > 0, err
}

// query runs a query of CloudWatch Logs Insights, and returns the fields of each line.
func query(ctx context.Context, client queryAPI, group, text string,
	start, end time.Time) ([]map[string]string, error) {
	started, err := client.StartQuery(ctx, &cloudwatchlogs.StartQueryInput{LogGroupName: &group, QueryString: &text,
		StartTime: aws.Int64(start.Unix()), EndTime: aws.Int64(end.Unix())})
	if err != nil {
		return nil, err
	}
	for {
		out, err := client.GetQueryResults(ctx, &cloudwatchlogs.GetQueryResultsInput{QueryId: started.QueryId})
		if err != nil {
			return nil, err
		}
		switch out.Status {
		case logtypes.QueryStatusComplete:
			var lines []map[string]string
			for _, result := range out.Results {
				line := map[string]string{}
				for _, field := range result {
					line[aws.ToString(field.Field)] = aws.ToString(field.Value)
				}
				lines = append(lines, line)
			}
			return lines, nil
		case logtypes.QueryStatusRunning, logtypes.QueryStatusScheduled:
		default:
			return nil, fmt.Errorf("the query is %s", out.Status)
		}
		if err := smithytime.SleepWithContext(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// showStates states whether the alarms of a widget exist.
func (w widget) showStates(ctx context.Context, r *raiser) (string, bool, error) {
	known, err := r.states(ctx)
	if err != nil {
		return "", false, err
	}
	var missing []string
	for _, text := range w.Properties.Alarms {
		_, name, _ := strings.Cut(text, ":alarm:"+r.stack+"-")
		if _, ok := known[name]; !ok {
			missing = append(missing, text)
		}
	}
	if len(missing) > 0 {
		return "no such alarm: " + strings.Join(missing, ", "), false, nil
	}
	return fmt.Sprintf("%d alarms, and the stack has %d", len(w.Properties.Alarms), len(known)),
		len(known) == len(w.Properties.Alarms), nil
}

// showDashboard reads the dashboard as it is deployed, and states which of its widgets have data
// for the time of the run.
func (d *deployed) showDashboard(ctx context.Context) ([]Row, error) {
	client := cloudwatch.NewFromConfig(d.AWS)
	name := d.outputs[output.DashboardOutput]
	var widgets []widget
	read := check{what: "the dashboard", expected: "it can be read", needs: []local.Need{Metrics},
		do: func(ctx context.Context) (string, bool, error) {
			out, err := client.GetDashboard(ctx, &cloudwatch.GetDashboardInput{DashboardName: &name})
			if err != nil {
				return "", false, err
			}
			widgets, err = parseDashboard(aws.ToString(out.DashboardBody))
			return fmt.Sprintf("%d charts", len(widgets)), err == nil, err
		}}
	rows := []Row{read.show(ctx, d.Lacks)}
	// Metrics are a few minutes late, and end now.
	start, end := d.run.start, time.Now()
	metricsStart := d.clock.before(start)
	for _, w := range widgets {
		c := check{what: "the chart " + w.Properties.Title, needs: []local.Need{Metrics}}
		switch w.Type {
		case "metric":
			c.expected = "data of each metric, or a reason"
			c.do = func(ctx context.Context) (string, bool, error) {
				return w.showMetrics(ctx, client, metricsStart, end)
			}
		case "log":
			c.expected = "the query returns lines"
			c.do = func(ctx context.Context) (string, bool, error) {
				return w.showQuery(ctx, cloudwatchlogs.NewFromConfig(d.AWS), start, end)
			}
		case "alarm":
			c.expected = "every alarm of the stack"
			c.do = func(ctx context.Context) (string, bool, error) {
				return w.showStates(ctx, &raiser{client: client, stack: d.Stack})
			}
		default:
			c.do = func(context.Context) (string, bool, error) {
				return "", false, fmt.Errorf("a widget of type %s is not known", w.Type)
			}
		}
		lacks := d.Lacks
		if reason := w.emulatorLacks(); d.run.target.emulated() && reason != "" {
			lacks = map[local.Need]string{Metrics: reason}
		}
		rows = append(rows, c.show(ctx, lacks))
	}
	return rows, ctx.Err()
}
