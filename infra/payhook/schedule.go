package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsscheduler"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// scheduled is a function that runs every minute.
type scheduled struct {
	function
	// failures contains a message for each run that could not be started.
	failures awssqs.Queue
	// scheduleRole is the role with which the schedule invokes the function.
	scheduleRole *role
}

// scheduled returns the functions with a schedule.
func (p *Payhook) scheduled() []scheduled {
	if !p.conf.UsesToken() {
		return []scheduled{p.redrive}
	}
	return []scheduled{p.redrive, p.token.scheduled}
}

// runEveryMinute creates a schedule that invokes the function once a minute, with a role that has only this permission.
//
// A run contains no data that could be lost: the next run does the work that a failed one did not finish. The alarm on
// a metric that every run writes is raised if the function has not run for minutes, or has failed in each run. It does
// not matter whether EventBridge Scheduler could not pass the runs to Lambda, Lambda had no concurrency left, or the
// runs failed. In the first case, the dead-letter queue has a message with the reason for 14 days. In the others,
// Lambda counts throttles and errors.
func (p *Payhook) runEveryMinute(scope constructs.Construct, f function) scheduled {
	failed := newFailureQueue(scope, "ScheduleFailures", p.key)
	p.stores(failed)
	p.explainUnlessEncrypted(failed, "CKV_AWS_27", ownKeys)
	// Without this condition, a schedule in any account could use this role.
	role := newRole(scope, "ScheduleRole", "scheduler.amazonaws.com", &map[string]any{
		"StringEquals": map[string]any{"aws:SourceAccount": awscdk.Stack_Of(scope).Account()},
	})
	role.allow([]string{"lambda:InvokeFunction"}, f.alias.FunctionArn())
	role.allow([]string{"sqs:SendMessage"}, failed.QueueArn())
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
	// EventBridge Scheduler checks the role when the schedule is created.
	schedule.Node().AddDependency(role.Role)

	// By default, Lambda retries a failed invocation twice, in addition to the next run.
	f.alias.ConfigureAsyncInvoke(&awslambda.EventInvokeConfigOptions{
		RetryAttempts: jsii.Number(0),
		MaxEventAge:   awscdk.Duration_Minutes(jsii.Number(1)),
	})
	return scheduled{f, failed, role}
}

// newFailureQueue creates a queue for failures, with the longest retention of SQS. Without a key, SQS encrypts it.
func newFailureQueue(scope constructs.Construct, id string, key awskms.IKey) awssqs.Queue {
	encryption := awssqs.QueueEncryption_SQS_MANAGED
	if key != nil {
		encryption = awssqs.QueueEncryption_KMS
	}
	queue := awssqs.NewQueue(scope, jsii.String(id), &awssqs.QueueProps{
		Encryption: encryption, EncryptionMasterKey: key,
		EnforceSSL:      jsii.Bool(true),
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)),
	})
	explain(queue, "AwsSolutions-SQS3", "It is a dead-letter queue itself, of a schedule or of the bus, which the "+
		"rule does not look for.")
	return queue
}
