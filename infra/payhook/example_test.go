package payhook_test

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/infra/payhook"
)

// Two Payhooks in one stack, of which one publishes on a bus of the app, with a rule. Other tests deploy this app in a
// module of its own.
func ExampleNew() {
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Bank"), nil)
	bus := awsevents.NewEventBus(stack, jsii.String("Events"), &awsevents.EventBusProps{
		EventBusName: jsii.String("bank-events"),
	})
	queue := awssqs.NewQueue(stack, jsii.String("Released"), &awssqs.QueueProps{
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)),
	})
	reader := awsiam.NewRole(stack, jsii.String("Reader"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
	})

	hook := payhook.New(stack, jsii.String("Payments"), &payhook.Props{
		BaseURL:        "https://api.payments.example",
		AuthURL:        "https://auth.payments.example",
		TokenManagerID: "manager-1",
		Bus:            bus, // nil: the construct creates one
	})
	rule := awsevents.NewCfnRule(stack, jsii.String("Rule"), &awsevents.CfnRuleProps{
		EventBusName: hook.Bus().EventBusName(),
		EventPattern: map[string][]string{"detail-type": {"PAYMENT_STATUS.RELEASED"}},
		Targets:      []awsevents.CfnRule_TargetProperty{{Id: jsii.String("Queue"), Arn: queue.QueueArn()}},
	})
	queue.GrantSendMessages(awsiam.NewServicePrincipal(jsii.String("events.amazonaws.com"),
		&awsiam.ServicePrincipalOpts{Conditions: &map[string]any{
			"ArnEquals": map[string]any{"aws:SourceArn": rule.AttrArn()}}}))
	hook.GrantReadToken(reader)       // and kms:Decrypt, if a customer managed key encrypts the token
	hook.GrantReadLargeEvents(reader) // events that are too large for the bus
	payhook.New(stack, jsii.String("Reports"), &payhook.Props{
		BaseURL:        "https://api.payments.example",
		AuthURL:        "https://auth.payments.example",
		TokenManagerID: "manager-1",
	})

	awscdk.NewCfnOutput(stack, jsii.String("Queue"), &awscdk.CfnOutputProps{Value: queue.QueueUrl()})
	app.Synth(nil)
}
