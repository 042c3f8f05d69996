package main

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// status is a status of a payment. Its times have one length and zone, so that their texts sort as times; "" is none.
type status struct {
	paymentID, status, statusTime, eventTimestamp, eventID, amount, currency string
}

// store has the latest status of each payment.
//
// EventBridge delivers events in any order and more than once: after the last event, the store is the same for every
// order and number of them. Of two events with the same statusTime, the one with the later eventTimestamp wins,
// because the service created it later. If these are equal too, the larger eventId wins, which has no meaning but is
// the same in every order. A status without a statusTime is stored only if it is the first one of its payment.
type store interface {
	// put stores a status if it is newer than that of the store. It reports whether it did.
	put(ctx context.Context, s status) (stored bool, err error)
}

// table is a store in DynamoDB.
type table struct {
	client *dynamodb.Client
	name   string
}

// isNew holds if the table has no status of the payment.
const isNew = "attribute_not_exists(paymentId)"

// newer holds if the table has no status of the payment, or an earlier one. DynamoDB compares strings byte by byte.
const newer = isNew + " OR statusTime < :statusTime OR statusTime = :statusTime AND " +
	"(eventTimestamp < :eventTimestamp OR eventTimestamp = :eventTimestamp AND eventId < :eventId)"

func (t table) put(ctx context.Context, s status) (stored bool, err error) {
	item := map[string]types.AttributeValue{}
	for name, text := range map[string]string{
		"paymentId": s.paymentID, "status": s.status, "statusTime": s.statusTime, "eventTimestamp": s.eventTimestamp,
		"eventId": s.eventID, "amount": s.amount, "currency": s.currency,
	} {
		item[name] = &types.AttributeValueMemberS{Value: text}
	}
	put := &dynamodb.PutItemInput{TableName: &t.name, Item: item, ConditionExpression: aws.String(isNew)}
	if s.statusTime != "" {
		put.ConditionExpression = aws.String(newer)
		put.ExpressionAttributeValues = map[string]types.AttributeValue{":statusTime": item["statusTime"],
			":eventTimestamp": item["eventTimestamp"], ":eventId": item["eventId"]}
	}
	_, err = t.client.PutItem(ctx, put)
	if _, known := errors.AsType[*types.ConditionalCheckFailedException](err); known {
		return false, nil
	}
	return err == nil, err
}
