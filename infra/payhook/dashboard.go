package payhook

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// newDashboard creates the dashboard and returns its name. Call it after everything else is created.
//
// The name contains the Region, because the dashboards of an account are not of a Region:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Dashboards.html
func (p *Payhook) newDashboard() *string {
	scope := constructs.NewConstruct(p, jsii.String("Monitoring"))
	d := dashboard{p, awscloudwatch.NewDashboard(scope, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{
		DashboardName:   jsii.String(p.conf.StackName + "-" + *awscdk.Stack_Of(scope).Region()),
		DefaultInterval: awscdk.Duration_Hours(jsii.Number(3)),
	})}
	d.health()
	d.traffic()
	d.rejections()
	d.runs()
	return d.DashboardName()
}

// dashboard is the dashboard with the construct that it shows.
type dashboard struct {
	*Payhook
	awscloudwatch.Dashboard
}

// section adds a heading, and below it charts in rows of three.
func (d dashboard) section(title string, charts ...awscloudwatch.IWidget) {
	d.AddWidgets(text("## "+title, 24, 1))
	d.AddWidgets(charts...)
}

var chartWidth, chartHeight = jsii.Number(8), jsii.Number(6)

func text(markdown string, width, height int) awscloudwatch.IWidget {
	return awscloudwatch.NewTextWidget(&awscloudwatch.TextWidgetProps{
		Markdown: jsii.String(markdown), Background: awscloudwatch.TextWidgetBackground_TRANSPARENT,
		Width: jsii.Number(width), Height: jsii.Number(height),
	})
}

// explained returns a widget below the sentence that explains it, with a link to an alarm. The description of the alarm
// names the first action. The link has the form that AWS documents for links between dashboards:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/add_remove_text_dashboard.html
func (d dashboard) explained(alarm, sentence string, widget awscloudwatch.IWidget) awscloudwatch.IWidget {
	link := "[Alarm: " + alarm + "](#alarmsV2:alarm/" + d.conf.StackName + "-" + alarm + ")"
	return awscloudwatch.NewColumn(text(sentence+" "+link, 8, 2), widget)
}

// chart returns the chart of metrics over time, with a point every so many minutes, and its explanation.
func (d dashboard) chart(title string, minutes int, alarm, sentence string,
	lines ...awscloudwatch.IMetric) awscloudwatch.IWidget {
	return d.explained(alarm, sentence, awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
		Title: jsii.String(title), Left: &lines, Period: awscdk.Duration_Minutes(jsii.Number(minutes)),
		LeftYAxis: &awscloudwatch.YAxisProps{Min: jsii.Number(0)}, Width: chartWidth, Height: chartHeight,
	}))
}

func line(m awscloudwatch.Metric, statistic, label string) awscloudwatch.IMetric {
	return m.With(&awscloudwatch.MetricOptions{Statistic: jsii.String(statistic), Label: jsii.String(label)})
}

// own returns the line of a metric that the functions write.
func (d dashboard) own(m settings.Metric, statistic, label string) awscloudwatch.IMetric {
	return line(ownMetric(d.conf, m), statistic, label)
}

// sums returns the lines of metrics that the functions write, with the names of the metrics.
func (d dashboard) sums(metrics ...settings.Metric) (lines []awscloudwatch.IMetric) {
	for _, m := range metrics {
		lines = append(lines, d.own(m, sum, m.Name))
	}
	return lines
}

func (d dashboard) health() {
	alarms := d.Alarms()
	charts := []awscloudwatch.IWidget{
		awscloudwatch.NewColumn(
			text("The state of every alarm; its description says what to do. [Alarms](#alarmsV2:?search="+
				d.conf.StackName+"-)", 8, 2),
			awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
				Title: jsii.String("Alarms"), Alarms: &alarms, Width: chartWidth, Height: chartHeight,
			})),
		d.chart("Oldest pending event", 1, "oldest-pending",
			"Seconds since the oldest accepted event that is not on the bus was recorded; 0 is normal.",
			d.own(settings.OldestPendingMetric, maximum, "seconds")),
	}
	if d.conf.UsesToken() {
		charts = append(charts, d.chart("Access token", 1, "token-life",
			"Seconds by which the stored token expires too early; 0 is normal.",
			d.own(settings.TokenShortfallMetric, maximum, "too short by")))
	}
	var daysLeft []awscloudwatch.IMetric
	if d.conf.UsesMTLS() {
		daysLeft = append(daysLeft, d.own(settings.TrustDaysLeftMetric, minimum, "client certificate or CA"))
	}
	if d.webhook.certificate != nil {
		// ACM writes it twice a day, until the certificate expires:
		// https://docs.aws.amazon.com/acm/latest/userguide/cloudwatch-metrics.html
		daysLeft = append(daysLeft, line(newMetric("AWS/CertificateManager", "DaysToExpiry", "CertificateArn",
			d.webhook.certificate), minimum, "server certificate"))
	}
	if daysLeft != nil {
		charts = append(charts, d.explained("trust-expires",
			"Days until the first client certificate or CA expires, and until that of the domain name does.",
			awscloudwatch.NewSingleValueWidget(&awscloudwatch.SingleValueWidgetProps{
				Title: jsii.String("Days until certificates expire"), Metrics: &daysLeft,
				Period: awscdk.Duration_Days(jsii.Number(1)), Width: chartWidth, Height: chartHeight,
			})))
	}
	d.section("Health", charts...)
}

func (d dashboard) traffic() {
	answers := []awscloudwatch.IMetric{d.own(settings.AcceptedMetric, sum, "2xx "+settings.AcceptedMetric.Name)}
	for _, m := range settings.Metrics() {
		if m.Status != 0 && (m != settings.SourceNotAllowedMetric || d.conf.AllowedSources != nil) {
			answers = append(answers, d.own(m, sum, fmt.Sprint(m.Status, " ", m.Name)))
		}
	}
	duration := d.webhook.lambdaMetric("Duration")
	d.section("Traffic",
		d.chart("Webhooks by answer", 5, "refused",
			"Webhooks by the function's answer: the status, and the metric that counts it.", answers...),
		d.chart("Requests as AWS counts them", 5, "rejected-by-aws",
			"Requests that reached the URL, and those that were answered 4xx or 5xx by AWS or the function.",
			d.requests()...),
		d.chart("Latency", 5, "webhook-failed",
			"Milliseconds of a run of the webhook function, as Lambda measures them.",
			line(duration, "p50", "p50"), line(duration, "p99", "p99")))
}

// requests returns the numbers of requests before the function:
// https://docs.aws.amazon.com/lambda/latest/dg/urls-monitoring.html
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
func (d dashboard) requests() []awscloudwatch.IMetric {
	w, own := d.webhook, d.own(settings.ClientErrorsMetric, sum, "4xx of the function, and for a certificate")
	if w.api == nil {
		return []awscloudwatch.IMetric{line(w.lambdaMetric("UrlRequestCount"), sum, "requests"),
			line(w.lambdaMetric("Url4xxCount"), sum, "4xx"), line(w.lambdaMetric("Url5xxCount"), sum, "5xx"), own}
	}
	api := func(name, label string) awscloudwatch.IMetric {
		return line(newMetric("AWS/ApiGateway", name, "ApiId", w.api.Ref()), sum, label)
	}
	return []awscloudwatch.IMetric{api("Count", "requests"), api("4xx", "4xx"), api("5xx", "5xx"), own,
		d.own(settings.NotInvokedMetric, sum, settings.NotInvokedMetric.Name)}
}

func (d dashboard) rejections() {
	d.section("Rejections",
		d.explained("refused", "Why webhooks were not answered 2xx, with the number of each outcome.",
			awscloudwatch.NewLogQueryWidget(&awscloudwatch.LogQueryWidgetProps{
				Title: jsii.String("Causes"), QueryString: jsii.String(causesQuery),
				LogGroupNames: &[]*string{d.webhook.logs.LogGroupName()}, Width: chartWidth, Height: chartHeight,
			})),
		d.chart(
			"Authentic, with a problem",
			5,
			"parked",
			"Authentic webhooks that could not be stored, what is parked, events with two contents, and webhooks "+
				"with a value of another type, which are published.",
			d.sums(
				settings.NotStoredMetric,
				settings.ParkedMetric,
				settings.ConflictsMetric,
				settings.DeviationsMetric,
			)...),
		d.chart("Keys", 5, "key-unavailable", "Webhooks whose key is stale, withdrawn, or not available.",
			d.sums(settings.KeyStaleMetric, settings.KeyWithdrawnMetric, settings.KeyUnavailableMetric)...))
}

func (d dashboard) runs() {
	var failed []awscloudwatch.IMetric
	var queues []awscloudwatch.IMetric
	add := func(name string, f function) {
		failed = append(failed, line(f.lambdaMetric("Errors"), sum, name+" errors"),
			line(f.lambdaMetric("Throttles"), sum, name+" throttles"))
	}
	add("webhook", d.webhook.function)
	for i, s := range d.scheduled() {
		name := []string{"redrive", "token"}[i]
		add(name, s.function)
		queues = append(queues, line(messages(s.failures), maximum, name+" schedule"))
	}
	failed = append(failed, d.own(settings.BusMissingMetric, sum, "no bus"))
	if d.busFailures != nil {
		queues = append(queues, line(messages(d.busFailures), maximum, "bus"))
	}
	d.section("Runs",
		d.chart("Failed runs", 5, "webhook-failed",
			"Runs of the functions that failed, or did not start for lack of concurrency.", failed...),
		d.chart("Dead-letter queues", 5, "oldest-pending",
			"Messages about runs that could not be started, and events that the bus could not encrypt.", queues...))
}

// causesQuery counts the outcomes of webhooks that were not accepted.
const causesQuery = `filter msg = "webhook" and status >= 400
| stats count(*) as webhooks by outcome, status
| sort webhooks desc`
