package ledger

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
)

// Cursor is a position in one shard of the index; nil is before the first item.
type Cursor map[string]types.AttributeValue

// Due returns up to limit items of a shard of the ledger's bus that are due at the given time, the
// longest due first, from the cursor on. It returns a nil cursor once there are no
// more. The index follows the table with a delay, so an item may be missing, or no
// longer pending. [Item.Err] may be set.
func (l *Ledger) Due(ctx context.Context, shard int, at time.Time, after Cursor, limit int) ([]Item, Cursor, error) {
	return l.query(ctx, shardName(shard), at, dueBy, true, after, limit)
}

// Waiting returns up to limit items of a shard of the ledger's bus that are due only after the given
// time, the last due first: those that were postponed most often, then those that
// are held. The index follows the table with a delay.
func (l *Ledger) Waiting(ctx context.Context, shard int, at time.Time, limit int) ([]Item, error) {
	waiting, _, err := l.query(ctx, shardName(shard), at, "#shard = :shard AND #due > :at", false, nil, limit)
	return waiting, err
}

// dueBy is the condition of Due.
const dueBy = "#shard = :shard AND #due <= :at"

func (l *Ledger) query(ctx context.Context, shard *types.AttributeValueMemberS, at time.Time, condition string,
	forward bool, after Cursor, limit int) ([]Item, Cursor, error) {
	out, err := l.client.Query(ctx, &dynamodb.QueryInput{
		TableName:                l.table,
		IndexName:                aws.String(names.LedgerPendingIndex),
		KeyConditionExpression:   &condition,
		ExpressionAttributeNames: expressionNames(condition),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":shard": shard,
			":at":    number(at.UnixMilli()),
		},
		ScanIndexForward:  &forward,
		ExclusiveStartKey: after,
		Limit:             aws.Int32(int32(limit)),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("ledger: pending in shard %s: %w", shard.Value, err)
	}
	return decodeAll(out.Items), out.LastEvaluatedKey, nil
}

// Leased is the result of an attempt to lease one item.
type Leased struct {
	Entry Entry
	// Held reports whether the caller holds the item. With an error, the item is
	// not what was recorded: Entry is as much of it as can be read.
	Held bool
	Err  error
}

// Lease takes pending items for holder alone until the given time, and returns the
// result of each. Of two callers that lease the same [Item] only one holds it.
// An item that is not held was taken by another caller or is no
// longer pending, unless there is an error. An item that is not what was recorded is leased all the
// same; its error wraps [ErrCorrupt].
func (l *Ledger) Lease(ctx context.Context, pending []Item, holder Holder, until time.Time) []Leased {
	results := make([]Leased, len(pending))
	// A batch may return the new items (AWS,
	// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchStatementResponse.html).
	statement := "UPDATE " + quote(*l.table) + ` SET "due" = ? SET "holder" = ? SET "attempts" = "attempts" + ? ` +
		`WHERE "eventId" = ? AND "due" = ? AND "shard" = ? RETURNING ALL NEW *`
	l.inBatches(len(pending), func(i int) int { return pending[i].Size }, func(begin, end int) {
		l.leaseBatch(ctx, pending[begin:end], results[begin:end], holder, until, statement)
	})
	return results
}

// leaseBatch leases the items of one batch.
func (l *Ledger) leaseBatch(ctx context.Context, pending []Item, results []Leased, holder Holder,
	until time.Time, statement string) {
	if len(pending) == 1 {
		results[0] = l.lease(ctx, pending[0], holder, until)
		return
	}
	statements := make([]types.BatchStatementRequest, len(pending))
	for i, p := range pending {
		statements[i] = types.BatchStatementRequest{
			Statement: &statement,
			Parameters: []types.AttributeValue{
				number(until.UnixMilli()), binary(holder[:]), number(1),
				&types.AttributeValueMemberS{Value: p.EventID}, number(p.Due.UnixMilli()), shardOf(p.EventID),
			},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}
	}
	for i, r := range l.execute(ctx, statements) {
		switch {
		case r.undecided() || r.err == nil && r.item == nil:
			// The single write finds that the item is leased already, if it is.
			results[i] = l.lease(ctx, pending[i], holder, until)
		case r.err == nil:
			results[i] = leasedOf(pending[i], r.item)
		case !r.met():
			results[i] = l.ownLease(pending[i], r.item, holder, until)
		default:
			results[i].Err = fmt.Errorf("ledger: lease %s: %w", pending[i].EventID, r.err)
		}
	}
}

func (l *Ledger) lease(ctx context.Context, p Item, holder Holder, until time.Time) Leased {
	item, met, err := l.update(ctx, p.EventID,
		"SET #due = :until, #holder = :holder, #attempts = if_not_exists(#attempts, :zero) + :one",
		"#due = :seen AND #shard = :shard",
		map[string]types.AttributeValue{
			":until":  number(until.UnixMilli()),
			":seen":   number(p.Due.UnixMilli()),
			":shard":  shardOf(p.EventID),
			":holder": binary(holder[:]),
			":zero":   number(0),
			":one":    number(1),
		}, types.ReturnValueAllNew)
	switch {
	case err != nil:
		return Leased{Err: fmt.Errorf("ledger: lease %s: %w", p.EventID, err)}
	case met:
		return leasedOf(p, item)
	}
	return l.ownLease(p, item, holder, until)
}

// ownLease returns the result for an item that is not as it was seen: it may be our own
// lease, whose answer was lost before it was tried again.
func (l *Ledger) ownLease(p Item, attributes map[string]types.AttributeValue, holder Holder,
	until time.Time) Leased {
	found := decode(attributes)
	if !bytes.Equal(found.Holder, holder[:]) || found.Due.UnixMilli() != until.UnixMilli() {
		return Leased{}
	}
	return leasedOf(p, attributes)
}

// leasedOf returns the result for an item that the caller holds.
func leasedOf(p Item, attributes map[string]types.AttributeValue) Leased {
	delete(attributes, names.LedgerSize) // only the index needs it
	leased := decode(attributes)
	e, corrupt := leased.entry()
	if leased.Err != nil || corrupt != nil {
		return Leased{e, true, fmt.Errorf("ledger: lease %s: %w", p.EventID, ErrCorrupt)}
	}
	return Leased{e, true, nil}
}

// Postpone makes an item that holder has leased due at the given time. It does
// nothing if holder does not hold the item any more.
func (l *Ledger) Postpone(ctx context.Context, e Entry, holder Holder, until time.Time) error {
	_, _, err := l.update(ctx, e.EventID, "SET #due = :until", "#holder = :holder AND #shard = :shard",
		map[string]types.AttributeValue{
			":until":  number(until.UnixMilli()),
			":holder": binary(holder[:]),
			":shard":  shardOf(e.EventID),
		}, types.ReturnValueNone)
	if err != nil {
		return fmt.Errorf("ledger: postpone %s: %w", e.EventID, err)
	}
	return nil
}
