package ledger

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// ListAPI is what of DynamoDB a Lister needs: reading alone.
type ListAPI interface {
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput,
		...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// Lister reads many items of a ledger for a person. All its reads are consistent: what was recorded before a
// call is found. It reads no bytes of events, but is billed for them. It is safe for concurrent use.
type Lister struct {
	client ListAPI
	table  *string
}

// NewLister returns a lister of the table of that name.
func NewLister(client ListAPI, table string) *Lister { return &Lister{client, &table} }

// stateful are the attributes of an item that say which delivery brought it, and its state.
const stateful = "#eventId, #deliveryId, #recordedAt, #shard, #publishedAt, #parkedAt, #expiresAt"

// Find returns what the ledger has of at most 100 different eventIds in the form of [Key], by that form, in
// one call of DynamoDB unless it answers only a part. The error is DynamoDB's. An item of which something
// cannot be decoded has [Item.Err].
func (l *Lister) Find(ctx context.Context, eventIDs []string) (map[string]Item, error) {
	found := make(map[string]Item, len(eventIDs))
	return found, readItems(ctx, l.client, l.table, eventIDs, stateful, func(i Item) { found[i.EventID] = i })
}

// PageUnits is how many read units one page of [Lister.Each] takes: a page has at most 1 MB, and a unit of a
// consistent read 4 KB (AWS, "Read consistency and capacity consumption" in the guide for DynamoDB).
const PageUnits = 256

// Each calls found with every item of the table. Before each page it calls pause; an error of pause ends it.
// Otherwise, the error is DynamoDB's.
func (l *Lister) Each(ctx context.Context, pause func() error, found func(Item)) error {
	for after := Cursor(nil); ; {
		if err := pause(); err != nil {
			return err
		}
		out, err := l.client.Scan(ctx, &dynamodb.ScanInput{
			TableName:                l.table,
			ConsistentRead:           aws.Bool(true),
			ExclusiveStartKey:        after,
			ProjectionExpression:     aws.String(stateful),
			ExpressionAttributeNames: expressionNames(stateful),
		})
		if err != nil {
			return fmt.Errorf("ledger: list: %w", err)
		}
		for _, i := range decodeAll(out.Items) {
			found(i)
		}
		if after = out.LastEvaluatedKey; after == nil {
			return nil
		}
	}
}
