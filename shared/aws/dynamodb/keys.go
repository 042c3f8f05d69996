package dynamodb

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/keys"
	"payhook.example/shared/settings"
)

type getAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// KeysAPI is what a [Keys] needs of DynamoDB. The functions that look up keys have it.
type KeysAPI interface {
	getAPI
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput,
		error)
}

// Keys is the [keys.Store] of a deployment: a table with one item for each key id, counter and source. Only the
// partition keys of key ids have no '#'. It is safe for concurrent use.
type Keys struct {
	client KeysAPI
	table  string
}

// NewKeys returns the store in the table of that name.
func NewKeys(client KeysAPI, table string) *Keys { return &Keys{client, table} }

// keyItem is [keys.Record] as an item. Times are in Unix milliseconds, the TTL in Unix seconds.
type keyItem struct {
	ID           string           `dynamodbav:"keyId"`
	SentAs       string           `dynamodbav:"sentAs,omitempty"`
	JWK          string           `dynamodbav:"jwk,omitempty"`
	Rejected     []keys.Violation `dynamodbav:"rejected,omitempty"`
	FetchedAt    time.Time        `dynamodbav:"fetchedAt,omitempty"`
	UnknownSince time.Time        `dynamodbav:"unknownSince,omitempty"`
	UnknownAt    time.Time        `dynamodbav:"unknownAt,omitempty"`
	ExpiresAt    time.Time        `dynamodbav:"expiresAt,omitempty,unixtime"`
}

// marshal returns the attributes of an item without times that are zero.
func marshal(item any) attributes {
	written, _ := attributevalue.MarshalMapWithOptions(item, func(o *attributevalue.EncoderOptions) {
		o.OmitEmptyTime = true
		o.EncodeTime = func(t time.Time) (types.AttributeValue, error) { return number(t.UnixMilli()), nil }
	})
	return written // strings and times cannot fail
}

func unmarshal(read attributes, item any) error {
	return attributevalue.UnmarshalMapWithOptions(read, item, func(o *attributevalue.DecoderOptions) {
		o.DecodeTime.N = func(n string) (time.Time, error) {
			ms, err := strconv.ParseInt(n, 10, 64)
			return time.UnixMilli(ms).UTC(), err
		}
	})
}

// recordOf returns the record in the item of a key id. It returns nil for none or another item, and
// for one with attributes of other types: such a key is fetched again.
func recordOf(read attributes) *keys.Record {
	var i keyItem
	if err := unmarshal(read, &i); err != nil || i.FetchedAt.IsZero() || strings.Contains(i.ID, "#") {
		return nil
	}
	i.ExpiresAt = i.ExpiresAt.UTC()
	return (*keys.Record)(&i)
}

func keysKey(id string) attributes { return attributes{settings.KeysKey: text(id)} }

// get returns an item of the table of keys; nil for none.
func get(ctx context.Context, client getAPI, table, id string, consistent bool) (attributes, error) {
	out, err := client.GetItem(ctx,
		&dynamodb.GetItemInput{TableName: &table, Key: keysKey(id), ConsistentRead: &consistent})
	if err != nil {
		return nil, failed("GetItem", err)
	}
	return out.Item, nil
}

// put stores an item unless an attribute of the one that is there is later. It returns that one then.
func (k *Keys) put(ctx context.Context, item attributes, attribute string, latest time.Time) (attributes, bool, error) {
	condition := "attribute_not_exists(" + attribute + ") OR " + attribute + " <= :at"
	_, err := k.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &k.table,
		Item:                                item,
		ConditionExpression:                 &condition,
		ExpressionAttributeValues:           attributes{":at": number(latest.UnixMilli())},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return unmet("PutItem", err)
}

// update changes an item and returns the new one, or that which does not meet the condition.
func (k *Keys) update(ctx context.Context, id, update, condition string, values attributes) (attributes, bool, error) {
	out, err := k.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                           &k.table,
		Key:                                 keysKey(id),
		UpdateExpression:                    &update,
		ConditionExpression:                 &condition,
		ExpressionAttributeValues:           values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return out.Attributes, false, nil
	}
	return unmet("UpdateItem", err)
}

// unmet reports whether the condition of a write failed, and returns the item that is there. Otherwise it returns
// the error of the write.
func unmet(operation string, err error) (attributes, bool, error) {
	if refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return refused.Item, true, nil
	}
	return nil, false, failed(operation, err)
}

// Get implements [keys.Store].
func (k *Keys) Get(ctx context.Context, id string) (*keys.Record, error) {
	read, err := get(ctx, k.client, k.table, id, false)
	return recordOf(read), err
}

// Put implements [keys.Store].
func (k *Keys) Put(ctx context.Context, r keys.Record) error {
	_, _, err := k.put(ctx, marshal(keyItem(r)), "fetchedAt", r.FetchedAt)
	return err
}

// Remove implements [keys.Store].
func (k *Keys) Remove(ctx context.Context, r keys.Record, oldest time.Time) (*keys.Record, error) {
	update := "SET sentAs = :sentAs, fetchedAt = :at, expiresAt = :expires"
	values := attributes{":at": number(r.FetchedAt.UnixMilli()), ":now": number(r.FetchedAt.Unix()),
		":oldest": number(oldest.UnixMilli()), ":expires": number(r.ExpiresAt.Unix()), ":sentAs": text(r.SentAs)}
	if !r.UnknownSince.IsZero() {
		update += ", unknownSince = :since"
		values[":since"] = number(r.UnknownSince.UnixMilli())
	}
	found, kept, err := k.update(ctx, r.ID, update+" REMOVE jwk, rejected, unknownAt",
		"attribute_not_exists(jwk) OR expiresAt <= :now OR (fetchedAt <= :at AND unknownSince <= :oldest)", values)
	if !kept {
		return nil, err
	}
	return recordOf(found), nil
}

// ReportUnknown implements [keys.Store].
func (k *Keys) ReportUnknown(ctx context.Context, id string, asked, since time.Time) (*keys.Record, error) {
	found, failed, err := k.update(ctx, id,
		"SET unknownSince = if_not_exists(unknownSince, :since), unknownAt = :at",
		"attribute_exists(jwk) AND expiresAt > :now AND fetchedAt <= :at", attributes{":at": number(asked.UnixMilli()),
			":now": number(asked.Unix()), ":since": number(since.UnixMilli())})
	r := recordOf(found)
	if failed && r != nil && (r.JWK == "" || !r.FetchedAt.After(asked)) {
		return nil, nil
	}
	return r, err
}

// Take implements [keys.Store].
func (k *Keys) Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error) {
	_, failed, err := k.update(ctx, name, "SET misses = if_not_exists(misses, :zero) + :one, expiresAt = :expires",
		"attribute_not_exists(misses) OR misses < :limit", attributes{":zero": number(0), ":one": number(1),
			":limit": number(int64(limit)), ":expires": number(expires.Unix())})
	return !failed && err == nil, err
}

// seenAt returns when a source was seen; the zero time if the item does not say so.
func seenAt(read attributes) (at time.Time) {
	if n, ok := valueOf(read["seenAt"]).(int64); ok {
		at = time.UnixMilli(n).UTC()
	}
	return at
}

// RecordSource implements [keys.Store].
func (k *Keys) RecordSource(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error) {
	found, failed, err := k.put(ctx, attributes{settings.KeysKey: text(name), "seenAt": number(now.UnixMilli()),
		settings.KeysTTL: number(expires.Unix())}, "seenAt", oldest)
	if failed {
		return seenAt(found), nil
	}
	return now, err
}

// Source implements [keys.Store].
func (k *Keys) Source(ctx context.Context, name string) (time.Time, error) {
	read, err := get(ctx, k.client, k.table, name, false)
	return seenAt(read), err
}

// KeysInspectAPI is what a [KeysInspector] needs of DynamoDB.
type KeysInspectAPI interface {
	getAPI
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput,
		error)
}

// KeysInspector is the [keys.InspectStore] of a deployment. It is safe for concurrent use.
type KeysInspector struct {
	client KeysInspectAPI
	table  string
}

// NewKeysInspector returns an inspector of the table of that name.
func NewKeysInspector(client KeysInspectAPI, table string) *KeysInspector {
	return &KeysInspector{client, table}
}

// Get implements [keys.InspectStore].
func (i *KeysInspector) Get(ctx context.Context, id string) (*keys.Record, error) {
	read, err := get(ctx, i.client, i.table, id, true)
	return recordOf(read), err
}

// Records implements [keys.InspectStore]. It reads the whole table.
func (i *KeysInspector) Records(ctx context.Context) (all []keys.Record, err error) {
	pages := dynamodb.NewScanPaginator(i.client,
		&dynamodb.ScanInput{TableName: &i.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, failed("Scan", err)
		}
		for _, read := range out.Items {
			if r := recordOf(read); r != nil {
				all = append(all, *r)
			}
		}
	}
	return all, nil
}

// Delete implements [keys.InspectStore].
func (i *KeysInspector) Delete(ctx context.Context, id string) error {
	_, err := i.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &i.table, Key: keysKey(id)})
	_, _, err = unmet("DeleteItem", err)
	return err
}
