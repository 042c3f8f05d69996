package payhook_test

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscodedeploy"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/infra/payhook"
)

func ExampleNew() {
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Bank"), nil)
	bus := awsevents.NewEventBus(stack, jsii.String("Events"), nil)
	fn := awslambda.NewFunction(stack, jsii.String("Booking"), &awslambda.FunctionProps{
		Runtime: awslambda.Runtime_NODEJS_24_X(),
		Handler: jsii.String("index.handler"),
		Code: awslambda.Code_FromInline(jsii.String("exports.handler = async (event) => " +
			"console.log(event.detail.eventId)")),
	})

	hook := payhook.New(stack, jsii.String("Payments"), &payhook.Props{
		BaseURL:        "https://api.payments.example",
		AuthURL:        "https://auth.payments.example",
		TokenManagerID: "manager-1",
		Bus:            bus, // nil: the construct creates one
	})
	awsevents.NewRule(stack, jsii.String("Released"), &awsevents.RuleProps{
		EventBus:     hook.Bus(),
		EventPattern: &awsevents.EventPattern{DetailType: jsii.Strings("PAYMENT_STATUS.RELEASED")},
		Targets:      &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(fn, nil)},
	})
	hook.GrantReadToken(fn)  // and kms:Decrypt, if a customer managed key encrypts the token
	hook.GrantReadClaims(fn) // events that are too large for the bus
	awscdk.NewCfnOutput(stack, jsii.String("URL"), &awscdk.CfnOutputProps{Value: hook.URL()})
	losses := hook.Alarms("not-stored", "parked", "webhook-failed")
	awscodedeploy.NewLambdaDeploymentGroup(stack, jsii.String("Canary"), &awscodedeploy.LambdaDeploymentGroupProps{
		Alias: hook.WebhookAlias(), Alarms: &losses,
		DeploymentConfig: awscodedeploy.LambdaDeploymentConfig_CANARY_10PERCENT_5MINUTES(),
	})
	fmt.Println(len(losses), "alarms roll back", *hook.WebhookAlias().Node().Path())
	fmt.Println(len(hook.Alarms()), "alarms notify", *hook.AlarmTopic().Node().Path())

	fmt.Println(*app.Synth(nil).GetStackByName(jsii.String("Bank")).StackName())
	// Output:
	// 3 alarms roll back Bank/Payments/Webhook/Alias
	// 12 alarms notify Bank/Payments/Alarms/Topic
	// Bank
}
