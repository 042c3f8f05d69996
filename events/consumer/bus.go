package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// newBusConsumer creates a rule that sends events to the bus with the ARN target, which is usually in
// another account. EventBridge assumes a role of this account for it, and the policy of the
// other bus must allow this account (newReceiver). See
// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-cross-account.html
func newBusConsumer(scope constructs.Construct, id, bus string, pattern map[string]any, target string) {
	scope = constructs.NewConstruct(scope, jsii.String(id))
	role := awsiam.NewRole(scope, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("events.amazonaws.com"), nil),
	})
	role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings("events:PutEvents"), Resources: &[]*string{jsii.String(target)}}))
	newRule(scope, bus, pattern, newQueue(scope, "Undelivered"),
		&awsevents.CfnRule_TargetProperty{Arn: jsii.String(target), RoleArn: role.RoleArn()})
}

// newReceiver creates the stack for the other account: a bus that takes events from the
// account source, and a queue with all of them. The emulator has no policies of buses.
//
// EventBridge does not send an event that came from another account on to a third one.
func newReceiver(scope constructs.Construct, name, busName, source string, local bool) awscdk.Stack {
	stack := awscdk.NewStack(scope, jsii.String("PayhookReceiver"), &awscdk.StackProps{
		StackName:   jsii.String(name),
		Description: jsii.String("A bus for the payment events of account " + source),
	})
	bus := awsevents.NewEventBus(stack, jsii.String("Bus"),
		&awsevents.EventBusProps{EventBusName: jsii.String(busName)})
	if !local {
		awsevents.NewCfnEventBusPolicy(stack, jsii.String("BusPolicy"), &awsevents.CfnEventBusPolicyProps{
			EventBusName: bus.EventBusName(),
			StatementId:  jsii.String("ReceiveFromPayhook"),
			Statement: map[string]any{
				"Sid": "ReceiveFromPayhook", "Effect": "Allow", "Action": "events:PutEvents",
				"Principal": map[string]any{"AWS": "arn:" + *awscdk.Aws_PARTITION() + ":iam::" + source + ":root"},
				"Resource":  bus.EventBusArn(),
			},
		})
	}
	queue := newQueueConsumer(stack, "Everything", *bus.EventBusName(),
		map[string]any{"account": []any{source}})
	awscdk.NewCfnOutput(stack, jsii.String("QueueUrl"), &awscdk.CfnOutputProps{
		Description: jsii.String("every event of account " + source), Value: queue.QueueUrl()})
	return stack
}
