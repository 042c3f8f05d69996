package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/names"
)

// window is the time of which metrics are read. minute is the length of their periods.
const (
	window = 15 * time.Minute
	minute = int32(60)
	// silence is how long no run of a schedule may be seen: metrics are late, and a run
	// may take most of a minute.
	silence = 5 * time.Minute
	// trustDays is how many days certificates must be valid, as for the alarm.
	trustDays = 30
)

// own are the metrics of the functions: of the statistic Sum, those over the window are
// used, of the others the last.
var own = []struct {
	id        string
	metric    names.Metric
	statistic string
}{
	{"accepted", names.AcceptedMetric, "Sum"},
	{"unauthenticated", names.UnauthenticatedMetric, "Sum"},
	{"notStored", names.NotStoredMetric, "Sum"},
	{"keyUnavailable", names.KeyUnavailableMetric, "Sum"},
	{"oldest", names.OldestPendingMetric, "Maximum"},
	{"token", names.TokenShortfallMetric, "Maximum"},
	{"trust", names.TrustDaysLeftMetric, "Minimum"},
}

// point is the last value of a gauge.
type point struct {
	value float64
	at    time.Time // of its minute; zero: none
}

// fromMetrics makes the checks of metrics.
func fromMetrics(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	sums, last, err := read(ctx, d, now)
	if err != nil {
		return nil, err
	}
	redrive, tokenRuns := runs("redrive", last["oldest"], now), runs("token runs", last["token"], now)
	return []check{webhooks(sums, redrive.State), redrive, tokenRuns, certificates(last, redrive.State)}, nil
}

func read(ctx context.Context, d *stack, now time.Time) (sums map[string]float64, last map[string]point,
	err error) {
	var queries []types.MetricDataQuery
	query := func(id, namespace, name, statistic, dimension, value string) {
		queries = append(queries, types.MetricDataQuery{
			Id: &id,
			MetricStat: &types.MetricStat{
				Stat: &statistic, Period: aws.Int32(minute),
				Metric: &types.Metric{
					Namespace: &namespace, MetricName: &name,
					Dimensions: []types.Dimension{{Name: &dimension, Value: &value}},
				},
			},
		})
	}
	for _, m := range own {
		query(m.id, names.MetricNamespace, m.metric.Name, m.statistic, names.MetricDimension, d.Stack)
	}
	function, _, _ := strings.Cut(d.Functions["webhook"], ":") // without the alias
	query("errors", "AWS/Lambda", "Errors", "Sum", "FunctionName", function)
	query("throttles", "AWS/Lambda", "Throttles", "Sum", "FunctionName", function)
	sums, last = map[string]float64{}, map[string]point{}
	pages := cloudwatch.NewGetMetricDataPaginator(d.metrics, &cloudwatch.GetMetricDataInput{
		MetricDataQueries: queries, StartTime: aws.Time(now.Add(-window)), EndTime: aws.Time(now),
	})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range out.MetricDataResults {
			id := aws.ToString(r.Id)
			for i := range min(len(r.Values), len(r.Timestamps)) {
				sums[id] += r.Values[i]
				if r.Timestamps[i].After(last[id].at) {
					last[id] = point{r.Values[i], r.Timestamps[i]}
				}
			}
		}
	}
	return sums, last, nil
}

// webhooks judges the answers. A webhook writes only counts that are not 0, so that it
// takes the metrics of redrive to know that metrics arrive at all.
func webhooks(sums map[string]float64, redrive state) check {
	unavailable := sums["notStored"] + sums["keyUnavailable"]
	text := fmt.Sprintf(
		"%.0f accepted, %.0f 401, %.0f 503 in %s",
		sums["accepted"],
		sums["unauthenticated"],
		unavailable,
		cli.Readable(window),
	)
	failed := sums["errors"] + sums["throttles"]
	if failed > 0 {
		text += fmt.Sprintf("; %.0f runs failed or did not start", failed)
	}
	switch {
	case failed > 0 || unavailable > 0:
		return check{"webhooks", attention, text}
	case redrive == notMeasured:
		return check{"webhooks", notMeasured, "no function has written metrics in " + cli.Readable(window)}
	}
	return check{"webhooks", ok, text}
}

// runs judges when a scheduled function has written its metrics last.
func runs(name string, last point, now time.Time) check {
	if last.at.IsZero() {
		return check{name, notMeasured, "no run in " + cli.Readable(window) + ", or no metrics yet"}
	}
	text := "last run in the minute of " + last.at.UTC().Format("15:04") + " UTC"
	if now.Sub(last.at) > silence {
		return check{name, attention, text}
	}
	return check{name, ok, text}
}

// certificates judges how long certificates are valid. Each run of redrive writes it if
// client certificates are required.
func certificates(last map[string]point, redrive state) check {
	trust := last["trust"]
	switch {
	case trust.at.IsZero() && redrive == ok:
		return check{"certificates", ok, "no client certificate is required"}
	case trust.at.IsZero():
		return check{"certificates", notMeasured, "redrive does not run"}
	case trust.value < trustDays:
		return check{"certificates", attention, fmt.Sprintf("%.0f days left: payhook certificates", trust.value)}
	}
	return check{"certificates", ok, fmt.Sprintf("%.0f days left", trust.value)}
}

// describedAlarms is how many names DescribeAlarms takes, and alarms it returns:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_DescribeAlarms.html
const describedAlarms = 100

// alarms lists the alarms of the stack that are raised, and those that are not measured:
// they have no data, or do not exist any more.
func alarms(ctx context.Context, d *stack, _ time.Time) ([]check, error) {
	all, err := alarmNames(ctx, d)
	if err != nil {
		return nil, err
	}
	states := map[string]types.StateValue{}
	for some := range slices.Chunk(all, describedAlarms) {
		out, err := d.metrics.DescribeAlarms(ctx, &cloudwatch.DescribeAlarmsInput{
			AlarmNames: some, MaxRecords: aws.Int32(describedAlarms),
		})
		if err != nil {
			return nil, err
		}
		for _, a := range out.MetricAlarms {
			states[aws.ToString(a.AlarmName)] = a.StateValue
		}
	}
	var raised, without []string
	for _, name := range all {
		short := strings.TrimPrefix(name, d.Stack+"-")
		switch states[name] {
		case types.StateValueAlarm:
			raised = append(raised, short)
		case types.StateValueOk:
		default:
			without = append(without, short)
		}
	}
	c := check{"alarms", ok, fmt.Sprintf("none of %d is raised", len(all))}
	if len(all) == 0 {
		c.State, c.Text = notMeasured, "the stack has no alarms"
	}
	if len(without) > 0 {
		c.State, c.Text = notMeasured, fmt.Sprintf("%d of %d have no data: %s", len(without), len(all),
			cli.PlainAll(without))
	}
	if len(raised) > 0 {
		text := fmt.Sprintf("%d of %d: %s", len(raised), len(all), cli.PlainAll(raised))
		if len(without) > 0 {
			text += "; " + c.Text
		}
		c.State, c.Text = attention, text
	}
	return []check{c}, nil
}

// alarmNames returns the names of the stack's alarms, sorted. DescribeStackResources would
// return only 100 resources of all types:
// https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DescribeStackResources.html
func alarmNames(ctx context.Context, d *stack) ([]string, error) {
	var all []string
	pages := cloudformation.NewListStackResourcesPaginator(d.stacks,
		&cloudformation.ListStackResourcesInput{StackName: &d.Stack})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.StackResourceSummaries {
			// A resource that could not be created has no name.
			name := aws.ToString(r.PhysicalResourceId)
			if aws.ToString(r.ResourceType) == "AWS::CloudWatch::Alarm" && name != "" {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}
