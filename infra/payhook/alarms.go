package payhook

import (
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// alarm is a CloudWatch alarm for a problem that needs a person. It watches one metric, so that its cause is clear.
type alarm struct {
	name        string // without the stack's name
	description string // the problem and its consequence
	action      string // the first action to take
	// metric has a statistic and a period. CloudWatch looks further back than the periods if data is
	// missing, unless FILL in an expression fills it (AWS, "Configuring how CloudWatch alarms treat missing data").
	metric awscloudwatch.IMetric
	// threshold is the value that raises the alarm when it is reached.
	threshold int
	// below means that values less than the threshold raise the alarm instead.
	below bool
	// The alarm is raised if the threshold is reached in times of the last among
	// periods. times is 1 if it is 0; among is times if it is 0.
	times, among int
	// missingBreaches means that a period without data is treated as breaching.
	// Otherwise it is treated as not breaching.
	missingBreaches bool
	// notifyOK means that the topic is also notified when the alarm returns to OK. It
	// is false if this does not mean that the problem is solved.
	notifyOK bool
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
func ownMetric(conf settings.Deployment, m settings.Metric) awscloudwatch.Metric {
	return newMetric(settings.MetricNamespace, m.Name, settings.MetricDimension, jsii.String(conf.StackName))
}

// lambdaMetric returns a metric that Lambda writes for the function. With only the dimension FunctionName, it covers
// all versions and aliases (AWS, "Viewing metrics for Lambda functions" in the Lambda developer guide).
func (f function) lambdaMetric(name string) awscloudwatch.Metric {
	return f.Metric(jsii.String(name), nil)
}

// messages returns the metric of the number of messages in a queue.
func messages(queue awssqs.Queue) awscloudwatch.Metric {
	return queue.MetricApproximateNumberOfMessagesVisible(nil)
}

const (
	sum     = "Sum"
	maximum = "Maximum"
	minimum = "Minimum"
)

// newAlarms creates every alarm, and the topic that they notify unless it is given.
//
// The policy of a given topic is not changed: the default policy lets CloudWatch publish
// (AWS, "Notifying users on alarm changes" in the CloudWatch User Guide).
//
// A problem that causes a loss or a delay until a person acts raises its alarm at the first occurrence. A problem that
// the next run or retry can solve raises its alarm when it persists. A missing count is treated as not breaching,
// because functions write counts that are not 0. So no alarm on a count needs consecutive periods: CloudWatch can look
// further back when data is missing (AWS, "Configuring how CloudWatch alarms treat missing data",
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html).
//
// The two alarms on metrics that every run of a schedule writes treat missing data as breaching: oldest-pending and
// token-life. So they are raised if a run is not started, is throttled, fails, or cannot read its data, as soon as no
// older data is in the range that CloudWatch evaluates.
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

// refused is the number of 4xx answers within 15 minutes that raises an alarm. A wrong setting or another key rejects
// every webhook, which reaches it soon; a few requests of strangers, as every public URL gets, do not.
const refused = 10

func alarms(conf settings.Deployment, webhook webhook) []alarm {
	all := []alarm{
		// Webhooks that are not accepted.
		{name: "not-stored", metric: over(5, sum, ownMetric(conf, settings.NotStoredMetric)), threshold: 1,
			notifyOK: true,
			description: "Authentic webhooks were answered 503: the ledger, the parking bucket or the evidence " +
				"bucket could not be written. They are lost unless the service sends them again.",
			action: "Look up cause (`payhook logs --not-accepted --since 24h`). After the fix, ask the service to " +
				"send what the list still has again. `payhook event ID` shows whether an event has arrived."},
		{name: "parked", metric: over(5, sum, ownMetric(conf, settings.ParkedMetric)), threshold: 1,
			description: "Accepted webhooks or events are parked: they have no valid identity, EventBridge is known " +
				"to reject them, or redrive failed 20 times. They are published only if you replay them.",
			action: "Look up the cause (`payhook parked show NAME`). If it is on your side, fix it, deploy, and " +
				"replay (`payhook replay --all`). Otherwise send the service deliveryId and cause, and dismiss what " +
				"they sent again correctly (`payhook dismiss`)."},
		{name: "conflicts", metric: over(5, sum, ownMetric(conf, settings.ConflictsMetric)), threshold: 1,
			description: "An eventId was received again with other content. Only the first content is published.",
			action: "Compare both (`payhook parked show NAME`), and ask the service which is right before a payment " +
				"is made or booked. Then `payhook replay NAME` with `--version first` or `--version parked`."},
		{name: "rejected-by-aws", metric: over(5, sum, ownMetric(conf, settings.NotInvokedMetric)), threshold: 1,
			notifyOK: true,
			description: "AWS answered webhooks without running the function: they are too large for Lambda (413) " +
				"or, with a domain name, were throttled (429), or API Gateway may not invoke the function (500). " +
				"They are lost unless the service sends them again.",
			action: "With a domain name, find the lines of the access log (log group of Endpoint/AccessLog) whose " +
				"lambdaStatus is not 200 and whose status is neither 403 nor 404. Otherwise, ask the service for " +
				"the status. 413: agree on the size in the output SubscriptionDetails. 429: raise " +
				"webhookConcurrency, or the throttling of the API's stage (100 a second). 500: the policy of the " +
				"function's alias live must name this API. Then have the webhooks sent again."},
		// A failed run can lose a webhook, so the first one raises the alarm. If Lambda has sent one of the metrics
		// only, the other counts as 0. FILL could hide what arrives late in the last period
		// (https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html).
		{name: "webhook-failed", metric: math(5, "m0+m1", webhook.lambdaMetric("Errors"),
			webhook.lambdaMetric("Throttles")), threshold: 1, notifyOK: true,
			description: "The webhook function fails, is killed, reaches its timeout, or is throttled by Lambda. " +
				"The webhook is lost unless the service sends it again.",
			action: "If its Throttles are not 0, raise webhookConcurrency if it is set, or the account's " +
				"concurrency quota. Otherwise read its last lines, with Duration and memory in REPORT (`payhook " +
				"logs webhook --since 1h --all`). `payhook logs --not-accepted --since 24h` lists the webhooks."},
		// A percentage would be raised by a single request at night, and would not be
		// raised for a service that sends few webhooks. A count per time avoids both.
		{name: "refused", metric: over(15, sum, ownMetric(conf, settings.ClientErrorsMetric)),
			threshold: refused,
			description: "Many webhooks were answered 4xx: a setting does not match the service, its key, " +
				"certificate or addresses changed, or someone sends forged webhooks.",
			action: "Compare outcome (`payhook logs --not-accepted --since 24h`). 401: if few webhooks are accepted " +
				"and nearly all others have one outcome, ask the service what changed. If `payhook keys ID` shows " +
				"that they return another key, drop the old one (`payhook keys ID --drop`). Otherwise the webhooks " +
				"are forged and have no effect. 403: compare cause with the service's addresses, and correct " +
				"allowedSources; with mTLS and no line, compare the service's certificate with the truststore " +
				"(`payhook keys`) and rotate it (infra/README, \"Rotation\"). 400: see cause. 405: Payhook accepts " +
				"POST, PUT and PATCH. 422: see parked. Then replay what was captured (`payhook replay NAME --reason " +
				"TEXT`), and have the rest sent again."},
		{name: "key-unavailable", metric: over(5, sum, ownMetric(conf, settings.KeyUnavailableMetric)),
			threshold: 1, notifyOK: true,
			description: "Webhooks were answered 503: their key is not cached and could not be fetched, because the " +
				"key endpoint fails or more than 60 unknown key ids a minute arrived. They are lost unless the " +
				"service sends them again.",
			action: "Compare outcome (`payhook logs --not-accepted --since 24h`). key-unavailable: if `payhook keys " +
				"ID` shows an error, contact the service; otherwise check keysAuth. key-out-of-budget: if the ids " +
				"are the service's, ask why it has so many; otherwise someone invents them, and cached keys are not " +
				"affected."},
		{name: "key-stale", metric: over(5, sum, ownMetric(conf, settings.KeyStaleMetric)), threshold: 1,
			times: 3, among: 12, notifyOK: true,
			description: "The key endpoint does not answer, and stale keys are used. Webhooks are rejected when " +
				"these reach keyMaxAge, or if the key changes.",
			action: "As for key-unavailable. `payhook keys ID` shows until when a key is used."},
		// Without notifyOK: the count also becomes 0 when the key is not used any more.
		{name: "key-withdrawn", metric: over(5, sum, ownMetric(conf, settings.KeyWithdrawnMetric)),
			threshold: 1,
			description: "The service no longer returns a key that webhooks still use. They are accepted until it " +
				"has reported the key as unknown for 5 minutes, and are then answered 401.",
			action: "Ask the service at once whether they withdrew the key. Its keyId is in the webhook function's " +
				"log where KeyWithdrawn is 1. If they did not, their endpoint must return it again within 5 minutes " +
				"of the time that `payhook keys ID` shows, and they must send the rejected webhooks again. If they " +
				"did, they must stop signing with it; to reject it now, add it to revokedKeys and deploy."},
		// Events that are accepted and do not reach the bus. An event is pending until its receiver publishes it, or
		// until the run of redrive after the receiver's deadline and the grace: 2 minutes by default. An event that is
		// pending for four runs longer belongs to a backlog, or fails and is postponed. The alarm needs 5 consecutive
		// periods, because a run can start or write late.
		{name: "oldest-pending", metric: over(1, maximum, ownMetric(conf, settings.OldestPendingMetric)),
			threshold: int((conf.WebhookTimeout + settings.RedriveGrace + 4*time.Minute).Seconds()),
			times:     5, among: 5, missingBreaches: true, notifyOK: true,
			description: "An accepted event is not on the bus after several minutes. The alarm is also raised for a " +
				"few minutes after the first deployment.",
			action: "Run `payhook status`. If events fail, check EventBridge and the quota of PutEvents, and see " +
				"bus-missing. Otherwise redrive does not run or cannot read the ledger. " + stopped("redrive") +
				"Then run it (runbook, \"Run a function\")."},
		// Without notifyOK: what was lost meanwhile is not back.
		{name: "bus-missing", metric: over(5, sum, ownMetric(conf, settings.BusMissingMetric)), threshold: 1,
			description: "The bus does not exist. Redrive publishes nothing, and EventBridge answers the webhook " +
				"function as if it existed: events are lost until it does.",
			action: "Create it now: `aws events create-event-bus --name NAME` with the output EventBusName, or " +
				"deploy the right bus if a wrong one was given. Have consumers add their rules; what is pending is " +
				"then published. What was accepted meanwhile is lost: take it from the evidence or ask the service " +
				"for it, and put it on the bus yourself, because a repeated webhook is a duplicate. Then replace " +
				"the stack (runbook, \"Replace a stack\"): the policy and the archive of the bus are gone."},
	}
	if conf.UsesToken() {
		all = append(all, alarm{name: "token-life",
			metric: over(1, maximum, ownMetric(conf, settings.TokenShortfallMetric)), threshold: 1, times: 3, among: 3,
			missingBreaches: true, notifyOK: true,
			description: "The access token was not refreshed in time, or the token function does not run. Calls of " +
				"the service fail once the token has expired. The alarm is also raised until the first token is " +
				"stored.",
			action: "Before the first token, store the client credentials. Later: " + stopped("token") +
				"With status and oauthError, check the client credentials with the service."})
	}

	if hours := int(conf.AlarmSilence.Hours()); hours > 0 {
		// With periods of an hour, an alarm looks back at most 7 days (AWS, "PutMetricAlarm"). A new
		// deployment has no data at all, which FILL does not fill.
		all = append(all, alarm{name: "silence",
			metric:    math(60, "FILL(m0,0)", ownMetric(conf, settings.AcceptedMetric)),
			threshold: 1, below: true, times: hours, among: hours, missingBreaches: true,
			notifyOK: true,
			description: "No webhook was accepted for alarmSilence: the service does not send, sends to another " +
				"URL, or nothing that it sends is accepted.",
			action: "Look at the other alarms. If no webhooks arrive, ask the service whether the subscription is " +
				"active and which answers they get."})
	}
	if conf.UsesMTLS() {
		// Redrive writes the days of the truststore every minute, a webhook those of its own certificate. Both are
		// one metric, and the minimum is the lowest value of the period, which moves with each evaluation. A
		// shorter period would be back to OK before the next webhook (AWS, "Alarm evaluation window",
		// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation-window.html).
		all = append(all, alarm{name: "trust-expires",
			metric:    over(24*60, minimum, ownMetric(conf, settings.TrustDaysLeftMetric)),
			threshold: settings.MinTrustDays, below: true, notifyOK: true,
			description: "A CA of the truststore, or a client certificate of the last day or a CA of its chain, " +
				"expires in less than 30 days. Webhooks are then rejected.",
			action: "Find it (`payhook keys` has the CAs, `payhook logs webhook --since 24h` the others), ask the " +
				"service for its successor, and rotate it (infra/README, \"Rotation\")."})
	}

	if webhook.api == nil {
		// CloudWatch receives the function's counts later than those of Lambda, so the newest period can differ without
		// a cause. With two of twelve periods, the older one is complete.
		rejected := &all[slices.IndexFunc(all, func(a alarm) bool { return a.name == "rejected-by-aws" })]
		rejected.times, rejected.among = 2, 12
		rejected.metric = math(5, "FILL(m0,0)-FILL(m1,0)-FILL(m2,0)", webhook.lambdaMetric("Url4xxCount"),
			ownMetric(conf, settings.ClientErrorsMetric), webhook.lambdaMetric("Throttles"))
	}
	return all
}

// stopped returns the steps to find out why a scheduled function does not work.
func stopped(function string) string {
	return "Look up the last cause (`payhook logs " + function + " --since 1h`). If there is none, read " +
		"ERROR_MESSAGE in its schedule's dead-letter queue, and look at the function's Throttles."
}

// newAlarmTopic creates the topic that every alarm notifies. It accepts messages only
// over TLS. Without a key, it is not encrypted at rest: CloudWatch can publish to an encrypted topic
// only with a customer managed key, and alarms contain no payment data.
func (p *Payhook) newAlarmTopic(scope constructs.Construct) awssns.Topic {
	topic := awssns.NewTopic(scope, jsii.String("Topic"), &awssns.TopicProps{
		DisplayName: jsii.String(cut(p.conf.StackName, 100)), // AWS, "CreateTopic" in the SNS API reference
		EnforceSSL:  jsii.Bool(true),
		MasterKey:   p.key,
	})
	p.stores(topic)
	p.explainUnlessEncrypted(topic, "CKV_AWS_26", "Alarms hold nothing of a payment, and CloudWatch can publish to an "+
		"encrypted topic only with a customer managed key: see the setting encryption.")
	// A custom policy replaces the default policy, which lets every service of the
	// account publish. Without this statement, CloudWatch could not publish alarms.
	stack := awscdk.Stack_Of(scope)
	topic.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid:        jsii.String("AlarmsOfThisStack"),
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("cloudwatch.amazonaws.com"), nil)},
		Actions:    jsii.Strings("sns:Publish"),
		Resources:  &[]*string{topic.TopicArn()},
		Conditions: &map[string]any{
			"StringEquals": map[string]any{"aws:SourceAccount": stack.Account()},
			"ArnLike": map[string]any{"aws:SourceArn": stack.FormatArn(&awscdk.ArnComponents{
				Service: jsii.String("cloudwatch"), Resource: jsii.String("alarm"),
				ResourceName: jsii.String(p.conf.StackName + "-*"), ArnFormat: awscdk.ArnFormat_COLON_RESOURCE_NAME,
			})},
		},
	}))
	return topic
}

// newAlarm creates an alarm that notifies the topic. The emulator has no alarms on metric math.
func (p *Payhook) newAlarm(scope constructs.Construct, a alarm) {
	if _, math := a.metric.(awscloudwatch.MathExpression); math && p.conf.Local {
		return
	}
	props := &awscloudwatch.AlarmProps{
		AlarmName:          jsii.String(p.conf.StackName + "-" + a.name),
		AlarmDescription:   jsii.String(a.description + settings.WhatToDo + a.action),
		Metric:             a.metric,
		Threshold:          jsii.Number(a.threshold),
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
	notify := awscloudwatchactions.NewSnsAction(p.alarmTopic)
	created.AddAlarmAction(notify)
	if a.notifyOK {
		created.AddOkAction(notify)
	}
	p.alarms[a.name] = created
}
