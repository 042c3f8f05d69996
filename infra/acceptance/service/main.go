// Command service is a CDK app that deploys the simulated payment service of "payhook acceptance": a Lambda function
// behind a function URL, without any permission but to write its log. The URL has no authentication of AWS, because
// Payhook calls it as a payment service. It serves public keys and tokens of the simulation only.
package main

import (
	"runtime"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"
)

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	name, _ := app.Node().TryGetContext(jsii.String("stackName")).(string)
	stack := awscdk.NewStack(app, jsii.String("Service"), &awscdk.StackProps{
		StackName:   &name,
		Description: jsii.String("A simulated payment service, for payhook acceptance"),
	})
	// The function is compiled for the processor of this machine, where an emulator runs it.
	architecture := awslambda.Architecture_ARM_64()
	if runtime.GOARCH == "amd64" {
		architecture = awslambda.Architecture_X86_64()
	}
	function := awslambda.NewFunction(stack, jsii.String("Function"), &awslambda.FunctionProps{
		Description:  jsii.String("Serves public keys and tokens of a simulated payment service"),
		Code:         awslambda.Code_FromAsset(jsii.String("../../../.build/service-function"), nil),
		Handler:      jsii.String("bootstrap"),
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: architecture,
		MemorySize:   jsii.Number(256),
		Timeout:      awscdk.Duration_Seconds(jsii.Number(30)),
	})
	url := function.AddFunctionUrl(&awslambda.FunctionUrlOptions{AuthType: awslambda.FunctionUrlAuthType_NONE,
		InvokeMode: awslambda.InvokeMode_RESPONSE_STREAM}) // package lambdaurl needs it
	for output, value := range map[string]*string{"ServiceUrl": url.Url(), "FunctionName": function.FunctionName()} {
		awscdk.NewCfnOutput(stack, jsii.String(output), &awscdk.CfnOutputProps{Value: value})
	}
	app.Synth(nil)
}
