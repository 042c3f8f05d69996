package ledger

import (
	"errors"
	"hash/fnv"
	"strconv"
	"time"

	"payhook.example/shared/payment"
)

// State is the state of an event in the ledger.
type State string

// The states.
const (
	Pending   State = "pending" // recorded, and not known to be published
	Published State = "published"
	Parked    State = "parked" // stored by the caller for a person to decide
)

// Item is what the ledger has of an event, or what its index has of it. Its times are in UTC. What does
// not apply, or was not read, is zero.
type Item struct {
	EventID    string // a UUID in lower case
	Digest     Digest
	DeliveryID string // of the delivery that brought the event first
	RecordedAt time.Time
	State      State

	// While the event is pending.
	Detail   []byte    // what is published
	Size     int       // bytes of Detail
	Shard    string    // pending/N, with N from the eventId
	Due      time.Time // until then, only the holder writes
	Holder   Holder
	Attempts int  // how often redrive has leased it
	Claimed  bool // Detail is a claim check

	// Once it is published or parked.
	PublishedAt time.Time
	// EventTimestamp is the time that the event has on the bus. It is zero for an event whose time
	// can't be read, or can't be represented there.
	EventTimestamp time.Time
	ParkedAt       time.Time
	// ExpiresAt is the end of the window, in whole seconds. DynamoDB may take days more to delete the item.
	// The other times are in milliseconds.
	ExpiresAt time.Time

	// Err names the attributes that could not be decoded, which are zero; nil for none.
	Err error
}

// Overdue reports whether an event that is pending was due more than two minutes ago. By then, redrive has run
// twice.
func (i Item) Overdue(now time.Time) bool { return now.Sub(i.Due) > 2*time.Minute }

// Current reports whether the window of an item has not passed. A pending item is current,
// however old it is. An item that is not current may be deleted at any time, and its eventId
// can be recorded again.
func (i Item) Current(now time.Time) bool { return i.State == Pending || i.ExpiresAt.After(now) }

// newItem returns the pending item of e.
func newItem(e Entry, holder Holder, due time.Time) Item {
	return Item{
		EventID: e.EventID, Digest: e.Digest, DeliveryID: e.DeliveryID, RecordedAt: e.RecordedAt, State: Pending,
		Detail: e.Detail, Size: len(e.Detail), Shard: shardOf(e.EventID), Due: due, Holder: holder, Claimed: e.Claimed,
	}
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

// shardOf returns the shard of a pending item.
func shardOf(eventID string) string {
	h := fnv.New32a()
	h.Write([]byte(eventID))
	return shardName(int(h.Sum32() % Shards))
}

func shardName(shard int) string { return "pending/" + strconv.Itoa(shard) }
