package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The attributes of the times at which an event was published or parked.
const (
	published = "publishedAt"
	parked    = "parkedAt"
)

// MarkPublished marks entries as published and removes their bytes, and returns
// the error of each. It does nothing for an entry that is not pending any more, or was
// moved to another bus.
// It keeps the time that the event has on the bus, by which an archive of the bus is
// searched. The item is smaller than before, so this costs no write unit.
func (l *Ledger) MarkPublished(ctx context.Context, entries []Entry) []error {
	results := make([]error, len(entries))
	// It fails for an item that is not there as well (AWS,
	// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.update.html).
	statement := func(more string) *string {
		return aws.String("UPDATE " + quote(*l.table) + " SET " + quote(published) + ` = ? SET "expiresAt" = ?` + more +
			` REMOVE "event" REMOVE "size" REMOVE "claimed" REMOVE "shard" REMOVE "due" REMOVE "holder" ` +
			`REMOVE "attempts" WHERE "eventId" = ? AND "digest" = ? AND "shard" = ?`)
	}
	m := marking{published, statement(""), statement(` SET "eventTimestamp" = ?`)}
	l.inBatches(len(entries), ofNoSize, func(begin, end int) {
		l.markBatch(ctx, entries[begin:end], results[begin:end], m)
	})
	return results
}

// MarkParked marks an entry as parked and removes its bytes. The caller has stored it for a
// person to look at. It does nothing for an entry that is not pending any more, or was
// recorded anew: what the caller stored is of the first recording, and may be replayed already.
func (l *Ledger) MarkParked(ctx context.Context, e Entry) error {
	return l.markOne(ctx, e, marking{at: parked})
}

// marking says how entries are marked.
type marking struct {
	at           string  // the attribute of the time
	plain, timed *string // the statements; timed sets the time that the event has on the bus
}

// timeOnBus returns the time that a published event has on the bus as milliseconds, and
// false if it has that of the PutEvents request, because the SDK can't represent its own.
func timeOnBus(e Entry, at string) (types.AttributeValue, bool) {
	t := e.EventTimestamp
	if at != published || !t.Equal(time.Unix(0, t.UnixNano())) {
		return nil, false
	}
	return number(t.UnixMilli()), true
}

// markBatch marks the entries of one batch.
func (l *Ledger) markBatch(ctx context.Context, entries []Entry, results []error, m marking) {
	if len(entries) == 1 {
		results[0] = l.markOne(ctx, entries[0], m)
		return
	}
	statements := make([]types.BatchStatementRequest, len(entries))
	for i, e := range entries {
		now, expires := l.markTimes(e)
		statement, parameters := m.plain, []types.AttributeValue{now, expires}
		if onBus, ok := timeOnBus(e, m.at); ok {
			statement, parameters = m.timed, append(parameters, onBus)
		}
		statements[i] = types.BatchStatementRequest{Statement: statement, Parameters: append(parameters,
			&types.AttributeValueMemberS{Value: e.EventID}, binary(e.Digest[:]), l.shardOf(e.EventID))}
	}
	for i, r := range l.execute(ctx, statements) {
		switch {
		case r.undecided():
			results[i] = l.markOne(ctx, entries[i], m)
		case r.err != nil && r.met():
			results[i] = fmt.Errorf("ledger: mark %s: %w", entries[i].EventID, r.err)
		}
	}
}

// markTimes returns the values of a mark that is written now: the time, and the end of
// the window.
func (l *Ledger) markTimes(e Entry) (now, expires types.AttributeValue) {
	at := l.opts.Now()
	// From now on, not from recordedAt: an event may be published long after it was
	// recorded. The clock of the receiver that recorded it may be ahead.
	begin := at
	if e.RecordedAt.After(begin) {
		begin = e.RecordedAt
	}
	return number(at.UnixMilli()), number(begin.Add(l.opts.Window).Unix())
}

func (l *Ledger) markOne(ctx context.Context, e Entry, m marking) error {
	now, expires := l.markTimes(e)
	values := map[string]types.AttributeValue{":now": now, ":expires": expires, ":digest": binary(e.Digest[:]),
		":shard": l.shardOf(e.EventID)}
	set := ""
	if onBus, ok := timeOnBus(e, m.at); ok {
		set = ", #eventTimestamp = :eventTimestamp"
		values[":eventTimestamp"] = onBus
	}
	condition := "#shard = :shard AND #digest = :digest"
	if m.at == parked && !e.RecordedAt.IsZero() { // it is zero if it could not be decoded
		condition += " AND #recordedAt = :recordedAt"
		values[":recordedAt"] = number(e.RecordedAt.UnixMilli())
	}
	_, _, err := l.update(ctx, e.EventID, "SET #"+m.at+" = :now, #expiresAt = :expires"+set+
		" REMOVE #event, #size, #claimed, #shard, #due, #holder, #attempts", condition, values, types.ReturnValueNone)
	if err != nil {
		return fmt.Errorf("ledger: mark %s: %w", e.EventID, err)
	}
	return nil
}
