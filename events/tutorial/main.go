// Command tutorial is the app of events/TUTORIAL.md: Payhook, and a function that gets every event.
package main

import (
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/infra/payhook"
)

func main() {
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("First"), nil)
	hook := payhook.New(stack, jsii.String("Default"), &payhook.Props{
		BaseURL: os.Getenv("BASE_URL"), AuthURL: os.Getenv("AUTH_URL"), TokenManagerID: "manager-1"})
	function := awslambda.NewFunction(stack, jsii.String("Function"), &awslambda.FunctionProps{
		FunctionName: jsii.String("first"), Runtime: awslambda.Runtime_PYTHON_3_13(),
		Handler: jsii.String("index.handler"), Code: awslambda.Code_FromInline(
			jsii.String("import json\ndef handler(event, _): print(json.dumps(event))"))})
	// awseventstargets has this in one call. To compile the packages that it imports takes another minute.
	rule := awsevents.NewCfnRule(stack, jsii.String("Rule"), &awsevents.CfnRuleProps{
		EventBusName: hook.Bus().EventBusName(), EventPattern: map[string][]string{"source": {"payhook"}},
		Targets: []awsevents.CfnRule_TargetProperty{{Id: jsii.String("Function"), Arn: function.FunctionArn()}}})
	function.AddPermission(jsii.String("Rule"), &awslambda.Permission{SourceArn: rule.AttrArn(),
		Principal: awsiam.NewServicePrincipal(jsii.String("events.amazonaws.com"), nil)})
	app.Synth(nil)
}
