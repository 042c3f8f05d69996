package ledger

import (
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

// MarkPublished marks entries as published and removes their bytes, and returns
// the error of each. It does nothing for an entry that is not pending any more.
func (l *Ledger) MarkPublished(ctx context.Context, entries []Entry) []error {
	return l.mark(ctx, entries, attrPublishedAt)
}

// MarkParked marks entries as parked and removes their bytes, and returns the
// error of each. The caller has stored them for a person to look at. It does
// nothing for an entry that is not pending any more.
func (l *Ledger) MarkParked(ctx context.Context, entries []Entry) []error {
	return l.mark(ctx, entries, attrParkedAt)
}

func (l *Ledger) mark(ctx context.Context, entries []Entry, at string) []error {
	results := make([]error, len(entries))
	parallel.Each(len(entries), l.parallel, func(i int) { results[i] = l.markOne(ctx, entries[i], at) })
	return results
}

func (l *Ledger) markOne(ctx context.Context, e Entry, at string) error {
	_, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: l.table,
		Key:       keyOf(e.EventID),
		UpdateExpression: aws.String("SET #at = :now, #expiresAt = :expires " +
			"REMOVE #event, #claimed, #shard, #due, #holder, #attempts"),
		ConditionExpression:      aws.String("attribute_exists(#shard) AND #digest = :digest"),
		ExpressionAttributeNames: markNames[at],
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":now": number(l.now().UnixMilli()),
			// From now on, not from recordedAt: an event may be published long after it
			// was recorded. The clock of the receiver that recorded it may be ahead.
			":expires": number(later(l.now(), e.RecordedAt).Add(l.window).Unix()),
			":digest":  binary(e.Digest[:]),
		},
	})
	if err := unlessConditional(err); err != nil {
		return fmt.Errorf("ledger: mark %s: %w", e.EventID, err)
	}
	return nil
}

// markNames are the names of a mark, by the attribute that has its time.
var markNames = func() map[string]map[string]string {
	list := map[string]map[string]string{}
	for _, at := range []string{attrPublishedAt, attrParkedAt} {
		list[at] = map[string]string{
			"#at": at, "#expiresAt": names.LedgerTTL, "#event": attrEvent, "#claimed": attrClaimed,
			"#shard": names.LedgerPendingShard, "#due": names.LedgerPendingDue,
			"#holder": attrHolder, "#attempts": attrAttempts, "#digest": attrDigest,
		}
	}
	return list
}()

// unlessConditional returns err unless it says that a condition did not hold.
func unlessConditional(err error) error {
	if _, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return nil
	}
	return err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
