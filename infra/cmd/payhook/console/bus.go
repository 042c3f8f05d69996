package console

import (
	"context"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	"payhook.example/infra/cmd/payhook/listen"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
)

// deny is the name of the policy that denies to publish.
const deny = "payhook-console-stops-the-bus"

// setBus stops or starts the event bus for the functions of the local run. To do so twice is no error.
func setBus(ctx context.Context, d *deployment.Deployment, stopped bool) error {
	if stopped {
		return d.Deny(ctx, deny, "events:PutEvents", "*")
	}
	return d.Allow(ctx, deny)
}

// faults returns the faults of services as they are, whoever set them; none for a service that
// has none.
func faults(ctx context.Context, d *deployment.Deployment) (map[string]string, error) {
	now := map[string]string{}
	if d.Simulated {
		service, err := paymenttest.Remote{URL: d.PaymentService}.Do(ctx, paymenttest.Command{})
		if err != nil {
			return nil, err
		}
		for endpoint, fault := range service.Faults {
			if fault != "" {
				now[string(endpoint)] = string(fault)
			}
		}
	}
	stopped, err := d.Denies(ctx, deny)
	if stopped {
		now[eventBus] = string(paymenttest.Down)
	}
	return now, err
}

// rulesFor returns the short names of the bus's rules that match an event in EventBridge's
// envelope. The temporary rules of listeners match every event, and are left out.
func rulesFor(ctx context.Context, d *deployment.Deployment, event string) (names []string, err error) {
	client := eventbridge.NewFromConfig(d.AWS)
	for input := (&eventbridge.ListRulesInput{EventBusName: &d.Bus}); ; {
		page, err := client.ListRules(ctx, input)
		if err != nil {
			return nil, err
		}
		for _, rule := range page.Rules {
			if strings.HasPrefix(aws.ToString(rule.Name), listen.Prefix) || rule.EventPattern == nil {
				continue
			}
			test, err := client.TestEventPattern(ctx,
				&eventbridge.TestEventPatternInput{Event: &event, EventPattern: rule.EventPattern})
			if err != nil {
				return nil, err
			}
			if test.Result {
				names = append(names, short(*rule.Name))
			}
		}
		if input.NextToken = page.NextToken; page.NextToken == nil {
			return names, nil
		}
	}
}

// generated matches a name that CloudFormation made of the stack, a logical id of the CDK and
// random characters.
var generated = regexp.MustCompile(`^.+-([0-9A-Za-z]+?)(?:Rule)?[0-9A-F]{8}-[0-9A-Za-z]+$`)

// short returns the part of a rule's name that the author of the rule chose.
func short(name string) string { return generated.ReplaceAllString(name, "$1") }
