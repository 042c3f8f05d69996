package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscodedeploy"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// aliasName is the alias through which every function is invoked.
const aliasName = "live"

// versionOptions keep a version when the next one takes its place. The alias may
// send requests to the old version for a moment after it has been updated, and a
// rollback needs it.
//
// The version of a deployment that fails goes with its rollback. If it stayed, the
// next attempt would fail: Lambda publishes no version if code and configuration
// are those of the last one (AWS, "PublishVersion" in the Lambda API reference).
func versionOptions() *awslambda.VersionOptions {
	return &awslambda.VersionOptions{RemovalPolicy: awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE}
}

// newAlias makes the alias of the function's current version. The CDK names a
// version by a hash of the function's code, configuration and environment, so that
// each change of these publishes a version (AWS, "Versions" in the AWS CDK's
// overview of aws-lambda). The hash holds the logical names of the resources that
// the environment refers to. A resource that is replaced under the same logical
// name needs a change of the function to be noticed; of the resources here, only
// tables whose keys change could be.
//
// Lambda updates code and configuration of $LATEST in two calls. A version is a
// copy of both, made when both are in place.
func newAlias(scope constructs.Construct, f awslambda.Function) awslambda.Alias {
	return awslambda.NewAlias(scope, jsii.String("Alias"), &awslambda.AliasProps{
		AliasName:   jsii.String(aliasName),
		Version:     f.CurrentVersion(),
		Description: jsii.String("The version that is in use"),
	})
}

// invokedAs is the name under which the function is invoked: its own, and the
// alias.
func (f function) invokedAs() *string { return jsii.String(*f.FunctionName() + ":" + aliasName) }

// lossAlarms are the alarms that end a canary deployment. Each is raised by
// authentic webhooks or by the function's failures only, so that strangers cannot
// hold up a deployment. (Any stranger can raise unauthenticated.)
var lossAlarms = []string{"webhook-errors", "not-stored", "parked"}

// shiftByCanary makes CodeDeploy shift the alias of the webhook function: a tenth
// of the webhooks for 5 minutes, then all. It shifts back, and the deployment of
// the stack fails, if one of the alarms is raised meanwhile.
//
// The other two functions run once a minute, and the next run does what a failed
// one left undone: a part of their runs would show too little.
func shiftByCanary(stack awscdk.Stack, alias awslambda.Alias, alarms map[string]awscloudwatch.CfnAlarm) {
	scope := constructs.NewConstruct(stack, jsii.String("Canary"))
	var watched []interfacesawscloudwatch.IAlarmRef
	for _, name := range lossAlarms {
		watched = append(watched, alarms[name])
	}
	awscodedeploy.NewLambdaDeploymentGroup(scope, jsii.String("Group"), &awscodedeploy.LambdaDeploymentGroupProps{
		Alias:            alias,
		DeploymentConfig: awscodedeploy.LambdaDeploymentConfig_CANARY_10PERCENT_5MINUTES(),
		Alarms:           &watched,
	})
}
