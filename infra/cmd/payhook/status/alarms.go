package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/settings"
)

// alarms has a line for each alarm of the deployment that is raised, with its description: the cause, and the first
// action. Those without data are not measured, and neither are those that do not exist any more.
func alarms(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	all, err := deployment.Resources(ctx, d.stacks, d.Stack, "AWS::CloudWatch::Alarm")
	if err != nil {
		return nil, err
	}
	prefix := d.FullName + "-"
	all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	if len(all) == 0 {
		return []check{{"alarms", notMeasured, "the deployment has no alarms", "deploy the stack again"}}, nil
	}
	// A call takes and returns up to 100, more than a stack of ours has:
	// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_DescribeAlarms.html
	out, err := d.metrics.DescribeAlarms(ctx,
		&cloudwatch.DescribeAlarmsInput{AlarmNames: all, MaxRecords: aws.Int32(100)})
	if err != nil {
		return nil, err
	}
	found := map[string]types.MetricAlarm{}
	for _, a := range out.MetricAlarms {
		found[aws.ToString(a.AlarmName)] = a
	}
	var checks []check
	var without []string
	slices.Sort(all)
	for _, name := range all {
		switch a, short := found[name], strings.TrimPrefix(name, prefix); a.StateValue {
		case types.StateValueAlarm:
			since := ""
			if at := a.StateTransitionedTimestamp; at != nil {
				since = "raised " + cli.Ago(*at, now) + ". "
			}
			cause, action, _ := strings.Cut(aws.ToString(a.AlarmDescription), settings.WhatToDo)
			checks = append(checks, check{"alarm " + short, attention, since + cause, action})
		case types.StateValueOk:
		default:
			without = append(without, short)
		}
	}
	if without != nil {
		checks = append(checks, check{"alarms", notMeasured, "without data: " + strings.Join(without, ", "),
			"after a deployment, repeat this in 10 minutes; otherwise deploy the stack again"})
	}
	if checks == nil {
		checks = []check{{"alarms", ok, fmt.Sprintf("none of %d is raised", len(all)), ""}}
	}
	return checks, nil
}

// window is the time of which webhooks are counted.
const window = 15 * time.Minute

// webhooks counts the answers of the function. The alarms judge them, and those of AWS.
func webhooks(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	statuses := map[string]int{} // by the ids of the queries; 0 for accepted
	in := &cloudwatch.GetMetricDataInput{StartTime: aws.Time(now.Add(-window)), EndTime: &now}
	for _, m := range settings.Metrics() {
		if m.Status == 0 && m != settings.AcceptedMetric {
			continue
		}
		id := fmt.Sprint("m", len(statuses))
		statuses[id] = m.Status
		in.MetricDataQueries = append(in.MetricDataQueries, types.MetricDataQuery{Id: &id,
			MetricStat: &types.MetricStat{Stat: aws.String("Sum"), Period: aws.Int32(60), Metric: &types.Metric{
				Namespace: aws.String(settings.MetricNamespace), MetricName: aws.String(m.Name),
				Dimensions: []types.Dimension{{Name: aws.String(settings.MetricDimension), Value: &d.FullName}}}}})
	}
	counts := map[int]float64{}
	for pages := cloudwatch.NewGetMetricDataPaginator(d.metrics, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.MetricDataResults {
			for _, value := range r.Values {
				counts[statuses[aws.ToString(r.Id)]] += value
			}
		}
	}
	texts := []string{fmt.Sprintf("%.0f accepted", counts[0])}
	delete(counts, 0)
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[status]; n > 0 {
			texts = append(texts, fmt.Sprintf("%.0f × %d", n, status))
		}
	}
	return []check{{"webhooks", ok, strings.Join(texts, ", ") + " in " + cli.Readable(window), ""}}, nil
}
