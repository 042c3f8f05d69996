package ledger

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
	"payhook.example/shared/payment"
)

// Item is an item of the table, or what the index of pending items has of it. Its times are
// in UTC. What does not apply, or was not read, is zero.
type Item struct {
	EventID    string    `dynamodbav:"eventId"` // partition key; a UUID in lower case
	Digest     Digest    `dynamodbav:"digest"`
	DeliveryID string    `dynamodbav:"deliveryId"` // of the delivery that brought the event first
	RecordedAt time.Time `dynamodbav:"recordedAt"`

	// While the event is pending.
	Detail   []byte    `dynamodbav:"event"` // what is published
	Size     int       `dynamodbav:"size"`  // bytes of Detail
	Shard    string    `dynamodbav:"shard"` // pending/N, with N from the eventId; the index's partition key
	Due      time.Time `dynamodbav:"due"`   // until then, only the holder writes; the index's sort key
	Holder   []byte    `dynamodbav:"holder"`
	Attempts int       `dynamodbav:"attempts"` // how often redrive has leased it
	Claimed  bool      `dynamodbav:"claimed"`  // Detail is a claim check

	// Once it is published or parked.
	PublishedAt time.Time `dynamodbav:"publishedAt"`
	// EventTimestamp is the time that the event has on the bus. It is zero for an event that
	// was published before the ledger kept it, or whose time can't be represented there.
	EventTimestamp time.Time `dynamodbav:"eventTimestamp"`
	ParkedAt       time.Time `dynamodbav:"parkedAt"`
	// ExpiresAt is the end of the window, the TTL in Unix seconds. DynamoDB may take days
	// more to delete the item. The other times are in Unix milliseconds.
	ExpiresAt time.Time `dynamodbav:"expiresAt,unixtime"`

	// Err names the attributes that could not be decoded, which are zero; nil for none.
	Err error `dynamodbav:"-"`
}

// Overdue reports whether an event that is pending was due more than two minutes ago. By then, redrive has run
// twice.
func (i Item) Overdue(now time.Time) bool { return now.Sub(i.Due) > 2*time.Minute }

// Pending reports whether the event is neither published nor parked.
func (i Item) Pending() bool { return i.Shard != "" }

// Current reports whether the window of an item has not passed. A pending item is current,
// however old it is. An item that is not current may be deleted at any time, and its eventId
// can be recorded again.
func (i Item) Current(now time.Time) bool { return i.Pending() || i.ExpiresAt.After(now) }

// expressionNames returns the names of the attributes that have a # in expressions, since
// some are words of DynamoDB's.
func expressionNames(expressions ...string) map[string]string {
	list := map[string]string{}
	for _, text := range expressions {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != '#' && !unicode.IsLetter(r) }) {
			if name, ok := strings.CutPrefix(word, "#"); ok {
				list[word] = name
			}
		}
	}
	return list
}

// update changes the item of an event if condition holds, and returns what returns says.
// Otherwise met is false, and it returns the item as it is.
func (l *Ledger) update(ctx context.Context, eventID, change, condition string,
	values map[string]types.AttributeValue, returns types.ReturnValue) (item map[string]types.AttributeValue, met bool,
	err error) {
	out, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                           l.table,
		Key:                                 keyOf(eventID),
		UpdateExpression:                    &change,
		ConditionExpression:                 &condition,
		ExpressionAttributeNames:            expressionNames(change, condition),
		ExpressionAttributeValues:           values,
		ReturnValues:                        returns,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if unmet, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return unmet.Item, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return out.Attributes, true, nil
}

// newItem returns the pending item of e.
func newItem(e Entry, holder Holder, due time.Time) map[string]types.AttributeValue {
	attributes := map[string]types.AttributeValue{
		"eventId":    &types.AttributeValueMemberS{Value: e.EventID},
		"digest":     binary(e.Digest[:]),
		"recordedAt": number(e.RecordedAt.UnixMilli()),
		"event":      binary(e.Detail),
		"size":       number(int64(len(e.Detail))),
		"shard":      shardOf(e.EventID),
		"due":        number(due.UnixMilli()),
		"holder":     binary(holder[:]),
		// PartiQL can increment what exists only.
		"attempts": number(0),
	}
	if e.DeliveryID != "" {
		attributes["deliveryId"] = &types.AttributeValueMemberS{Value: e.DeliveryID}
	}
	if e.Claimed {
		attributes["claimed"] = &types.AttributeValueMemberBOOL{Value: true}
	}
	return attributes
}

// UnmarshalDynamoDBAttributeValue reads a digest.
func (d *Digest) UnmarshalDynamoDBAttributeValue(value types.AttributeValue) error {
	b, ok := value.(*types.AttributeValueMemberB)
	if !ok {
		return errors.New("a digest that is not binary")
	}
	copy(d[:], b.Value)
	return nil
}

// decode returns an item that was read, as far as its attributes can be decoded.
func decode(attributes map[string]types.AttributeValue) (i Item) {
	if unmarshal(attributes, &i) != nil {
		// It has left out attributes that can be decoded.
		i = Item{}
		var failed []string
		for name, value := range attributes {
			if unmarshal(map[string]types.AttributeValue{name: value}, &i) != nil {
				failed = append(failed, name)
			}
		}
		slices.Sort(failed)
		i.Err = fmt.Errorf("can't decode %s", strings.Join(failed, ", "))
	}
	i.ExpiresAt = i.ExpiresAt.UTC()
	return i
}

func unmarshal(attributes map[string]types.AttributeValue, i *Item) error {
	return attributevalue.UnmarshalMapWithOptions(attributes, i, func(o *attributevalue.DecoderOptions) {
		o.DecodeTime.N = func(text string) (time.Time, error) {
			ms, err := strconv.ParseInt(text, 10, 64)
			return time.UnixMilli(ms).UTC(), err
		}
	})
}

// decodeAll returns the items that were read.
func decodeAll(list []map[string]types.AttributeValue) []Item {
	items := make([]Item, len(list))
	for i, attributes := range list {
		items[i] = decode(attributes)
	}
	return items
}

// ErrCorrupt is returned when the event of an item is not the one that was
// recorded.
var ErrCorrupt = errors.New("the stored event is not the one that was recorded")

// entry returns the entry of a pending item. With ErrCorrupt, it is the entry as
// far as it can be read.
func (i Item) entry() (Entry, error) {
	e := Entry{
		EventID: i.EventID, DeliveryID: i.DeliveryID, Digest: i.Digest, Detail: i.Detail, Claimed: i.Claimed,
		RecordedAt: i.RecordedAt, Attempts: i.Attempts,
	}
	event, err := payment.DecodeRawEvent(i.Detail)
	if err != nil || !i.Claimed && DigestOf(i.Detail) != e.Digest {
		return e, ErrCorrupt
	}
	e.EventName, e.EventTimestamp = event.EventName, event.EventTimestamp
	return e, nil
}

func keyOf(eventID string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{names.LedgerKey: &types.AttributeValueMemberS{Value: eventID}}
}

func number(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func binary(b []byte) *types.AttributeValueMemberB { return &types.AttributeValueMemberB{Value: b} }

// shardOf returns the shard of a pending item.
func shardOf(eventID string) *types.AttributeValueMemberS {
	h := fnv.New32a()
	h.Write([]byte(eventID))
	return shardName(int(h.Sum32() % Shards))
}

func shardName(shard int) *types.AttributeValueMemberS {
	return &types.AttributeValueMemberS{Value: "pending/" + strconv.Itoa(shard)}
}
