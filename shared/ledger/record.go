package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

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
	// Pending reports that the duplicate is pending.
	Pending bool
	Err     error // if not nil, it is not known whether the event was written
}

// slowAfter is the share of the time until ctx's deadline after which the ledger is slow.
const slowAfter = 8

// Record writes entries as pending, except those whose eventId was recorded before
// within the window, and returns the result of each. The eventIds must differ. All
// entries have the present time as RecordedAt. Until due, only holder may publish
// the entries that are new. Entries that are not tried before ctx ends have its error.
//
// The cost is one write for each entry that is new. An entry whose eventId the table has
// costs a read, or a failed write and a read; once its window has passed, a second write.
//
// A caller that ran out of time repeats its call. To write first what was written then
// would take all the time again. So the first round has as many entries as are written at
// once. If the table has any of them, the others are looked up before they are written.
// If the first round takes more than an eighth of the time, all entries are looked up
// while it continues. So every call with a deadline gets further as long as a read and a
// write, one after the other, take less than the other seven eighths, and the items of all
// entries can be read in half of these. New entries are not looked up otherwise.
func (l *Ledger) Record(ctx context.Context, entries []Entry, holder Holder, due time.Time) []Recording {
	attempts := make([]executed, len(entries))
	first := min(len(entries), l.opts.Parallel*l.opts.Batch)

	var known map[string]Item
	lookedUp := make(chan struct{})
	slow := time.AfterFunc(timeLeft(ctx)/slowAfter, func() {
		defer close(lookedUp)
		known = l.lookUp(ctx, entries, nil)
	})
	l.insertAll(ctx, entries[:first], attempts[:first], holder, due)
	left := first // the first entry that is not tried
	if !slow.Stop() {
		<-lookedUp
	} else {
		if !slices.ContainsFunc(attempts, executed.exists) {
			l.insertAll(ctx, entries[first:], attempts[first:], holder, due)
			left = len(entries)
		}
		known = l.lookUp(ctx, entries, attempts[:left])
	}
	l.insertUnknown(ctx, entries[left:], attempts[left:], known, holder, due)
	return l.decide(ctx, entries, attempts, known, holder, due)
}

// timeLeft returns the time until ctx's deadline.
func timeLeft(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return math.MaxInt64
}

// lookUp returns what the table has of entries within the window. Of those that were
// tried, it looks up those of which the attempt only says that there is an item. It takes
// at most half of the time that is left. What it can't read counts as unknown: the
// condition of the write decides.
func (l *Ledger) lookUp(ctx context.Context, entries []Entry, tried []executed) map[string]Item {
	var ids []string
	for i, e := range entries {
		if i >= len(tried) || tried[i].exists() {
			ids = append(ids, e.EventID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeLeft(ctx)/2)
	defer cancel()
	found, _ := l.Known(ctx, ids)
	maps.DeleteFunc(found, func(_ string, i Item) bool { return !i.Current(l.opts.Now()) })
	return found
}

// insertUnknown inserts the entries that are not known.
func (l *Ledger) insertUnknown(ctx context.Context, entries []Entry, attempts []executed, known map[string]Item,
	holder Holder, due time.Time) {
	var unknown []Entry
	var positions []int
	for i, e := range entries {
		if _, ok := known[e.EventID]; !ok {
			unknown, positions = append(unknown, e), append(positions, i)
		}
	}
	results := make([]executed, len(unknown))
	l.insertAll(ctx, unknown, results, holder, due)
	for n, i := range positions {
		attempts[i] = results[n]
	}
}

// decide returns the result of each entry. What is not decided yet is written alone.
func (l *Ledger) decide(ctx context.Context, entries []Entry, attempts []executed, known map[string]Item,
	holder Holder, due time.Time) []Recording {
	results := make([]Recording, len(entries))
	var undecided []int
	for i, a := range attempts {
		old, ok := known[entries[i].EventID]
		switch {
		case ok:
			results[i] = recordingOf(old, entries[i], holder)
		case a.undecided():
			undecided = append(undecided, i)
		case a.err != nil:
			results[i].Err = fmt.Errorf("ledger: record %s: %w", entries[i].EventID, a.err)
		default:
			results[i].Outcome = Recorded
		}
	}
	parallel.Each(len(undecided), l.opts.Parallel, func(n int) {
		i := undecided[n]
		results[i] = l.record(ctx, entries[i], holder, due)
	})
	return results
}

// insertAll inserts entries, in batches.
func (l *Ledger) insertAll(ctx context.Context, entries []Entry, results []executed, holder Holder, due time.Time) {
	l.inBatches(len(entries), func(i int) int { return len(entries[i].Detail) }, func(begin, end int) {
		l.insertBatch(ctx, entries[begin:end], results[begin:end], holder, due)
	})
}

// insertBatch inserts the entries of one batch. A single entry is left to the single
// write.
func (l *Ledger) insertBatch(ctx context.Context, entries []Entry, results []executed, holder Holder,
	due time.Time) {
	if len(entries) == 1 {
		results[0].err = errAlone
		return
	}
	if err := ctx.Err(); err != nil {
		for i := range results {
			results[i].err = err
		}
		return
	}
	statements := make([]types.BatchStatementRequest, len(entries))
	for i, e := range entries {
		statements[i] = l.insert(newItem(e, holder, due))
	}
	copy(results, l.execute(ctx, statements))
}

func (l *Ledger) record(ctx context.Context, e Entry, holder Holder, due time.Time) Recording {
	if err := ctx.Err(); err != nil {
		return Recording{Err: fmt.Errorf("ledger: %w", err)}
	}
	old, err := l.put(ctx, e, holder, due,
		// TTL deletes up to days late, so the window is checked here. A pending item
		// does not expire, however old it is.
		"attribute_not_exists(#eventId) OR (attribute_not_exists(#shard) AND #expiresAt <= :now)",
		map[string]types.AttributeValue{":now": number(l.opts.Now().Unix())})
	switch {
	case err != nil:
		return Recording{Err: fmt.Errorf("ledger: record %s: %w", e.EventID, err)}
	case old == nil:
		return Recording{Outcome: Recorded}
	}
	return recordingOf(*old, e, holder)
}

// recordingOf returns the result for an entry whose eventId the ledger has within the
// window.
func recordingOf(old Item, e Entry, holder Holder) Recording {
	switch {
	case old.Digest != e.Digest:
		return Recording{Outcome: Conflict}
	case bytes.Equal(old.Holder, holder[:]):
		// Our own write, whose answer was lost before it was tried again.
		return Recording{Outcome: Recorded}
	}
	return Recording{Outcome: Duplicate, Pending: old.Pending()}
}

// Restore writes events that were parked as pending again, for redrive to publish
// from due on, and returns the result of each. The outcome is Duplicate if the
// ledger has the event as pending or published, and Conflict if it has other
// content under its id. All entries have the present time as RecordedAt.
func (l *Ledger) Restore(ctx context.Context, entries []Entry, due time.Time) []Recording {
	return l.restore(ctx, entries, due,
		"attribute_not_exists(#eventId) OR (attribute_exists(#parkedAt) AND #digest = :digest)")
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
			"(attribute_not_exists(#shard) AND (#digest <> :digest OR attribute_exists(#parkedAt)))")
}

func (l *Ledger) restore(ctx context.Context, entries []Entry, due time.Time, condition string) []Recording {
	results := make([]Recording, len(entries))
	parallel.Each(len(entries), l.opts.Parallel, func(i int) {
		if err := ctx.Err(); err != nil {
			results[i].Err = fmt.Errorf("ledger: %w", err)
			return
		}
		e, holder := entries[i], NewHolder()
		old, err := l.put(ctx, e, holder, due, condition,
			map[string]types.AttributeValue{":digest": binary(e.Digest[:])})
		switch {
		case err != nil:
			results[i].Err = fmt.Errorf("ledger: restore %s: %w", e.EventID, err)
		case old == nil:
			results[i].Outcome = Recorded
		default:
			results[i] = recordingOf(*old, e, holder)
		}
	})
	return results
}

// put writes the pending item of e if condition holds. Otherwise it returns the
// item that the ledger has.
func (l *Ledger) put(ctx context.Context, e Entry, holder Holder, due time.Time, condition string,
	values map[string]types.AttributeValue) (old *Item, err error) {
	_, err = l.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           l.table,
		Item:                                newItem(e, holder, due),
		ConditionExpression:                 aws.String(condition),
		ExpressionAttributeNames:            expressionNames(condition),
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	exists, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return nil, err
	}
	found := decode(exists.Item)
	return &found, found.Err
}
