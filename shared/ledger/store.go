package ledger

import (
	"context"
	"time"
)

// The most items of one call of a [Store].
const (
	MaxWrites = 25
	MaxReads  = 100
)

// Store keeps the items of a ledger, and an index of those that have a shard. It decides about each
// item by itself and in one step. A write that fails may have taken effect. The eventIds of a call
// differ. It is safe for concurrent use. Package shared/aws/dynamodb has the store of a deployment.
// [Memory] is one in memory.
type Store interface {
	// Insert stores each of at most MaxWrites items for whose eventId there is none. The results have
	// no item.
	Insert(ctx context.Context, items []Item) []Result
	// Change makes each of at most MaxWrites changes.
	Change(ctx context.Context, changes []Change) []Result
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
	// Query returns a page of the index, and the cursor of the next one; nil if it is the last. The index
	// has EventID, Shard, Due, RecordedAt, Size, Claimed and Cause of each item. It follows the table with a delay.
	Query(ctx context.Context, q Query) ([]Item, *Cursor, error)
}

// Result is the result of a write of one item.
type Result struct {
	Done bool // the item was written
	// Item is what the change of an item found, if it was not made; without an EventID, there is none. It
	// is the new item of a change that is a lease, without its Size.
	Item Item
	Err  error
}

// Change is a change of one item.
type Change struct {
	EventID string
	// Where is the condition: the item exists, and has the values of those fields that are not zero.
	Where Item
	// Set has the new values. Without a State, it changes only the fields that are not zero. With one, it also
	// removes the others, except those of the parts that the change keeps. EventID is not changed.
	Set   Item
	Lease bool // also adds one to Attempts, and returns the new item
}

// Part is a part of an item that a change keeps or removes.
type Part int

// The parts.
const (
	// Identity has EventID, Digest, DeliveryID, RecordedAt, Decision, Amount and Currency. A change of the state
	// keeps it, unless it sets another Digest.
	Identity Part = iota
	// Content has Detail, Size and Claimed. A change to Pending or Parked keeps it, unless it sets another Detail.
	Content
	// Rest is all else. A change of the state removes what it does not set: a pending item must not expire.
	Rest
)

// Keeps reports whether a change keeps those fields of a part that are zero in Set.
func (c Change) Keeps(p Part) bool {
	switch {
	case c.Set.State == "":
		return true
	case p == Identity:
		return c.Set.Digest == Digest{}
	case p == Content:
		return c.Set.Detail == nil && (c.Set.State == Pending || c.Set.State == Parked)
	}
	return false
}

// Query selects items of a shard of the index.
type Query struct {
	Shard string
	// At selects the items that are due by then, the longest due first; or, with Later, those that are due
	// after it, the last due first.
	At    time.Time
	Later bool
	After *Cursor // nil: from the beginning
	Limit int
}

// Cursor is the position of an item in a shard of the index.
type Cursor struct {
	EventID string
	Shard   string
	Due     time.Time
}
