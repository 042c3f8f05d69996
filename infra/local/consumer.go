package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
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

// Consumer has the names of the consumer's function and of what belongs to it.
type Consumer struct{ Function, Logs, Table, Failed string }

// deployConsumer deploys the stacks of events/consumer.
func (s *stack) deployConsumer(ctx context.Context, assembly, claimBucket string) error {
	stacks, err := s.deployStacks(ctx, "deploy-consumer", assembly,
		[]string{consumerStack + ":ClaimBucket=" + claimBucket}, receiverStack, consumerStack)
	if err != nil {
		return err
	}
	return s.readConsumer(stacks[consumerStack], stacks[receiverStack])
}

// readConsumer reads where things are from the outputs of the consumer's stack, and of the
// stack with the other bus.
func (s *stack) readConsumer(outputs, receiver map[string]string) error {
	if err := json.Unmarshal([]byte(outputs["Queues"]), &s.Queues); err != nil {
		return fmt.Errorf("the consumer's output Queues: %w", err)
	}
	s.Queues[otherBus] = receiver["QueueUrl"]
	s.consumer = Consumer{outputs["FunctionName"], outputs["FunctionLogs"], outputs["ProcessedTable"],
		outputs["FailedQueueUrl"]}
	if s.Queues[otherBus] == "" || s.consumer.Function == "" || s.consumer.Logs == "" || s.consumer.Table == "" ||
		s.consumer.Failed == "" {
		return errors.New("an output of the consumer's stacks is missing")
	}
	return nil
}

// within returns how long to wait for what takes the emulator at most d. In an account, cold
// starts, EventBridge and the log take longer, and Lambda tries a failed event again after one
// minute and after two more (AWS, "How Lambda handles errors and retries with asynchronous
// invocation": https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html).
func (s *stack) within(d time.Duration) time.Duration {
	if s.Endpoint == "" {
		return 20 * d
	}
	return d
}

// consumerChecks returns what is to be seen of the consumer's function.
func (s *stack) consumerChecks() []*check {
	high := paymenttest.Event()
	high.EventData.Amount = "5000000000.01"
	send := func(ctx context.Context, payload []byte) error {
		_, err := s.shown.Sender().Send(ctx, paymenttest.Webhook{URL: s.WebhookURL, Payload: payload})
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
		{what: "it is invoked with the same event again, as by EventBridge", must: "processed, then duplicate",
			do: func(ctx context.Context) (string, bool, error) {
				if err := s.invokeConsumer(ctx, paymenttest.Encode(high)); err != nil {
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
		{what: "it is invoked with a reference to an event that is gone", must: "in the queue of failed events",
			do: s.failedEvent},
	})
}

// invokeConsumer invokes the consumer's function as EventBridge does: asynchronously, with the
// detail in an envelope. It does not publish, because Payhook's bus accepts events of Payhook's
// functions only.
func (s *stack) invokeConsumer(ctx context.Context, detail []byte) error {
	event, err := json.Marshal(map[string]any{
		"version": "0", "id": uuid.New().String(), "source": "payhook", "detail-type": "PAYMENT_STATUS.RELEASED",
		"account": account, "region": s.Region, "time": time.Now().UTC().Format(time.RFC3339),
		"resources": []string{uuid.New().String()}, "detail": json.RawMessage(detail),
	})
	if err != nil {
		return err
	}
	_, err = lambda.NewFromConfig(s.AWS).Invoke(ctx, &lambda.InvokeInput{FunctionName: &s.consumer.Function,
		InvocationType: lambdatypes.InvocationTypeEvent, Payload: event})
	return err
}

// awaitOutcomes waits until the function has logged the outcomes that are wanted for an event,
// and returns what it logged.
func (s *stack) awaitOutcomes(ctx context.Context, eventID, want string) (got string, right bool, err error) {
	client := cloudwatchlogs.NewFromConfig(s.AWS)
	err = s.poll(ctx, func() (bool, error) {
		var outcomes []string
		// A page can be empty although others follow (AWS, "FilterLogEvents":
		// https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html).
		pages := cloudwatchlogs.NewFilterLogEventsPaginator(client,
			&cloudwatchlogs.FilterLogEventsInput{LogGroupName: &s.consumer.Logs})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return false, err
			}
			for _, line := range page.Events {
				var entry struct{ EventID, Outcome string }
				if json.Unmarshal([]byte(*line.Message), &entry) == nil && entry.EventID == eventID {
					outcomes = append(outcomes, entry.Outcome)
				}
			}
		}
		got = strings.Join(outcomes, ", then ")
		return len(got) >= len(want), nil
	})
	return got, got == want, err
}

// processedAmount returns the amount that the function has stored for an event.
func (s *stack) processedAmount(ctx context.Context, eventID string) (string, error) {
	out, err := dynamodb.NewFromConfig(s.AWS).GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.consumer.Table,
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

// failedEvent invokes the function with a reference whose object does not exist, and looks for it in
// the queue of failed events, where Lambda sends it after three invocations.
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
	if err := s.invokeConsumer(ctx, detail); err != nil {
		return "", false, err
	}
	client := sqs.NewFromConfig(s.AWS)
	got := ""
	err = s.poll(ctx, func() (bool, error) {
		out, err := client.ReceiveMessage(ctx,
			&sqs.ReceiveMessageInput{QueueUrl: &s.consumer.Failed, WaitTimeSeconds: 5})
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

// poll calls enough until it returns true: on the emulator every 50 ms for at most 20 s, in an
// account every second. CloudWatch Logs has a quota of calls a second.
func (s *stack) poll(ctx context.Context, enough func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.within(20*time.Second), errors.New("it did not arrive in time"))
	defer cancel()
	for {
		if done, err := enough(); done || err != nil {
			return err
		}
		if err := waitUntil(ctx, time.Now().Add(s.within(50*time.Millisecond))); err != nil {
			return context.Cause(ctx)
		}
	}
}
