package payhook

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsscheduler"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// function is a Lambda function with its own log group and role. The role can only write
// to that log group and do what allow adds. Callers invoke the function through alias.
type function struct {
	awslambda.Function
	alias awslambda.Alias
	role  *role
	logs  awslogs.LogGroup
}

type functionOptions struct {
	name        string // its folder under functions
	description string
	memory      int // MiB
	timeout     time.Duration
	concurrency int // reserved; 0: none
	resources   settings.Resources
}

// newLogGroup creates a log group with the retention of the settings.
func (p *Payhook) newLogGroup(scope constructs.Construct, id string) awslogs.LogGroup {
	logs := awslogs.NewLogGroup(scope, jsii.String(id), &awslogs.LogGroupProps{
		RemovalPolicy: keptUnlessLocal(p.conf), EncryptionKey: p.key,
	})
	p.encrypted(logs, "CKV_AWS_158")
	logs.Node().DefaultChild().(awslogs.CfnLogGroup).SetRetentionInDays(jsii.Number(p.conf.LogRetentionDays))
	return logs
}

// newFunction creates a function in scope, which contains nothing else.
func (p *Payhook) newFunction(scope constructs.Construct, options functionOptions) function {
	logs := p.newLogGroup(scope, "Logs")
	role := newRole(scope, "Role", "lambda.amazonaws.com", nil)
	environment := map[string]*string{}
	for name, value := range p.conf.Environment(options.name, options.resources) {
		environment[name] = jsii.String(value)
	}
	props := &awslambda.FunctionProps{
		Description:  jsii.String(options.description),
		Code:         awslambda.Code_FromAsset(jsii.String(p.packages[options.name]), nil),
		Handler:      jsii.String("bootstrap"),
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: awslambda.Architecture_ARM_64(),
		MemorySize:   jsii.Number(options.memory),
		Timeout:      awscdk.Duration_Seconds(jsii.Number(options.timeout.Seconds())),
		Environment:  &environment,
		Role:         role.Role,
		LogGroup:     logs,
		// The function writes JSON itself. CloudWatch extracts metrics from these lines,
		// so they must reach the log unchanged.
		LoggingFormat: awslambda.LoggingFormat_TEXT,
		// A version is retained when the next one replaces it: the alias can send requests to it for a short time
		// after an update, and a rollback needs it. The rollback of a failed deployment deletes its version. If it were
		// retained, the next attempt would fail: Lambda does not publish a version if code and configuration are those
		// of the last one (AWS, "PublishVersion" in the Lambda API reference).
		CurrentVersionOptions: &awslambda.VersionOptions{
			RemovalPolicy: awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE},
	}
	if architecture(p.conf) == "amd64" {
		props.Architecture = awslambda.Architecture_X86_64()
	}
	if options.concurrency > 0 {
		props.ReservedConcurrentExecutions = jsii.Number(options.concurrency)
	}
	made := awslambda.NewFunction(scope, jsii.String("Function"), props)
	if options.concurrency == 0 {
		explain(made, "CKV_AWS_115")
	}
	explain(made, "CKV_AWS_116")
	explain(made, "CKV_AWS_173")
	// The CDK names a version by a hash of the function's code, configuration and environment, so each change of these
	// publishes a version (AWS, "Versions" in the AWS CDK's overview of aws-lambda). The hash contains the logical
	// names of the resources that the environment refers to. If a resource is replaced under the same logical name, the
	// function must also change to publish a version. Of the resources here, this applies only to tables whose keys
	// change.
	//
	// Lambda updates code and configuration of $LATEST in two calls. A version is a copy of both after both calls.
	alias := awslambda.NewAlias(scope, jsii.String("Alias"), &awslambda.AliasProps{AliasName: jsii.String(aliasName),
		Version: made.CurrentVersion(), Description: jsii.String("The version in use")})
	f := function{made, alias, role, logs}
	p.connect(f)
	role.allow([]string{"logs:CreateLogStream", "logs:PutLogEvents"}, logs.LogGroupArn())
	return f
}

// connect puts the function into the subnets of the user, if there are any, and lets Lambda manage its network
// interfaces with the function's role. AWS lists these actions, and that they need all resources
// (https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html). The condition denies them to the code of the
// function: Lambda's own calls of EC2 have no source function
// (https://docs.aws.amazon.com/lambda/latest/dg/permissions-source-function-arn.html).
func (p *Payhook) connect(f function) {
	conf := p.conf
	if len(conf.SubnetIDs) == 0 {
		explain(f.Function, "CKV_AWS_117")
		return
	}
	f.Node().DefaultChild().(awslambda.CfnFunction).SetVpcConfig(&awslambda.CfnFunction_VpcConfigProperty{
		SubnetIds: jsii.Strings(conf.SubnetIDs...), SecurityGroupIds: jsii.Strings(conf.SecurityGroupIDs...)})
	p.newPolicy(f.role, "Network", statement("", "", []string{"ec2:AssignPrivateIpAddresses",
		"ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeNetworkInterfaces",
		"ec2:DescribeSubnets", "ec2:UnassignPrivateIpAddresses"}, []*string{jsii.String("*")},
		map[string]any{"Null": map[string]any{"lambda:SourceFunctionArn": "true"}}))
}

// role is a role that can do what allow adds.
type role struct {
	awsiam.Role
	actions []string
}

// newRole creates a role that a service assumes.
func newRole(scope constructs.Construct, id, service string, conditions *map[string]any) *role {
	return &role{Role: awsiam.NewRole(scope, &id, &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(&service, &awsiam.ServicePrincipalOpts{Conditions: conditions}),
	})}
}

// allow lets the role perform actions of one service on resources, which are ARNs. That of a bucket does not contain an
// account: if a bucket was deleted, another account could create one of this name, and payments would be written there.
// So the bucket must be of the account of the stack
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html).
func (r *role) allow(actions []string, resources ...*string) {
	r.actions = append(r.actions, actions...)
	var conditions map[string]any
	if strings.HasPrefix(actions[0], "s3:") {
		conditions = map[string]any{"StringEquals": map[string]any{
			"aws:ResourceAccount": awscdk.Stack_Of(r.Role).Account()}}
	}
	r.AddToPolicy(statement("", "", actions, resources, conditions))
}

// newPolicy creates a policy of a role beside that of allow.
func (p *Payhook) newPolicy(r *role, id string, statements ...awsiam.PolicyStatement) awsiam.Policy {
	policy := awsiam.NewPolicy(r.Role, &id, &awsiam.PolicyProps{Statements: &statements})
	policy.AttachToRole(r.Role)
	p.nameByContent(policy)
	return policy
}

func (p *Payhook) functionRoles() []*role {
	roles := []*role{p.webhook.role}
	for _, s := range p.scheduled() {
		roles = append(roles, s.role)
	}
	return roles
}

// roles returns the roles of the functions and of the schedules.
func (p *Payhook) roles() []*role {
	roles := p.functionRoles()
	for _, s := range p.scheduled() {
		roles = append(roles, s.scheduleRole)
	}
	return roles
}

// scheduled is a function that runs every minute.
type scheduled struct {
	function
	// failures contains a message for each run that could not be started.
	failures awssqs.Queue
	// scheduleRole is the role with which the schedule invokes the function.
	scheduleRole *role
}

func (p *Payhook) scheduled() []scheduled {
	if !p.conf.UsesToken() {
		return []scheduled{p.redrive}
	}
	return []scheduled{p.redrive, p.token.scheduled}
}

// runEveryMinute creates a schedule that invokes the function once a minute, with a role that has only this permission.
//
// A run contains no data that could be lost: the next run does the work that a failed one did not finish. The alarm on
// a metric that every run writes is raised if the function has not run for minutes, or has failed in each run. If
// EventBridge Scheduler could not pass a run to Lambda, the dead-letter queue has a message with the reason for 14
// days.
func (p *Payhook) runEveryMinute(scope constructs.Construct, f function) scheduled {
	failed := newFailureQueue(scope, "ScheduleFailures", p.key)
	p.encrypted(failed, "CKV_AWS_27 a schedule")
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
	return awssqs.NewQueue(scope, jsii.String(id), &awssqs.QueueProps{
		Encryption: encryption, EncryptionMasterKey: key,
		EnforceSSL:      jsii.Bool(true),
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)),
	})
}

// aliasName is the alias through which every function is invoked.
const aliasName = "live"

// invokedAs returns the qualified name of the function.
func (f function) invokedAs() *string { return jsii.String(*f.FunctionName() + ":" + aliasName) }

// nameByContent gives a policy of a role a name that depends on its permissions, so that no deployment changes a policy
// in use. A function depends on its policies: a new one is created before the function is updated. CloudFormation
// deletes the one that it replaces in UPDATE_COMPLETE_CLEANUP_IN_PROGRESS, after all updates, and so after the alias
// has moved, also by CodeDeploy (https://repost.aws/knowledge-center/cloudformation-stack-cleanup-stuck). The version
// in use keeps the permissions that a setting takes away. A rollback deletes the new policy only. Call it when the
// policy has all its statements.
//
// An invocation of the old version can run a little longer than its policy exists. IAM is
// eventually consistent, in both directions (https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html).
//
// Meanwhile, a role has both policies. IAM allows 10,240 characters for all inline policies of a
// role (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html). The largest
// role here has less than 4,000, with the longest names.
func (p *Payhook) nameByContent(policy constructs.IConstruct) {
	stack, made := awscdk.Stack_Of(p), policy.Node().DefaultChild().(awsiam.CfnPolicy)
	// A bus with another name is another bus, to which a policy refers in the same way.
	content := toJSON([]any{p.conf.EventBusName, stack.Resolve(made.PolicyDocument())})
	sum := sha256.Sum256([]byte(content))
	// The CDK takes the logical id as the name of the policy.
	made.OverrideLogicalId(jsii.Sprintf("%s%X", *stack.GetLogicalId(made), sum[:4]))
}
