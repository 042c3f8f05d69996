package commands

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/ledger"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// alarms has a line for each alarm of the stack that is raised, with its description: the cause, and the first
// action. Those without data are not measured, and neither are those that do not exist any more.
func alarms(ctx context.Context, d *screen, now time.Time) ([]check, error) {
	all, err := stack.Resources(ctx, cloudformation.NewFromConfig(d.s.AWS), d.s.StackName, "AWS::CloudWatch::Alarm")
	if err != nil {
		return nil, err
	}
	prefix := d.s.FullName + "-"
	all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	if len(all) == 0 {
		return []check{{"alarms", notMeasured, "the stack has no alarms", "deploy the stack again"}}, nil
	}
	// A call takes and returns up to 100, more than a stack of ours has:
	// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_DescribeAlarms.html
	out, err := cloudwatch.NewFromConfig(d.s.AWS).DescribeAlarms(ctx,
		&cloudwatch.DescribeAlarmsInput{AlarmNames: all, MaxRecords: aws.Int32(100)})
	if err != nil {
		return nil, err
	}
	found := map[string]types.MetricAlarm{}
	for _, a := range out.MetricAlarms {
		found[aws.ToString(a.AlarmName)] = a
	}
	var checks []check
	var without, gone []string
	slices.Sort(all)
	for _, name := range all {
		switch a, short := found[name], strings.TrimPrefix(name, prefix); {
		case a.AlarmName == nil:
			gone = append(gone, short)
		case a.StateValue == types.StateValueAlarm:
			checks = append(checks, d.raised(short, a, now))
		case a.StateValue != types.StateValueOk:
			without = append(without, short)
		}
	}
	if gone != nil {
		checks = append(checks, check{"alarms", needsAttention, "missing: " + strings.Join(gone, ", "), seeLost})
	}
	if without != nil {
		checks = append(checks, check{"alarms", notMeasured, "without data: " + strings.Join(without, ", "),
			"after a deployment, repeat this in 10 minutes (silence: after alarmSilence); otherwise deploy " +
				"the stack again"})
	}
	if checks == nil {
		checks = []check{{"alarms", ok, fmt.Sprintf("none of %d is raised", len(all)), ""}}
	}
	return checks, nil
}

// advised matches a command in the text of an alarm.
var advised = regexp.MustCompile("`((?:[^`]+ \\| )?)(payhook|aws) ([^`]+)`")

// raised returns the line of an alarm: since when, the cause, and the first action, with commands for this stack.
func (d *screen) raised(name string, a types.MetricAlarm, now time.Time) check {
	c := check{"alarm " + name, needsAttention, "", ""}
	if at := cmp.Or(a.StateTransitionedTimestamp, a.StateUpdatedTimestamp); at != nil {
		c.Text = "raised " + cli.Ago(*at, now) + ". "
	}
	// The alarm of pending events is also raised if redrive does not run.
	if n, known := d.open[name]; known && n == 0 && name != "oldest-pending" {
		c.Text, c.Next = c.Text+"Nothing is open any more.", "the alarm ends by itself within 10 minutes"
		return c
	} else if known && n == 0 {
		c.Text += "Nothing is pending any more. "
	}
	// Who reads this has called it.
	text := strings.ReplaceAll(aws.ToString(a.AlarmDescription), "Run `payhook status`. ", "")
	text = advised.ReplaceAllStringFunc(text, func(command string) string {
		part := advised.FindStringSubmatch(command)
		to := map[string]func(string) string{"payhook": d.p.Hint, "aws": d.p.AWS}[part[2]]
		return "`" + part[1] + to(part[3]) + "`"
	})
	cause, action, _ := strings.Cut(text, settings.WhatToDo)
	c.Text, c.Next = c.Text+cause, action
	return c
}

// window is the time of which webhooks are counted.
const window = 15 * time.Minute

// webhooks counts the answers of the function. The alarms judge them, and those of AWS.
func webhooks(ctx context.Context, d *screen, now time.Time) ([]check, error) {
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
				Dimensions: []types.Dimension{{Name: aws.String(settings.MetricDimension), Value: &d.s.FullName}}}}})
	}
	client, counts := cloudwatch.NewFromConfig(d.s.AWS), map[int]float64{}
	for pages := cloudwatch.NewGetMetricDataPaginator(client, in); pages.HasMorePages(); {
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
	c := check{"webhooks", ok, strings.Join(texts, ", ") + " in " + cli.Readable(window), ""}
	if counts[http.StatusUnauthorized] == 0 {
		return []check{c}, nil
	}
	lines, part, err := d.recent(ctx, "webhook", " && $.status = 401", now.Add(-recently))
	if err != nil {
		return []check{c}, err
	}
	outcomes := map[string]int{}
	for _, l := range lines {
		if l.Status == http.StatusUnauthorized {
			outcomes[l.Outcome]++
		}
	}
	texts = nil
	for _, outcome := range slices.SortedFunc(maps.Keys(outcomes), func(a, b string) int {
		return cmp.Or(outcomes[b]-outcomes[a], strings.Compare(a, b))
	}) {
		texts = append(texts, fmt.Sprint(outcomes[outcome], " ", outcome))
	}
	c.Text += "; 401 in the last " + cli.Readable(recently) + ": " + cmp.Or(strings.Join(texts, ", "), "none")
	if part {
		c.Text += ", and more that were not read"
	}
	return []check{c}, nil
}

// mostListed is how many of the oldest pending events are read.
const mostListed = 10

// pendingChecks counts what is in the index of pending events, and lists the oldest that are left to redrive.
func pendingChecks(ctx context.Context, d *screen, now time.Time) ([]check, error) {
	index, err := ledger.List(ctx, d.s.ledger, ledger.Pending)
	if err != nil {
		return nil, err
	}
	// What fails again and again is among the oldest; the index is in the order of due. What has no time is first.
	slices.SortStableFunc(index, func(x, y ledger.Item) int { return x.RecordedAt.Compare(y.RecordedAt) })
	first, err := d.s.current(ctx, index[:min(len(index), mostListed)], ledger.Pending)
	if err != nil {
		return nil, err
	}
	for _, item := range first {
		if item.Err != nil || item.Attempts > 0 || now.After(item.LeasedUntil) {
			d.oldest = append(d.oldest, eventOf(item))
		}
	}
	all := slices.Concat(first, index[min(len(index), mostListed):])
	damaged, oldest := 0, now
	for _, item := range all {
		if item.Err != nil {
			damaged++
		}
		if at := item.RecordedAt; !at.IsZero() && at.Before(oldest) {
			oldest = at
		}
	}
	d.open["oldest-pending"] = len(all)
	if len(all) == 0 {
		return []check{{"pending", ok, "nothing is pending", ""}}, nil
	}
	c := check{"pending", ok, cli.Counted(len(all), "event", "events") + ", the oldest for " +
		cli.Readable(now.Sub(oldest)), ""}
	if damaged > 0 {
		c.Condition, c.Next = needsAttention, d.p.Hint("logs redrive --since 1h")
		c.Text += fmt.Sprintf(", %d damaged", damaged)
	}
	lines, _, err := d.recent(ctx, "redrive", "", now.Add(-recently))
	if err != nil {
		return []check{c}, err
	}
	cause := "it has logged nothing for " + cli.Readable(recently)
	if n := len(lines); n > 0 {
		cause = cmp.Or(lines[n-1].Cause, lines[n-1].BusCause)
	}
	if cause != "" {
		c.Text += "; redrive: " + cause
	}
	return []check{c}, nil
}

func parkedChecks(ctx context.Context, d *screen, now time.Time) ([]check, error) {
	events, err := ledger.List(ctx, d.s.ledger, ledger.Parked)
	if err != nil {
		return nil, err
	}
	open, err := proof.CountOpen(ctx, d.s.parking)
	if err != nil {
		return nil, err
	}
	ends, err := d.s.largeEventEnds(ctx, events, now)
	if err != nil {
		return nil, err
	}
	d.open["parked"], d.open["conflicts"] = len(events)+open[proof.Invalid], open[proof.Conflict]
	c := check{"parked", ok, "nothing is open", ""}
	if len(events)+open[proof.Invalid]+open[proof.Conflict] > 0 {
		c.Condition, c.Next = needsAttention, d.p.Hint("parked list")
		c.Text = fmt.Sprintf("%s, %d invalid, %s open", cli.Counted(len(events), "event", "events"),
			open[proof.Invalid], cli.Counted(open[proof.Conflict], "conflict", "conflicts"))
	}
	if n := open[proof.Rejected]; n > 0 {
		c.Text += "; " + cli.Counted(n, "rejected webhook is", "rejected webhooks are") + " stored"
	}
	if len(ends) > 0 {
		earlier := func(a, b string) int { return ends[a].Compare(ends[b]) }
		first := slices.MinFunc(slices.Collect(maps.Keys(ends)), earlier)
		c.Text += fmt.Sprintf("; the large event of %s is deleted %s", first, cli.Ago(ends[first], now))
	}
	return []check{c}, nil
}
