package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdadestinations"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// functionConsumer is a rule, the function in the folder function, and the table with the latest
// status of each payment. Items do not expire: a replay of old events would bring back an old status.
//
// EventBridge invokes the function asynchronously, so an event can fail in two places. If
// EventBridge cannot hand it to Lambda, it goes to the queue undelivered. If the function
// returns an error three times, or Lambda cannot run it for 6 hours, Lambda sends it to the
// queue failed. See https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
type functionConsumer struct {
	name   *string // of the function
	logs   awslogs.LogGroup
	table  awsdynamodb.TableV2
	failed awssqs.Queue
}

// newFunctionConsumer creates a functionConsumer. largeEventBucket is the name of the bucket with the
// large events. local says that code is for this machine's architecture.
func newFunctionConsumer(scope constructs.Construct, id, bus string, pattern map[string]any, code awslambda.Code,
	largeEventBucket *string, local bool) functionConsumer {
	scope = constructs.NewConstruct(scope, jsii.String(id))
	c := functionConsumer{
		logs: awslogs.NewLogGroup(scope, jsii.String("Logs"),
			&awslogs.LogGroupProps{Retention: awslogs.RetentionDays_THREE_MONTHS}),
		table: awsdynamodb.NewTableV2(scope, jsii.String("Payments"), &awsdynamodb.TablePropsV2{
			PartitionKey: &awsdynamodb.Attribute{Name: jsii.String("paymentId"),
				Type: awsdynamodb.AttributeType_STRING},
		}),
		failed: newQueue(scope, "Failed"),
	}
	role := awsiam.NewRole(scope, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
	})
	allow := func(resource *string, actions ...string) {
		role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Actions: jsii.Strings(actions...), Resources: &[]*string{resource}}))
	}
	objects := "arn:" + *awscdk.Aws_PARTITION() + ":s3:::" + *largeEventBucket
	allow(c.logs.LogGroupArn(), "logs:CreateLogStream", "logs:PutLogEvents")
	allow(c.table.TableArn(), "dynamodb:PutItem")
	// As in policy.json.
	allow(jsii.String(objects+"/events/*"), "s3:GetObject")
	allow(jsii.String(objects), "s3:ListBucket")

	architecture := awslambda.Architecture_ARM_64()
	if functionArchitecture(local) == "amd64" {
		architecture = awslambda.Architecture_X86_64()
	}
	function := awslambda.NewFunction(scope, jsii.String("Function"), &awslambda.FunctionProps{
		Description:   jsii.String("Keeps the latest status of each payment"),
		Code:          code,
		Handler:       jsii.String("bootstrap"),
		Runtime:       awslambda.Runtime_PROVIDED_AL2023(),
		Architecture:  architecture,
		MemorySize:    jsii.Number(256),
		Timeout:       awscdk.Duration_Seconds(jsii.Number(30)),
		Role:          role,
		LogGroup:      c.logs,
		Environment:   &map[string]*string{"TABLE": c.table.TableName()},
		RetryAttempts: jsii.Number(2),
		MaxEventAge:   awscdk.Duration_Hours(jsii.Number(6)),
		OnFailure:     awslambdadestinations.NewSqsDestination(c.failed), // allows sqs:SendMessage
	})
	c.name = function.FunctionName()
	rule := newRule(scope, bus, pattern, newQueue(scope, "Undelivered"),
		&awsevents.CfnRule_TargetProperty{Arn: function.FunctionArn()})
	awslambda.NewCfnPermission(scope, jsii.String("Permission"), &awslambda.CfnPermissionProps{
		Action:       jsii.String("lambda:InvokeFunction"),
		FunctionName: function.FunctionArn(),
		Principal:    jsii.String("events.amazonaws.com"),
		SourceArn:    rule.AttrArn(),
	})
	return c
}
