package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"payhook.example/shared/names"
)

// InspectAPI is what of DynamoDB an [Inspector] needs: reading alone.
type InspectAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// Inspector reads a ledger for a person. It guarantees that it writes nothing, and that it reads the
// bytes of an event only with FindContent. It is safe for concurrent use.
type Inspector struct {
	client InspectAPI
	table  *string
}

// NewInspector returns an inspector of the table of that name.
func NewInspector(client InspectAPI, table string) *Inspector { return &Inspector{client, &table} }

// Find returns what the ledger has of an event at this moment, and false if it has
// nothing: the event was never accepted, or its window is over. The error
// is DynamoDB's, or that of the item.
func (i *Inspector) Find(ctx context.Context, eventID string) (Item, bool, error) {
	return i.find(ctx, Key(eventID), findable)
}

// FindContent is [Inspector.Find] with the bytes of an event that is pending.
func (i *Inspector) FindContent(ctx context.Context, eventID string) (Item, bool, error) {
	return i.find(ctx, Key(eventID), findable+", #event")
}

// findable are the attributes of an item without the bytes of the event.
const findable = "#eventId, #deliveryId, #digest, #recordedAt, #shard, #due, #attempts, #claimed, #publishedAt, " +
	"#eventTimestamp, #parkedAt, #expiresAt"

func (i *Inspector) find(ctx context.Context, id, wanted string) (Item, bool, error) {
	out, err := i.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:                i.table,
		Key:                      keyOf(id),
		ConsistentRead:           aws.Bool(true),
		ProjectionExpression:     &wanted,
		ExpressionAttributeNames: expressionNames(wanted),
	})
	if err != nil {
		return Item{}, false, fmt.Errorf("ledger: find %s: %w", id, err)
	}
	if len(out.Item) == 0 {
		return Item{}, false, nil
	}
	found := decode(out.Item)
	if found.Err != nil {
		err = fmt.Errorf("ledger: find %s: %w", id, found.Err)
	}
	return found, true, err
}

// Backlog returns everything that the index of pending items holds, due or
// not, the longest due first, even items that could not be decoded ([Item.Err]). The index
// follows the table with a delay, so an item may be missing, or no longer pending. It takes
// about 100 bytes of memory for each. The error is DynamoDB's.
//
// It reads the whole index, about 100 bytes for each item: a megabyte, or 128 read units, has
// 10,000 of them.
func (i *Inspector) Backlog(ctx context.Context) ([]Item, error) {
	var all []Item
	for after := Cursor(nil); ; {
		out, err := i.client.Scan(ctx, &dynamodb.ScanInput{
			TableName:         i.table,
			IndexName:         aws.String(names.LedgerPendingIndex),
			ExclusiveStartKey: after,
		})
		if err != nil {
			return nil, fmt.Errorf("ledger: pending: %w", err)
		}
		all = append(all, decodeAll(out.Items)...)
		if after = out.LastEvaluatedKey; after == nil {
			break
		}
	}
	slices.SortFunc(all, func(a, b Item) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.EventID, b.EventID))
	})
	return all, nil
}

// Counts are of a [Inspector.Backlog].
type Counts struct {
	Pending int
	Overdue int
	Oldest  time.Time // when the oldest was recorded
	Damaged []string  // each event that could not be decoded, with the error
}

// Count counts items that are pending.
func Count(items []Item, now time.Time) Counts {
	n := Counts{Pending: len(items), Oldest: now}
	for _, item := range items {
		if item.Overdue(now) {
			n.Overdue++
		}
		if !item.RecordedAt.IsZero() && item.RecordedAt.Before(n.Oldest) {
			n.Oldest = item.RecordedAt
		}
		if item.Err != nil {
			n.Damaged = append(n.Damaged, fmt.Sprintf("%s: %v", item.EventID, item.Err))
		}
	}
	return n
}
