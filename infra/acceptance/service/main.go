// Command service is a CDK app that deploys the simulated payment service: a Lambda
// function behind a function URL, and a bucket with its state. "payhook acceptance"
// deploys it beside Payhook, as the service whose webhooks Payhook receives.
//
// The function URL has no authentication of AWS, because Payhook calls it as a payment
// service. It serves public keys and tokens of the simulation only. The sender of webhooks
// writes its state to the bucket; the function can only read it. A bus beside it is for
// checks of the limits of EventBridge.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

func main() {
	if err := synth(); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

func synth() error {
	defer jsii.Close()
	app := awscdk.NewApp(&awscdk.AppProps{AutoSynth: jsii.Bool(false)})
	name, _ := app.Node().TryGetContext(jsii.String("stackName")).(string)
	// An emulator runs the function as a process of this machine.
	arch := "arm64"
	if app.Node().TryGetContext(jsii.String("local")) == "true" {
		arch = runtime.GOARCH
	}
	folder, err := os.MkdirTemp("", "payhook-service-")
	if err != nil {
		return err
	}
	// The CDK has copied it then.
	defer os.RemoveAll(folder)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags=lambda.norpc", "-ldflags=-s -w", "-o",
		filepath.Join(folder, "bootstrap"), "./function")
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=auto", "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, output)
	}
	newStack(app, name, arch, awslambda.Code_FromAsset(jsii.String(folder), nil))
	app.Synth(nil)
	return nil
}

func newStack(scope constructs.Construct, name, arch string, code awslambda.Code) awscdk.Stack {
	stack := awscdk.NewStack(scope, jsii.String("Service"), &awscdk.StackProps{
		StackName:   &name,
		Description: jsii.String("A simulated payment service, for payhook acceptance"),
	})
	bucket := awss3.NewBucket(stack, jsii.String("State"), &awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		Encryption:        awss3.BucketEncryption_S3_MANAGED,
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		EnforceSSL:        jsii.Bool(true),
	})
	logs := awslogs.NewLogGroup(stack, jsii.String("Logs"), nil)
	// The managed policy of the CDK's default role can write to every log group.
	role := awsiam.NewRole(stack, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
	})
	allow := func(resource *string, actions ...string) {
		role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Actions: jsii.Strings(actions...), Resources: &[]*string{resource},
		}))
	}
	allow(logs.LogGroupArn(), "logs:CreateLogStream", "logs:PutLogEvents")
	allow(bucket.ArnForObjects(jsii.String("state.json")), "s3:GetObject")
	architecture := awslambda.Architecture_ARM_64()
	if arch == "amd64" {
		architecture = awslambda.Architecture_X86_64()
	}
	function := awslambda.NewFunction(stack, jsii.String("Function"), &awslambda.FunctionProps{
		Description:  jsii.String("Serves public keys and tokens of a simulated payment service"),
		Code:         code,
		Handler:      jsii.String("bootstrap"),
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: architecture,
		MemorySize:   jsii.Number(256),
		Timeout:      awscdk.Duration_Seconds(jsii.Number(30)),
		Environment:  &map[string]*string{"STATE_BUCKET": bucket.BucketName()},
		Role:         role,
		LogGroup:     logs,
	})
	url := function.AddFunctionUrl(&awslambda.FunctionUrlOptions{AuthType: awslambda.FunctionUrlAuthType_NONE})
	for output, value := range map[string]*string{
		"ServiceUrl": url.Url(), "StateBucket": bucket.BucketName(),
		// Payhook's own bus accepts events of its functions only.
		"LimitsBus": awsevents.NewEventBus(stack, jsii.String("Limits"), &awsevents.EventBusProps{
			EventBusName: jsii.String(strings.ToLower(name) + "-limits")}).EventBusName(),
	} {
		awscdk.NewCfnOutput(stack, jsii.String(output), &awscdk.CfnOutputProps{Value: value})
	}
	return stack
}
