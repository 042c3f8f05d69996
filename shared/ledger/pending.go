package ledger

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Pending returns a page of the pending items of a shard that q selects, and after which to continue; nil once there
// are no more. The index follows the table with a delay, so an item may be missing, or no longer pending. [Item.Err]
// may be set.
func (l *Ledger) Pending(ctx context.Context, shard int, q Query) ([]Item, *Item, error) {
	q.Shard = shardName(Pending, shard)
	items, next, err := l.store.Query(ctx, q)
	if err != nil {
		return nil, nil, fmt.Errorf("ledger: shard %s: %w", q.Shard, err)
	}
	return items, next, nil
}

// Lease takes pending items for owner alone until the given time, and returns the result of each. Of two callers that
// lease the same [Item] only one holds it: its result is done, with the item [Item.WithEvent]. An item that is not held
// was taken by another caller or is no longer pending, unless there is an error. An item that is not what was recorded
// is leased as well: its result is done, has as much of it as can be read, and an error that wraps [ErrCorrupt].
func (l *Ledger) Lease(ctx context.Context, pending []Item, owner LeaseOwner, until time.Time) []WriteResult {
	writes := make([]Write, len(pending))
	for n, p := range pending {
		if p.LeasedUntil.IsZero() { // it could not be decoded: no item has this time
			p.LeasedUntil = time.UnixMilli(math.MinInt64)
		}
		writes[n] = Write{Item: Item{EventID: p.EventID, LeasedUntil: until, LeaseOwner: owner},
			If: &Item{State: Pending, LeasedUntil: p.LeasedUntil}, Kept: Rest, Lease: true}
	}
	results := l.write(ctx, "lease", pending, writes...)
	for n := range results {
		r := &results[n]
		if r.Found == nil {
			continue
		}
		// It may be our own lease, whose answer was lost before it was tried again.
		r.Done = r.Done || r.Found.LeaseOwner == owner && r.Found.LeasedUntil.UnixMilli() == until.UnixMilli()
		if !r.Done {
			r.Found = nil
			continue
		}
		var err error
		if *r.Found, err = r.Found.WithEvent(); err != nil {
			r.Err = fmt.Errorf("ledger: lease %s: %w", pending[n].EventID, err)
		}
	}
	return results
}

// Postpone makes an item that owner has leased due at the given time. It does
// nothing if owner does not hold the item any more.
func (l *Ledger) Postpone(ctx context.Context, i Item, owner LeaseOwner, until time.Time) error {
	return l.write(ctx, "postpone", nil, Write{Item: Item{EventID: i.EventID, LeasedUntil: until},
		If: &Item{State: Pending, LeaseOwner: owner}, Kept: Rest})[0].Err
}
