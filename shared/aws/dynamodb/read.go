package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/calls"
	"payhook.example/shared/ledger"
	"payhook.example/shared/settings"
)

// LedgerReadAPI is what a [LedgerReader] needs of DynamoDB: reading alone.
type LedgerReadAPI interface {
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput,
		...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// LedgerReader reads a ledger, consistently except for its index. It writes nothing. It is safe for concurrent use.
type LedgerReader struct {
	client LedgerReadAPI
	table  string
}

// NewLedgerReader returns a reader of the table of that name.
func NewLedgerReader(client LedgerReadAPI, table string) *LedgerReader {
	return &LedgerReader{client, table}
}

// Query implements [ledger.Querier].
func (r *LedgerReader) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	condition := "#shard = :shard AND #time <= :at"
	if q.Later {
		condition = "#shard = :shard AND #time > :at"
	}
	in := &dynamodb.QueryInput{
		TableName:                 &r.table,
		IndexName:                 aws.String(settings.LedgerIndex),
		KeyConditionExpression:    &condition,
		ExpressionAttributeNames:  map[string]string{"#shard": settings.LedgerShard, "#time": settings.LedgerIndexTime},
		ExpressionAttributeValues: attributes{":shard": text(q.Shard), ":at": number(q.At.UnixMilli())},
		ScanIndexForward:          aws.Bool(!q.Later),
		Limit:                     aws.Int32(int32(q.Limit)),
	}
	if q.After != nil {
		in.ExclusiveStartKey = attributes{settings.LedgerKey: text(q.After.EventID),
			settings.LedgerShard:     text(q.After.Shard),
			settings.LedgerIndexTime: number(q.After.IndexTime().UnixMilli())}
	}
	out, err := r.client.Query(ctx, in)
	if err != nil {
		return nil, nil, failed("Query", err)
	}
	return decodeAll(out.Items), itemOf(out.LastEvaluatedKey), nil
}

// withoutContent are the attributes of an item without the bytes of the event and their size, for an expression, and
// names their names: some are words of DynamoDB's.
var withoutContent, names = func() (list string, names map[string]string) {
	names = map[string]string{}
	for _, f := range ledger.Attributes {
		if f.Name != settings.LedgerEvent && f.Name != settings.LedgerSize {
			list += ", #" + f.Name
			names["#"+f.Name] = f.Name
		}
	}
	return list[2:], names
}()

// Get implements [ledger.Getter].
//
// DynamoDB answers a part of the keys if the items are larger than 16 MB in sum, or if it is busy (AWS, "BatchGetItem"
// in the DynamoDB API reference). The rest is asked for again until ctx ends.
func (r *LedgerReader) Get(ctx context.Context, eventIDs []string, content bool) (map[string]ledger.Item, error) {
	found := make(map[string]ledger.Item, len(eventIDs))
	ask := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	if !content {
		ask.ProjectionExpression, ask.ExpressionAttributeNames = &withoutContent, names
	}
	for _, id := range eventIDs {
		ask.Keys = append(ask.Keys, attributes{settings.LedgerKey: text(id)})
	}
	for attempt := 1; ; attempt++ {
		out, err := r.client.BatchGetItem(ctx,
			&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{r.table: ask}})
		if err != nil {
			return found, failed("BatchGetItem", err)
		}
		for _, i := range decodeAll(out.Responses[r.table]) {
			found[i.EventID] = i
		}
		rest := out.UnprocessedKeys[r.table].Keys
		switch {
		case len(rest) == 0:
			return found, nil
		case len(rest) == len(ask.Keys):
			_ = calls.Pause(ctx, calls.Backoff(attempt)) // when ctx has ended, the next call fails
		default:
			attempt = 0
		}
		ask.Keys = rest
	}
}
