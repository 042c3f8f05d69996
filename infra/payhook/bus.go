package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// newBus creates the event bus. It has a fixed name, so that the stacks of consumers
// can refer to it.
func newBus(scope constructs.Construct, conf settings.Deployment) awsevents.EventBus {
	return awsevents.NewEventBus(scope, jsii.String("Bus"), &awsevents.EventBusProps{
		EventBusName: jsii.String(conf.Webhook.EventBusName),
		Description:  jsii.String("Payment events that Payhook has authenticated"),
	})
}
