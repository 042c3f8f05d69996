package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsscheduler"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// scheduled is a function that runs every minute.
type scheduled struct {
	function
	// failures holds a message for each run that could not be started.
	failures awssqs.Queue
	// scheduleRole is what the schedule invokes the function as.
	scheduleRole awsiam.Role
}

// runEveryMinute makes a schedule that invokes the function once a minute, with
// a role that may do that and nothing else.
//
// A run holds no data of its own, so that none is lost with it: what it leaves
// undone the next one does. Still none fails unseen:
//
//   - EventBridge Scheduler can't hand a run over to Lambda, within a minute: a
//     message in the dead-letter queue, kept for 14 days, says why, and the alarm
//     on that queue rings;
//   - Lambda took it and can't start it, for want of concurrency: it is dropped
//     after a minute and counts as a throttle, which is an alarm's metric;
//   - Lambda started it and it failed, died or ran into its timeout: it counts as
//     an error, which is an alarm's metric as well.
//
// In the last two cases Lambda writes no message anywhere. A queue for them
// (OnFailure) would say no more than the metric does, and would keep the alarm
// ringing for 14 days after a run that was made good a minute later. And whatever
// the reason, a function that has not run for minutes is missed by the alarm on
// a figure that every run writes.
func runEveryMinute(scope constructs.Construct, f function) scheduled {
	failed := newFailureQueue(scope, "ScheduleFailures")
	role := awsiam.NewRole(scope, jsii.String("ScheduleRole"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("scheduler.amazonaws.com"), &awsiam.ServicePrincipalOpts{
			// Without it, a schedule in any account could be given this role.
			Conditions: &map[string]any{
				"StringEquals": map[string]any{"aws:SourceAccount": awscdk.Stack_Of(scope).Account()},
			},
		}),
	})
	role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings("lambda:InvokeFunction"), Resources: &[]*string{f.alias.FunctionArn()},
	}))
	role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings("sqs:SendMessage"), Resources: &[]*string{failed.QueueArn()},
	}))
	schedule := awsscheduler.NewCfnSchedule(scope, jsii.String("Schedule"), &awsscheduler.CfnScheduleProps{
		ScheduleExpression: jsii.String("rate(1 minute)"),
		FlexibleTimeWindow: &awsscheduler.CfnSchedule_FlexibleTimeWindowProperty{Mode: jsii.String("OFF")},
		Target: &awsscheduler.CfnSchedule_TargetProperty{
			Arn:              f.alias.FunctionArn(),
			RoleArn:          role.RoleArn(),
			DeadLetterConfig: &awsscheduler.CfnSchedule_DeadLetterConfigProperty{Arn: failed.QueueArn()},
			RetryPolicy:      &awsscheduler.CfnSchedule_RetryPolicyProperty{MaximumEventAgeInSeconds: jsii.Number(60)},
		},
	})
	// A schedule checks at its creation that it may use the role.
	schedule.Node().AddDependency(role)

	// Lambda would run a failed invocation twice more, beside the next minute's.
	f.alias.ConfigureAsyncInvoke(&awslambda.EventInvokeConfigOptions{
		RetryAttempts: jsii.Number(0),
		MaxEventAge:   awscdk.Duration_Minutes(jsii.Number(1)),
	})
	return scheduled{f, failed, role}
}

// newFailureQueue makes a queue for what failed, which keeps it as long as SQS
// can.
func newFailureQueue(scope constructs.Construct, id string) awssqs.Queue {
	return awssqs.NewQueue(scope, jsii.String(id), &awssqs.QueueProps{
		Encryption:      awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:      jsii.Bool(true),
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)),
	})
}
