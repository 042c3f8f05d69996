package scenario

import (
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
	"payhook.example/shared/paymenttest"
)

// Consumer has the names of the consumer's function and of its resources.
type Consumer struct{ Function, Logs, Table, Failed string }

// SetConsumer reads the outputs of the consumer's stack, and of the stack with the other bus.
func (s *Scenario) SetConsumer(outputs, receiver map[string]string) error {
	if err := json.Unmarshal([]byte(outputs["Queues"]), &s.Queues); err != nil {
		return fmt.Errorf("the consumer's output Queues: %w", err)
	}
	s.Queues[OtherBus] = receiver["QueueUrl"]
	s.Consumer = Consumer{outputs["FunctionName"], outputs["FunctionLogs"], outputs["ProcessedTable"],
		outputs["FailedQueueUrl"]}
	if s.Queues[OtherBus] == "" || s.Consumer.Function == "" || s.Consumer.Logs == "" || s.Consumer.Table == "" ||
		s.Consumer.Failed == "" {
		return errors.New("an output of the consumer's stacks is missing")
	}
	return nil
}

// consumerChecks returns the checks of the consumer's function.
func (s *Scenario) consumerChecks() []*Check {
	high := paymenttest.Event()
	high.EventData.Amount = "5000000000.01"
	return []*Check{
		check("the consumer's function gets 5,000,000,000.01", "processed, 5000000000.01 is stored",
			func(ctx context.Context) string { return s.processed(ctx, high.EventID, paymenttest.Encode(high)) }),
		check("it is invoked with the same event again, as by EventBridge", "processed, then duplicate",
			func(ctx context.Context) string {
				s.invokeConsumer(ctx, paymenttest.Encode(high))
				return s.awaitOutcomes(ctx, high.EventID, "processed, then duplicate")
			}),
		check("it gets a reference to an event that is too large for the bus, of 2,000,000.00", "processed, 2000000.00 is stored",
			func(ctx context.Context) string {
				id, large := s.oversize()
				return s.processed(ctx, id, large)
			}),
		check("it is invoked with a reference to an event that is gone",
			"in the queue of failed events: "+claimcheck.ErrGone.Error(), s.failedEvent),
	}
}

// processed sends a delivery with one event, and returns what the function did with it.
func (s *Scenario) processed(ctx context.Context, eventID string, event []byte) string {
	s.post(ctx, paymenttest.RawDelivery(uuid.New().String(), event))
	got := s.awaitOutcomes(ctx, eventID, "processed")
	out := Must(dynamodb.NewFromConfig(s.AWS).GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.Consumer.Table,
		ConsistentRead: aws.Bool(true),
		Key:            map[string]types.AttributeValue{"eventId": &types.AttributeValueMemberS{Value: eventID}}}))
	if amount, ok := out.Item["amount"].(*types.AttributeValueMemberS); ok {
		return got + ", " + amount.Value + " is stored"
	}
	return got + ", nothing is stored"
}

// invokeConsumer invokes the function as EventBridge does: asynchronously, with the detail in an
// envelope. It does not publish, because Payhook's bus accepts only Payhook's functions.
func (s *Scenario) invokeConsumer(ctx context.Context, detail []byte) {
	event := Must(json.Marshal(map[string]any{
		"version": "0", "id": uuid.New().String(), "source": "payhook", "detail-type": "PAYMENT_STATUS.RELEASED",
		"account": "000000000000", "region": s.Region, "time": time.Now().UTC().Format(time.RFC3339),
		"resources": []string{uuid.New().String()}, "detail": json.RawMessage(detail),
	}))
	Must(lambda.NewFromConfig(s.AWS).Invoke(ctx, &lambda.InvokeInput{FunctionName: &s.Consumer.Function,
		InvocationType: lambdatypes.InvocationTypeEvent, Payload: event}))
}

// awaitOutcomes waits until the function has logged as many outcomes for an event as expected,
// and returns them.
func (s *Scenario) awaitOutcomes(ctx context.Context, eventID, expected string) (got string) {
	client := cloudwatchlogs.NewFromConfig(s.AWS)
	s.poll(ctx, func() bool {
		var outcomes []string
		// A page can be empty although others follow (AWS, "FilterLogEvents":
		// https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html).
		pages := cloudwatchlogs.NewFilterLogEventsPaginator(client,
			&cloudwatchlogs.FilterLogEventsInput{LogGroupName: &s.Consumer.Logs})
		for pages.HasMorePages() {
			for _, line := range Must(pages.NextPage(ctx)).Events {
				var entry struct{ EventID, Outcome string }
				if json.Unmarshal([]byte(*line.Message), &entry) == nil && entry.EventID == eventID {
					outcomes = append(outcomes, entry.Outcome)
				}
			}
		}
		got = strings.Join(outcomes, ", then ")
		return len(got) >= len(expected)
	})
	return got
}

// failedEvent invokes the function with a reference whose object does not exist, and waits for
// the event in the queue to which Lambda sends it after three invocations.
func (s *Scenario) failedEvent(ctx context.Context) (got string) {
	event := paymenttest.Event()
	text := paymenttest.Encode(event)
	s.invokeConsumer(ctx, fmt.Appendf(text[:len(text)-1],
		`,"claimCheck":{"bucket":%q,"key":"events/gone.json","size":1,"sha256":"00"}}`, s.ClaimBucket))
	client := sqs.NewFromConfig(s.AWS)
	s.poll(ctx, func() bool {
		for _, m := range Must(client.ReceiveMessage(ctx,
			&sqs.ReceiveMessageInput{QueueUrl: &s.Consumer.Failed, WaitTimeSeconds: 5})).Messages {
			var failure struct{ ResponsePayload struct{ ErrorMessage string } }
			Require(json.Unmarshal([]byte(*m.Body), &failure))
			if strings.Contains(*m.Body, event.EventID) {
				got = "in the queue of failed events: " + failure.ResponsePayload.ErrorMessage
			}
		}
		return got != ""
	})
	return got
}
