package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The attributes of the times at which an event was published or parked.
const (
	published = "publishedAt"
	parked    = "parkedAt"
)

// MarkPublished marks entries as published and removes their bytes, and returns
// the error of each. It does nothing for an entry that is not pending any more.
// It keeps the time that the event has on the bus, by which an archive of the bus is
// searched. The item is smaller than before, so this costs no write unit.
func (l *Ledger) MarkPublished(ctx context.Context, entries []Entry) []error {
	results := make([]error, len(entries))
	l.inBatches(len(entries), ofNoSize, func(begin, end int) {
		l.markBatch(ctx, entries[begin:end], results[begin:end])
	})
	return results
}

// MarkParked marks an entry as parked and removes its bytes. The caller has stored it for a
// person to look at. It does nothing for an entry that is not pending any more, or was
// recorded anew: what the caller stored is of the first recording, and may be replayed already.
func (l *Ledger) MarkParked(ctx context.Context, e Entry) error { return l.markOne(ctx, e, parked) }

// markBatch marks the entries of one batch as published.
func (l *Ledger) markBatch(ctx context.Context, entries []Entry, results []error) {
	if len(entries) == 1 {
		results[0] = l.markOne(ctx, entries[0], published)
		return
	}
	statements := make([]types.BatchStatementRequest, len(entries))
	for i, e := range entries {
		statements[i] = l.marking(e, published).statement(*l.table, e.EventID)
	}
	for i, r := range l.execute(ctx, statements) {
		switch {
		case r.undecided():
			results[i] = l.markOne(ctx, entries[i], published)
		case r.err != nil && r.met():
			results[i] = fmt.Errorf("ledger: mark %s: %w", entries[i].EventID, r.err)
		}
	}
}

func (l *Ledger) markOne(ctx context.Context, e Entry, at string) error {
	change, condition, values := l.marking(e, at).expressions()
	if _, _, err := l.update(ctx, e.EventID, change, condition, values, types.ReturnValueNone); err != nil {
		return fmt.Errorf("ledger: mark %s: %w", e.EventID, err)
	}
	return nil
}

// attribute is an attribute with its value.
type attribute struct {
	name  string
	value types.AttributeValue
}

// marking is the change of an item that marks it. It also removes unmarked.
type marking struct {
	set   []attribute
	where []attribute // the values without which nothing is changed
}

// unmarked are the attributes that only a pending item has.
var unmarked = []string{"event", "size", "claimed", "shard", "due", "holder", "attempts"}

// marking returns the change that marks e now; at is published or parked.
func (l *Ledger) marking(e Entry, at string) marking {
	now := l.opts.Now()
	// From now on, not from recordedAt: an event may be published long after it was
	// recorded. The clock of the receiver that recorded it may be ahead.
	begin := now
	if e.RecordedAt.After(begin) {
		begin = e.RecordedAt
	}
	m := marking{
		set:   []attribute{{at, number(now.UnixMilli())}, {"expiresAt", number(begin.Add(l.opts.Window).Unix())}},
		where: []attribute{{"shard", shardOf(e.EventID)}, {"digest", binary(e.Digest[:])}},
	}
	// An event whose time the SDK can't represent has that of the PutEvents request on the bus.
	if t := e.EventTimestamp; at == published && t.Equal(time.Unix(0, t.UnixNano())) {
		m.set = append(m.set, attribute{"eventTimestamp", number(t.UnixMilli())})
	}
	if at == parked && !e.RecordedAt.IsZero() { // it is zero if it could not be decoded
		m.where = append(m.where, attribute{"recordedAt", number(e.RecordedAt.UnixMilli())})
	}
	return m
}

// statement returns the change in PartiQL. Like that of expressions, its condition does not hold
// for an item that is not there (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.update.html).
func (m marking) statement(table, eventID string) types.BatchStatementRequest {
	text := "UPDATE " + quote(table)
	var parameters []types.AttributeValue
	for _, a := range m.set {
		text += " SET " + quote(a.name) + " = ?"
		parameters = append(parameters, a.value)
	}
	for _, name := range unmarked {
		text += " REMOVE " + quote(name)
	}
	text += ` WHERE "eventId" = ?`
	parameters = append(parameters, &types.AttributeValueMemberS{Value: eventID})
	for _, a := range m.where {
		text += " AND " + quote(a.name) + " = ?"
		parameters = append(parameters, a.value)
	}
	return types.BatchStatementRequest{Statement: &text, Parameters: parameters}
}

// expressions returns the change as the expressions of an UpdateItem.
func (m marking) expressions() (change, condition string, values map[string]types.AttributeValue) {
	values = map[string]types.AttributeValue{}
	equal := func(list []attribute, separator string) string {
		var parts []string
		for _, a := range list {
			parts = append(parts, "#"+a.name+" = :"+a.name)
			values[":"+a.name] = a.value
		}
		return strings.Join(parts, separator)
	}
	change = "SET " + equal(m.set, ", ") + " REMOVE #" + strings.Join(unmarked, ", #")
	return change, equal(m.where, " AND "), values
}
