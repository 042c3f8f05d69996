package payhook

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
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
	p.stores(logs)
	p.explainUnlessEncrypted(logs, "CKV_AWS_158", ownKeys+" No line holds a payload, a signature or a secret.")
	logs.Node().DefaultChild().(awslogs.CfnLogGroup).SetRetentionInDays(jsii.Number(p.conf.LogRetentionDays))
	return logs
}

// newFunction creates a function in scope, which contains nothing else.
func (p *Payhook) newFunction(scope constructs.Construct, options functionOptions) function {
	deployment := p.conf
	logs := p.newLogGroup(scope, "Logs")
	role := newRole(scope, "Role", "lambda.amazonaws.com", nil)
	environment := map[string]*string{}
	for name, value := range deployment.Environment(options.name, options.resources) {
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
		LoggingFormat:         awslambda.LoggingFormat_TEXT,
		CurrentVersionOptions: versionOptions(),
	}
	if architecture(deployment) == "amd64" {
		props.Architecture = awslambda.Architecture_X86_64()
	}
	if options.concurrency > 0 {
		props.ReservedConcurrentExecutions = jsii.Number(options.concurrency)
	}
	made := awslambda.NewFunction(scope, jsii.String("Function"), props)
	if options.concurrency == 0 {
		explain(made, "CKV_AWS_115", "Reserved concurrency is a setting of the webhook function: the figure depends "+
			"on the account's quota and on the load. It also keeps concurrency for the other two.")
	}
	explain(made, "CKV_AWS_116", "No invocation holds the only copy of anything. A webhook is invoked synchronously "+
		"and its sender gets the answer; what a scheduled run leaves undone the next one does. Errors, throttles and "+
		"runs that are missing raise alarms.")
	explain(made, "CKV_AWS_173", "The environment holds names and settings and no secret; Lambda encrypts it with a "+
		"key of AWS.")
	f := function{made, newAlias(scope, made), role, logs}
	f.connect(deployment)
	role.allow([]string{"logs:CreateLogStream", "logs:PutLogEvents"}, logs.LogGroupArn())
	return f
}

// connect puts the function into the subnets of the user, if there are any, and lets Lambda manage its network
// interfaces with the function's role. AWS lists these actions, and that they need all resources
// (https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html). The condition denies them to the code of the
// function: Lambda's own calls of EC2 have no source function
// (https://docs.aws.amazon.com/lambda/latest/dg/permissions-source-function-arn.html).
func (f function) connect(conf settings.Deployment) {
	if len(conf.SubnetIDs) == 0 {
		explain(f.Function, "CKV_AWS_117", "The function reaches nothing in a VPC: it calls AWS and the payment "+
			"service's public endpoints, over TLS. The setting subnetIds puts it into subnets.")
		return
	}
	f.Node().DefaultChild().(awslambda.CfnFunction).SetVpcConfig(&awslambda.CfnFunction_VpcConfigProperty{
		SubnetIds: jsii.Strings(conf.SubnetIDs...), SecurityGroupIds: jsii.Strings(conf.SecurityGroupIDs...)})
	manage := awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings("ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface",
			"ec2:DeleteNetworkInterface",
			"ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:UnassignPrivateIpAddresses"),
		Resources:  jsii.Strings("*"),
		Conditions: &map[string]any{"Null": map[string]any{"lambda:SourceFunctionArn": "true"}},
	})
	policy := awsiam.NewPolicy(f.role.Role, jsii.String("Network"), &awsiam.PolicyProps{
		Roles:      &[]awsiam.IRole{f.role.Role},
		Statements: &[]awsiam.PolicyStatement{manage}})
	explain(policy, "AwsSolutions-IAM5", "Lambda makes these calls for network interfaces, and AWS requires all "+
		"resources. The code of the function cannot make them.")
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

// allow lets the role perform actions on resources, which are ARNs.
func (r *role) allow(actions []string, resources ...*string) {
	r.actions = append(r.actions, actions...)
	r.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings(actions...), Resources: &resources,
	}))
}

// functionRoles returns the roles of the functions.
func (p *Payhook) functionRoles() []*role {
	roles := []*role{p.webhook.role}
	for _, s := range p.scheduled() {
		roles = append(roles, s.role)
	}
	return roles
}
