package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// alarm tells a person of something that the code can't mend. It watches one
// plain metric: what each means is then plain as well, and so is why it rings.
type alarm struct {
	name  string // behind the stack's name
	means string
	step  string // the first one to take
	metric
	// minus are subtracted from the metric; the alarm is then on metric math. A
	// period without data counts as 0.
	minus     []metric
	statistic string
	minutes   int // of one period
	// threshold is the value that raises the alarm when it is reached.
	threshold int
	// below: the alarm is raised by values less than the threshold instead.
	below bool
	// times is in how many of the last among periods the threshold is reached; 1
	// and times stand for 0.
	times, among int
	// missed: a period without data counts like one that reaches the threshold.
	// Without it such a period counts for nothing.
	missed bool
	// ends: that it no longer rings is told, too. Left out where the matter is not
	// settled by nothing more of it happening.
	ends bool
}

// metric is where CloudWatch has a figure.
type metric struct {
	namespace, name  string
	dimension, value *string
}

// written is a metric that the function writes itself.
func (f function) written(name string) metric {
	return metric{names.MetricNamespace, name, jsii.String(names.MetricDimension), f.FunctionName()}
}

// counted is a metric that Lambda writes of the function. The dimension FunctionName
// alone stands for all versions and aliases (AWS, "Viewing metrics for Lambda
// functions" in the Lambda developer guide).
func (f function) counted(name string) metric {
	return metric{"AWS/Lambda", name, jsii.String("FunctionName"), f.FunctionName()}
}

// inQueue is how many messages wait in the queue.
func inQueue(queue awssqs.Queue) metric {
	return metric{"AWS/SQS", "ApproximateNumberOfMessagesVisible", jsii.String("QueueName"), queue.QueueName()}
}

const (
	sum     = "Sum"
	maximum = "Maximum"
	minimum = "Minimum"
)

// newAlarms makes every alarm, and the topic that tells of them. It returns the
// alarms by their names without the stack's.
//
// What is lost or held up without a person rings at the first of it. What the
// next run, or the next try, makes good rings when it goes on. A count that is
// missing is none, since functions write counts when they run; but where a
// function that does not run would do harm, missing figures ring.
func newAlarms(stack awscdk.Stack, conf settings.Deployment, webhook webhook, redrive scheduled, token token) (awssns.Topic, map[string]awscloudwatch.CfnAlarm) {
	scope := constructs.NewConstruct(stack, jsii.String("Alarms"))
	topic := newAlarmTopic(scope, conf)
	made := map[string]awscloudwatch.CfnAlarm{}
	for _, a := range alarms(conf, webhook, redrive, token) {
		made[a.name] = a.make(scope, conf, topic)
	}
	return topic, made
}

func alarms(conf settings.Deployment, webhook webhook, redrive scheduled, token token) []alarm {
	all := []alarm{
		// Webhooks that are not taken.
		{name: "not-stored", metric: webhook.written(names.NotStoredMetric), statistic: sum, minutes: 5, threshold: 1, ends: true,
			means: "Authentic webhooks were answered 503, as ledger or parking could not be written. Unless the service sends them again, their events are lost.",
			step:  "Look up cause in the webhook function's log (status 503); once it is mended, have the service's operator send again what has no later line with its deliveryId."},
		{name: "parked", metric: webhook.written(names.ParkedMetric), statistic: sum, minutes: 5, threshold: 1,
			means: "Authentic webhooks could not be used, or EventBridge is known to reject an event of one. They are parked whole.",
			step:  "Read reason and cause (`payhook parked list`, `payhook parked show`); mend that, or ask the service's operator, and let it go on (`payhook parked replay`)."},
		{name: "conflicts", metric: webhook.written(names.ConflictsMetric), statistic: sum, minutes: 5, threshold: 1,
			means: "An eventId came again with other content: of two payments that claim to be one, only the first was published.",
			step:  "Compare the parked delivery (`payhook parked show`) with what became of the first (`payhook event`), and ask the service's operator which is right before anything is paid or booked."},
		rejectedByAWS(webhook),
		// A proportion would ring for a single stranger at night, and would not for a
		// service that sends little: a count in a time does neither.
		{name: "unauthenticated", metric: webhook.written(names.UnauthenticatedMetric), statistic: sum, minutes: 15, threshold: conf.AlarmUnauthenticated,
			means: "Webhooks were refused with 401 more often than strangers explain: a setting is not what the service does, a key changed, or somebody forges.",
			step:  "Count outcome in the webhook function's log. All of one kind, and hardly any accepted: check the settings of that part of the proof with the service's operator. Beside accepted ones: somebody tries, in vain."},
		{name: "key-unavailable", metric: webhook.written(names.KeyUnavailableMetric), statistic: sum, minutes: 5, threshold: 1, ends: true,
			means: "Webhooks were answered 503, as their key is in no cache and the service did not answer for it. Unless it sends them again, they are lost.",
			step:  "Fetch {baseUrl}/v1/keys/{keyId} for a keyId in the webhook function's log; if that fails, call the service's operator; if it works, compare keysAuth and keyTimeout."},
		{name: "key-stale", metric: webhook.written(names.KeyStaleMetric), statistic: sum, minutes: 5, threshold: 1, times: 3, among: 12, ends: true,
			means: "The service does not answer for its keys, and cached ones are used instead. Webhooks are refused once these reach keyMaxAge, or if the key changes.",
			step:  "As for key-unavailable, with keyMaxAge less keyFreshness at most to do it in."},
		// It stays silent when it ends: the count stops whether the service gives the
		// key again or nobody uses it any more.
		{name: "key-withdrawn", metric: webhook.written(names.KeyWithdrawnMetric), statistic: sum, minutes: 5, threshold: 1,
			means: "The service gave a key and does not any more, and webhooks still use it. They are accepted until the service has called the key unknown for keyUnknownGrace, and refused with 401 from then on.",
			step:  "Look at the key (`payhook key ID`, with a keyId of the webhook function's log where KeyWithdrawn is 1) and ask the service's operator at once whether it was withdrawn. If not, {baseUrl}/v1/keys/{keyId} must work again; what was refused meanwhile must be sent again. If so, they must stop signing with it."},
		{name: "key-budget", metric: webhook.written(names.KeyOutOfBudgetMetric), statistic: sum, minutes: 5, threshold: 1,
			means: "More key ids that are in no cache came than may be asked for in a minute: a flood of invented ones, or budgets that are too small.",
			step:  "Look at keyId in the webhook function's log. Many different ones: a flood; cached keys are not affected, new keys from known source addresses have keyMissReserve, and webhookConcurrency bounds what it costs. The service's own: raise keyMissBudget and keyMissReserve."},

		// Events that are taken and don't reach the bus.
		{name: "left-pending", metric: webhook.written(names.LeftPendingMetric), statistic: sum, minutes: 5, threshold: 1, times: 3, among: 3, ends: true,
			means: "For 15 minutes the webhook function has not got every event on the bus itself. They are stored, and redrive publishes them minutes late.",
			step:  "See whether EventBridge in this region has an outage or throttles PutEvents; ask AWS for a higher quota if it does."},
		{name: "redrive-failed", metric: redrive.written(names.RedriveFailedMetric), statistic: sum, minutes: 5, threshold: 1, times: 2, among: 3, ends: true,
			means: "Redrive can't get events published. They are stored and tried again, with growing pauses, redriveAttempts times before they are parked.",
			step:  "See what fails (`payhook pending`), and whether the bus exists and EventBridge in this region works."},
		{name: "redrive-parked", metric: redrive.written(names.RedriveParkedMetric), statistic: sum, minutes: 5, threshold: 1,
			means: "Events could not be published after redriveAttempts tries, or EventBridge is known to reject them. They are parked: they were accepted and reach nobody until they are replayed.",
			step:  "List them (`payhook parked list`, reason unpublishable); mend what keeps EventBridge from taking them, and let them go on (`payhook parked replay`)."},
		// An event is pending until its receiver publishes it, or until the run of
		// redrive after the receiver's deadline and the grace: 2 minutes by default.
		// What is pending for longer is a backlog that redrive does not finish, or an
		// event that fails and is postponed. 5 periods in a row, since a run may be
		// late, or write late.
		{name: "oldest-pending", metric: redrive.written(names.OldestPendingMetric), statistic: maximum, minutes: 1, threshold: oldestPending(conf), times: 5, among: 5, missed: true, ends: true,
			means: "An event that was accepted is not on the bus after several minutes: redrive does not run or does not keep up, or the event fails and is postponed. The alarm is raised for a few minutes after the first deployment as well.",
			step:  "See what fails or waits (`payhook pending`), and in the redrive function's log whether it runs every minute and why not (redrive-errors, redrive-throttles, redrive-schedule); if it runs and leaves work (RedriveLeft), raise redriveTimeout."},

		// The access token.
		{name: "token-life", metric: token.written(names.TokenShortfallMetric), statistic: maximum, minutes: 1, threshold: 1, times: 3, among: 3, missed: true, ends: true,
			means: "The stored access token expires before three more runs could replace it, or has expired, or the token function does not run. Calls of the payment service fail once it has expired. The alarm is also raised until the first token is stored.",
			step:  "Look up cause in the token function's log; before the first token, fill in the client credentials."},
		// Tokens that are stored more often than every 16 minutes are stored in each
		// period of 20 minutes. A person who refreshes by hand does not do so for an hour.
		{name: "token-quota", metric: token.written(names.TokenWritesTooOftenMetric), statistic: sum, minutes: 20, threshold: 1, times: 3, among: 3, ends: true,
			means: "Access tokens live less than 20 minutes, so that the secret gets more than 90 versions a day. When it has 100 of the last 24 hours, AWS refuses every new token, for most of a day.",
			step:  "Read warning in the token function's log: it says after how long the secret is full. Ask the service's operator for tokens of at least 20 minutes."},
		{name: "token-failed", metric: token.written(names.TokenFailedMetric), statistic: sum, minutes: 1, threshold: 1, times: 3, among: 3, ends: true,
			means: "The access token could not be refreshed three times in a row.",
			step:  "Look up cause, status and oauthError in the token function's log; check the client credentials with the service's operator."},
	}

	if conf.Webhook.UsesMTLS() {
		all = append(all, trustExpires(redrive), certificateForbidden(conf, webhook))
	}

	// A webhook can't be told that it will be made good: the first one rings. A
	// scheduled run is made good by the next one.
	for _, f := range []struct {
		name string
		function
		threshold int
		harm      string
		room      string // how it gets concurrency
	}{
		{"webhook", webhook.function, 1, "Unless the service sends its webhook again, it is lost.",
			"Raise webhookConcurrency where it is set, or the account's quota for concurrency."},
		{"redrive", redrive.function, 3, "What is pending waits for a run that succeeds.", roomForRuns},
		{"token", token.function, 3, "The access token is not refreshed by a run that fails.", roomForRuns},
	} {
		all = append(all,
			alarm{name: f.name + "-errors", metric: f.counted("Errors"), statistic: sum, minutes: 5, threshold: f.threshold, ends: true,
				means: "The " + f.name + " function fails, dies or runs into its timeout. " + f.harm,
				step:  "Look up the last lines of the " + f.name + " function's log, and Duration and memory in its REPORT lines."},
			alarm{name: f.name + "-throttles", metric: f.counted("Throttles"), statistic: sum, minutes: 5, threshold: f.threshold, ends: true,
				means: "Lambda has no concurrency left to run the " + f.name + " function. " + f.harm,
				step:  f.room})
	}
	for _, f := range []struct {
		name string
		scheduled
	}{{"redrive", redrive}, {"token", token.scheduled}} {
		all = append(all, alarm{name: f.name + "-schedule", metric: inQueue(f.failures), statistic: maximum, minutes: 5, threshold: 1, ends: true,
			means: "EventBridge Scheduler could not start the " + f.name + " function, and says why in the schedule's dead-letter queue.",
			step:  "Read a message of the queue, above all its ERROR_MESSAGE attribute; mend that, see that the function runs again, and purge the queue."})
	}
	return all
}

// rejectedByAWS is the alarm for webhooks that AWS answers before the function
// runs: the function's log and metrics do not have them.
func rejectedByAWS(webhook webhook) alarm {
	if webhook.api != nil {
		return alarm{name: "rejected-by-api", metric: webhook.requests(notInvokedMetric), statistic: sum, minutes: 5, threshold: 1, ends: true,
			means: "API Gateway answered webhooks and the function did not run: they were throttled (429) or larger than Lambda takes (413), or API Gateway may not invoke the function (500). Unless the service sends them again, they are lost.",
			step:  "Look up status, error and lambdaStatus in the access log, where lambdaStatus is not 200. 429: raise throttleRate and throttleBurst. 413: agree on the size in the stack's output SubscriptionSheet with the service's operator. 500: see that the policy of the function's alias live names this API.",
		}
	}
	// CloudWatch gets what the function counts later than what Lambda counts, so
	// the newest period may differ without a cause. Two of twelve can't: the older
	// one is complete.
	return alarm{name: "rejected-by-aws", metric: webhook.counted("Url4xxCount"), minus: []metric{webhook.written(names.ClientErrorsMetric), webhook.counted("Throttles")},
		statistic: sum, minutes: 5, threshold: 1, times: 2, among: 12, ends: true,
		means: "AWS answered webhooks with 4xx before the function ran: most likely they are larger than Lambda takes (413). There is no log line of them, and unless the service sends them again in smaller deliveries, they are lost.",
		step:  "Ask the service's operator which deliveries were answered 413, and agree on the size in the stack's output SubscriptionSheet; functions/README.md says what fits (Large deliveries)."}
}

// trustExpires is the alarm for the expiry of certificates.
func trustExpires(redrive scheduled) alarm {
	return alarm{name: "trust-expires", metric: redrive.written(names.TrustDaysLeftMetric), statistic: minimum, minutes: 5, threshold: 30, below: true, times: 3, among: 3, missed: true, ends: true,
		means: "A CA certificate of the truststore, or the client certificate that was accepted last, expires in less than 30 days. Webhooks are rejected from then on.",
		step:  "See which one (`payhook certificates`), ask the service's operator for its successor, and rotate it as infra/MTLS.md says. Without data, redrive does not run: see redrive-errors.",
	}
}

// certificateForbidden is the alarm for certificates that API Gateway rejects.
func certificateForbidden(conf settings.Deployment, webhook webhook) alarm {
	return alarm{name: "certificate-forbidden", metric: webhook.requests(forbiddenMetric), statistic: sum, minutes: 15, threshold: conf.AlarmUnauthenticated,
		means: "API Gateway rejected requests for their client certificate (403) more often than strangers explain: the service's certificate expired, or it is of a CA that the truststore does not have.",
		step:  "Ask the service's operator what their webhooks are answered. If 403: compare their certificate with the truststore (`payhook certificates`), and rotate as infra/MTLS.md says.",
	}
}

// oldestPending returns the age in seconds from which a pending event is an alarm:
// redrive may have to wait for as long as its receiver holds it, and then gets
// four runs.
func oldestPending(conf settings.Deployment) int {
	return int((conf.Webhook.Timeout + conf.Webhook.RedriveGrace + 4*time.Minute).Seconds())
}

const roomForRuns = "See which function uses up the account's concurrency; bound it (webhookConcurrency, if it is the webhook function), or raise the account's quota."

// newAlarmTopic makes the topic to which every alarm goes. It takes messages over
// TLS only. It is not encrypted at rest: CloudWatch can write to an encrypted
// topic only with a customer's key, and an alarm holds nothing of a payment.
func newAlarmTopic(scope constructs.Construct, conf settings.Deployment) awssns.Topic {
	topic := awssns.NewTopic(scope, jsii.String("Topic"), &awssns.TopicProps{
		// At most 100 characters, as stackName (AWS, "CreateTopic" in the SNS API
		// reference).
		DisplayName: jsii.String(conf.StackName),
		EnforceSSL:  jsii.Bool(true),
	})
	// A policy of one's own takes the place of the one that lets every service of
	// the account publish: without this, alarms would ring unheard.
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
				ResourceName: jsii.String(conf.StackName + "-*"), ArnFormat: awscdk.ArnFormat_COLON_RESOURCE_NAME,
			})},
		},
	}))
	if conf.AlarmEmail != "" {
		awssns.NewSubscription(scope, jsii.String("Email"), &awssns.SubscriptionProps{
			Topic:    topic,
			Protocol: awssns.SubscriptionProtocol_EMAIL,
			Endpoint: jsii.String(conf.AlarmEmail),
		})
	}
	return topic
}

// whatToDo stands in an alarm's description between what it means and the first
// step.
const whatToDo = " What to do: "

func (a alarm) make(scope constructs.Construct, conf settings.Deployment, topic awssns.Topic) awscloudwatch.CfnAlarm {
	times, among := max(a.times, 1), max(a.among, a.times, 1)
	props := &awscloudwatch.CfnAlarmProps{
		AlarmName:          jsii.String(conf.StackName + "-" + a.name),
		AlarmDescription:   jsii.String(a.means + whatToDo + a.step),
		Namespace:          jsii.String(a.namespace),
		MetricName:         jsii.String(a.metric.name),
		Dimensions:         &[]*awscloudwatch.CfnAlarm_DimensionProperty{{Name: a.dimension, Value: a.value}},
		Statistic:          jsii.String(a.statistic),
		Period:             jsii.Number(60 * a.minutes),
		Threshold:          jsii.Number(a.threshold),
		ComparisonOperator: jsii.String("GreaterThanOrEqualToThreshold"),
		DatapointsToAlarm:  jsii.Number(times),
		EvaluationPeriods:  jsii.Number(among),
		TreatMissingData:   jsii.String("notBreaching"),
		AlarmActions:       &[]any{topic.TopicArn()},
	}
	if a.below {
		props.ComparisonOperator = jsii.String("LessThanThreshold")
	}
	if a.missed {
		props.TreatMissingData = jsii.String("breaching")
	}
	if a.ends {
		props.OkActions = &[]any{topic.TopicArn()}
	}
	if a.minus != nil {
		a.subtract(props)
	}
	return awscloudwatch.NewCfnAlarm(scope, jsii.String(a.name), props)
}

// subtract puts the alarm on metric math.
func (a alarm) subtract(props *awscloudwatch.CfnAlarmProps) {
	var queries []any
	var terms []string
	for i, m := range append([]metric{a.metric}, a.minus...) {
		id := fmt.Sprintf("m%d", i)
		terms = append(terms, "FILL("+id+",0)")
		queries = append(queries, &awscloudwatch.CfnAlarm_MetricDataQueryProperty{
			Id: jsii.String(id), ReturnData: jsii.Bool(false),
			MetricStat: &awscloudwatch.CfnAlarm_MetricStatProperty{
				Stat: props.Statistic, Period: props.Period,
				Metric: &awscloudwatch.CfnAlarm_MetricProperty{
					Namespace: jsii.String(m.namespace), MetricName: jsii.String(m.name),
					Dimensions: &[]*awscloudwatch.CfnAlarm_DimensionProperty{{Name: m.dimension, Value: m.value}},
				},
			},
		})
	}
	queries = append(queries, &awscloudwatch.CfnAlarm_MetricDataQueryProperty{
		Id: jsii.String("difference"), ReturnData: jsii.Bool(true), Expression: jsii.String(strings.Join(terms, "-")),
	})
	props.Metrics = &queries
	props.Namespace, props.MetricName, props.Dimensions, props.Statistic, props.Period = nil, nil, nil, nil, nil
}
