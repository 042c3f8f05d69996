package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// newStack composes everything. code returns the built program of a function by
// its name.
func newStack(scope constructs.Construct, conf settings.Deployment, code func(function string) awslambda.Code) awscdk.Stack {
	stack := awscdk.NewStack(scope, jsii.String("Payhook"), &awscdk.StackProps{
		StackName:   jsii.String(conf.StackName),
		Description: jsii.String("Payhook: signed payment webhooks become events on a bus"),
		Tags:        tagsOf(conf),
		// Without these two settings, the CDK reads its own context keys
		// @aws-cdk/core:permissionsBoundary and @aws-cdk/core:bootstrapQualifier.
		PermissionsBoundary: boundaryOf(conf),
		Synthesizer:         synthesizerOf(conf),
		// A stack that is protected is not deleted by mistake, nor is the URL.
		TerminationProtection: jsii.Bool(!conf.Local),
	})
	ledger := newLedger(stack, conf)
	keys := newKeys(stack)
	bus := newBus(stack, conf)
	buckets := newBuckets(stack, conf)
	token := newToken(stack, conf, code("token"))
	webhook := newWebhook(stack, conf, code("webhook"), newEndpoint(stack, conf), ledger, keys, bus, buckets, token)
	redrive := newRedrive(stack, conf, code("redrive"), ledger, keys, bus, buckets)
	protectBus(stack, conf, bus, webhook.role, redrive.role)
	alarmTopic, alarms := newAlarms(stack, conf, webhook, redrive, token)
	if conf.Canary {
		shiftByCanary(stack, webhook.alias, alarms)
	}
	encrypt(stack, conf, parts{ledger, keys, bus, buckets, webhook, redrive, token, alarmTopic})
	explainFindings(stack, conf)

	output(stack, names.WebhookURLOutput, "where webhooks are sent", webhook.url)
	output(stack, names.EventBusNameOutput, "the bus on which the events arrive", bus.EventBusName())
	output(stack, names.EventBusARNOutput, "the same, for rules in other stacks", bus.EventBusArn())
	output(stack, names.LedgerTableOutput, "one item per eventId", ledger.TableName())
	output(stack, names.KeysTableOutput, "the service's public keys", keys.TableName())
	output(stack, names.ClaimBucketOutput, "the events that the bus carries a reference to", buckets.claims.BucketName())
	output(stack, names.ParkingBucketOutput, "what is authentic and could not be used", buckets.parking.BucketName())
	output(stack, names.WebhookFunctionOutput, "receives webhooks: the function and its alias", webhook.invokedAs())
	output(stack, names.RedriveFunctionOutput, "publishes what is left over", redrive.invokedAs())
	output(stack, names.TokenFunctionOutput, "keeps the access token fresh", token.invokedAs())
	output(stack, names.TokenSecretOutput, "holds the access token", token.secret.AttrId())
	output(stack, names.CredentialsSecretOutput, "to be filled with the client id and secret", token.credentials.AttrId())
	output(stack, names.AlarmTopicOutput, "tells its subscribers of every alarm", alarmTopic.TopicArn())
	newSubscriptionSheet(stack, conf, webhook.url)

	if conf.Webhook.Window == nil {
		warn(stack, settings.TimestampTolerance, "timestampTolerance is off: a webhook's age is not checked. A replay is then stopped only by the ledger, for "+
			conf.Value(settings.DeduplicationWindow)+" (deduplicationWindow) after the event was first seen.")
	}
	if conf.AlarmEmail == "" && !conf.Local {
		warn(stack, settings.AlarmEmail, "alarmEmail is not set: this stack subscribes nobody to its alarms. Subscribe somebody to "+
			"the topic of the output AlarmTopic, or set alarmEmail.")
	}
	if name := conf.Webhook.EventBusName; name != settings.DefaultBusName(conf.StackName) && !conf.Local {
		warn(stack, settings.EventBusName, "eventBusName is "+name+": keep it for the life of the stack. If this stack has a bus of "+
			"another name, deploying replaces that bus, and the rules of consumers do not move to the new one. "+
			"infra/README.md says how to change the name.")
	}
	return stack
}

// warn adds a warning about a setting to what the CDK CLI prints.
func warn(stack awscdk.Stack, about *settings.Setting, text string) {
	awscdk.Annotations_Of(stack).AddWarningV2(jsii.String("payhook:"+about.Key), jsii.String(text))
}

func output(stack awscdk.Stack, name, description string, value *string) {
	awscdk.NewCfnOutput(stack, jsii.String(name), &awscdk.CfnOutputProps{
		Description: jsii.String(description),
		Value:       value,
	})
}

// keptUnlessLocal is what becomes of data and logs when the stack is deleted or
// no longer has them. What a failed deployment created is deleted by its rollback:
// nothing is in it, and a secret costs money.
func keptUnlessLocal(conf settings.Deployment) awscdk.RemovalPolicy {
	if conf.Local {
		return awscdk.RemovalPolicy_DESTROY
	}
	return awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE
}
