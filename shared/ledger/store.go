package ledger

import (
	"context"
	"time"

	"payhook.example/shared/settings"
)

// The most items of one call of a [Store].
const (
	MaxWrites = 25
	MaxReads  = 100
)

// Store keeps the items of a ledger, and an index of those that have a shard. It decides about each item by itself and
// in one step. A write that fails may have taken effect. The eventIds of a call differ. It is safe for concurrent use.
// Package shared/aws/dynamodb has the store of a stack. [Memory] is one in memory.
type Store interface {
	// Write makes each of at most MaxWrites writes.
	Write(ctx context.Context, writes []Write) []WriteResult
	Getter
	Querier
}

// Getter reads items of a [Store].
type Getter interface {
	// Get returns those of at most MaxReads items that exist, by eventId, as the last write left them, and with
	// Detail and Size if the content is wanted. With an error it returns what it could read.
	Get(ctx context.Context, eventIDs []string, content bool) (map[string]Item, error)
}

// Querier reads the index of a [Store].
type Querier interface {
	// Query returns a page of the index, and after which item the next one begins; nil if it is the last. The index
	// has EventID, Shard, LeasedUntil or ParkedAt, RecordedAt, Size, Large and Cause of each item. It follows the
	// table with a delay.
	Query(ctx context.Context, q Query) (page []Item, next *Item, err error)
}

// Write is a write of one item.
type Write struct {
	// Item has the EventID, and the new values.
	Item Item
	// If is the condition. Nil means that there is no item with this EventID. Otherwise there is one, and it has the
	// values of those fields of If that are not zero.
	If *Item
	// Kept is the last of the sets whose attributes stay if they are zero in Item. Those of the sets after it are
	// removed.
	Kept  AttributeSet
	Lease bool // also adds one to Attempts, and returns the new item
}

// WriteResult is the result of a write.
type WriteResult struct {
	Done bool // the item was written
	// Found is the item that does not meet the condition; nil for none, and of an insert. Of a lease that was made, it
	// is the new item.
	Found *Item
	Err   error
}

// AttributeSet is a set of the attributes of an item.
type AttributeSet int

// The sets, in the order of [Write.Kept].
const (
	Nothing  AttributeSet = iota
	Identity              // EventID, Digest, DeliveryID, RecordedAt, Note, Amount and Currency
	Content               // Detail, Size and Large
	Rest                  // all else: a change of the state removes it, so that a pending item has no end
)

// Attribute is an attribute of an item in a table.
type Attribute struct {
	Name string
	In   AttributeSet
	at   func(*Item) any // the address of the field; of ExpiresAt, as *seconds
}

// seconds is a time in whole seconds.
type seconds time.Time

// Value returns the value of the attribute as a table has it: a string, an int64, a bool or a []byte; nil if it is
// zero. Times are in Unix milliseconds, ExpiresAt in Unix seconds.
func (a Attribute) Value(i *Item) any {
	switch v := a.at(i).(type) {
	case *string:
		return notZero(*v)
	case *bool:
		return notZero(*v)
	case *int:
		return notZero(int64(*v))
	case *time.Time:
		if !v.IsZero() {
			return v.UnixMilli()
		}
	case *seconds:
		if t := time.Time(*v); !t.IsZero() {
			return t.Unix()
		}
	case *[]byte:
		if *v != nil {
			return *v
		}
	case *Digest:
		if *v != (Digest{}) {
			return v[:]
		}
	case *LeaseOwner:
		if *v != (LeaseOwner{}) {
			return v[:]
		}
	}
	return nil
}

func notZero[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

// Set sets the attribute to a value as of [Attribute.Value], and to zero if the value is of another type. It reports
// whether the type is right.
func (a Attribute) Set(i *Item, value any) (ok bool) {
	b, _ := value.([]byte)
	n, isNumber := value.(int64)
	switch v := a.at(i).(type) {
	case *string:
		*v, ok = value.(string)
	case *bool:
		*v, ok = value.(bool)
	case *int:
		*v, ok = int(n), isNumber
	case *time.Time:
		if *v, ok = (time.Time{}), isNumber; ok {
			*v = time.UnixMilli(n).UTC()
		}
	case *seconds:
		if *v, ok = (seconds{}), isNumber; ok {
			*v = seconds(time.Unix(n, 0).UTC())
		}
	case *[]byte:
		*v, ok = value.([]byte)
	case *Digest:
		if *v, ok = (Digest{}), len(b) == len(v); ok {
			*v = Digest(b)
		}
	case *LeaseOwner:
		if *v, ok = (LeaseOwner{}), len(b) == len(v); ok {
			*v = LeaseOwner(b)
		}
	}
	return ok
}

// Attributes are the attributes of an item in a table. The first is the key, which every write keeps.
var Attributes = [...]Attribute{
	{settings.LedgerKey, Nothing, func(i *Item) any { return &i.EventID }},
	{"digest", Identity, func(i *Item) any { return &i.Digest }},
	{"deliveryId", Identity, func(i *Item) any { return &i.DeliveryID }},
	{settings.LedgerRecordedAt, Identity, func(i *Item) any { return &i.RecordedAt }},
	{"decidedBy", Identity, func(i *Item) any { return &i.Note.By }},
	{"decidedAt", Identity, func(i *Item) any { return &i.Note.At }},
	{"reason", Identity, func(i *Item) any { return &i.Note.Reason }},
	{"amount", Identity, func(i *Item) any { return &i.Amount }},
	{"currency", Identity, func(i *Item) any { return &i.Currency }},
	{settings.LedgerEvent, Content, func(i *Item) any { return &i.Detail }},
	{settings.LedgerSize, Content, func(i *Item) any { return &i.Size }},
	{settings.LedgerLarge, Content, func(i *Item) any { return &i.Large }},
	{"state", Rest, func(i *Item) any { return (*string)(&i.State) }},
	{settings.LedgerShard, Rest, func(i *Item) any { return &i.Shard }},
	{settings.LedgerIndexTime, Rest, func(i *Item) any { return i.indexTime() }},
	{"attempts", Rest, func(i *Item) any { return &i.Attempts }},
	{"leaseOwner", Rest, func(i *Item) any { return &i.LeaseOwner }},
	{settings.LedgerCause, Rest, func(i *Item) any { return &i.Cause }},
	{"problem", Rest, func(i *Item) any { return &i.Problem }},
	{"eventTimestamp", Rest, func(i *Item) any { return &i.EventTimestamp }},
	{"publishedAt", Rest, func(i *Item) any { return &i.PublishedAt }},
	{settings.LedgerTTL, Rest, func(i *Item) any { return (*seconds)(&i.ExpiresAt) }},
}

// Query selects items of a shard of the index.
type Query struct {
	Shard string
	// At selects the items that are due by then, the longest due first; or, with Later, those that are due
	// after it, the last due first.
	At    time.Time
	Later bool
	After *Item // an item of the index, of which EventID, Shard and its IndexTime are needed; nil: from the beginning
	Limit int
}
