package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
	"payhook.example/shared/parallel"
)

// Outcome is what became of an attempt to write an event.
type Outcome int

// The outcomes. The zero Outcome stands for none: the attempt failed.
const (
	Recorded  Outcome = iota + 1 // new: it is pending now
	Duplicate                    // recorded before, with the same content
	Conflict                     // recorded before, with other content; nothing was written
)

// Recording is the result of an attempt to write one event.
type Recording struct {
	Outcome Outcome
	Err     error // if not nil, it is not known whether the event was written
}

// Record writes entries as pending, except those whose eventId was recorded before
// within the window, and returns the result of each. The eventIds must differ. All
// entries have the present time as RecordedAt. Until due, only holder may publish
// the entries that are new. The cost is one write for each entry, whatever its
// outcome. Entries that are not tried before ctx ends have its error.
func (l *Ledger) Record(ctx context.Context, entries []Entry, holder Holder, due time.Time) []Recording {
	return l.write(ctx, entries, func(e Entry) (Outcome, error) { return l.record(ctx, e, holder, due) })
}

func (l *Ledger) record(ctx context.Context, e Entry, holder Holder, due time.Time) (Outcome, error) {
	old, err := l.put(ctx, e, holder, due,
		// TTL deletes up to days late, so the window is checked here. A pending item
		// does not expire, however old it is.
		"attribute_not_exists(#eventId) OR (attribute_not_exists(#shard) AND #expiresAt <= :now)",
		map[string]string{"#eventId": names.LedgerKey, "#shard": names.LedgerPendingShard,
			"#expiresAt": names.LedgerTTL},
		map[string]types.AttributeValue{":now": number(l.now().Unix())})
	switch {
	case err != nil:
		return 0, fmt.Errorf("ledger: record %s: %w", e.EventID, err)
	case old == nil:
		return Recorded, nil
	case old.digest() != e.Digest:
		return Conflict, nil
	case bytes.Equal(old.Holder, holder[:]):
		// Our own write, whose answer was lost before the SDK tried again.
		return Recorded, nil
	}
	return Duplicate, nil
}

// Restore writes events that were parked as pending again, for redrive to publish
// from due on, and returns the result of each. The outcome is Duplicate if the
// ledger has the event as pending or published, and Conflict if it has other
// content under its id. All entries have the present time as RecordedAt.
func (l *Ledger) Restore(ctx context.Context, entries []Entry, due time.Time) []Recording {
	return l.restore(ctx, entries, due,
		"attribute_not_exists(#eventId) OR (attribute_exists(#parkedAt) AND #digest = :digest)",
		map[string]string{"#eventId": names.LedgerKey, "#parkedAt": attrParkedAt, "#digest": attrDigest})
}

// Replace writes events as pending, for redrive to publish from due on, even if
// the ledger has other content under their ids, and returns the result of each.
// It keeps nothing of the other content, which is in conflict from then on. The
// outcome is Duplicate if the ledger has the event itself as pending or published.
// It is Conflict if other content is pending: nothing is written before that is
// published or parked. All entries have the present time as RecordedAt.
func (l *Ledger) Replace(ctx context.Context, entries []Entry, due time.Time) []Recording {
	return l.restore(ctx, entries, due,
		"attribute_not_exists(#eventId) OR "+
			"(attribute_not_exists(#shard) AND (#digest <> :digest OR attribute_exists(#parkedAt)))",
		map[string]string{"#eventId": names.LedgerKey, "#parkedAt": attrParkedAt, "#digest": attrDigest,
			"#shard": names.LedgerPendingShard})
}

func (l *Ledger) restore(ctx context.Context, entries []Entry, due time.Time, condition string,
	list map[string]string) []Recording {
	return l.write(ctx, entries, func(e Entry) (Outcome, error) {
		old, err := l.put(ctx, e, NewHolder(), due, condition, list,
			map[string]types.AttributeValue{":digest": binary(e.Digest[:])})
		switch {
		case err != nil:
			return 0, fmt.Errorf("ledger: restore %s: %w", e.EventID, err)
		case old == nil:
			return Recorded, nil
		case old.digest() != e.Digest:
			return Conflict, nil
		}
		return Duplicate, nil
	})
}

// write calls one for each entry, several at the same time.
func (l *Ledger) write(ctx context.Context, entries []Entry, one func(Entry) (Outcome, error)) []Recording {
	results := make([]Recording, len(entries))
	parallel.Each(len(entries), l.parallel, func(i int) {
		if err := ctx.Err(); err != nil {
			results[i].Err = fmt.Errorf("ledger: %w", err)
			return
		}
		results[i].Outcome, results[i].Err = one(entries[i])
	})
	return results
}

// put writes the pending item of e if condition holds. Otherwise it returns the
// item that the ledger has.
func (l *Ledger) put(ctx context.Context, e Entry, holder Holder, due time.Time, condition string,
	list map[string]string, values map[string]types.AttributeValue) (old *item, err error) {
	attributes, err := newItem(e, holder, due)
	if err != nil {
		return nil, err
	}
	_, err = l.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           l.table,
		Item:                                attributes,
		ConditionExpression:                 aws.String(condition),
		ExpressionAttributeNames:            list,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	exists, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return nil, err
	}
	found, err := decode(exists.Item)
	return &found, err
}
