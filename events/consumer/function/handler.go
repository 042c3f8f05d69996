package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/claimcheck"
	"payhook.example/shared/payment"
)

// keep is how long a processed event is remembered: longer than the 30 days in which Payhook
// recognizes a duplicate and the 14 days in which a dead-letter queue can return an event.
const keep = 45 * 24 * time.Hour

// handler processes each payment of a high amount once.
type handler struct {
	claims claimcheck.GetAPI
	table  interface {
		PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	}
	tableName string
	threshold *big.Rat
	log       *slog.Logger
	now       func() time.Time
}

// handle processes one event. After an error, Lambda invokes it again with the same event, twice,
// and then sends the event to the queue of failed events.
func (h *handler) handle(ctx context.Context, e events.EventBridgeEvent) error {
	raw, err := claimcheck.Resolve(ctx, h.claims, e.Detail)
	if err != nil {
		return err
	}
	event, err := payment.DecodeEvent(raw)
	if err != nil {
		return err
	}
	outcome, err := h.process(ctx, event)
	if err != nil {
		return fmt.Errorf("event %s: %w", event.EventID, err)
	}
	h.log.InfoContext(ctx, "payment", "eventId", event.EventID, "outcome", outcome)
	return nil
}

// process stores a payment if its amount is high. The rule cannot decide that: see
// events/rules/README.md. An amount of more than 1000 digits counts as high.
//
// The write is the effect and is conditional, so it happens once. If your effect is elsewhere,
// produce it before the write, with the eventId as its idempotency key: a failure in between
// repeats it with the same key. Writing first would lose it.
func (h *handler) process(ctx context.Context, event payment.Event) (outcome string, err error) {
	amount, ok := event.EventData.Amount.Rat()
	if ok && amount.Cmp(h.threshold) < 0 || event.EventData.Amount == "" {
		return "low", nil
	}
	_, err = h.table.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &h.tableName,
		Item: map[string]types.AttributeValue{
			"eventId":  &types.AttributeValueMemberS{Value: event.EventID},
			"amount":   &types.AttributeValueMemberS{Value: string(event.EventData.Amount)},
			"currency": &types.AttributeValueMemberS{Value: event.EventData.PaymentCurrency},
			"expires":  &types.AttributeValueMemberN{Value: strconv.FormatInt(h.now().Add(keep).Unix(), 10)},
		},
		ConditionExpression: aws.String("attribute_not_exists(eventId)"),
	})
	if _, known := errors.AsType[*types.ConditionalCheckFailedException](err); known {
		return "duplicate", nil
	}
	return "processed", err
}
