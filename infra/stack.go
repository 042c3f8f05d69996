package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/contract"
)

// newStack composes everything. code returns the built program of a function by
// its name.
func newStack(scope constructs.Construct, settings contract.Deployment, code func(function string) awslambda.Code) awscdk.Stack {
	stack := awscdk.NewStack(scope, jsii.String("Payhook"), &awscdk.StackProps{
		StackName:   jsii.String(settings.StackName),
		Description: jsii.String("Payhook: signed payment webhooks become events on a bus"),
		Tags:        tagsOf(settings),
		// Without these two settings, the CDK reads its own context keys
		// @aws-cdk/core:permissionsBoundary and @aws-cdk/core:bootstrapQualifier.
		PermissionsBoundary: boundaryOf(settings),
		Synthesizer:         synthesizerOf(settings),
		// A stack that is protected is not deleted by mistake, nor is the URL.
		TerminationProtection: jsii.Bool(!settings.Local),
	})
	ledger := newLedger(stack, settings)
	keys := newKeys(stack)
	bus := newBus(stack, settings)
	buckets := newBuckets(stack, settings)
	token := newToken(stack, settings, code("token"))
	webhook := newWebhook(stack, settings, code("webhook"), newEndpoint(stack, settings), ledger, keys, bus, buckets, token)
	redrive := newRedrive(stack, settings, code("redrive"), ledger, keys, bus, buckets)
	protectBus(stack, settings, bus, webhook.role, redrive.role)
	alarmTopic, alarms := newAlarms(stack, settings, webhook, redrive, token)
	if settings.Canary {
		shiftByCanary(stack, webhook.alias, alarms)
	}
	encrypt(stack, settings, parts{ledger, keys, bus, buckets, webhook, redrive, token, alarmTopic})
	explainFindings(stack, settings)

	output(stack, "WebhookUrl", "where webhooks are sent", webhook.url)
	output(stack, "EventBusName", "the bus on which the events arrive", bus.EventBusName())
	output(stack, "EventBusArn", "the same, for rules in other stacks", bus.EventBusArn())
	output(stack, "LedgerTable", "one item per eventId", ledger.TableName())
	output(stack, "KeysTable", "the service's public keys", keys.TableName())
	output(stack, "ClaimBucket", "the events that the bus carries a reference to", buckets.claims.BucketName())
	output(stack, "ParkingBucket", "what is authentic and could not be used", buckets.parking.BucketName())
	output(stack, "WebhookFunction", "receives webhooks: the function and its alias", webhook.invokedAs())
	output(stack, "RedriveFunction", "publishes what is left over", redrive.invokedAs())
	output(stack, "TokenFunction", "keeps the access token fresh", token.invokedAs())
	output(stack, "TokenSecret", "holds the access token", token.secret.AttrId())
	output(stack, "CredentialsSecret", "to be filled with the client id and secret", token.credentials.AttrId())
	output(stack, "AlarmTopic", "tells its subscribers of every alarm", alarmTopic.TopicArn())
	newSubscriptionSheet(stack, settings, webhook.url)

	if settings.Webhook.Window == nil {
		warn(stack, contract.TimestampTolerance, "timestampTolerance is off: a webhook's age is not checked. A replay is then stopped only by the ledger, for "+
			settings.Value(contract.DeduplicationWindow)+" (deduplicationWindow) after the event was first seen.")
	}
	if settings.AlarmEmail == "" && !settings.Local {
		warn(stack, contract.AlarmEmail, "alarmEmail is not set: this stack subscribes nobody to its alarms. Subscribe somebody to "+
			"the topic of the output AlarmTopic, or set alarmEmail.")
	}
	if name := settings.Webhook.EventBusName; name != contract.DefaultBusName(settings.StackName) && !settings.Local {
		warn(stack, contract.EventBusName, "eventBusName is "+name+": keep it for the life of the stack. If this stack has a bus of "+
			"another name, deploying replaces that bus, and the rules of consumers do not move to the new one. "+
			"The README says how to change the name.")
	}
	return stack
}

// warn adds a warning about a setting to what the CDK CLI prints.
func warn(stack awscdk.Stack, about *contract.Setting, text string) {
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
func keptUnlessLocal(settings contract.Deployment) awscdk.RemovalPolicy {
	if settings.Local {
		return awscdk.RemovalPolicy_DESTROY
	}
	return awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE
}
