package payhook_test

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscodedeploy"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/infra/payhook"
)

func ExamplePayhook_WebhookAlias() {
	stack := awscdk.NewStack(awscdk.NewApp(nil), jsii.String("Bank"), nil)
	hook := payhook.New(stack, jsii.String("Payments"), &payhook.Props{
		BaseURL: "https://api.payments.example", AuthURL: "https://auth.payments.example", TokenManagerID: "manager-1",
	})
	losses := hook.Alarms("not-stored", "parked", "webhook-failed")
	awscodedeploy.NewLambdaDeploymentGroup(stack, jsii.String("Canary"), &awscodedeploy.LambdaDeploymentGroupProps{
		Alias: hook.WebhookAlias(), Alarms: &losses,
		DeploymentConfig: awscodedeploy.LambdaDeploymentConfig_CANARY_10PERCENT_5MINUTES(),
	})
	fmt.Println(len(losses), "of", len(hook.Alarms()), "alarms roll back", *hook.WebhookAlias().Node().Path())
	// Output: 3 of 12 alarms roll back Bank/Payments/Webhook/Alias
}
