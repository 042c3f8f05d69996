package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/aws/s3"
	"payhook.example/shared/payment"
)

// handler keeps the latest status of each payment in a table.
type handler struct {
	claims s3.GetAPI
	table  interface {
		PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	}
	tableName string
	log       *slog.Logger
}

// errIncomplete is returned for an event without what the table needs. The interface does not say which
// fields are always sent (section 2.4), and events are published whatever their data are.
var errIncomplete = errors.New("svcUniquePaymentId or status is missing or not a text")

// handle processes one event. After an error, Lambda invokes it again with the same event, twice,
// and then sends the event to the queue of failed events.
func (h *handler) handle(ctx context.Context, e events.EventBridgeEvent) error {
	raw, err := s3.Resolve(ctx, h.claims, e.Detail)
	if err != nil {
		return err
	}
	event, err := payment.DecodeEvent(raw)
	if err != nil {
		return err
	}
	outcome, err := h.store(ctx, event)
	if err != nil {
		return fmt.Errorf("event %s: %w", event.EventID, err)
	}
	h.log.InfoContext(ctx, "payment", "eventId", event.EventID, "outcome", outcome, "deviations", event.Deviations)
	return nil
}

// sortable is the format of times in the table. DynamoDB compares strings byte by byte, so all have the same
// length and zone. A time can have more digits than the milliseconds of the interface.
const sortable = "2006-01-02T15:04:05.000000000Z"

// isNew holds if the table has no status of the payment.
const isNew = "attribute_not_exists(paymentId)"

// newer holds if the table has no status of the payment, or an earlier one. Of two events with the same
// statusTime, the one with the later eventTimestamp wins, because the service created it later. If these are
// equal too, the larger eventId wins, which has no meaning but is the same in every order.
const newer = isNew + " OR statusTime < :statusTime OR statusTime = :statusTime AND " +
	"(eventTimestamp < :eventTimestamp OR eventTimestamp = :eventTimestamp AND eventId < :eventId)"

// store writes the status of a payment if it is newer than that in the table. EventBridge delivers events in any
// order and more than once: after the last event, the table is the same for every order and number of them. Its
// statusTime is that of the event or, if the event has none, its eventTimestamp. An event with neither is stored
// only if the table has no status of the payment: of several, the first one that arrives.
//
// A program that acts on each event, and not on the latest status, uses the eventId as its idempotency key
// instead. It acts before it writes: a failure in between repeats the action with the same key.
func (h *handler) store(ctx context.Context, event payment.Event) (outcome string, err error) {
	data := event.EventData
	id, status := data.Identifiers.SvcUniquePaymentID, data.PaymentStatus
	if id == "" || status.Status == "" {
		return "", errIncomplete
	}
	item := map[string]types.AttributeValue{}
	at := cmp.Or(status.StatusTime, event.EventTimestamp)
	for name, text := range map[string]string{
		"paymentId": id, "status": status.Status, "statusTime": utc(at),
		"eventTimestamp": utc(event.EventTimestamp), "eventId": event.EventID,
		"amount": string(data.Amount), "currency": data.PaymentCurrency,
	} {
		item[name] = &types.AttributeValueMemberS{Value: text}
	}
	put := &dynamodb.PutItemInput{TableName: &h.tableName, Item: item, ConditionExpression: aws.String(isNew)}
	if !at.IsZero() {
		put.ConditionExpression = aws.String(newer)
		put.ExpressionAttributeValues = map[string]types.AttributeValue{":statusTime": item["statusTime"],
			":eventTimestamp": item["eventTimestamp"], ":eventId": item["eventId"]}
	}
	_, err = h.table.PutItem(ctx, put)
	if _, known := errors.AsType[*types.ConditionalCheckFailedException](err); known {
		return "not newer", nil
	}
	return "stored", err
}

// utc returns a time as it is sorted, and "" for none, which is before all others.
func utc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(sortable)
}
