package payhook

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// texts has the problem, its consequence and the first action of each alarm.
//
//go:embed alarms.txt
var texts string

// alarm is a CloudWatch alarm for a problem that needs a person. It watches one metric, so that its cause is clear.
type alarm struct {
	name string // without the stack's name
	// metric has a statistic and a period. CloudWatch looks further back than the periods if data is
	// missing, unless FILL in an expression fills it (AWS, "Configuring how CloudWatch alarms treat missing data").
	metric          awscloudwatch.IMetric
	threshold       int  // raises the alarm when it is reached; 0 means 1
	below           bool // values less than the threshold raise the alarm instead
	times, among    int  // the alarm is raised by times of the last among periods; 0: once, and times
	missingBreaches bool // a period without data counts as breaching
	notifyOK        bool // the topic is also notified of OK; not if the problem may not be solved then
}

// over returns a metric with the statistic of periods.
func over(minutes int, statistic string, m awscloudwatch.Metric) awscloudwatch.Metric {
	return m.With(&awscloudwatch.MetricOptions{
		Statistic: jsii.String(statistic), Period: awscdk.Duration_Minutes(jsii.Number(minutes)),
	})
}

// math returns an expression with the sums of metrics in periods, m0 and so on. An alarm can have 10 of them
// (https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_MetricDataQuery.html), and each costs
// as much as an alarm on it alone (https://aws.amazon.com/cloudwatch/pricing/).
func math(minutes int, expression string, all ...awscloudwatch.Metric) awscloudwatch.IMetric {
	metrics := map[string]awscloudwatch.IMetric{}
	for i, m := range all {
		metrics[fmt.Sprintf("m%d", i)] = over(minutes, sum, m)
	}
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: &expression, UsingMetrics: &metrics, Period: awscdk.Duration_Minutes(jsii.Number(minutes)),
	})
}

// newMetric returns a metric with one dimension.
func newMetric(namespace, name, dimension string, value *string) awscloudwatch.Metric {
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace: jsii.String(namespace), MetricName: jsii.String(name),
		DimensionsMap: &map[string]*string{dimension: value},
	})
}

// ownMetric returns a metric that the functions write.
func ownMetric(conf settings.Settings, m settings.Metric) awscloudwatch.Metric {
	return newMetric(settings.MetricNamespace, m.Name, settings.MetricDimension, jsii.String(conf.StackName()))
}

// lambdaMetric returns a metric that Lambda writes for all versions and aliases of the function (AWS, "Viewing metrics
// for Lambda functions" in the Lambda developer guide).
func (f function) lambdaMetric(name string) awscloudwatch.Metric {
	return f.Metric(jsii.String(name), nil)
}

func messages(queue awssqs.Queue) awscloudwatch.Metric {
	return queue.MetricApproximateNumberOfMessagesVisible(nil)
}

const (
	sum     = "Sum"
	maximum = "Maximum"
	minimum = "Minimum"
)

// newAlarms creates every alarm, and the topic that they notify unless it is given. The policy of a given topic is not
// changed: the default policy lets CloudWatch publish (AWS, "Notifying users on alarm changes" in the CloudWatch User
// Guide).
//
// What causes a loss or a delay until a person acts raises its alarm at the first occurrence, and what the next run or
// retry can solve when it persists. A missing count is not breaching, because functions write counts that are not 0. So
// no alarm on a count needs consecutive periods
// (https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html). Every run of a
// schedule writes the metrics of oldest-pending and token-life, for which missing data is breaching: they are raised
// also if a run is not started, is throttled, fails, or cannot read its data.
func (p *Payhook) newAlarms(topic awssns.ITopic) {
	scope := constructs.NewConstruct(p, jsii.String("Alarms"))
	if p.alarmTopic = topic; topic == nil {
		p.alarmTopic = p.newAlarmTopic(scope)
	}
	if p.conf.AlarmEmail != "" {
		awssns.NewSubscription(scope, jsii.String("Email"), &awssns.SubscriptionProps{
			Topic:    p.alarmTopic,
			Protocol: awssns.SubscriptionProtocol_EMAIL,
			Endpoint: jsii.String(p.conf.AlarmEmail),
		})
	}
	p.alarms = map[string]awscloudwatch.Alarm{}
	for _, a := range alarms(p.conf, p.webhook) {
		p.newAlarm(scope, a)
	}
}

func alarms(conf settings.Settings, webhook webhook) []alarm {
	own := func(m settings.Metric) awscloudwatch.Metric { return ownMetric(conf, m) }
	count := func(m settings.Metric) awscloudwatch.IMetric { return over(5, sum, own(m)) }
	all := []alarm{
		// Webhooks that are not accepted.
		{name: "not-stored", metric: count(settings.NotStoredMetric), notifyOK: true},
		{name: "parked", metric: count(settings.ParkedMetric)},
		{name: "conflicts", metric: count(settings.ConflictsMetric)},
		// A failed run can lose a webhook, so the first one raises the alarm. If Lambda has sent one of the metrics
		// only, the other counts as 0. FILL could hide what arrives late in the last period
		// (https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html).
		{name: "webhook-failed", metric: math(5, "m0+m1", webhook.lambdaMetric("Errors"),
			webhook.lambdaMetric("Throttles")), notifyOK: true},
		// A percentage would be raised by a single request at night, and would not be raised for a service that sends
		// few webhooks. A count per time avoids both. A wrong setting or another key rejects every webhook, which
		// reaches it soon; a few requests of strangers, as every public URL gets, do not.
		{name: "refused", metric: over(15, sum, own(settings.ClientErrorsMetric)), threshold: 10},
		{name: "key-unavailable", metric: count(settings.KeyUnavailableMetric), notifyOK: true},
		{name: "key-stale", metric: count(settings.KeyStaleMetric), times: 3, among: 12, notifyOK: true},
		// Without notifyOK: the count also becomes 0 when the key is not used any more.
		{name: "key-withdrawn", metric: count(settings.KeyWithdrawnMetric)},
		// Events that are accepted and do not reach the bus. An event is pending until its receiver publishes it, or
		// until the run of redrive after the receiver's deadline and the grace: 2 minutes by default. An event that is
		// pending for four runs longer belongs to a backlog, or fails and is postponed. The alarm needs 5 consecutive
		// periods, because a run can start or write late.
		{name: "oldest-pending", metric: over(1, maximum, own(settings.OldestPendingMetric)),
			threshold: int((conf.WebhookTimeout + settings.RedriveGrace + 4*time.Minute).Seconds()),
			times:     5, missingBreaches: true, notifyOK: true},
		// Without notifyOK: what was lost meanwhile is not back.
		{name: "bus-missing", metric: count(settings.BusMissingMetric)},
	}
	if webhook.ingress.api != nil {
		all = append(all, alarm{name: "rejected-by-aws", metric: count(settings.NotInvokedMetric), notifyOK: true})
	} else {
		// CloudWatch receives the function's counts later than those of Lambda, so the newest period can differ without
		// a cause. With two of twelve periods, the older one is complete.
		all = append(all, alarm{name: "rejected-by-aws", metric: math(5, "FILL(m0,0)-FILL(m1,0)-FILL(m2,0)",
			webhook.lambdaMetric("Url4xxCount"), own(settings.ClientErrorsMetric), webhook.lambdaMetric("Throttles")),
			times: 2, among: 12, notifyOK: true})
	}
	if conf.UsesToken() {
		all = append(all, alarm{name: "token-life", metric: over(1, maximum, own(settings.TokenShortfallMetric)),
			times: 3, missingBreaches: true, notifyOK: true})
	}
	if hours := int(conf.AlarmSilence.Hours()); hours > 0 {
		// With periods of an hour, an alarm looks back at most 7 days (AWS, "PutMetricAlarm"). A new
		// stack has no data at all, which FILL does not fill.
		all = append(all, alarm{name: "silence", metric: math(60, "FILL(m0,0)", own(settings.AcceptedMetric)),
			below: true, times: hours, missingBreaches: true, notifyOK: true})
	}
	if conf.UsesMTLS() {
		// Redrive writes the days of the truststore every minute, a webhook those of its own certificate. Both are
		// one metric, and the minimum is the lowest value of the period, which moves with each evaluation. A
		// shorter period would be back to OK before the next webhook (AWS, "Alarm evaluation window",
		// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation-window.html).
		all = append(all, alarm{name: "trust-expires", metric: over(24*60, minimum, own(settings.TrustDaysLeftMetric)),
			threshold: settings.MinTrustDays, below: true, notifyOK: true})
	}
	return all
}

// newAlarmTopic creates the topic that every alarm notifies.
func (p *Payhook) newAlarmTopic(scope constructs.Construct) awssns.Topic {
	topic := awssns.NewTopic(scope, jsii.String("Topic"), &awssns.TopicProps{
		DisplayName: jsii.String(cut(p.conf.StackName(), 100)), // AWS, "CreateTopic" in the SNS API reference
		EnforceSSL:  jsii.Bool(true),
		MasterKey:   p.key,
	})
	p.encrypted(topic, "CKV_AWS_26")
	// A custom policy replaces the default policy, which lets every service of the
	// account publish. Without this statement, CloudWatch could not publish alarms.
	topic.AddToResourcePolicy(statement("AlarmsOfThisStack", "cloudwatch.amazonaws.com", []string{"sns:Publish"},
		[]*string{topic.TopicArn()}, map[string]any{
			"StringEquals": map[string]any{"aws:SourceAccount": awscdk.Stack_Of(scope).Account()},
			"ArnLike":      map[string]any{"aws:SourceArn": p.arn("cloudwatch", "alarm:"+p.conf.StackName()+"-*")},
		}))
	return topic
}

// newAlarm creates an alarm that notifies the topic. The emulator has no alarms on metric math.
func (p *Payhook) newAlarm(scope constructs.Construct, a alarm) {
	if _, math := a.metric.(awscloudwatch.MathExpression); math && p.conf.Local() {
		return
	}
	props := &awscloudwatch.AlarmProps{
		AlarmName:          jsii.String(p.conf.StackName() + "-" + a.name),
		AlarmDescription:   jsii.String(section(texts, a.name)),
		Metric:             a.metric,
		Threshold:          jsii.Number(max(a.threshold, 1)),
		ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
		DatapointsToAlarm:  jsii.Number(max(a.times, 1)),
		EvaluationPeriods:  jsii.Number(max(a.among, a.times, 1)),
		TreatMissingData:   awscloudwatch.TreatMissingData_NOT_BREACHING,
	}
	if a.below {
		props.ComparisonOperator = awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD
	}
	if a.missingBreaches {
		props.TreatMissingData = awscloudwatch.TreatMissingData_BREACHING
	}
	created := awscloudwatch.NewAlarm(scope, jsii.String(a.name), props)
	if a.missingBreaches {
		// The periods of a new alarm have no data yet. The warm-up ends as soon as they have, and is at most two days
		// (https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-warm-up.html). The other alarms have
		// none: it also delays an alarm after each update.
		period := *a.metric.(interface{ Period() awscdk.Duration }).Period().ToMinutes(nil)
		created.Node().DefaultChild().(awscloudwatch.CfnAlarm).SetWarmUpConfiguration(
			&awscloudwatch.CfnAlarm_WarmUpConfigurationProperty{
				WarmUpPeriodDurationInMinutes: jsii.Number(min(period**props.EvaluationPeriods, 2*24*60))})
	}
	notify := awscloudwatchactions.NewSnsAction(p.alarmTopic)
	created.AddAlarmAction(notify)
	if a.notifyOK {
		created.AddOkAction(notify)
	}
	p.alarms[a.name] = created
	p.charts = append(p.charts, chart(a.name, &awscloudwatch.GraphWidgetProps{Left: &[]awscloudwatch.IMetric{a.metric},
		LeftAnnotations: &[]*awscloudwatch.HorizontalAnnotation{created.ToAnnotation()}}))
}

var chartWidth, chartHeight = jsii.Number(8), jsii.Number(6)

// newDashboard creates the dashboard and returns its name. Each alarm has a chart of its metric with the threshold;
// below are charts of the traffic. Call it after everything else is created.
//
// The name contains the Region, because the dashboards of an account are not of a Region:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Dashboards.html
func (p *Payhook) newDashboard() *string {
	scope := constructs.NewConstruct(p, jsii.String("Monitoring"))
	d := awscloudwatch.NewDashboard(scope, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{
		DashboardName:   jsii.String(p.conf.StackName() + "-" + *awscdk.Stack_Of(scope).Region()),
		DefaultInterval: awscdk.Duration_Hours(jsii.Number(3)),
	})
	alarms := p.Alarms()
	d.AddWidgets(heading("Alarms: their descriptions say what to do"))
	d.AddWidgets(append([]awscloudwatch.IWidget{
		awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
			Title: jsii.String("States"), Alarms: &alarms, Width: chartWidth, Height: chartHeight,
		})}, p.charts...)...)
	d.AddWidgets(heading("Traffic"))
	d.AddWidgets(p.traffic()...)
	return d.DashboardName()
}

func heading(title string) awscloudwatch.IWidget {
	return awscloudwatch.NewTextWidget(&awscloudwatch.TextWidgetProps{
		Markdown: jsii.String("## " + title), Background: awscloudwatch.TextWidgetBackground_TRANSPARENT,
		Width: jsii.Number(24), Height: jsii.Number(1),
	})
}

// chart returns a chart of metrics over time.
func chart(title string, props *awscloudwatch.GraphWidgetProps) awscloudwatch.IWidget {
	props.Title, props.Width, props.Height = &title, chartWidth, chartHeight
	props.LeftYAxis = &awscloudwatch.YAxisProps{Min: jsii.Number(0)}
	return awscloudwatch.NewGraphWidget(props)
}

// line returns the line of a metric in a chart.
func line(m awscloudwatch.Metric, statistic, label string) awscloudwatch.IMetric {
	return m.With(&awscloudwatch.MetricOptions{Statistic: jsii.String(statistic), Label: jsii.String(label)})
}

// traffic returns the charts of what raises no alarm by itself, or that explain an alarm.
func (p *Payhook) traffic() []awscloudwatch.IWidget {
	w, conf := p.webhook, p.conf
	own := func(m settings.Metric, label string) awscloudwatch.IMetric {
		return line(ownMetric(conf, m), sum, label)
	}
	answers := []awscloudwatch.IMetric{own(settings.AcceptedMetric, "2xx Accepted"),
		own(settings.DeviationsMetric, "2xx Deviations")}
	for _, m := range settings.Metrics() {
		if m.Status != 0 && (m != settings.SenderNotAllowedMetric || conf.AllowedNetworks != nil) {
			answers = append(answers, own(m, fmt.Sprint(m.Status, " ", m.Name)))
		}
	}
	runs := []awscloudwatch.IMetric{line(w.lambdaMetric("Errors"), sum, "webhook errors"),
		line(w.lambdaMetric("Throttles"), sum, "webhook throttles")}
	var queues []awscloudwatch.IMetric
	for i, s := range p.scheduled() {
		name := []string{"redrive", "token"}[i]
		runs = append(runs, line(s.lambdaMetric("Errors"), sum, name+" errors"),
			line(s.lambdaMetric("Throttles"), sum, name+" throttles"))
		queues = append(queues, line(messages(s.failures), maximum, name+" schedule"))
	}
	duration := w.lambdaMetric("Duration")
	lines := func(title string, all ...awscloudwatch.IMetric) awscloudwatch.IWidget {
		return chart(title, &awscloudwatch.GraphWidgetProps{Left: &all})
	}
	charts := []awscloudwatch.IWidget{
		lines("Webhooks by the answer of the function", answers...),
		lines("Requests that reached the URL, and answers of 4xx and 5xx by AWS or the function",
			append(w.requests(), own(settings.ClientErrorsMetric, "4xx of the function, and for a certificate"))...),
		lines("Milliseconds of a run of the webhook function", line(duration, "p50", "p50"),
			line(duration, "p99", "p99")),
		awscloudwatch.NewLogQueryWidget(&awscloudwatch.LogQueryWidgetProps{
			Title: jsii.String("Why webhooks were not answered 2xx"), QueryString: jsii.String(causesQuery),
			LogGroupNames: &[]*string{w.logs.LogGroupName()}, Width: chartWidth, Height: chartHeight,
		}),
		lines("Runs that failed, or did not start for lack of concurrency", runs...),
		lines("Dead-letter queues: runs that could not be started", queues...),
	}
	if w.ingress.certificate != nil {
		// ACM writes it twice a day, until the certificate expires:
		// https://docs.aws.amazon.com/acm/latest/userguide/cloudwatch-metrics.html
		days := over(24*60, minimum,
			newMetric("AWS/CertificateManager", "DaysToExpiry", "CertificateArn", w.ingress.certificate))
		// The last hours, which the dashboard shows, can be without a value.
		charts = append(charts, chart("Days until the certificate of the domain name expires",
			&awscloudwatch.GraphWidgetProps{Left: &[]awscloudwatch.IMetric{days}, Start: jsii.String("-P14D")}))
	}
	return charts
}

// requests returns the numbers of requests before the function:
// https://docs.aws.amazon.com/lambda/latest/dg/urls-monitoring.html
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
func (w webhook) requests() []awscloudwatch.IMetric {
	if w.ingress.api == nil {
		return []awscloudwatch.IMetric{line(w.lambdaMetric("UrlRequestCount"), sum, "requests"),
			line(w.lambdaMetric("Url4xxCount"), sum, "4xx"), line(w.lambdaMetric("Url5xxCount"), sum, "5xx")}
	}
	api := func(name, label string) awscloudwatch.IMetric {
		return line(newMetric("AWS/ApiGateway", name, "ApiId", w.ingress.api.Ref()), sum, label)
	}
	return []awscloudwatch.IMetric{api("Count", "requests"), api("4xx", "4xx"), api("5xx", "5xx")}
}

// causesQuery counts the outcomes of webhooks that were not accepted.
const causesQuery = `filter msg = "webhook" and status >= 400
| stats count(*) as webhooks by outcome, status
| sort webhooks desc`
