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

// webhooks counts the answers. The alarms judge them.
func webhooks(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	sums, err := sums(ctx, d, now)
	if err != nil {
		return nil, err
	}
	text, byFunction := fmt.Sprintf("%.0f accepted", sums[settings.AcceptedMetric.Name]), 0.0
	counts := map[int]float64{}
	for _, m := range settings.Metrics() {
		counts[m.Status] += sums[m.Name]
		if m.Status/100 == 4 {
			byFunction += sums[m.Name]
		}
	}
	delete(counts, 0) // what no webhook was answered with
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[status]; n > 0 {
			text += fmt.Sprintf(", %.0f × %d", n, status)
		}
	}
	// API Gateway counts all 4xx, a function URL too. The function's counts arrive later than Lambda's.
	clientErrors := sums[settings.ClientErrorsMetric.Name]
	byAWS := max(0, clientErrors-byFunction) + sums[settings.NotInvokedMetric.Name] +
		max(0, sums["Url4xxCount"]-clientErrors-sums["Throttles"])
	if byAWS > 0 {
		text += fmt.Sprintf(", %.0f refused by AWS or not counted by the function yet", byAWS)
	}
	text += " in " + cli.Readable(window)
	if failed := sums["Errors"] + sums["Throttles"]; failed > 0 {
		text += fmt.Sprintf("; %s failed or did not start", cli.Counted(int(failed), "run", "runs"))
	}
	return []check{{"webhooks", ok, text, ""}}, nil
}

// sums reads the counts of the webhook function over the window, by the names of the metrics.
func sums(ctx context.Context, d *stack, now time.Time) (map[string]float64, error) {
	var queries []types.MetricDataQuery
	query := func(namespace, name, dimension, value string) {
		queries = append(queries, types.MetricDataQuery{Id: aws.String("m" + name), // it begins with a small letter
			MetricStat: &types.MetricStat{Stat: aws.String("Sum"), Period: aws.Int32(60), Metric: &types.Metric{
				Namespace: &namespace, MetricName: &name,
				Dimensions: []types.Dimension{{Name: &dimension, Value: &value}}}}})
	}
	for _, m := range settings.Metrics() {
		if m.Status != 0 || m == settings.AcceptedMetric || m == settings.ClientErrorsMetric ||
			m == settings.NotInvokedMetric {
			query(settings.MetricNamespace, m.Name, settings.MetricDimension, d.FullName)
		}
	}
	function, _, _ := strings.Cut(d.Functions["webhook"], ":") // metrics have the name without its alias
	for _, name := range []string{"Errors", "Throttles", "Url4xxCount"} {
		query("AWS/Lambda", name, "FunctionName", function)
	}
	pages := cloudwatch.NewGetMetricDataPaginator(d.metrics, &cloudwatch.GetMetricDataInput{
		MetricDataQueries: queries, StartTime: aws.Time(now.Add(-window)), EndTime: &now})
	sums := map[string]float64{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.MetricDataResults {
			for _, value := range r.Values {
				sums[aws.ToString(r.Id)[1:]] += value
			}
		}
	}
	return sums, nil
}
