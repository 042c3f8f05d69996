package ledger

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
	"payhook.example/shared/payment"
)

// item is an item of the table, in DynamoDB's types. Attributes that do not apply
// are absent.
type item struct {
	EventID    string       `dynamodbav:"eventId"` // partition key; a UUID in lower case
	Digest     []byte       `dynamodbav:"digest,omitempty"`
	DeliveryID string       `dynamodbav:"deliveryId,omitempty"` // of the delivery that brought the event first
	RecordedAt milliseconds `dynamodbav:"recordedAt,omitempty"`

	// While the event is pending.
	Detail   []byte       `dynamodbav:"event,omitempty"` // what is published
	Size     int          `dynamodbav:"size,omitempty"`  // bytes of Detail
	Shard    string       `dynamodbav:"shard,omitempty"` // BUS/N, with N from the eventId; the index's partition key
	Due      milliseconds `dynamodbav:"due,omitempty"`   // until then, only the holder writes; the index's sort key
	Holder   []byte       `dynamodbav:"holder,omitempty"`
	Attempts int          `dynamodbav:"attempts,omitempty"` // how often redrive has leased it
	Claimed  bool         `dynamodbav:"claimed,omitempty"`  // Detail is a claim check

	// Once it is published or parked.
	PublishedAt    milliseconds `dynamodbav:"publishedAt,omitempty"`
	EventTimestamp milliseconds `dynamodbav:"eventTimestamp,omitempty"` // the time that it has on the bus
	ParkedAt       milliseconds `dynamodbav:"parkedAt,omitempty"`
	ExpiresAt      int64        `dynamodbav:"expiresAt,omitempty"` // Unix seconds: the end of the window, the TTL
}

// The attributes that expressions name. Package names has those that the template
// names as well.
const (
	attrDigest         = "digest"
	attrDeliveryID     = "deliveryId"
	attrRecordedAt     = names.LedgerRecordedAt
	attrEvent          = "event"
	attrHolder         = "holder"
	attrAttempts       = "attempts"
	attrPublishedAt    = "publishedAt"
	attrEventTimestamp = "eventTimestamp"
	attrParkedAt       = "parkedAt"
	attrClaimed        = "claimed"
)

// milliseconds is a time in Unix milliseconds; 0 stands for none.
type milliseconds int64

func (m milliseconds) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

// newItem returns the pending item of e.
func (l *Ledger) newItem(e Entry, holder Holder, due time.Time) map[string]types.AttributeValue {
	attributes := map[string]types.AttributeValue{
		names.LedgerKey:          &types.AttributeValueMemberS{Value: e.EventID},
		attrDigest:               binary(e.Digest[:]),
		attrRecordedAt:           number(e.RecordedAt.UnixMilli()),
		attrEvent:                binary(e.Detail),
		names.LedgerSize:         number(int64(len(e.Detail))),
		names.LedgerPendingShard: l.shardOf(e.EventID),
		names.LedgerPendingDue:   number(due.UnixMilli()),
		attrHolder:               binary(holder[:]),
		// PartiQL can increment what exists only.
		attrAttempts: number(0),
	}
	if e.DeliveryID != "" {
		attributes[attrDeliveryID] = &types.AttributeValueMemberS{Value: e.DeliveryID}
	}
	if e.Claimed {
		attributes[attrClaimed] = &types.AttributeValueMemberBOOL{Value: true}
	}
	return attributes
}

// decode returns an item that was read. With an error, some of its attributes may
// be missing.
func decode(attributes map[string]types.AttributeValue) (i item, err error) {
	err = attributevalue.UnmarshalMap(attributes, &i)
	return i, err
}

// decodeAll returns the items that were read, each of which must have an eventId.
func decodeAll(list []map[string]types.AttributeValue) ([]item, error) {
	items := make([]item, len(list))
	for i, attributes := range list {
		var err error
		if items[i], err = decode(attributes); err != nil {
			return nil, err
		}
		if items[i].EventID == "" {
			return nil, fmt.Errorf("an item without %s", names.LedgerKey)
		}
	}
	return items, nil
}

func (i item) digest() (d Digest) {
	copy(d[:], i.Digest)
	return d
}

func (i item) pending() bool { return i.Shard != "" }

// ErrCorrupt is returned when the event of an item is not the one that was
// recorded.
var ErrCorrupt = errors.New("the stored event is not the one that was recorded")

// entry returns the entry of a pending item. With ErrCorrupt, it is the entry as
// far as it can be read.
func (i item) entry() (Entry, error) {
	e := Entry{
		EventID: i.EventID, DeliveryID: i.DeliveryID, Digest: i.digest(), Detail: i.Detail, Claimed: i.Claimed,
		RecordedAt: i.RecordedAt.time(), Attempts: i.Attempts,
	}
	event, err := payment.DecodeRawEvent(i.Detail)
	if err != nil {
		return e, ErrCorrupt
	}
	if !i.Claimed {
		var found Digest
		if found, e.Compact = digestOf(i.Detail); found != e.Digest {
			return e, ErrCorrupt
		}
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

// shardOf returns the shard of a pending item of the ledger's bus.
func (l *Ledger) shardOf(eventID string) *types.AttributeValueMemberS {
	h := fnv.New32a()
	h.Write([]byte(eventID))
	return shardName(l.bus, int(h.Sum32()%Shards))
}

func shardName(bus string, shard int) *types.AttributeValueMemberS {
	return &types.AttributeValueMemberS{Value: bus + "/" + strconv.Itoa(shard)}
}

// bus returns the bus of a pending item.
func (i item) bus() string {
	bus, _, _ := strings.Cut(i.Shard, "/")
	return bus
}
