package ledger

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Due returns up to limit pending items of a shard that are due at the given time, the
// longest due first, from the cursor on. It returns a nil cursor once there are no
// more. The index follows the table with a delay, so an item may be missing, or no
// longer pending. [Item.Err] may be set.
func (l *Ledger) Due(ctx context.Context, shard int, at time.Time, after *Cursor, limit int) ([]Item, *Cursor, error) {
	return l.query(ctx, Query{Shard: shardName(Pending, shard), At: at, After: after, Limit: limit})
}

// Waiting returns up to limit pending items of a shard that are due only after the given
// time, the last due first: those that were postponed most often, then those that
// are held. The index follows the table with a delay.
func (l *Ledger) Waiting(ctx context.Context, shard int, at time.Time, limit int) ([]Item, error) {
	waiting, _, err := l.query(ctx, Query{Shard: shardName(Pending, shard), At: at, Later: true, Limit: limit})
	return waiting, err
}

func (l *Ledger) query(ctx context.Context, q Query) ([]Item, *Cursor, error) {
	items, next, err := l.store.Query(ctx, q)
	if err != nil {
		return nil, nil, fmt.Errorf("ledger: shard %s: %w", q.Shard, err)
	}
	return items, next, nil
}

// Leased is the result of an attempt to lease one item.
type Leased struct {
	// Item is [Item.WithEvent] if Held.
	Item Item
	// Held reports whether the caller holds the item. With an error, the item is
	// not what was recorded: Item is as much of it as can be read.
	Held bool
	Err  error
}

// Lease takes pending items for holder alone until the given time, and returns the
// result of each. Of two callers that lease the same [Item] only one holds it.
// An item that is not held was taken by another caller or is no
// longer pending, unless there is an error. An item that is not what was recorded is leased
// as well; its error wraps [ErrCorrupt].
func (l *Ledger) Lease(ctx context.Context, pending []Item, holder Holder, until time.Time) []Leased {
	results := make([]Leased, len(pending))
	l.inBatches(len(pending), func(i int) int { return pending[i].Size }, func(begin, end int) {
		changes := make([]Change, end-begin)
		for n, p := range pending[begin:end] {
			if p.Due.IsZero() { // it could not be decoded: no item has this time
				p.Due = time.UnixMilli(math.MinInt64)
			}
			changes[n] = Change{EventID: p.EventID, Where: Item{State: Pending, Due: p.Due},
				Set: Item{Due: until, Holder: holder}, Lease: true}
		}
		for n, r := range l.store.Change(ctx, changes) {
			results[begin+n] = leasedOf(changes[n], r)
		}
	})
	return results
}

// leasedOf returns the result of a lease.
func leasedOf(c Change, r Result) Leased {
	found := r.Item
	// It may be our own lease, whose answer was lost before it was tried again.
	own := found.Holder == c.Set.Holder && found.Due.UnixMilli() == c.Set.Due.UnixMilli()
	switch {
	case r.Err != nil:
		return Leased{Err: fmt.Errorf("ledger: lease %s: %w", c.EventID, r.Err)}
	case !r.Done && !own:
		return Leased{}
	}
	found, err := found.WithEvent()
	if err != nil {
		err = fmt.Errorf("ledger: lease %s: %w", c.EventID, err)
	}
	return Leased{found, true, err}
}

// Postpone makes an item that holder has leased due at the given time. It does
// nothing if holder does not hold the item any more.
func (l *Ledger) Postpone(ctx context.Context, i Item, holder Holder, until time.Time) error {
	r := l.change(ctx, Change{EventID: i.EventID, Where: Item{State: Pending, Holder: holder}, Set: Item{Due: until}})
	if r.Err != nil {
		return fmt.Errorf("ledger: postpone %s: %w", i.EventID, r.Err)
	}
	return nil
}
