package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
)

// Restore writes an event that was parked as pending again, for redrive to
// publish from due on. The outcome is Duplicate if the ledger knows it as pending
// or published, and Conflict if it knows other content under its id. e.RecordedAt
// is the present.
func (l *Ledger) Restore(ctx context.Context, e Entry, due time.Time) (Outcome, error) {
	return l.restore(ctx, e, due, "attribute_not_exists(#eventId) OR (attribute_exists(#parkedAt) AND #digest = :digest)",
		map[string]string{"#eventId": names.LedgerKey, "#parkedAt": attrParkedAt, "#digest": attrDigest})
}

// Replace writes an event as pending, for redrive to publish from due on, although
// the ledger may know other content under its id. Of that it keeps nothing: the
// other content is in conflict from now on. The outcome is Duplicate if the ledger
// knows e itself as pending or published. It is Conflict if other content is
// pending: nothing is written before that is published or parked. e.RecordedAt is
// the present.
func (l *Ledger) Replace(ctx context.Context, e Entry, due time.Time) (Outcome, error) {
	return l.restore(ctx, e, due, "attribute_not_exists(#eventId) OR (attribute_not_exists(#shard) AND (#digest <> :digest OR attribute_exists(#parkedAt)))",
		map[string]string{"#eventId": names.LedgerKey, "#parkedAt": attrParkedAt, "#digest": attrDigest, "#shard": names.LedgerPendingShard})
}

func (l *Ledger) restore(ctx context.Context, e Entry, due time.Time, condition string, list map[string]string) (Outcome, error) {
	_, err := l.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                l.table,
		Item:                     itemOf(e, NewHolder(), due),
		ConditionExpression:      &condition,
		ExpressionAttributeNames: list,
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":digest": &types.AttributeValueMemberB{Value: e.Digest[:]},
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var exists *types.ConditionalCheckFailedException
	switch {
	case err == nil:
		return Recorded, nil
	case !errors.As(err, &exists):
		return 0, fmt.Errorf("ledger: restore %s: %w", e.EventID, err)
	case string(bytesOf(exists.Item, attrDigest)) != string(e.Digest[:]):
		return Conflict, nil
	}
	return Duplicate, nil
}
