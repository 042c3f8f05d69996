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
)

// API is the part of the DynamoDB client that a [Table] uses.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput,
		error)
}

// Table is the DynamoDB table through which all functions share keys. It is safe for
// concurrent use. Besides the items of keys, [item], the table has items that count calls
// and requests, with the attribute misses, sources of authentic webhooks, [sourceItem], and
// the client certificate that was accepted last, [certificateItem].
type Table struct {
	client API
	name   string
}

// NewTable returns a Table with that name.
func NewTable(client API, name string) *Table { return &Table{client, name} }

// get returns the item of id, or nil if there is none.
func (t *Table) get(ctx context.Context, id string) (*item, error) {
	out, err := t.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &t.name, Key: itemKey(id)})
	if err != nil {
		return nil, fmt.Errorf("keys: table: get: %w", err)
	}
	return itemOf(out.Item), nil
}

// put stores i unless the table contains an item that was fetched later.
func (t *Table) put(ctx context.Context, i item) error {
	_, err := t.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                 &t.name,
		Item:                      marshal(i),
		ConditionExpression:       aws.String("attribute_not_exists(fetchedAt) OR fetchedAt <= :at"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":at": number(int64(i.FetchedAt))},
	})
	_, err = written("put", err)
	return err
}

// remove records that an id is unknown, and reports whether it did. It does nothing if
// the table contains a usable key, unless the service has reported that key as unknown
// since oldest or earlier and has not returned it after i. DynamoDB checks this
// condition with the write, so changes by other functions since the last read are
// respected.
func (t *Table) remove(ctx context.Context, i item, oldest time.Time) (bool, error) {
	values := map[string]types.AttributeValue{
		":at":      number(int64(i.FetchedAt)),
		":now":     number(i.FetchedAt.time().Unix()),
		":oldest":  number(oldest.UnixMilli()),
		":expires": number(i.ExpiresAt),
		":sentAs":  &types.AttributeValueMemberS{Value: i.SentAs},
	}
	update := "SET sentAs = :sentAs, fetchedAt = :at, expiresAt = :expires"
	if i.UnknownSince != 0 {
		update += ", unknownSince = :since"
		values[":since"] = number(int64(i.UnknownSince))
	}
	_, err := t.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:        &t.name,
		Key:              itemKey(i.KeyID),
		UpdateExpression: aws.String(update + " REMOVE jwk, unknownAt"),
		ConditionExpression: aws.String("attribute_not_exists(jwk) OR expiresAt <= :now " +
			"OR (fetchedAt <= :at AND unknownSince <= :oldest)"),
		ExpressionAttributeValues: values,
	})
	return written("remove", err)
}

// reportUnknown records that the service reported the key of id as unknown at that
// time, and first at since unless the table contains an earlier report. It returns
// the new item, or nil if the table contains no usable key. It does not change a
// key that was fetched later.
func (t *Table) reportUnknown(ctx context.Context, id string, at, since time.Time) (*item, error) {
	out, err := t.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           &t.name,
		Key:                 itemKey(id),
		UpdateExpression:    aws.String("SET unknownSince = if_not_exists(unknownSince, :since), unknownAt = :at"),
		ConditionExpression: aws.String("attribute_exists(jwk) AND expiresAt > :now AND fetchedAt <= :at"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":at":    number(at.UnixMilli()),
			":now":   number(at.Unix()),
			":since": number(since.UnixMilli()),
		},
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if attributes, failed := conditionFailed(err); failed {
		if i := itemOf(attributes); i != nil && i.JWK != "" && i.FetchedAt > millisecondsOf(at) {
			return i, nil
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keys: table: report unknown: %w", err)
	}
	return itemOf(out.Attributes), nil
}

// spend takes one call from a budget of this minute and reports whether one was left.
func (t *Table) spend(ctx context.Context, name string, now time.Time, budget int) (bool, error) {
	minute := now.Truncate(time.Minute)
	return t.take(ctx, name+"#"+strconv.FormatInt(minute.Unix()/60, 10), minute.Add(time.Hour), budget)
}

// SpendHourly takes one from a budget of this hour, which all functions share, and
// reports whether one was left. name must not be one of a key or of this package.
func (t *Table) SpendHourly(ctx context.Context, name string, now time.Time, budget int) (bool, error) {
	hour := now.Truncate(time.Hour)
	return t.take(ctx, name+"#"+strconv.FormatInt(hour.Unix()/3600, 10), hour.Add(2*time.Hour), budget)
}

// take counts in the item id up to budget, and reports whether it did.
func (t *Table) take(ctx context.Context, id string, expires time.Time, budget int) (bool, error) {
	_, err := t.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           &t.name,
		Key:                 itemKey(id),
		UpdateExpression:    aws.String("SET misses = if_not_exists(misses, :zero) + :one, expiresAt = :expires"),
		ConditionExpression: aws.String("attribute_not_exists(misses) OR misses < :budget"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":zero":    number(0),
			":one":     number(1),
			":budget":  number(int64(budget)),
			":expires": number(expires.Unix()),
		},
	})
	return written("spend", err)
}

// recordSource records that an authentic webhook came from a source now. It returns
// the time that is then in the table, which is an earlier one if that is less than
// recordEvery ago.
func (t *Table) recordSource(ctx context.Context, name string, now time.Time) (time.Time, error) {
	oldest := number(now.Add(-recordEvery).UnixMilli())
	_, err := t.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &t.name,
		Item:                                marshal(sourceItem{name, millisecondsOf(now), now.Add(knownFor).Unix()}),
		ConditionExpression:                 aws.String("attribute_not_exists(seenAt) OR seenAt <= :oldest"),
		ExpressionAttributeValues:           map[string]types.AttributeValue{":oldest": oldest},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if item, failed := conditionFailed(err); failed {
		return seenAt(item), nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("keys: table: record source: %w", err)
	}
	return now, nil
}

// sourceSeen returns the time of the last recorded authentic webhook from a source;
// the zero time if there is none.
func (t *Table) sourceSeen(ctx context.Context, name string) (time.Time, error) {
	out, err := t.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &t.name, Key: itemKey(name)})
	if err != nil {
		return time.Time{}, fmt.Errorf("keys: table: source: %w", err)
	}
	return seenAt(out.Item), nil
}

// written reports whether a write took effect. It returns false without an error if the condition
// of the write failed.
func written(what string, err error) (bool, error) {
	if _, failed := conditionFailed(err); failed {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("keys: table: %s: %w", what, err)
	}
	return true, nil
}

// conditionFailed reports whether the condition of a write failed, and returns the
// current item if the request asked for it.
func conditionFailed(err error) (map[string]types.AttributeValue, bool) {
	failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return nil, false
	}
	return failed.Item, true
}
