package payhook

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// section is a part of the dashboard with a heading.
type section struct {
	title  string
	charts []chart
}

// chart is a widget with the sentence that explains it. It shows metrics, the result of
// a query, or, if it has neither, the state of every alarm.
type chart struct {
	title    string
	sentence string
	alarm    string // that the sentence links to; "": all

	series  []series
	minutes int    // the length of a period
	view    string // timeSeries, singleValue, table
	stacked bool
	query   logQuery
}

// series is one line of a chart.
type series struct {
	metric
	statistic string
	label     string // "": the name of the metric
}

// logQuery is a query of CloudWatch Logs Insights about the outcome lines of a function.
type logQuery struct {
	function function
	text     string
}

// widget is a widget of a dashboard:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
type widget struct {
	Type       string         `json:"type"`
	X          int            `json:"x"`
	Y          int            `json:"y"`
	Width      int            `json:"width"`
	Height     int            `json:"height"`
	Properties map[string]any `json:"properties"`
}

// The layout: three charts in a row of 24 columns, each below its sentence.
const (
	dashboardColumns = 24
	chartWidth       = 8
	headingHeight    = 1
	sentenceHeight   = 2
	chartHeight      = 6
)

// newMonitoring creates the dashboard and the saved queries, and returns the name of the dashboard. Call it after
// everything else is created.
func (p *Payhook) newMonitoring() *string {
	scope := constructs.NewConstruct(p, jsii.String("Monitoring"))
	p.newQueries(scope)
	return p.newDashboard(scope)
}

// newDashboard creates the dashboard and returns its name.
//
// The name contains the Region, because the dashboards of an account are not of a Region:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Dashboards.html
func (p *Payhook) newDashboard(scope constructs.Construct) *string {
	stack := awscdk.Stack_Of(scope)
	name := jsii.String(p.conf.StackName + "-" + *stack.Region())
	body := struct {
		Start   string   `json:"start"`
		Widgets []widget `json:"widgets"`
	}{"-PT3H", p.layOut(p.sections())}
	awscloudwatch.NewCfnDashboard(scope, jsii.String("Dashboard"), &awscloudwatch.CfnDashboardProps{
		DashboardName: name,
		DashboardBody: stack.ToJsonString(plain(body), nil),
	})
	return name
}

// plain returns a value as maps and lists, which jsii can pass on.
func plain(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it consists of texts and numbers
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

// sections returns what the dashboard shows. A test checks that every metric of the
// functions is here.
func (p *Payhook) sections() []section {
	conf, webhook, redrive, token := p.conf, p.webhook, p.redrive, p.token
	sums := func(list ...names.Metric) (all []series) {
		for _, m := range list {
			all = append(all, series{ownMetric(conf, m), sum, ""})
		}
		return all
	}
	answers := chart{title: "Webhooks by answer", alarm: "refused", minutes: 5, stacked: true,
		sentence: "Webhooks by the function's answer: the status, and the metric that counts it.",
		series:   []series{{ownMetric(conf, names.AcceptedMetric), sum, "2xx " + names.AcceptedMetric.Name}}}
	for _, m := range names.Metrics() {
		if m.Status != 0 && (m != names.SourceNotAllowedMetric || conf.Webhook.AllowedSources != nil) {
			answers.series = append(answers.series, series{ownMetric(conf, m), sum, fmt.Sprint(m.Status, " ", m.Name)})
		}
	}
	return []section{
		{"Health", append([]chart{
			{title: "Alarms", sentence: "The state of every alarm; its description says what to do."},
			{title: "Oldest pending event", alarm: "oldest-pending", minutes: 1,
				sentence: "Seconds since the oldest accepted event that is not on the bus was recorded; 0 is normal.",
				series:   []series{{ownMetric(conf, names.OldestPendingMetric), maximum, "seconds"}}},
			{title: "Access token", alarm: "token-life", minutes: 1,
				sentence: "Seconds by which the stored token's life is less than callers need; 0 is normal.",
				series:   []series{{ownMetric(conf, names.TokenShortfallMetric), maximum, "too short by"}}},
		}, certificateCharts(conf, webhook)...)},
		{"Traffic", []chart{
			answers,
			{title: "Requests as AWS counts them", alarm: webhook.rejectedAlarm(), minutes: 5,
				sentence: "Requests that reached the URL, and those that were answered 4xx or 5xx by AWS or the " +
					"function.",
				series: webhook.requestSeries(conf)},
			{title: "Latency", minutes: 5, alarm: "webhook-errors",
				sentence: "Milliseconds of a run of the webhook function, as Lambda measures them.",
				series: []series{{webhook.lambdaMetric("Duration"), "p50", "p50"},
					{webhook.lambdaMetric("Duration"), "p99", "p99"}}},
		}},
		{"Rejections", []chart{
			{title: "Causes", view: "table", alarm: "refused", query: logQuery{webhook.function, causesQuery},
				sentence: "Why webhooks were not answered 2xx, with the number of each outcome."},
			{title: "Authentic, not published", alarm: "parked", minutes: 5,
				sentence: "Authentic webhooks that could not be stored, what is parked, and events with two contents.",
				series:   sums(names.NotStoredMetric, names.ParkedMetric, names.ConflictsMetric)},
			{title: "Keys", alarm: "key-unavailable", minutes: 5,
				sentence: "Webhooks whose key is stale, withdrawn, or not available.",
				series:   sums(names.KeyStaleMetric, names.KeyWithdrawnMetric, names.KeyUnavailableMetric)},
		}},
		{"Runs", []chart{
			{title: "Failed runs", alarm: "webhook-errors", minutes: 5,
				sentence: "Runs of the functions that failed, or did not start for lack of concurrency.",
				series: []series{{webhook.lambdaMetric("Errors"), sum, "webhook errors"},
					{webhook.lambdaMetric("Throttles"), sum, "webhook throttles"},
					{redrive.lambdaMetric("Errors"), sum, "redrive errors"},
					{redrive.lambdaMetric("Throttles"), sum, "redrive throttles"},
					{token.lambdaMetric("Errors"), sum, "token errors"},
					{token.lambdaMetric("Throttles"), sum, "token throttles"}}},
			{title: "Token", alarm: "token-failed", minutes: 5,
				sentence: "Runs that could not store a new token, or store tokens too often for the secret.",
				series:   sums(names.TokenFailedMetric, names.TokenWritesTooOftenMetric)},
			{title: "Dead-letter queues", alarm: "oldest-pending", minutes: 5,
				sentence: "Messages about runs that could not be started, and events that the bus could not encrypt.",
				series:   p.deadLetters()},
		}},
	}
}

// certificateCharts returns the chart of the days until certificates expire, if there
// are any that can expire. A function URL has only AWS's certificate.
func certificateCharts(conf settings.Deployment, webhook webhook) []chart {
	var all []series
	if conf.Webhook.UsesMTLS() {
		all = append(all, series{ownMetric(conf, names.TrustDaysLeftMetric), minimum, "client certificate or CA"})
	}
	if webhook.certificate != nil {
		// ACM writes it twice a day, until the certificate expires:
		// https://docs.aws.amazon.com/acm/latest/userguide/cloudwatch-metrics.html
		all = append(all, series{metric{"AWS/CertificateManager", "DaysToExpiry", jsii.String("CertificateArn"),
			webhook.certificate}, minimum, "server certificate"})
	}
	if all == nil {
		return nil
	}
	return []chart{{title: "Days until certificates expire", alarm: "trust-expires", minutes: 24 * 60,
		view: "singleValue", series: all,
		sentence: "Days until the first client certificate or CA expires, and until that of the domain name does."}}
}

// deadLetters returns the length of every dead-letter queue.
func (p *Payhook) deadLetters() []series {
	all := []series{{queueLength(p.redrive.failures), maximum, "redrive schedule"},
		{queueLength(p.token.failures), maximum, "token schedule"}}
	if p.busFailures != nil {
		all = append(all, series{queueLength(p.busFailures), maximum, "bus"})
	}
	return all
}

// requestSeries returns the numbers of requests before the function:
// https://docs.aws.amazon.com/lambda/latest/dg/urls-monitoring.html
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
func (w webhook) requestSeries(conf settings.Deployment) []series {
	own := series{ownMetric(conf, names.ClientErrorsMetric), sum, "4xx of the function"}
	if w.api == nil {
		return []series{{w.lambdaMetric("UrlRequestCount"), sum, "requests"},
			{w.lambdaMetric("Url4xxCount"), sum, "4xx"}, {w.lambdaMetric("Url5xxCount"), sum, "5xx"}, own}
	}
	all := []series{{w.apiMetric("Count"), sum, "requests"}, {w.apiMetric("4xx"), sum, "4xx"},
		{w.apiMetric("5xx"), sum, "5xx"}, own, {w.requests(notInvokedMetric), sum, ""}}
	if conf.Webhook.UsesMTLS() {
		all = append(all, series{w.requests(forbiddenMetric), sum, ""})
	}
	return all
}

// rejectedAlarm returns the name of the alarm of rejectedByAWS.
func (w webhook) rejectedAlarm() string {
	if w.api != nil {
		return "rejected-by-api"
	}
	return "rejected-by-aws"
}

// apiMetric returns a metric that API Gateway writes for the API.
func (w webhook) apiMetric(name string) metric {
	return metric{"AWS/ApiGateway", name, jsii.String("ApiId"), w.api.Ref()}
}

// steps are the members of ms in the outcome line of a webhook. A step of less than half
// a millisecond has none.
var steps = []string{"authenticate", "decode", "record", "publish", "mark"}

// slowestQuery lists webhooks by the sum of their steps.
func slowestQuery() string {
	var terms, fields []string
	for _, step := range steps {
		terms, fields = append(terms, "coalesce(ms."+step+", 0)"), append(fields, "ms."+step)
	}
	return "fields @timestamp, deliveryId, " + strings.Join(fields, ", ") + ", " + strings.Join(terms, " + ") +
		" as totalMs\n| filter msg = \"webhook\"\n| sort totalMs desc\n| limit 100"
}

// causesQuery counts the outcomes of webhooks that were not accepted.
const causesQuery = `filter msg = "webhook" and status >= 400
| stats count(*) as webhooks by outcome, status
| sort webhooks desc`

// layOut places the sections below each other.
func (p *Payhook) layOut(all []section) (widgets []widget) {
	y := 0
	text := func(x, width, height int, markdown string) {
		widgets = append(widgets, widget{"text", x, y, width, height,
			map[string]any{"markdown": markdown, "background": "transparent"}})
	}
	for _, s := range all {
		text(0, dashboardColumns, headingHeight, "## "+s.title)
		y += headingHeight
		for i, c := range s.charts {
			x := i % (dashboardColumns / chartWidth) * chartWidth
			if x == 0 && i > 0 {
				y += sentenceHeight + chartHeight
			}
			text(x, chartWidth, sentenceHeight, c.sentence+" "+alarmLink(p.conf, c.alarm))
			kind, properties := p.properties(c)
			widgets = append(widgets, widget{kind, x, y + sentenceHeight, chartWidth, chartHeight, properties})
		}
		y += sentenceHeight + chartHeight
	}
	return widgets
}

// properties returns the type of the widget and its properties.
func (p *Payhook) properties(c chart) (string, map[string]any) {
	stack := awscdk.Stack_Of(p)
	shown := map[string]any{"title": c.title, "region": stack.Region()}
	switch {
	case c.query.text != "":
		shown["query"] = "SOURCE '" + *c.query.function.logs.LogGroupName() + "' | " + c.query.text
		shown["view"] = c.view
		return "log", shown
	case c.series == nil:
		// Names, not references: the emulator does not have every alarm.
		var arns []string
		for _, name := range sortedKeys(p.alarms) {
			arns = append(arns, alarmARN(stack, p.conf, name))
		}
		return "alarm", map[string]any{"title": c.title, "alarms": arns}
	}
	var metrics [][]any
	for _, s := range c.series {
		options := map[string]any{"stat": s.statistic}
		if s.label != "" {
			options["label"] = s.label
		}
		metrics = append(metrics, []any{s.namespace, s.name, s.dimension, s.value, options})
	}
	shown["metrics"], shown["period"], shown["view"] = metrics, 60*c.minutes, "timeSeries"
	if c.view != "" {
		shown["view"] = c.view
	}
	if shown["view"] == "timeSeries" {
		shown["stacked"] = c.stacked
		shown["yAxis"] = map[string]any{"left": map[string]any{"min": 0}}
	}
	return "metric", shown
}

// alarmLink returns a link, in Markdown, to an alarm in the console, whose description names
// the first action, or to all alarms. It has the form that AWS documents for links between
// dashboards:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/add_remove_text_dashboard.html
func alarmLink(conf settings.Deployment, alarm string) string {
	if alarm == "" {
		return "[Alarms](#alarmsV2:?search=" + conf.StackName + "-)"
	}
	return "[Alarm: " + alarm + "](#alarmsV2:alarm/" + conf.StackName + "-" + alarm + ")"
}

func alarmARN(stack awscdk.Stack, conf settings.Deployment, name string) string {
	return *stack.FormatArn(&awscdk.ArnComponents{
		Service: jsii.String("cloudwatch"), Resource: jsii.String("alarm"),
		ResourceName: jsii.String(conf.StackName + "-" + name), ArnFormat: awscdk.ArnFormat_COLON_RESOURCE_NAME,
	})
}

// newQueries saves queries of CloudWatch Logs Insights, which cost nothing until
// somebody runs one. They are in the folder of the stack's name.
func (p *Payhook) newQueries(scope constructs.Construct) {
	scope = constructs.NewConstruct(scope, jsii.String("Queries"))
	for _, q := range []struct {
		name string
		logQuery
	}{
		{"Webhooks", logQuery{p.webhook.function,
			`fields @timestamp, outcome, status, deliveryId, cause, keyId
| filter msg = "webhook"
| sort @timestamp desc
| limit 1000`}},
		{"Rejections by cause", logQuery{p.webhook.function, causesQuery}},
		{"Webhooks answered 503", logQuery{p.webhook.function,
			`fields @timestamp, outcome, deliveryId, cause, keyId
| filter msg = "webhook" and status = 503
| sort @timestamp desc`}},
		{"Events", logQuery{p.webhook.function, `filter msg = "webhook"
| stats sum(recorded) as new, sum(duplicates) as again, sum(Conflicts) as conflicts, sum(pending) as leftToRedrive,
    sum(claimed) as references by bin(5m)`}},
		{"Keys without the shared table", logQuery{p.webhook.function, `filter msg = "webhook" and keyTableFailed
| stats count(*) as webhooks by bin(5m)`}},
		{"Slowest webhooks", logQuery{p.webhook.function, slowestQuery()}},
		{"Key ids", logQuery{p.webhook.function, `filter msg = "webhook" and ispresent(keyId)
| stats count(*) as webhooks, latest(outcome) as lastOutcome by keyId, keySource
| sort webhooks desc`}},
		{"Runs of redrive that need attention", logQuery{p.redrive.function,
			`fields @timestamp, found, published, failed, Parked, left, OldestPending, cause
| filter msg = "redrive" and (ispresent(level) or found > 0)
| sort @timestamp desc`}},
		{"Runs of the token function that failed", logQuery{p.token.function,
			`fields @timestamp, outcome, cause, status, oauthError, remainingSeconds, warning
| filter msg = "token" and ispresent(level)
| sort @timestamp desc`}},
	} {
		awslogs.NewCfnQueryDefinition(scope, jsii.String(q.name), &awslogs.CfnQueryDefinitionProps{
			Name:          jsii.String(p.conf.StackName + "/" + q.name),
			QueryString:   jsii.String(q.text),
			LogGroupNames: &[]any{q.function.logs.LogGroupName()},
		})
	}
}
