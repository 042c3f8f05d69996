package payhook

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

var chartWidth, chartHeight = jsii.Number(8), jsii.Number(6)

// newDashboard creates the dashboard and returns its name. Each alarm has a chart of its metric with the threshold;
// below are charts of the traffic. Call it after everything else is created.
//
// The name contains the Region, because the dashboards of an account are not of a Region:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Dashboards.html
func (p *Payhook) newDashboard() *string {
	scope := constructs.NewConstruct(p, jsii.String("Monitoring"))
	d := awscloudwatch.NewDashboard(scope, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{
		DashboardName:   jsii.String(p.conf.StackName + "-" + *awscdk.Stack_Of(scope).Region()),
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
		if m.Status != 0 && (m != settings.SourceNotAllowedMetric || conf.AllowedSources != nil) {
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
	if w.certificate != nil {
		// ACM writes it twice a day, until the certificate expires:
		// https://docs.aws.amazon.com/acm/latest/userguide/cloudwatch-metrics.html
		charts = append(charts, lines("Days until the certificate of the domain name expires", over(24*60, minimum,
			newMetric("AWS/CertificateManager", "DaysToExpiry", "CertificateArn", w.certificate))))
	}
	return charts
}

// requests returns the numbers of requests before the function:
// https://docs.aws.amazon.com/lambda/latest/dg/urls-monitoring.html
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
func (w webhook) requests() []awscloudwatch.IMetric {
	if w.api == nil {
		return []awscloudwatch.IMetric{line(w.lambdaMetric("UrlRequestCount"), sum, "requests"),
			line(w.lambdaMetric("Url4xxCount"), sum, "4xx"), line(w.lambdaMetric("Url5xxCount"), sum, "5xx")}
	}
	api := func(name, label string) awscloudwatch.IMetric {
		return line(newMetric("AWS/ApiGateway", name, "ApiId", w.api.Ref()), sum, label)
	}
	return []awscloudwatch.IMetric{api("Count", "requests"), api("4xx", "4xx"), api("5xx", "5xx")}
}

// causesQuery counts the outcomes of webhooks that were not accepted.
const causesQuery = `filter msg = "webhook" and status >= 400
| stats count(*) as webhooks by outcome, status
| sort webhooks desc`
