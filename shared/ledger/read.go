package ledger

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"payhook.example/shared/calls"
)

// Find returns what a store has of an event, as the last write left it, and false if it has nothing: the event was
// never accepted, or its window is over. The bytes of the event are included if the content is wanted. For an item
// that cannot be decoded, it returns both the item and [Item.Err].
func Find(ctx context.Context, g Getter, eventID string, content bool) (Item, bool, error) {
	id := Key(eventID)
	items, err := g.Get(ctx, []string{id}, content)
	found, ok := items[id]
	if err = cmp.Or(err, found.Err); err != nil {
		err = fmt.Errorf("ledger: find %s: %w", id, err)
	}
	return found, ok, err
}

// Find returns a parked or pending event with its bytes, as [Find] does.
func (l *Ledger) Find(ctx context.Context, eventID string) (Item, bool, error) {
	return Find(ctx, l.store, eventID, true)
}

const (
	queries  = 16   // at the same time
	pageSize = 1000 // items of about 100 bytes; a page of the index has at most 1 MB
)

// List returns everything that the index has in a state, [Pending] or [Parked], due or not, the longest due first, even
// items that could not be decoded ([Item.Err]). The index follows the table with a delay, so an item may be missing, or
// in another state by now. List takes about 200 bytes of memory for each item, and no bytes of events are read.
func List(ctx context.Context, q Querier, state State) ([]Item, error) {
	lists, errs := make([][]Item, Shards), make([]error, Shards)
	calls.Parallel(Shards, queries, func(shard int) {
		query := Query{Shard: shardName(state, shard), At: time.UnixMilli(math.MaxInt64), Limit: pageSize}
		for {
			page, next, err := q.Query(ctx, query)
			if err != nil {
				errs[shard] = fmt.Errorf("ledger: shard %s: %w", query.Shard, err)
				return
			}
			lists[shard] = append(lists[shard], page...)
			if query.After = next; next == nil {
				return
			}
		}
	})
	all := slices.Concat(lists...)
	slices.SortFunc(all, ByIndexTime)
	return all, cmp.Or(errs...)
}

// ByIndexTime is the order of the index: the longest due first.
func ByIndexTime(a, b Item) int {
	return cmp.Or(a.IndexTime().Compare(b.IndexTime()), cmp.Compare(a.EventID, b.EventID))
}
