package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// newStack creates the stack with all its resources. code returns the package of a
// function by the function's name.
func newStack(scope constructs.Construct, conf settings.Deployment,
	code func(function string) awslambda.Code) awscdk.Stack {
	stack := awscdk.NewStack(scope, jsii.String("Payhook"), &awscdk.StackProps{
		StackName:   jsii.String(conf.StackName),
		Description: jsii.String("Payhook: publishes authenticated payment webhooks as events on a bus"),
		// Termination protection prevents an accidental deletion of the stack and its URL.
		TerminationProtection: jsii.Bool(!conf.Local),
	})
	ledger := newLedger(stack, conf)
	keys := newKeys(stack)
	bus := newBus(stack, conf)
	newArchive(stack, conf, bus)
	buckets := newBuckets(stack, conf)
	token := newToken(stack, conf, code("token"))
	webhook := newWebhook(stack, conf, code("webhook"), newEndpoint(stack, conf), ledger, keys, bus, buckets, token)
	redrive := newRedrive(stack, conf, code("redrive"), ledger, keys, bus, buckets)
	protectBus(stack, conf, bus, webhook.role, redrive.role)
	alarmTopic, alarms := newAlarms(stack, conf, webhook, redrive, token)
	if conf.Canary {
		shiftByCanary(stack, webhook.alias, alarms)
	}
	made := parts{ledger, keys, bus, buckets, webhook, redrive, token, alarmTopic, alarms, nil}
	encrypt(stack, conf, &made)
	dashboard := newMonitoring(stack, conf, made)
	explainFindings(stack, conf)

	output(stack, names.WebhookURLOutput, "the URL that receives webhooks", webhook.url)
	output(stack, names.EventBusNameOutput, "the bus with the events", bus.EventBusName())
	output(stack, names.EventBusARNOutput, "the ARN of the bus, for rules in other stacks", bus.EventBusArn())
	output(stack, names.LedgerTableOutput, "the table with one item per eventId", ledger.TableName())
	output(stack, names.KeysTableOutput, "the table with the service's public keys", keys.TableName())
	output(stack, names.ClaimBucketOutput, "the bucket with the large events that the bus refers to",
		buckets.claims.BucketName())
	output(stack, names.ParkingBucketOutput, "the bucket with parked deliveries and events",
		buckets.parking.BucketName())
	output(stack, names.WebhookFunctionOutput, "the function that receives webhooks, with its alias",
		webhook.invokedAs())
	output(stack, names.RedriveFunctionOutput, "the function that publishes pending events, with its alias",
		redrive.invokedAs())
	output(stack, names.TokenFunctionOutput, "the function that refreshes the access token, with its alias",
		token.invokedAs())
	output(stack, names.WebhookLogsOutput, "the log group of the webhook function", webhook.logs.LogGroupName())
	output(stack, names.RedriveLogsOutput, "the log group of the redrive function", redrive.logs.LogGroupName())
	output(stack, names.TokenLogsOutput, "the log group of the token function", token.logs.LogGroupName())
	output(stack, names.TokenSecretOutput, "the secret with the access token", token.secret.AttrId())
	output(stack, names.CredentialsSecretOutput, "the secret in which to store the client id and secret",
		token.credentials.AttrId())
	output(stack, names.AlarmTopicOutput, "the topic that every alarm notifies", alarmTopic.TopicArn())
	output(stack, names.DashboardOutput, "the CloudWatch dashboard", dashboard)
	newSubscriptionDetails(stack, conf, webhook.url)

	if conf.Webhook.Window == nil {
		warn(stack, settings.TimestampTolerance,
			"timestampTolerance is off: the age of webhooks is not checked. Only the ledger detects a repeated "+
				"webhook, for "+
				conf.Value(settings.DeduplicationWindow)+" (deduplicationWindow) after the event was recorded.")
	}
	if conf.AlarmEmail == "" && !conf.Local {
		warn(stack, settings.AlarmEmail,
			"alarmEmail is not set: this stack has no subscriber for its alarms. Add a subscription to "+
				"the topic of the output AlarmTopic, or set alarmEmail.")
	}
	if policy := keyPolicy(stack, conf); policy != "" {
		awscdk.Annotations_Of(stack).AddInfoV2(jsii.String("payhook:"+settings.Encryption.Key), jsii.String(
			"Before the deployment, the policy of "+conf.Encryption+" needs these statements:\n"+policy))
	}
	if name := conf.Webhook.EventBusName; name != settings.DefaultBusName(conf.StackName) && !conf.Local {
		warn(stack, settings.EventBusName,
			"eventBusName is "+name+": do not change it later. If this stack has a bus with "+
				"another name, the deployment replaces that bus, and the rules of consumers stay at the old one. "+
				"infra/README.md describes how to change the name.")
	}
	return stack
}

// warn adds a warning about a setting to the output of the CDK CLI.
func warn(stack awscdk.Stack, about *settings.Setting, text string) {
	awscdk.Annotations_Of(stack).AddWarningV2(jsii.String("payhook:"+about.Key), jsii.String(text))
}

func output(stack awscdk.Stack, name, description string, value *string) {
	awscdk.NewCfnOutput(stack, jsii.String(name), &awscdk.CfnOutputProps{
		Description: jsii.String(description),
		Value:       value,
	})
}

// keptUnlessLocal returns the removal policy of data and logs: they are retained when the
// stack is deleted or no longer contains them, unless the stack is local. The rollback of
// a failed deployment deletes the resources that it created, because they are empty and
// a secret costs money.
func keptUnlessLocal(conf settings.Deployment) awscdk.RemovalPolicy {
	if conf.Local {
		return awscdk.RemovalPolicy_DESTROY
	}
	return awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE
}
