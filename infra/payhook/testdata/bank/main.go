// Command bank is a CDK app of a module of its own: one stack with two Payhooks, of which one
// publishes on a bus of the app, and a rule on that bus. BASE_URL and AUTH_URL are those of
// the payment service. With ENCRYPTION, a key of the app encrypts what both store.
package main

import (
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/infra/payhook"
)

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Bank"), nil)

	bus := awsevents.NewEventBus(stack, jsii.String("Events"), &awsevents.EventBusProps{
		EventBusName: jsii.String("bank-events"),
	})
	var key awskms.IKey
	if os.Getenv("ENCRYPTION") != "" {
		key = awskms.NewKey(stack, jsii.String("Key"), nil)
	}
	payments := payhook.New(stack, jsii.String("Payments"), &payhook.Props{
		BaseURL: os.Getenv("BASE_URL"), AuthURL: os.Getenv("AUTH_URL"), TokenManagerID: "manager-1",
		Bus: bus, EncryptionKey: key,
	})
	payhook.New(stack, jsii.String("Reports"), &payhook.Props{
		BaseURL: os.Getenv("BASE_URL"), AuthURL: os.Getenv("AUTH_URL"), TokenManagerID: "manager-1",
		EncryptionKey: key,
	})

	queue := awssqs.NewQueue(stack, jsii.String("Released"), &awssqs.QueueProps{
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)),
	})
	awsevents.NewRule(stack, jsii.String("Rule"), &awsevents.RuleProps{
		EventBus:     payments.Bus(),
		EventPattern: &awsevents.EventPattern{DetailType: jsii.Strings("PAYMENT_STATUS.RELEASED")},
		Targets:      &[]awsevents.IRuleTarget{awseventstargets.NewSqsQueue(queue, nil)},
	})
	reader := awsiam.NewRole(stack, jsii.String("Reader"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
	})
	payments.GrantReadToken(reader)
	payments.GrantReadClaims(reader)
	awscdk.NewCfnOutput(stack, jsii.String("Queue"), &awscdk.CfnOutputProps{Value: queue.QueueUrl()})

	app.Synth(nil)
}
