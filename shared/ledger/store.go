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

// Store keeps the items of a ledger, and an index of those that are pending. It decides about each
// item by itself and in one step. A write that fails may have taken effect. The eventIds of a call
// differ. It is safe for concurrent use. Package shared/aws/dynamodb has the store of a deployment.
// [Memory] is one in memory.
type Store interface {
	// Insert stores each of at most MaxWrites items for whose eventId there is none. The results have
	// no item.
	Insert(ctx context.Context, items []Item) []Result
	// Change makes each of at most MaxWrites changes.
	Change(ctx context.Context, changes []Change) []Result
	// Get returns those of at most MaxReads items that exist, by eventId, without Detail and Size, as
	// the last write left them. With an error it returns what it could read.
	Get(ctx context.Context, eventIDs []string) (map[string]Item, error)
	// Query returns a page of the index, and the cursor of the next one; nil if it is the last. The index
	// has EventID, Shard, Due, RecordedAt and Size of each item. It follows the table with a delay.
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
	// Set has the new values. If it has a State, it replaces the item, except that the item keeps its
	// Digest, DeliveryID and RecordedAt where those of Set are zero. Otherwise it changes only the fields
	// that are not zero.
	Set   Item
	Lease bool // also adds one to Attempts, and returns the new item
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
