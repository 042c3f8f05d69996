package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// newQueueConsumer creates a rule on the bus of that name, with that pattern, and its queue.
func newQueueConsumer(scope constructs.Construct, id, bus string, pattern map[string]any) awssqs.Queue {
	scope = constructs.NewConstruct(scope, jsii.String(id))
	queue, undelivered := newQueue(scope, "Queue"), newQueue(scope, "Undelivered")
	rule := newRule(scope, bus, pattern, undelivered, &awsevents.CfnRule_TargetProperty{Arn: queue.QueueArn()})
	allowRule(queue, rule)
	return queue
}

// newRule creates a rule with one target. EventBridge tries to deliver an event for 24 hours
// and then sends it to the queue undelivered, and at once if a permission is missing (AWS,
// "How EventBridge retries delivering events":
// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-retry-policy.html).
func newRule(scope constructs.Construct, bus string, pattern map[string]any, undelivered awssqs.Queue,
	target *awsevents.CfnRule_TargetProperty) awsevents.CfnRule {
	target.Id = jsii.String("Target")
	target.DeadLetterConfig = &awsevents.CfnRule_DeadLetterConfigProperty{Arn: undelivered.QueueArn()}
	rule := awsevents.NewCfnRule(scope, jsii.String("Rule"), &awsevents.CfnRuleProps{
		EventBusName: jsii.String(bus),
		EventPattern: pattern,
		Targets:      []*awsevents.CfnRule_TargetProperty{target},
	})
	allowRule(undelivered, rule)
	return rule
}

// newQueue creates a queue that keeps messages for 14 days, the maximum.
func newQueue(scope constructs.Construct, id string) awssqs.Queue {
	return awssqs.NewQueue(scope, jsii.String(id), &awssqs.QueueProps{
		Encryption:      awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:      jsii.Bool(true),
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)),
	})
}

// allowRule lets a rule, and no other, send to a queue.
func allowRule(queue awssqs.Queue, rule awsevents.CfnRule) {
	queue.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("events.amazonaws.com"), nil)},
		Actions:    jsii.Strings("sqs:SendMessage"),
		Resources:  &[]*string{queue.QueueArn()},
		Conditions: &map[string]any{"ArnEquals": map[string]any{"aws:SourceArn": rule.AttrArn()}},
	}))
}
