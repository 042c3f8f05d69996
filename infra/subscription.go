package main

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"payhook/shared/contract"
)

// newSubscriptionSheet makes the output that lists what the service's operator
// asks for at subscription (the interface, section 5.2).
func newSubscriptionSheet(stack awscdk.Stack, settings contract.Deployment, url *string) {
	sheet := fmt.Sprintf(`
URL that receives all webhooks: %s
Authentication mechanism: signature verification
Event grouping: any; deliveries of one event and of many are taken, up to %d bytes each
Events: all; PAYMENT_STATUS.RELEASED at least
Method: %s
Answer to a webhook that was taken: %d
`, *url, min(settings.Webhook.MaxPayloadBytes, contract.SafePayloadBytes), settings.Webhook.HTTPMethod, settings.Webhook.SuccessStatus)
	output(stack, "SubscriptionSheet", "for the operator's implementation team", &sheet)
}
