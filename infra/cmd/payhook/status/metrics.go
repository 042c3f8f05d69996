package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/settings"
)

// window is the time of which metrics are read. minute is the length of their periods.
const (
	window = 15 * time.Minute
	minute = int32(60)
	// silence is how long no run of a schedule may be seen: metrics are late, and a run
	// may take most of a minute.
	silence = 5 * time.Minute
)

// series is what one metric has over the window.
type series struct {
	sum, lowest float64
	at          time.Time // of the minute of the last; zero: none
}

// measured makes the checks of metrics and alarms. The error is that of the alarms.
func measured(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	checks, err := counted(ctx, d, now)
	if err != nil {
		checks = []check{failed("metrics", err)}
	}
	own, err := alarms(ctx, d)
	if err != nil {
		return checks, err
	}
	return append(checks, raised(own)), nil
}

// counted makes the checks of metrics.
func counted(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	all, err := read(ctx, d, now)
	if err != nil {
		return nil, err
	}
	last, missing := all["oldest"], all["missing"]
	noBus := !missing.at.IsZero() && !missing.at.Before(last.at) // in the last run
	if noBus {
		last = missing
	}
	redrive := runs("redrive", last, now, d.hint("logs redrive --since 1h"))
	state := redrive.State
	if noBus {
		redrive = check{redrive.Name, attention, "the bus does not exist: events are lost",
			"see bus-missing in infra/cmd/payhook/RUNBOOK.md"}
	}
	checks := []check{webhooks(all, state, d.hint("logs webhook --since 15m")), redrive}
	if d.KeepsToken() {
		checks = append(checks, runs("token runs", all["token"], now, d.hint("logs token --since 1h")))
	}
	return append(checks, d.certificates(all["trust"], state)), nil
}

// read returns the metrics of Payhook and of Lambda, those of answers by the name of the metric.
func read(ctx context.Context, d *stack, now time.Time) (map[string]series, error) {
	function, _, _ := strings.Cut(d.Functions["webhook"], ":") // without the alias
	all, ids := map[string]series{}, map[string]string{}
	var queries []types.MetricDataQuery
	query := func(id, namespace, name, statistic string, dimensions ...types.Dimension) {
		n := fmt.Sprintf("m%d", len(queries))
		ids[n] = id
		queries = append(queries, types.MetricDataQuery{Id: &n, MetricStat: &types.MetricStat{
			Stat: &statistic, Period: aws.Int32(minute),
			Metric: &types.Metric{Namespace: &namespace, MetricName: &name, Dimensions: dimensions},
		}})
	}
	stack := types.Dimension{Name: aws.String(settings.MetricDimension), Value: &d.FullName}
	query("oldest", settings.MetricNamespace, settings.OldestPendingMetric.Name, "Maximum", stack)
	query("missing", settings.MetricNamespace, settings.BusMissingMetric.Name, "Sum", stack)
	query("token", settings.MetricNamespace, settings.TokenShortfallMetric.Name, "Maximum", stack)
	query("trust", settings.MetricNamespace, settings.TrustDaysLeftMetric.Name, "Minimum", stack)
	for _, m := range settings.Metrics() {
		if m.Status != 0 || m == settings.AcceptedMetric || m == settings.ClientErrorsMetric ||
			m == settings.NotInvokedMetric {
			query(m.Name, settings.MetricNamespace, m.Name, "Sum", stack)
		}
	}
	for _, name := range []string{"Errors", "Throttles", "Url4xxCount"} {
		query(name, "AWS/Lambda", name, "Sum", types.Dimension{Name: aws.String("FunctionName"), Value: &function})
	}
	pages := cloudwatch.NewGetMetricDataPaginator(d.metrics, &cloudwatch.GetMetricDataInput{
		MetricDataQueries: queries, StartTime: aws.Time(now.Add(-window)), EndTime: aws.Time(now),
	})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range out.MetricDataResults {
			id := ids[aws.ToString(r.Id)]
			s := all[id]
			for i := range min(len(r.Values), len(r.Timestamps)) {
				if s.at.IsZero() || r.Values[i] < s.lowest {
					s.lowest = r.Values[i]
				}
				s.sum += r.Values[i]
				if r.Timestamps[i].After(s.at) {
					s.at = r.Timestamps[i]
				}
			}
			all[id] = s
		}
	}
	return all, nil
}

// webhooks judges the answers. A webhook writes only counts that are not 0, so that it
// takes the metrics of redrive to know that metrics arrive at all.
func webhooks(all map[string]series, redrive state, next string) check {
	clientErrors := all[settings.ClientErrorsMetric.Name].sum
	counts := map[string]float64{ // of the answers that are not 2xx
		"403 by API Gateway": clientErrors, "429, 413 or 500 by API Gateway": all[settings.NotInvokedMetric.Name].sum}
	for _, m := range settings.Metrics() {
		if m.Status != 0 {
			counts[strconv.Itoa(m.Status)] += all[m.Name].sum
		}
		if m.Status/100 == 4 {
			counts["403 by API Gateway"] -= all[m.Name].sum
		}
	}
	// The function's counts arrive later than Lambda's.
	counts["4xx by AWS, or not counted by the function yet"] =
		all["Url4xxCount"].sum - clientErrors - all["Throttles"].sum
	accepted, failed := all[settings.AcceptedMetric.Name].sum, all["Errors"].sum+all["Throttles"].sum
	text, refused := fmt.Sprintf("%.0f accepted", accepted), false
	for _, answer := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[answer]; n > 0 {
			text, refused = text+fmt.Sprintf(", %.0f × %s", n, answer), true
		}
	}
	text += " in " + cli.Readable(window)
	if failed > 0 {
		text += fmt.Sprintf("; %s failed or did not start", cli.Counted(int(failed), "run", "runs"))
	}
	return judge("webhooks", text,
		finding{failed > 0 || counts["503"] > 0 || accepted == 0 && refused, attention, text, next},
		finding{redrive == notMeasured, notMeasured,
			"no function has written metrics in " + cli.Readable(window), next})
}

// runs judges when a scheduled function has written its metrics last.
func runs(name string, last series, now time.Time, next string) check {
	text := "last run in the minute of " + last.at.UTC().Format("15:04") + " UTC"
	return judge(name, text,
		finding{last.at.IsZero(), notMeasured, "no run in " + cli.Readable(window) + ", or no metrics yet", next},
		finding{now.Sub(last.at) > silence, attention, text, next})
}

// certificates judges how long certificates are valid. If client certificates are required, each
// run of redrive writes it for the truststore, and each accepted webhook for its own.
func (d *stack) certificates(trust series, redrive state) check {
	text := fmt.Sprintf("%.0f days left", trust.lowest)
	return judge("certificates", text,
		finding{trust.at.IsZero() && redrive == ok, ok, "no client certificate is required", ""},
		finding{trust.at.IsZero(), notMeasured, "redrive does not run", d.hint("logs redrive --since 1h")},
		finding{trust.lowest < settings.MinTrustDays, attention, text, d.hint("keys")})
}

// alarms returns the alarms of the deployment, by their names without that of the deployment. One
// that does not exist any more has no state.
func alarms(ctx context.Context, d *stack) (map[string]types.MetricAlarm, error) {
	all, err := deployment.Resources(ctx, d.stacks, d.Stack, "AWS::CloudWatch::Alarm")
	all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, d.FullName+"-") })
	own := map[string]types.MetricAlarm{}
	if err != nil || len(all) == 0 {
		return own, err
	}
	// A call takes and returns up to 100, more than a stack of ours has:
	// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_DescribeAlarms.html
	out, err := d.metrics.DescribeAlarms(ctx, &cloudwatch.DescribeAlarmsInput{
		AlarmNames: all, MaxRecords: aws.Int32(100),
	})
	if err != nil {
		return nil, err
	}
	short := func(name string) string { return strings.TrimPrefix(name, d.FullName+"-") }
	for _, name := range all {
		own[short(name)] = types.MetricAlarm{}
	}
	for _, a := range out.MetricAlarms {
		own[short(aws.ToString(a.AlarmName))] = a
	}
	return own, nil
}

// raised lists the alarms that are raised, and those that are not measured: they have no data, or do
// not exist any more.
func raised(own map[string]types.MetricAlarm) check {
	var raised, without []string
	for _, name := range slices.Sorted(maps.Keys(own)) {
		switch own[name].StateValue {
		case types.StateValueAlarm:
			raised = append(raised, name)
		case types.StateValueOk:
		default:
			without = append(without, name)
		}
	}
	return judge("alarms", fmt.Sprintf("none of %d is raised", len(own)),
		finding{len(own) == 0, notMeasured, "the deployment has no alarms", "deploy the stack again"},
		finding{len(raised) > 0, attention, "raised: " + strings.Join(raised, ", "),
			"look up each in the table of infra/cmd/payhook/RUNBOOK.md"},
		finding{len(without) > 0, notMeasured, "without data: " + strings.Join(without, ", "),
			"after a deployment, repeat this in 10 minutes; otherwise deploy the stack again"})
}
