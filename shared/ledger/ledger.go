// Package ledger remembers every event that was accepted, by its eventId.
//
// It guarantees that of all that try to record one eventId within the
// de-duplication window exactly one is told that it is new, and that what was
// recorded stays findable until it has been marked as published: nothing
// deletes a pending item, neither the window nor DynamoDB's TTL.
//
// # Layout
//
// One DynamoDB table, one item for each event:
//
//	eventId      S  partition key; a UUID in lower case
//	digest       B  SHA-256 of the event without insignificant white space
//	deliveryId   S  of the delivery that brought it first
//	recordedAt   N  Unix milliseconds
//
// while the event is pending:
//
//	event        B  the event's own bytes
//	shard        N  0 to 63, from the eventId; index partition key
//	due          N  Unix milliseconds; index sort key: nobody but the holder
//	                touches the item before then
//	holder       B  who records or publishes the item just now
//	attempts     N  how often redrive has leased it; absent for never
//	claimed      BOOL  event is a claim check, and digest that of what it stands
//	                for; absent otherwise
//
// and once it is published, or parked for good:
//
//	publishedAt  N  Unix milliseconds, or
//	parkedAt     N  Unix milliseconds
//	expiresAt    N  Unix seconds; publishedAt or parkedAt plus the window; DynamoDB's TTL
//
// The index "pending" has the keys and recordedAt. It is sparse: what is published has
// no shard and is not in it. An event arrives in one write to the table and
// one to the index, and is published by one more of each. At 10,000 events a
// second that is about 310 index writes a second for each of 64 shards, under
// a third of what one partition takes (AWS, "Best practices for designing and
// using partition keys").
//
// All but the event takes about 180 bytes, so an event of up to 840 bytes costs
// one write unit (1 KiB) for each write; the representative event of section 2
// of the interface has about 720.
package ledger

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
)

// Shards is how many partitions the index of pending items is spread over.
const Shards = 64

// MaxEventBytes is the largest event that can be recorded.
const MaxEventBytes = settings.MaxLedgerEventBytes

// DefaultWindow is how long an eventId is remembered unless [Options] say
// otherwise.
const DefaultWindow = 30 * 24 * time.Hour

// API is what of DynamoDB the ledger needs.
type API interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
}

// Options are the knobs of a [Ledger].
type Options struct {
	Window time.Duration    // how long an eventId is remembered; zero: DefaultWindow
	Now    func() time.Time // zero: time.Now
}

// Ledger is the table. It is safe for concurrent use.
type Ledger struct {
	client API
	table  *string
	window time.Duration
	now    func() time.Time
}

// New returns the ledger in the table of that name.
func New(client API, table string, opts Options) *Ledger {
	if opts.Window == 0 {
		opts.Window = DefaultWindow
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Ledger{client, &table, opts.Window, opts.Now}
}

// Digest identifies an event's content.
type Digest [sha256.Size]byte

// DigestOf returns the SHA-256 of an event without insignificant white space
// (RFC 8259, section 2): an event that was only laid out anew is the same
// event. raw must be valid JSON.
func DigestOf(raw []byte) Digest {
	h := sha256.New()
	start := 0 // of what is not hashed yet
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case ' ', '\t', '\n', '\r':
			h.Write(raw[start:i])
			start = i + 1
		}
	}
	h.Write(raw[start:])
	var d Digest
	h.Sum(d[:0])
	return d
}

// Entry is an event that waits to be published.
type Entry struct {
	EventID    string // in lower case
	DeliveryID string
	Digest     Digest
	RecordedAt time.Time
	Attempts   int // how often redrive has leased it
	Event      payment.RawEvent
	// Claimed: the event's bytes are a claim check, and Digest is that of the
	// event for which it stands.
	Claimed bool
}

// Key returns the form of an eventId under which the ledger knows it: case has
// no meaning in a UUID (RFC 9562, section 4).
func Key(eventID string) string { return strings.ToLower(eventID) }

// Outcome is what became of an attempt to record.
type Outcome int

// The outcomes of Record.
const (
	Recorded  Outcome = iota // new: the caller holds it and publishes it
	Duplicate                // recorded before, with the same content
	Conflict                 // recorded before, with other content; nothing was written
)

// Holder names one that records or leases, so that a write whose answer got
// lost is known again by its writer.
type Holder [8]byte

// NewHolder returns a name that nobody else has.
func NewHolder() (h Holder) {
	rand.Read(h[:]) // never fails
	return h
}

func itemOf(e Entry, holder Holder, due time.Time) map[string]types.AttributeValue {
	item := map[string]types.AttributeValue{
		names.LedgerKey:          &types.AttributeValueMemberS{Value: e.EventID},
		attrDigest:               &types.AttributeValueMemberB{Value: e.Digest[:]},
		attrDeliveryID:           &types.AttributeValueMemberS{Value: e.DeliveryID},
		attrRecordedAt:           number(e.RecordedAt.UnixMilli()),
		attrEvent:                &types.AttributeValueMemberB{Value: e.Event.Bytes},
		names.LedgerPendingShard: number(int64(shardOf(e.EventID))),
		names.LedgerPendingDue:   number(due.UnixMilli()),
		attrHolder:               &types.AttributeValueMemberB{Value: holder[:]},
	}
	if e.Claimed {
		item[attrClaimed] = &types.AttributeValueMemberBOOL{Value: true}
	}
	return item
}

// Record writes e as pending, unless its eventId was recorded before within
// the window. e.RecordedAt is the present for all events of a delivery. Until
// due nobody but the caller publishes it. The cost is one write, whatever the
// outcome.
func (l *Ledger) Record(ctx context.Context, e Entry, holder Holder, due time.Time) (Outcome, error) {
	_, err := l.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: l.table,
		Item:      itemOf(e, holder, due),
		// TTL deletes up to days late, so the window is checked here. What is
		// pending has not expired, however old it is.
		ConditionExpression:      aws.String("attribute_not_exists(#eventId) OR (attribute_not_exists(#shard) AND #expiresAt <= :now)"),
		ExpressionAttributeNames: recordNames,
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":now": number(l.now().Unix()),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return Recorded, nil
	}
	var exists *types.ConditionalCheckFailedException
	if !errors.As(err, &exists) {
		return 0, fmt.Errorf("ledger: record %s: %w", e.EventID, err)
	}
	switch {
	case string(bytesOf(exists.Item, attrDigest)) != string(e.Digest[:]):
		return Conflict, nil
	case string(bytesOf(exists.Item, attrHolder)) == string(holder[:]):
		// Our own write, whose answer got lost before the SDK tried again.
		return Recorded, nil
	default:
		return Duplicate, nil
	}
}

var recordNames = map[string]string{
	"#eventId": names.LedgerKey, "#shard": names.LedgerPendingShard, "#expiresAt": names.LedgerTTL,
}

// MarkPublished writes down that e is on the bus, and drops its bytes. It does
// nothing if that was written down before.
func (l *Ledger) MarkPublished(ctx context.Context, e Entry) error {
	return l.settle(ctx, e, attrPublishedAt)
}

// MarkParked writes down that e is kept elsewhere, for a person to look at, and
// drops its bytes: it is pending no more.
func (l *Ledger) MarkParked(ctx context.Context, e Entry) error {
	return l.settle(ctx, e, attrParkedAt)
}

func (l *Ledger) settle(ctx context.Context, e Entry, when string) error {
	_, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                l.table,
		Key:                      keyOf(e.EventID),
		UpdateExpression:         aws.String("SET #when = :now, #expiresAt = :expires REMOVE #event, #claimed, #shard, #due, #holder, #attempts"),
		ConditionExpression:      aws.String("attribute_exists(#shard) AND #digest = :digest"),
		ExpressionAttributeNames: settleNames[when],
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":now": number(l.now().UnixMilli()),
			// From now on, not from recordedAt: an event may be published long after it
			// was recorded. Whoever recorded it may have a clock that is ahead.
			":expires": number(later(l.now(), e.RecordedAt).Add(l.window).Unix()),
			":digest":  &types.AttributeValueMemberB{Value: e.Digest[:]},
		},
	})
	var done *types.ConditionalCheckFailedException
	if err != nil && !errors.As(err, &done) {
		return fmt.Errorf("ledger: mark %s: %w", e.EventID, err)
	}
	return nil
}

var settleNames = func() map[string]map[string]string {
	list := map[string]map[string]string{}
	for _, when := range []string{attrPublishedAt, attrParkedAt} {
		list[when] = map[string]string{
			"#when": when, "#expiresAt": names.LedgerTTL, "#event": attrEvent, "#claimed": attrClaimed,
			"#shard": names.LedgerPendingShard, "#due": names.LedgerPendingDue,
			"#holder": attrHolder, "#attempts": attrAttempts, "#digest": attrDigest,
		}
	}
	return list
}()

// Postpone leaves an item that holder has leased alone until the time given.
// It does nothing if holder has it no more.
func (l *Ledger) Postpone(ctx context.Context, e Entry, holder Holder, until time.Time) error {
	_, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                l.table,
		Key:                      keyOf(e.EventID),
		UpdateExpression:         aws.String("SET #due = :until"),
		ConditionExpression:      aws.String("#holder = :holder AND attribute_exists(#shard)"),
		ExpressionAttributeNames: map[string]string{"#due": names.LedgerPendingDue, "#holder": attrHolder, "#shard": names.LedgerPendingShard},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":until":  number(until.UnixMilli()),
			":holder": &types.AttributeValueMemberB{Value: holder[:]},
		},
	})
	var lost *types.ConditionalCheckFailedException
	if err != nil && !errors.As(err, &lost) {
		return fmt.Errorf("ledger: postpone %s: %w", e.EventID, err)
	}
	return nil
}

// Pending is an item of the index.
type Pending struct {
	EventID    string
	Due        time.Time
	RecordedAt time.Time
}

// Cursor stands in one shard of the index; nil stands before its first item.
type Cursor map[string]types.AttributeValue

var dueNames = map[string]string{"#shard": names.LedgerPendingShard, "#due": names.LedgerPendingDue}

// Due returns up to limit items of a shard that are due at the time given, the
// longest due first, from behind the cursor. It returns a nil cursor once
// there are no more. The index follows the table with a delay, so an item may
// be missing, or no longer pending.
func (l *Ledger) Due(ctx context.Context, shard int, at time.Time, after Cursor, limit int) ([]Pending, Cursor, error) {
	return l.query(ctx, shard, at, "#shard = :shard AND #due <= :at", true, after, limit)
}

// Waiting returns up to limit items of a shard that are due only after the time
// given, the last due first: those that were postponed most often, then those that
// somebody holds. The index follows the table with a delay.
func (l *Ledger) Waiting(ctx context.Context, shard int, at time.Time, limit int) ([]Pending, error) {
	waiting, _, err := l.query(ctx, shard, at, "#shard = :shard AND #due > :at", false, nil, limit)
	return waiting, err
}

func (l *Ledger) query(ctx context.Context, shard int, at time.Time, condition string, forward bool, after Cursor, limit int) ([]Pending, Cursor, error) {
	out, err := l.client.Query(ctx, &dynamodb.QueryInput{
		TableName:                l.table,
		IndexName:                aws.String(names.LedgerPendingIndex),
		KeyConditionExpression:   &condition,
		ExpressionAttributeNames: dueNames,
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":shard": number(int64(shard)),
			":at":    number(at.UnixMilli()),
		},
		ScanIndexForward:  &forward,
		ExclusiveStartKey: after,
		Limit:             aws.Int32(int32(limit)),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("ledger: pending in shard %d: %w", shard, err)
	}
	pending := make([]Pending, 0, len(out.Items))
	for _, item := range out.Items {
		id, ok := item[names.LedgerKey].(*types.AttributeValueMemberS)
		if !ok {
			return nil, nil, fmt.Errorf("ledger: pending in shard %d: an item without %s", shard, names.LedgerKey)
		}
		pending = append(pending, Pending{id.Value, millis(item, names.LedgerPendingDue), millis(item, attrRecordedAt)})
	}
	return pending, out.LastEvaluatedKey, nil
}

// Lease takes a pending item for holder alone until the time given, and
// returns it whole. It returns false if somebody else was faster, or the item
// is no longer pending. Of two that lease the same [Pending] only one is told
// true. An item that is not what was recorded is leased all the same, and
// returned as far as it can be read with an error that wraps [ErrCorrupt].
func (l *Ledger) Lease(ctx context.Context, p Pending, holder Holder, until time.Time) (Entry, bool, error) {
	out, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           l.table,
		Key:                 keyOf(p.EventID),
		UpdateExpression:    aws.String("SET #due = :until, #holder = :holder, #attempts = if_not_exists(#attempts, :zero) + :one"),
		ConditionExpression: aws.String("#due = :seen"),
		ExpressionAttributeNames: map[string]string{
			"#due": names.LedgerPendingDue, "#holder": attrHolder, "#attempts": attrAttempts,
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":until":  number(until.UnixMilli()),
			":seen":   number(p.Due.UnixMilli()),
			":holder": &types.AttributeValueMemberB{Value: holder[:]},
			":zero":   number(0),
			":one":    number(1),
		},
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var item map[string]types.AttributeValue
	var taken *types.ConditionalCheckFailedException
	switch {
	case err == nil:
		item = out.Attributes
	case errors.As(err, &taken):
		// Our own lease, whose answer got lost before the SDK tried again?
		if string(bytesOf(taken.Item, attrHolder)) != string(holder[:]) ||
			!millis(taken.Item, names.LedgerPendingDue).Equal(until.Truncate(time.Millisecond)) {
			return Entry{}, false, nil
		}
		item = taken.Item
	default:
		return Entry{}, false, fmt.Errorf("ledger: lease %s: %w", p.EventID, err)
	}
	e, err := entryOf(p.EventID, item)
	if err != nil {
		return e, true, fmt.Errorf("ledger: lease %s: %w", p.EventID, err)
	}
	return e, true, nil
}

// ErrCorrupt: an item's event is not the one that was recorded.
var ErrCorrupt = errors.New("the stored event is not the one that was recorded")

func entryOf(id string, item map[string]types.AttributeValue) (Entry, error) {
	e := Entry{EventID: id, RecordedAt: millis(item, attrRecordedAt)}
	e.Event.Bytes = bytesOf(item, attrEvent)
	copy(e.Digest[:], bytesOf(item, attrDigest))
	if claimed, ok := item[attrClaimed].(*types.AttributeValueMemberBOOL); ok {
		e.Claimed = claimed.Value
	}
	if s, ok := item[attrDeliveryID].(*types.AttributeValueMemberS); ok {
		e.DeliveryID = s.Value
	}
	if n, ok := item[attrAttempts].(*types.AttributeValueMemberN); ok {
		e.Attempts, _ = strconv.Atoi(n.Value)
	}
	event, err := payment.DecodeRawEvent(e.Event.Bytes)
	if err != nil || !e.Claimed && e.Digest != DigestOf(event.Bytes) {
		return e, ErrCorrupt
	}
	e.Event = event
	return e, nil
}

const (
	attrDigest      = "digest"
	attrDeliveryID  = "deliveryId"
	attrRecordedAt  = names.LedgerRecordedAt
	attrEvent       = "event"
	attrHolder      = "holder"
	attrAttempts    = "attempts"
	attrPublishedAt = "publishedAt"
	attrParkedAt    = "parkedAt"
	attrClaimed     = "claimed"
)

func keyOf(eventID string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{names.LedgerKey: &types.AttributeValueMemberS{Value: eventID}}
}

func number(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func bytesOf(item map[string]types.AttributeValue, name string) []byte {
	if b, ok := item[name].(*types.AttributeValueMemberB); ok {
		return b.Value
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func integer(item map[string]types.AttributeValue, name string) int64 {
	n, ok := item[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	i, _ := strconv.ParseInt(n.Value, 10, 64)
	return i
}

func millis(item map[string]types.AttributeValue, name string) time.Time {
	n, ok := item[name].(*types.AttributeValueMemberN)
	if !ok {
		return time.Time{}
	}
	ms, _ := strconv.ParseInt(n.Value, 10, 64)
	return time.UnixMilli(ms)
}

func shardOf(eventID string) int {
	h := fnv.New32a()
	h.Write([]byte(eventID))
	return int(h.Sum32() % Shards)
}
