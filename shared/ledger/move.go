package ledger

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/parallel"
)

// movePage is how many items of a shard are read at a time to be moved.
const movePage = 100

// Move gives the pending items of another bus to the bus of this ledger, and returns how
// many. It takes only items that are due, so none that an invocation of the other stack
// holds or postponed. Of a Move and a Lease of the same item, one has an effect. An item
// that was moved is due at once, and its attempts begin again. With an error, the number is
// of those that are known to be moved. A later call moves the rest.
//
// An item costs a write in the table and two in the index.
func (l *Ledger) Move(ctx context.Context, from string) (moved int, err error) {
	holder := NewHolder()
	var mu sync.Mutex
	parallel.Each(Shards, l.opts.Parallel, func(shard int) {
		n, failed := l.moveShard(ctx, shardName(from, shard), holder)
		mu.Lock()
		defer mu.Unlock()
		moved += n
		if err == nil {
			err = failed
		}
	})
	return moved, err
}

func (l *Ledger) moveShard(ctx context.Context, from *types.AttributeValueMemberS, holder Holder) (n int, err error) {
	for after := Cursor(nil); ; {
		page, next, failed := l.query(ctx, from, l.opts.Now(), dueBy, true, after, movePage)
		if failed != nil {
			return n, failed
		}
		for _, p := range page {
			ok, failed := l.moveOne(ctx, p, from, holder)
			switch {
			case failed != nil:
				return n, fmt.Errorf("ledger: move %s: %w", p.EventID, failed)
			case ok:
				n++
			case p.Err != nil: // without its due
				err = fmt.Errorf("ledger: move %s: %w", p.EventID, p.Err)
			}
		}
		if after = next; after == nil {
			return n, err
		}
	}
}

func (l *Ledger) moveOne(ctx context.Context, p Item, from *types.AttributeValueMemberS,
	holder Holder) (bool, error) {
	// With another holder, nobody who held the item postpones it.
	item, met, err := l.update(ctx, p.EventID, "SET #shard = :to, #holder = :holder, #attempts = :zero",
		"#shard = :from AND #due = :seen",
		map[string]types.AttributeValue{
			":from": from, ":to": l.shardOf(p.EventID), ":seen": number(p.Due.UnixMilli()),
			":holder": binary(holder[:]), ":zero": number(0),
		}, types.ReturnValueNone)
	if err != nil || met {
		return met, err
	}
	// It may be our own move, whose answer was lost before it was tried again.
	found := decode(item)
	return found.Bus() == l.bus && bytes.Equal(found.Holder, holder[:]), nil
}
