package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"payhook.example/shared/claimcheck"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// otherBusARN is the bus of the stack for another account. The emulator does not deliver to
// another account, so it is in the same one.
const otherBusARN = "arn:aws:events:" + region + ":" + account + ":event-bus/payhook-receiver"

// receiverStack is the stack for another account.
const receiverStack = "PayhookReceiver"

// consumerOutputs are outputs of the consumer's stack, about its function.
type consumerOutputs struct{ logs, table, failed string }

// deployConsumer deploys the stacks of events/consumer.
func (s *stack) deployConsumer(ctx context.Context, assembly, claimBucket string) error {
	stacks, err := s.deployStacks(ctx, "deploy-consumer", assembly,
		[]string{consumerStack + ":ClaimBucket=" + claimBucket}, receiverStack, consumerStack)
	if err != nil {
		return err
	}
	outputs := stacks[consumerStack]
	if err := json.Unmarshal([]byte(outputs["Queues"]), &s.Queues); err != nil {
		return fmt.Errorf("the consumer's output Queues: %w", err)
	}
	s.Queues[otherBus] = stacks[receiverStack]["QueueUrl"]
	s.consumer = consumerOutputs{outputs["FunctionLogs"], outputs["ProcessedTable"], outputs["FailedQueueUrl"]}
	if s.Queues[otherBus] == "" || s.consumer.logs == "" || s.consumer.table == "" || s.consumer.failed == "" {
		return errors.New("an output of the consumer's stacks is missing")
	}
	return nil
}

// consumerTimeout is how long the consumer's function may take to get an event.
const consumerTimeout = 20 * time.Second

// consumerChecks returns what is to be seen of the consumer's function.
func (s *stack) consumerChecks() []*check {
	high := paymenttest.Event()
	high.EventData.Amount = "5000000000.01"
	send := func(ctx context.Context, payload []byte) error {
		_, err := s.service.Send(ctx, paymenttest.Webhook{URL: s.WebhookURL, Payload: payload})
		return err
	}
	return checksOf(ofConsumer, []*check{
		{what: "the consumer's function gets 999,999.99", must: "low",
			do: func(ctx context.Context) (string, bool, error) {
				low := paymenttest.Event()
				low.EventData.Amount = "999999.99"
				if err := send(ctx, paymenttest.Delivery(low)); err != nil {
					return "", false, err
				}
				return s.awaitOutcomes(ctx, low.EventID, "low")
			}},
		{what: "it gets 5,000,000,000.01", must: "processed, 5000000000.01 is stored",
			do: func(ctx context.Context) (string, bool, error) {
				if err := send(ctx, paymenttest.Delivery(high)); err != nil {
					return "", false, err
				}
				got, right, err := s.awaitOutcomes(ctx, high.EventID, "processed")
				if err != nil {
					return got, false, err
				}
				amount, err := s.processedAmount(ctx, high.EventID)
				return got + ", " + amount + " is stored", right && amount == "5000000000.01", err
			}},
		{what: "EventBridge delivers it a second time", must: "processed, then duplicate",
			do: func(ctx context.Context) (string, bool, error) {
				if err := s.put(ctx, paymenttest.Encode(high)); err != nil {
					return "", false, err
				}
				return s.awaitOutcomes(ctx, high.EventID, "processed, then duplicate")
			}},
		{what: "it gets a reference to a large event of 2,000,000.00", must: "processed, 2000000.00 is stored",
			do: func(ctx context.Context) (string, bool, error) {
				large := bytes.Replace(s.oversize(), []byte(`"amount":1250.00`), []byte(`"amount":2000000.00`), 1)
				event, err := payment.DecodeRawEvent(large)
				if err != nil {
					return "", false, err
				}
				if err := send(ctx, paymenttest.RawDelivery(event.EventID, large)); err != nil {
					return "", false, err
				}
				got, right, err := s.awaitOutcomes(ctx, event.EventID, "processed")
				if err != nil {
					return got, false, err
				}
				amount, err := s.processedAmount(ctx, event.EventID)
				return got + ", " + amount + " is stored", right && amount == "2000000.00", err
			}},
		{what: "it gets a reference to an event that is gone", must: "in the queue of failed events",
			do: s.failedEvent},
	})
}

// put puts an event on the bus, as EventBridge does when it delivers one again.
func (s *stack) put(ctx context.Context, detail []byte) error {
	out, err := eventbridge.NewFromConfig(s.aws).PutEvents(ctx, &eventbridge.PutEventsInput{
		Entries: []ebtypes.PutEventsRequestEntry{{
			EventBusName: &s.Bus, Source: aws.String("payhook"), DetailType: aws.String("PAYMENT_STATUS.RELEASED"),
			Detail: aws.String(string(detail)), Resources: []string{"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"},
		}}})
	if err == nil && out.FailedEntryCount > 0 {
		err = errors.New(aws.ToString(out.Entries[0].ErrorMessage))
	}
	return err
}

// awaitOutcomes waits until the function has logged the outcomes that are wanted for an event,
// and returns what it logged.
func (s *stack) awaitOutcomes(ctx context.Context, eventID, want string) (got string, right bool, err error) {
	client := cloudwatchlogs.NewFromConfig(s.aws)
	err = poll(ctx, func() (bool, error) {
		out, err := client.FilterLogEvents(ctx, &cloudwatchlogs.FilterLogEventsInput{LogGroupName: &s.consumer.logs})
		if err != nil {
			return false, err
		}
		got = ""
		for _, line := range out.Events {
			var entry struct{ EventID, Outcome string }
			if json.Unmarshal([]byte(*line.Message), &entry) != nil || entry.EventID != eventID {
				continue
			}
			if got != "" {
				got += ", then "
			}
			got += entry.Outcome
		}
		return len(got) >= len(want), nil
	})
	return got, got == want, err
}

// processedAmount returns the amount that the function has stored for an event.
func (s *stack) processedAmount(ctx context.Context, eventID string) (string, error) {
	out, err := dynamodb.NewFromConfig(s.aws).GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.consumer.table,
		ConsistentRead: aws.Bool(true),
		Key:            map[string]types.AttributeValue{"eventId": &types.AttributeValueMemberS{Value: eventID}}})
	if err != nil {
		return "", err
	}
	amount, ok := out.Item["amount"].(*types.AttributeValueMemberS)
	if !ok {
		return "", errors.New("the event is not in the table")
	}
	return amount.Value, nil
}

// failedEvent puts a reference on the bus whose object does not exist, and looks for it in the queue
// of failed events, where Lambda sends it after three invocations.
func (s *stack) failedEvent(ctx context.Context) (string, bool, error) {
	event := paymenttest.Event()
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(event))
	if err != nil {
		return "", false, err
	}
	detail, err := json.Marshal(claimcheck.Detail{EventName: event.EventName, EventID: event.EventID,
		EventTimestamp: event.EventTimestamp, EventData: raw.RoutingData(),
		ClaimCheck: claimcheck.Reference{Bucket: s.claimBucket, Key: "events/gone.json", Size: 1, SHA256: "00"}})
	if err != nil {
		return "", false, err
	}
	if err := s.put(ctx, detail); err != nil {
		return "", false, err
	}
	client := sqs.NewFromConfig(s.aws)
	got := ""
	err = poll(ctx, func() (bool, error) {
		out, err := client.ReceiveMessage(ctx,
			&sqs.ReceiveMessageInput{QueueUrl: &s.consumer.failed, WaitTimeSeconds: 5})
		if err != nil {
			return false, err
		}
		for _, m := range out.Messages {
			var failure struct {
				RequestPayload  struct{ Detail claimcheck.Detail }
				ResponsePayload struct{ ErrorMessage string }
			}
			if err := json.Unmarshal([]byte(*m.Body), &failure); err != nil {
				return false, err
			}
			if failure.RequestPayload.Detail.EventID == event.EventID {
				got = failure.ResponsePayload.ErrorMessage
			}
		}
		return got != "", nil
	})
	if err != nil {
		return got, false, err
	}
	return "in the queue of failed events: " + got, got == claimcheck.ErrGone.Error(), nil
}

// poll calls enough every 50 ms until it returns true, for at most consumerTimeout.
func poll(ctx context.Context, enough func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, consumerTimeout, errors.New("it did not arrive in time"))
	defer cancel()
	for {
		if done, err := enough(); done || err != nil {
			return err
		}
		if err := waitUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return context.Cause(ctx)
		}
	}
}
