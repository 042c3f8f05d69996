package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
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
	s.Queues[OtherBus], s.payments, s.consumer = receiver["QueueUrl"], outputs["PaymentsTable"], outputs["FunctionName"]
	if s.Queues[OtherBus] == "" || s.payments == "" || s.consumer == "" {
		return errors.New("an output of the consumer's stacks is missing")
	}
	return nil
}

// latest returns the status and the amount that the consumer's function has stored of a payment.
func (s *Scenario) latest(ctx context.Context, id string) string {
	out := Must(dynamodb.NewFromConfig(s.AWS).GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.payments,
		ConsistentRead: aws.Bool(true), Key: map[string]types.AttributeValue{
			"paymentId": &types.AttributeValueMemberS{Value: id}}}))
	var item struct{ Status, Amount string }
	Require(attributevalue.UnmarshalMap(out.Item, &item))
	return strings.TrimSpace(item.Status + " " + item.Amount)
}

// consumerChecks returns the checks of the consumer's function.
func (s *Scenario) consumerChecks() []*Check {
	var released payment.Event // of the first check
	id := func(e payment.Event) string { return e.EventData.Identifiers.SvcUniquePaymentID }
	stores := func(amount payment.Amount, size int) func(context.Context) string {
		return func(ctx context.Context) (got string) {
			event := paymenttest.Event()
			event.EventData.Amount = amount
			s.post(ctx, paymenttest.RawDelivery(uuid.New().String(), padded(event, size)))
			s.poll(ctx, func() bool {
				got = s.latest(ctx, id(event))
				return got != ""
			})
			released = event
			return got + " is stored"
		}
	}
	return []*Check{
		check("the consumer's function gets a reference to an event of 2,000,000.00 that is too large for the bus",
			"RELEASED 2000000.00 is stored", stores("2000000.00", settings.ClaimCheckBytes)),
		check("it gets 5,000,000,000.01", "RELEASED 5000000000.01 is stored",
			stores("5000000000.01", 0)),
		check("it gets that again, and later and earlier statuses, in any order", "the latest is always stored",
			func(ctx context.Context) string {
				events := []struct { // in the order of their times and ids
					status, id string
					at, sent   time.Duration // after the times of the one that is stored
				}{
					{"ACCEPTED", released.EventID, -1, 1},
					{"RELEASED", released.EventID, 0, 0},
					{"LATER", "00000000-0000-4000-8000-000000000000", 0, 1},
					{"LARGER", "00000000-0000-4000-8000-000000000001", 0, 1},
					{"SETTLED", "00000000-0000-4000-8000-000000000000", 1, -1},
				}
				latest := 1
				for _, i := range []int{0, 1, 2, 1, 3, 2, 3, 4, 3, 2, 1, 0} {
					e, next := events[i], released
					next.EventID, next.EventTimestamp = e.id, next.EventTimestamp.Add(e.sent*time.Second)
					data := &next.EventData.PaymentStatus
					data.Status, data.StatusTime = e.status, data.StatusTime.Add(e.at*time.Second)
					event := fmt.Sprintf(`{"detail":%s}`, paymenttest.Encode(next))
					Require(s.invoke(ctx, s.consumer, event, &struct{}{}))
					latest = max(latest, i)
					if got, want := s.latest(ctx, id(released)), events[latest].status+" 5000000000.01"; got != want {
						return fmt.Sprintf("%s is stored after %s, not %s", got, e.status, want)
					}
				}
				return "the latest is always stored"
			}),
	}
}
