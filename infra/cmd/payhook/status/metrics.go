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

// series is what one metric has: of counts the sum over the window, of the others the last.
type series struct {
	sum, last float64
	at        time.Time // of the minute of the last; zero: none
}

// fromMetrics makes the checks of metrics.
func fromMetrics(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	all, err := read(ctx, d, now)
	if err != nil {
		return nil, err
	}
	redrive, tokenRuns := runs("redrive", all["oldest"], now), runs("token runs", all["token"], now)
	return []check{webhooks(all, redrive.State), redrive, tokenRuns, d.certificates(all["trust"], redrive.State)}, nil
}

// read returns the metrics of the functions and of Lambda.
func read(ctx context.Context, d *stack, now time.Time) (map[string]series, error) {
	function, _, _ := strings.Cut(d.Functions["webhook"], ":") // without the alias
	own, lambda := types.Dimension{Name: aws.String(names.MetricDimension), Value: &d.FullName},
		types.Dimension{Name: aws.String("FunctionName"), Value: &function}
	var queries []types.MetricDataQuery
	for _, m := range []struct {
		id, namespace, name, statistic string
		dimension                      types.Dimension
	}{
		{"accepted", names.MetricNamespace, names.AcceptedMetric.Name, "Sum", own},
		{"unauthenticated", names.MetricNamespace, names.UnauthenticatedMetric.Name, "Sum", own},
		{"notStored", names.MetricNamespace, names.NotStoredMetric.Name, "Sum", own},
		{"keyUnavailable", names.MetricNamespace, names.KeyUnavailableMetric.Name, "Sum", own},
		{"oldest", names.MetricNamespace, names.OldestPendingMetric.Name, "Maximum", own},
		{"token", names.MetricNamespace, names.TokenShortfallMetric.Name, "Maximum", own},
		{"trust", names.MetricNamespace, names.TrustDaysLeftMetric.Name, "Minimum", own},
		{"errors", "AWS/Lambda", "Errors", "Sum", lambda},
		{"throttles", "AWS/Lambda", "Throttles", "Sum", lambda},
	} {
		queries = append(queries, types.MetricDataQuery{Id: &m.id, MetricStat: &types.MetricStat{
			Stat: &m.statistic, Period: aws.Int32(minute),
			Metric: &types.Metric{Namespace: &m.namespace, MetricName: &m.name,
				Dimensions: []types.Dimension{m.dimension}},
		}})
	}
	all := map[string]series{}
	pages := cloudwatch.NewGetMetricDataPaginator(d.metrics, &cloudwatch.GetMetricDataInput{
		MetricDataQueries: queries, StartTime: aws.Time(now.Add(-window)), EndTime: aws.Time(now),
	})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range out.MetricDataResults {
			s := all[aws.ToString(r.Id)]
			for i := range min(len(r.Values), len(r.Timestamps)) {
				s.sum += r.Values[i]
				if r.Timestamps[i].After(s.at) {
					s.last, s.at = r.Values[i], r.Timestamps[i]
				}
			}
			all[aws.ToString(r.Id)] = s
		}
	}
	return all, nil
}

// webhooks judges the answers. A webhook writes only counts that are not 0, so that it
// takes the metrics of redrive to know that metrics arrive at all.
func webhooks(all map[string]series, redrive state) check {
	unavailable, failed := all["notStored"].sum+all["keyUnavailable"].sum, all["errors"].sum+all["throttles"].sum
	text := fmt.Sprintf("%.0f accepted, %.0f 401, %.0f 503 in %s", all["accepted"].sum, all["unauthenticated"].sum,
		unavailable, cli.Readable(window))
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
func runs(name string, last series, now time.Time) check {
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
func (d *stack) certificates(trust series, redrive state) check {
	switch {
	case trust.at.IsZero() && redrive == ok:
		return check{"certificates", ok, "no client certificate is required"}
	case trust.at.IsZero():
		return check{"certificates", notMeasured, "redrive does not run"}
	case trust.last < trustDays:
		return check{"certificates", attention, fmt.Sprintf("%.0f days left: %s", trust.last, d.hint("certificates"))}
	}
	return check{"certificates", ok, fmt.Sprintf("%.0f days left", trust.last)}
}

// alarms lists the alarms of the deployment that are raised, and those that are not measured:
// they have no data, or do not exist any more.
func alarms(ctx context.Context, d *stack, _ time.Time) ([]check, error) {
	all, err := alarmNames(ctx, d)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return []check{{"alarms", notMeasured, "the deployment has no alarms"}}, nil
	}
	// A call takes and returns up to 100, more than a stack of ours has:
	// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_DescribeAlarms.html
	out, err := d.metrics.DescribeAlarms(ctx, &cloudwatch.DescribeAlarmsInput{
		AlarmNames: all, MaxRecords: aws.Int32(100),
	})
	if err != nil {
		return nil, err
	}
	states := map[string]types.StateValue{}
	for _, a := range out.MetricAlarms {
		states[aws.ToString(a.AlarmName)] = a.StateValue
	}
	var raised, without []string
	for _, name := range all {
		short := strings.TrimPrefix(name, d.FullName+"-")
		switch states[name] {
		case types.StateValueAlarm:
			raised = append(raised, short)
		case types.StateValueOk:
		default:
			without = append(without, short)
		}
	}
	c := check{"alarms", ok, fmt.Sprintf("none of %d is raised", len(all))}
	if len(without) > 0 {
		c.State, c.Text = notMeasured, "without data: "+strings.Join(without, ", ")
	}
	if len(raised) > 0 {
		c.State, c.Text = attention, "raised: "+strings.Join(raised, ", ")
	}
	return []check{c}, nil
}

// alarmNames returns the names of the deployment's alarms in the stack, sorted. DescribeStackResources would
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
			name := aws.ToString(r.PhysicalResourceId)
			if aws.ToString(r.ResourceType) == "AWS::CloudWatch::Alarm" && strings.HasPrefix(name, d.FullName+"-") {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}
