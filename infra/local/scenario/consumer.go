package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// SetConsumer reads the outputs of the consumer's stack, and of the stack with the other bus.
func (s *Scenario) SetConsumer(outputs, receiver map[string]string) error {
	if err := json.Unmarshal([]byte(outputs["Queues"]), &s.Queues); err != nil {
		return fmt.Errorf("the consumer's output Queues: %w", err)
	}
	s.Queues[OtherBus], s.processed = receiver["QueueUrl"], outputs["ProcessedTable"]
	if s.Queues[OtherBus] == "" || s.processed == "" {
		return errors.New("an output of the consumer's stacks is missing")
	}
	return nil
}

// consumerChecks returns the checks of the consumer's function.
func (s *Scenario) consumerChecks() []*Check {
	stores := func(amount payment.Amount, size int) func(context.Context) string {
		return func(ctx context.Context) (got string) {
			event := paymenttest.Event()
			key := map[string]types.AttributeValue{"eventId": &types.AttributeValueMemberS{Value: event.EventID}}
			event.EventData.Amount = amount
			s.post(ctx, paymenttest.RawDelivery(uuid.New().String(), padded(event, size)))
			s.poll(ctx, func() bool {
				out := Must(dynamodb.NewFromConfig(s.AWS).GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.processed,
					ConsistentRead: aws.Bool(true), Key: key}))
				if stored, ok := out.Item["amount"].(*types.AttributeValueMemberS); ok {
					got = stored.Value
				}
				return got != ""
			})
			return got + " is stored"
		}
	}
	return []*Check{
		check("the consumer's function gets 5,000,000,000.01", "5000000000.01 is stored", stores("5000000000.01", 0)),
		check("it gets a reference to an event of 2,000,000.00 that is too large for the bus", "2000000.00 is stored",
			stores("2000000.00", settings.ClaimCheckBytes)),
	}
}
