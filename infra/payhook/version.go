package payhook

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// aliasName is the alias through which every function is invoked.
const aliasName = "live"

// versionOptions returns options that retain a version when the next one replaces it. The alias can send requests to
// the old version for a short time after an update, and a rollback needs it.
//
// The rollback of a failed deployment deletes its version. If it were retained, the next
// attempt would fail: Lambda does not publish a version if code and configuration are
// those of the last one (AWS, "PublishVersion" in the Lambda API reference).
func versionOptions() *awslambda.VersionOptions {
	return &awslambda.VersionOptions{RemovalPolicy: awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE}
}

// newAlias creates the alias of the function's current version. The CDK names a version by a hash of the function's
// code, configuration and environment, so each change of these publishes a version (AWS, "Versions" in the AWS CDK's
// overview of aws-lambda). The hash contains the logical names of the resources that the environment refers to. If a
// resource is replaced under the same logical name, the function must also change to publish a version. Of the
// resources here, this applies only to tables whose keys change.
//
// Lambda updates code and configuration of $LATEST in two calls. A version is a copy of both after both calls.
func newAlias(scope constructs.Construct, f awslambda.Function) awslambda.Alias {
	return awslambda.NewAlias(scope, jsii.String("Alias"), &awslambda.AliasProps{
		AliasName:   jsii.String(aliasName),
		Version:     f.CurrentVersion(),
		Description: jsii.String("The version in use"),
	})
}

// invokedAs returns the qualified name with which callers invoke the function: its name and the alias.
func (f function) invokedAs() *string { return jsii.String(*f.FunctionName() + ":" + aliasName) }

// namePoliciesByContent gives each policy of a role a name that depends on its permissions, so that no deployment
// changes a policy in use. A function depends on its policies: a new one is created before the function is updated.
// CloudFormation deletes the one that it replaces in UPDATE_COMPLETE_CLEANUP_IN_PROGRESS, after all updates, and so
// after the alias has moved, also by CodeDeploy
// (https://repost.aws/knowledge-center/cloudformation-stack-cleanup-stuck). The version in use keeps the permissions
// that a setting takes away. A rollback deletes the new policy only. Call it after everything else is created.
//
// An invocation of the old version can run a little longer than its policy exists. IAM is
// eventually consistent, in both directions (https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html).
//
// Meanwhile, a role has both policies. IAM allows 10,240 characters for all inline policies of a
// role (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html). The largest
// role here has less than 4,000, with the longest names.
func (p *Payhook) namePoliciesByContent() {
	for _, resource := range p.resources() {
		if policy, ok := resource.(awsiam.CfnPolicy); ok {
			p.nameByContent(policy)
		}
	}
}

func (p *Payhook) nameByContent(policy awsiam.CfnPolicy) {
	stack := awscdk.Stack_Of(p)
	// A bus with another name is another bus, to which a policy refers in the same way.
	content, err := json.Marshal([]any{p.conf.EventBusName, stack.Resolve(policy.PolicyDocument())})
	if err != nil {
		panic(err) // the CDK returns only values that JSON has
	}
	sum := sha256.Sum256(content)
	// The CDK takes the logical id as the name of the policy.
	policy.OverrideLogicalId(jsii.Sprintf("%s%X", *stack.GetLogicalId(policy), sum[:4]))
}
