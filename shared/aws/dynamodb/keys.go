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

// Keys is the [keys.Store] of a stack: a table with one item for each key id, counter and sender. Only the
// partition keys of key ids have no '#'. It is safe for concurrent use.
type Keys struct {
	client KeysAPI
	table  string
}

// NewKeys returns the store in the table of that name.
func NewKeys(client KeysAPI, table string) *Keys { return &Keys{client, table} }

// keyItem is [keys.Record] as an item. Times are in Unix milliseconds, the TTL in Unix seconds.
type keyItem struct {
	ID           string     `dynamodbav:"keyId"`
	Version      string     `dynamodbav:"version,omitempty"`
	SentAs       string     `dynamodbav:"sentAs,omitempty"`
	JWK          string     `dynamodbav:"jwk,omitempty"`
	FetchedAt    time.Time  `dynamodbav:"fetchedAt,omitempty"`
	UnknownSince time.Time  `dynamodbav:"unknownSince,omitempty"`
	AskedAs      string     `dynamodbav:"askedAs,omitempty"`
	Answer       keys.State `dynamodbav:"answer,omitempty"`
	Failures     int        `dynamodbav:"failures,omitempty"`
	LeasedUntil  time.Time  `dynamodbav:"leasedUntil,omitempty"`
	ExpiresAt    time.Time  `dynamodbav:"expiresAt,omitempty,unixtime"`
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

// recordOf returns the record in the item of a key id; nil for none or another item. One with attributes of other types
// has nothing but its version: such a key is fetched again.
func recordOf(read attributes) *keys.Record {
	var i keyItem
	if err := unmarshal(read, &i); err != nil {
		i = keyItem{}
		i.ID, _ = valueOf(read[settings.KeysKey]).(string)
		i.Version, _ = valueOf(read["version"]).(string)
	}
	if i.Version == "" || strings.Contains(i.ID, "#") {
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

// put stores an item if it meets a condition. Otherwise it returns the one that is there.
func (k *Keys) put(ctx context.Context, item attributes, condition string, values attributes) (
	instead attributes, refused bool, err error) {
	_, err = k.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &k.table,
		Item:                                item,
		ConditionExpression:                 &condition,
		ExpressionAttributeValues:           values, // DynamoDB rejects an empty map, and values that are not used
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return unmet("PutItem", err)
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
func (k *Keys) Put(ctx context.Context, r keys.Record, version string) (bool, *keys.Record, error) {
	condition, values := "attribute_not_exists(version)", attributes(nil)
	if version != "" {
		condition, values = "version = :version", attributes{":version": text(version)}
	}
	if r.Answer == keys.Fresh {
		condition += " OR attribute_not_exists(fetchedAt) OR fetchedAt < :at"
		if values == nil {
			values = attributes{}
		}
		values[":at"] = number(r.FetchedAt.UnixMilli())
	}
	instead, refused, err := k.put(ctx, marshal(keyItem(r)), condition, values)
	return !refused && err == nil, recordOf(instead), err
}

// Take implements [keys.Store].
func (k *Keys) Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error) {
	_, err := k.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           &k.table,
		Key:                 keysKey(name),
		UpdateExpression:    aws.String("SET misses = if_not_exists(misses, :zero) + :one, expiresAt = :expires"),
		ConditionExpression: aws.String("attribute_not_exists(misses) OR misses < :limit"),
		ExpressionAttributeValues: attributes{":zero": number(0), ":one": number(1), ":limit": number(int64(limit)),
			":expires": number(expires.Unix())},
	})
	_, refused, err := unmet("UpdateItem", err)
	return !refused && err == nil, err
}

// seenAt returns when a sender was seen; the zero time if the item does not say so.
func seenAt(read attributes) (at time.Time) {
	if n, ok := valueOf(read["seenAt"]).(int64); ok {
		at = time.UnixMilli(n).UTC()
	}
	return at
}

// RecordSender implements [keys.Store].
func (k *Keys) RecordSender(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error) {
	found, failed, err := k.put(ctx, attributes{settings.KeysKey: text(name), "seenAt": number(now.UnixMilli()),
		settings.KeysTTL: number(expires.Unix())}, "attribute_not_exists(seenAt) OR seenAt <= :oldest",
		attributes{":oldest": number(oldest.UnixMilli())})
	if failed {
		return seenAt(found), nil
	}
	return now, err
}

// Sender implements [keys.Store].
func (k *Keys) Sender(ctx context.Context, name string) (time.Time, error) {
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

// KeysInspector is the [keys.InspectStore] of a stack. It is safe for concurrent use.
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
