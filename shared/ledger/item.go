package ledger

import (
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/payment"
)

// State is the state of an event in the ledger.
type State string

// The states.
const (
	Pending   State = "pending"   // recorded, and not known to be published
	Published State = "published" // nothing is left to do
	Parked    State = "parked"    // it cannot be published: a person replays or dismisses it
	Dismissed State = "dismissed" // a person decided that it is not published
)

// Item is an event in the ledger: what the table has of it, or what its index has. Its times are in UTC. What
// does not apply, or was not read, is zero.
type Item struct {
	EventID    string // a UUID in lower case: the key
	Digest     Digest // of the signed event
	DeliveryID string // of the delivery that brought the event
	RecordedAt time.Time
	Note       Note // the last one about the event
	// Amount and Currency are those of the event, as in [payment.RawEvent]. The table has them once the event is
	// not pending any more, since Detail has them until then.
	Amount, Currency string

	State State

	// While the event is pending or parked.
	Detail   []byte // what is published: the signed event, or its claim check
	Size     int    // bytes of Detail
	Large    bool   // Detail is a claim check
	Shard    string // of the index: the state and a number that depends on the eventId
	Attempts int    // how often redrive has leased it

	// While the event is pending: until then, only the owner writes.
	LeasedUntil time.Time
	LeaseOwner  LeaseOwner

	// While the event is parked.
	ParkedAt time.Time
	Cause    string // a code that says why, such as "attempts"
	Problem  string // the same for a person, at most 512 bytes

	// EventName is not stored: it is part of Detail.
	EventName string
	// EventTimestamp is that of the event. The table has it of what is published, as the time that the event has
	// on the bus. It is zero for an event whose time can't be read, or can't be represented there.
	EventTimestamp time.Time
	PublishedAt    time.Time
	// ExpiresAt is the end of the window of what is published or dismissed, in whole seconds. DynamoDB may take
	// days more to delete the item. The other times are in milliseconds.
	ExpiresAt time.Time

	// Err names the attributes that could not be decoded, which are zero; nil for none.
	Err error
}

// Note is what a person decided about a parked event. Its texts have less than 1,000 bytes: the redrive function
// refuses longer ones.
type Note struct {
	By     string // who, as the caller states
	At     time.Time
	Reason string
}

// NewItem returns the item of a signed event that is published as it is.
func NewItem(event payment.RawEvent, deliveryID string, recordedAt time.Time) Item {
	return Item{
		EventID: Key(event.EventID), EventName: event.EventName, EventTimestamp: event.EventTimestamp,
		DeliveryID: deliveryID, Digest: DigestOf(event.Bytes), Detail: event.Bytes, RecordedAt: recordedAt,
		Amount: event.Amount, Currency: event.Currency,
	}
}

// Key returns the form of an eventId under which the ledger knows it: case has
// no meaning in a UUID (RFC 9562, section 4).
func Key(eventID string) string { return strings.ToLower(eventID) }

// IndexTime returns the time by which the index orders its items.
func (i *Item) IndexTime() time.Time { return *i.indexTime() }

func (i *Item) indexTime() *time.Time {
	if i.State == Parked || strings.HasPrefix(i.Shard, string(Parked)) {
		return &i.ParkedAt
	}
	return &i.LeasedUntil
}

// Current reports whether the ledger still knows the event. What is pending or parked is current, however old it
// is; the rest until its window has passed. An item that is not current may be deleted at any time, and its eventId
// can be recorded again.
func (i Item) Current(now time.Time) bool {
	return i.State == Pending || i.State == Parked || i.ExpiresAt.After(now)
}

// RecordedAnew reports whether an event with that digest that is sent now is recorded, if the ledger has i for its
// eventId: a parked event that is sent again is. The zero Item stands for none.
func (i Item) RecordedAnew(digest Digest, now time.Time) bool {
	return !i.Current(now) || i.Digest == digest && i.State == Parked
}

// pending returns what is stored of an item that becomes pending.
func (i *Item) pending(owner LeaseOwner, until time.Time) Item {
	return Item{
		EventID: i.EventID, Digest: i.Digest, DeliveryID: i.DeliveryID, RecordedAt: i.RecordedAt, State: Pending,
		Detail: i.Detail, Size: len(i.Detail), Large: i.Large,
		Shard: shardOf(Pending, i.EventID), LeasedUntil: until, LeaseOwner: owner,
	}
}

// recording returns the condition that an item is in a state, and still has the recording of i. Of i, what could not
// be decoded is not compared.
func (i *Item) recording(state State) *Item {
	return &Item{State: state, Digest: i.Digest, RecordedAt: i.RecordedAt}
}

// ErrCorrupt is returned when the event of an item is not the one that was recorded.
var ErrCorrupt = errors.New("the stored event is not the one that was recorded")

// WithEvent returns a pending or parked item with what it has of its event: EventName, EventTimestamp, Amount and
// Currency. With ErrCorrupt, it returns the item as it is.
func (i Item) WithEvent() (Item, error) {
	event, err := payment.DecodeRawEvent(i.Detail)
	if err != nil || i.Err != nil || !i.Large && DigestOf(i.Detail) != i.Digest {
		return i, ErrCorrupt
	}
	i.EventName, i.EventTimestamp, i.Amount, i.Currency = event.EventName, event.EventTimestamp, event.Amount,
		event.Currency
	return i, nil
}

// shardOf returns the shard of an event in a state.
func shardOf(state State, eventID string) string {
	h := fnv.New32a()
	h.Write([]byte(eventID))
	return shardName(state, int(h.Sum32()%Shards))
}

func shardName(state State, shard int) string { return string(state) + "/" + strconv.Itoa(shard) }
