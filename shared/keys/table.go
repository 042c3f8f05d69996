package keys

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook/shared/contract"
)

// API is what of DynamoDB the table needs.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// Table is the DynamoDB table that all functions share keys by. Its items:
//
//	keyId      S  partition key: a key id, or "misses#" and a minute
//	jwk        S  the key, where the service knows it
//	fetchedAt  N  Unix milliseconds: when the service was asked
//	misses     N  how many ids were asked of the service in that minute
//	expiresAt  N  Unix seconds: when DynamoDB may delete the item
//
// An item with fetchedAt and without jwk says that the service did not know
// the id then.
type Table struct {
	client API
	name   string
}

// NewTable returns the table of that name.
func NewTable(client API, name string) *Table { return &Table{client, name} }

const (
	attrJWK       = "jwk"
	attrFetchedAt = "fetchedAt"
	attrMisses    = "misses"
)

// record is what the table holds of a key id.
type record struct {
	jwk       []byte // nil: the service did not know the id
	fetchedAt time.Time
}

// get returns the record of id, or nil if there is none.
func (t *Table) get(ctx context.Context, id string) (*record, error) {
	out, err := t.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &t.name,
		Key:       map[string]types.AttributeValue{contract.KeysKey: &types.AttributeValueMemberS{Value: id}},
	})
	if err != nil {
		return nil, fmt.Errorf("keys: table: get: %w", err)
	}
	at, ok := out.Item[attrFetchedAt].(*types.AttributeValueMemberN)
	if !ok {
		return nil, nil
	}
	ms, err := strconv.ParseInt(at.Value, 10, 64)
	if err != nil {
		return nil, nil
	}
	r := &record{fetchedAt: time.UnixMilli(ms)}
	if text, ok := out.Item[attrJWK].(*types.AttributeValueMemberS); ok {
		r.jwk = []byte(text.Value)
	}
	return r, nil
}

// put stores r, unless the table holds something fetched later.
func (t *Table) put(ctx context.Context, id string, r record, expires time.Time) error {
	item := map[string]types.AttributeValue{
		contract.KeysKey: &types.AttributeValueMemberS{Value: id},
		attrFetchedAt:    number(r.fetchedAt.UnixMilli()),
		contract.KeysTTL: number(expires.Unix()),
	}
	if r.jwk != nil {
		item[attrJWK] = &types.AttributeValueMemberS{Value: string(r.jwk)}
	}
	_, err := t.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                 &t.name,
		Item:                      item,
		ConditionExpression:       aws.String("attribute_not_exists(fetchedAt) OR fetchedAt <= :at"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":at": number(r.fetchedAt.UnixMilli())},
	})
	var later *types.ConditionalCheckFailedException
	if err != nil && !errors.As(err, &later) {
		return fmt.Errorf("keys: table: put: %w", err)
	}
	return nil
}

// spend takes one from the minute's budget of misses and reports whether there
// was one left.
func (t *Table) spend(ctx context.Context, now time.Time, budget int) (bool, error) {
	minute := now.Truncate(time.Minute)
	_, err := t.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &t.name,
		Key: map[string]types.AttributeValue{
			contract.KeysKey: &types.AttributeValueMemberS{Value: "misses#" + strconv.FormatInt(minute.Unix()/60, 10)},
		},
		UpdateExpression:    aws.String("SET misses = if_not_exists(misses, :zero) + :one, expiresAt = :expires"),
		ConditionExpression: aws.String("attribute_not_exists(misses) OR misses < :budget"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":zero":    number(0),
			":one":     number(1),
			":budget":  number(int64(budget)),
			":expires": number(minute.Add(time.Hour).Unix()),
		},
	})
	var spent *types.ConditionalCheckFailedException
	if errors.As(err, &spent) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("keys: table: spend: %w", err)
	}
	return true, nil
}

func number(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
