package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/keys"
	"payhook.example/shared/names"
)

// KeysAPI is what a [Keys] needs of DynamoDB. The functions that look up keys have it.
type KeysAPI interface {
	CertificateAPI
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput,
		error)
}

// Keys is the [keys.Store] of a deployment: a table with one item for each key id, counter and source, and one for
// the client certificate. Only the partition keys of key ids have no '#'. It is safe for concurrent use.
type Keys struct {
	*Certificate
	client KeysAPI
}

// NewKeys returns the store in the table of that name.
func NewKeys(client KeysAPI, table string) *Keys { return &Keys{NewCertificate(client, table), client} }

// keyItem is the item of a key id.
type keyItem struct {
	ID           string           `dynamodbav:"keyId"`
	SentAs       string           `dynamodbav:"sentAs,omitempty"`
	JWK          string           `dynamodbav:"jwk,omitempty"`
	Rejected     []keys.Violation `dynamodbav:"rejected,omitempty"`
	FetchedAt    millis           `dynamodbav:"fetchedAt,omitempty"`
	UnknownSince millis           `dynamodbav:"unknownSince,omitempty"`
	UnknownAt    millis           `dynamodbav:"unknownAt,omitempty"`
	ExpiresAt    int64            `dynamodbav:"expiresAt,omitempty"` // Unix seconds: the TTL
}

// millis is a time in Unix milliseconds; 0 stands for none.
type millis int64

func (m millis) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

func millisOf(t time.Time) millis {
	if t.IsZero() {
		return 0
	}
	return millis(t.UnixMilli())
}

// recordOf returns the record in the item of a key id. It returns nil if there is none, or
// if it has attributes of other types: such a key is fetched again.
func recordOf(read attributes) *keys.Record {
	var i keyItem
	if err := attributevalue.UnmarshalMap(read, &i); err != nil || i.FetchedAt == 0 {
		return nil
	}
	r := &keys.Record{ID: i.ID, SentAs: i.SentAs, JWK: i.JWK, Rejected: i.Rejected, FetchedAt: i.FetchedAt.time(),
		UnknownSince: i.UnknownSince.time(), UnknownAt: i.UnknownAt.time()}
	if i.ExpiresAt != 0 {
		r.ExpiresAt = time.Unix(i.ExpiresAt, 0).UTC()
	}
	return r
}

func keysKey(id string) attributes { return attributes{names.KeysKey: text(id)} }

// getKey returns the record of a key id.
func getKey(ctx context.Context, client CertificateAPI, table, id string, consistent bool) (*keys.Record, error) {
	out, err := client.GetItem(ctx,
		&dynamodb.GetItemInput{TableName: &table, Key: keysKey(id), ConsistentRead: &consistent})
	if err != nil {
		return nil, fmt.Errorf("keys: table: get: %w", err)
	}
	return recordOf(out.Item), nil
}

// Get implements [keys.Store].
func (k *Keys) Get(ctx context.Context, id string) (*keys.Record, error) {
	return getKey(ctx, k.client, k.table, id, false)
}

// put stores an item unless an attribute of the one that is there is later.
func (k *Keys) put(ctx context.Context, what string, item any, attribute string, at time.Time) error {
	written, _ := attributevalue.MarshalMap(item) // strings, numbers and times cannot fail
	_, err := k.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &k.table,
		Item:      written,
		ConditionExpression: aws.String("attribute_not_exists(" + attribute + ") OR " +
			attribute + " <= :at"),
		ExpressionAttributeValues: attributes{":at": number(at.UnixMilli())},
	})
	_, _, err = unmet(what, err)
	return err
}

// Put implements [keys.Store].
func (k *Keys) Put(ctx context.Context, r keys.Record) error {
	return k.put(ctx, "put", keyItem{ID: r.ID, SentAs: r.SentAs, JWK: r.JWK, Rejected: r.Rejected, FetchedAt: millisOf(r.FetchedAt),
		UnknownSince: millisOf(r.UnknownSince), UnknownAt: millisOf(r.UnknownAt), ExpiresAt: r.ExpiresAt.Unix()},
		"fetchedAt", r.FetchedAt)
}

// Remove implements [keys.Store].
func (k *Keys) Remove(ctx context.Context, r keys.Record, oldest time.Time) (*keys.Record, error) {
	values := attributes{
		":at":      number(r.FetchedAt.UnixMilli()),
		":now":     number(r.FetchedAt.Unix()),
		":oldest":  number(oldest.UnixMilli()),
		":expires": number(r.ExpiresAt.Unix()),
		":sentAs":  text(r.SentAs),
	}
	update := "SET sentAs = :sentAs, fetchedAt = :at, expiresAt = :expires"
	if !r.UnknownSince.IsZero() {
		update += ", unknownSince = :since"
		values[":since"] = number(r.UnknownSince.UnixMilli())
	}
	_, err := k.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:        &k.table,
		Key:              keysKey(r.ID),
		UpdateExpression: aws.String(update + " REMOVE jwk, rejected, unknownAt"),
		ConditionExpression: aws.String("attribute_not_exists(jwk) OR expiresAt <= :now " +
			"OR (fetchedAt <= :at AND unknownSince <= :oldest)"),
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	found, _, err := unmet("remove", err)
	return recordOf(found), err
}

// ReportUnknown implements [keys.Store].
func (k *Keys) ReportUnknown(ctx context.Context, id string, asked, since time.Time) (*keys.Record, error) {
	out, err := k.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           &k.table,
		Key:                 keysKey(id),
		UpdateExpression:    aws.String("SET unknownSince = if_not_exists(unknownSince, :since), unknownAt = :at"),
		ConditionExpression: aws.String("attribute_exists(jwk) AND expiresAt > :now AND fetchedAt <= :at"),
		ExpressionAttributeValues: attributes{
			":at":    number(asked.UnixMilli()),
			":now":   number(asked.Unix()),
			":since": number(since.UnixMilli()),
		},
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	found, failed, err := unmet("report unknown", err)
	switch r := recordOf(found); {
	case err != nil:
		return nil, err
	case !failed:
		return recordOf(out.Attributes), nil
	case r != nil && r.JWK != "" && r.FetchedAt.After(asked):
		return r, nil
	}
	return nil, nil
}

// Take implements [keys.Store].
func (k *Keys) Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error) {
	_, err := k.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           &k.table,
		Key:                 keysKey(name),
		UpdateExpression:    aws.String("SET misses = if_not_exists(misses, :zero) + :one, expiresAt = :expires"),
		ConditionExpression: aws.String("attribute_not_exists(misses) OR misses < :limit"),
		ExpressionAttributeValues: attributes{
			":zero":    number(0),
			":one":     number(1),
			":limit":   number(int64(limit)),
			":expires": number(expires.Unix()),
		},
	})
	_, failed, err := unmet("take", err)
	return !failed && err == nil, err
}

// sourceItem is the item of a source of authentic webhooks.
type sourceItem struct {
	Name      string `dynamodbav:"keyId"`
	SeenAt    millis `dynamodbav:"seenAt,omitempty"`
	ExpiresAt int64  `dynamodbav:"expiresAt,omitempty"` // Unix seconds: the TTL
}

// seenAt returns when a source was seen; the zero time if the item does not say so.
func seenAt(read attributes) time.Time {
	var i sourceItem
	if err := attributevalue.UnmarshalMap(read, &i); err != nil {
		return time.Time{}
	}
	return i.SeenAt.time()
}

// RecordSource implements [keys.Store].
func (k *Keys) RecordSource(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error) {
	item, _ := attributevalue.MarshalMap(sourceItem{name, millisOf(now), expires.Unix()})
	_, err := k.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &k.table,
		Item:                                item,
		ConditionExpression:                 aws.String("attribute_not_exists(seenAt) OR seenAt <= :oldest"),
		ExpressionAttributeValues:           attributes{":oldest": number(oldest.UnixMilli())},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	found, failed, err := unmet("record source", err)
	switch {
	case err != nil:
		return time.Time{}, err
	case failed:
		return seenAt(found), nil
	}
	return now, nil
}

// Source implements [keys.Store].
func (k *Keys) Source(ctx context.Context, name string) (time.Time, error) {
	out, err := k.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &k.table, Key: keysKey(name)})
	if err != nil {
		return time.Time{}, fmt.Errorf("keys: table: source: %w", err)
	}
	return seenAt(out.Item), nil
}

// certificateItem is the item of the client certificate that was accepted last. It does
// not expire, so it also shows a certificate that expired long ago.
type certificateItem struct {
	Name         string `dynamodbav:"keyId"`
	Subject      string `dynamodbav:"subject"`
	Issuer       string `dynamodbav:"issuer"`
	SerialNumber string `dynamodbav:"serialNumber"`
	Fingerprint  string `dynamodbav:"fingerprint"`
	Pin          string `dynamodbav:"pin"`
	NotAfter     int64  `dynamodbav:"notAfter"` // Unix seconds
	AcceptedAt   millis `dynamodbav:"acceptedAt"`
}

const lastCertificate = "certificate#last"

// RecordCertificate implements [keys.Store].
func (k *Keys) RecordCertificate(ctx context.Context, c keys.AcceptedCertificate) error {
	return k.put(ctx, "record certificate", certificateItem{lastCertificate, c.Subject, c.Issuer, c.SerialNumber,
		c.Fingerprint, c.Pin, c.NotAfter.Unix(), millisOf(c.AcceptedAt)}, "acceptedAt", c.AcceptedAt)
}

// CertificateAPI is what a [Certificate] needs of DynamoDB.
type CertificateAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Certificate is the [keys.CertificateReader] of a deployment. It is safe for concurrent use.
type Certificate struct {
	client CertificateAPI
	table  string
}

// NewCertificate returns the certificate in the table of keys of that name.
func NewCertificate(client CertificateAPI, table string) *Certificate {
	return &Certificate{client, table}
}

// LastCertificate implements [keys.CertificateReader].
func (c *Certificate) LastCertificate(ctx context.Context) (*keys.AcceptedCertificate, error) {
	out, err := c.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &c.table, Key: keysKey(lastCertificate)})
	var i certificateItem
	if err == nil {
		err = attributevalue.UnmarshalMap(out.Item, &i)
	}
	if err != nil {
		return nil, fmt.Errorf("keys: table: last certificate: %w", err)
	}
	if i.Fingerprint == "" {
		return nil, nil
	}
	return &keys.AcceptedCertificate{Subject: i.Subject, Issuer: i.Issuer, SerialNumber: i.SerialNumber,
		Fingerprint: i.Fingerprint, Pin: i.Pin, NotAfter: time.Unix(i.NotAfter, 0).UTC(),
		AcceptedAt: i.AcceptedAt.time()}, nil
}

// unmet reports whether the condition of a write failed, and returns the item that is there if the write asked
// for it. Otherwise it returns the error of the write.
func unmet(what string, err error) (attributes, bool, error) {
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return failed.Item, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("keys: table: %s: %w", what, err)
	}
	return nil, false, nil
}

// KeysInspectAPI is what a [KeysInspector] needs of DynamoDB.
type KeysInspectAPI interface {
	CertificateAPI
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
	return getKey(ctx, i.client, i.table, id, true)
}

// Records implements [keys.InspectStore]. It reads the whole table.
func (i *KeysInspector) Records(ctx context.Context) (all []keys.Record, err error) {
	pages := dynamodb.NewScanPaginator(i.client,
		&dynamodb.ScanInput{TableName: &i.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("keys: table: list: %w", err)
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
	_, _, err = unmet("delete", err)
	return err
}
