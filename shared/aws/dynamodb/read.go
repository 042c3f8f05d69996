package dynamodb

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/shared/ledger"
	"payhook.example/shared/settings"
)

// BatchGetter reads many items.
type BatchGetter interface {
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput,
		...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
}

// LedgerReadAPI is what a [LedgerReader] needs of DynamoDB: reading alone.
type LedgerReadAPI interface {
	BatchGetter
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// LedgerReader reads a ledger. It writes nothing. It is safe for concurrent use.
type LedgerReader struct {
	client LedgerReadAPI
	table  string
}

// NewLedgerReader returns a reader of the table of that name.
func NewLedgerReader(client LedgerReadAPI, table string) *LedgerReader {
	return &LedgerReader{client, table}
}

// Get implements [ledger.Getter].
func (r *LedgerReader) Get(ctx context.Context, eventIDs []string, content bool) (map[string]ledger.Item, error) {
	return readItems(ctx, r.client, r.table, eventIDs, content)
}

// Query implements [ledger.Querier].
func (r *LedgerReader) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Cursor, error) {
	condition := "#shard = :shard AND #due <= :at"
	if q.Later {
		condition = "#shard = :shard AND #due > :at"
	}
	in := &dynamodb.QueryInput{
		TableName:                 &r.table,
		IndexName:                 aws.String(settings.LedgerIndex),
		KeyConditionExpression:    &condition,
		ExpressionAttributeNames:  expressionNames(condition),
		ExpressionAttributeValues: attributes{":shard": text(q.Shard), ":at": number(q.At.UnixMilli())},
		ScanIndexForward:          aws.Bool(!q.Later),
		Limit:                     aws.Int32(int32(q.Limit)),
	}
	if q.After != nil {
		in.ExclusiveStartKey = attributes{settings.LedgerKey: text(q.After.EventID),
			settings.LedgerShard: text(q.After.Shard), settings.LedgerDue: number(q.After.Due.UnixMilli())}
	}
	out, err := r.client.Query(ctx, in)
	if err != nil {
		return nil, nil, failed("Query", err)
	}
	var next *ledger.Cursor
	if out.LastEvaluatedKey != nil {
		last := decode(out.LastEvaluatedKey)
		next = &ledger.Cursor{EventID: last.EventID, Shard: last.Shard, Due: last.Due}
	}
	return decodeAll(out.Items), next, nil
}

// withoutContent are the attributes of an item without the bytes of the event and their size.
var withoutContent = func() string {
	var list []string
	for _, f := range ledger.Fields {
		if f.Name != settings.LedgerEvent && f.Name != settings.LedgerSize {
			list = append(list, "#"+f.Name)
		}
	}
	return strings.Join(list, ", ")
}()

// readItems implements [ledger.Getter] with consistent reads.
//
// DynamoDB answers a part of the keys if the items are larger than 16 MB in sum,
// or if it is busy (AWS, "BatchGetItem" in the DynamoDB API reference). The rest is
// asked for again until ctx ends.
func readItems(ctx context.Context, client BatchGetter, table string, eventIDs []string,
	content bool) (map[string]ledger.Item, error) {
	found := make(map[string]ledger.Item, len(eventIDs))
	ask := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	if !content {
		ask.ProjectionExpression, ask.ExpressionAttributeNames = &withoutContent, expressionNames(withoutContent)
	}
	for _, id := range eventIDs {
		ask.Keys = append(ask.Keys, keyOf(id))
	}
	pause := 25 * time.Millisecond
	for {
		out, err := client.BatchGetItem(ctx,
			&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{table: ask}})
		if err != nil {
			return found, failed("BatchGetItem", err)
		}
		for _, i := range decodeAll(out.Responses[table]) {
			found[i.EventID] = i
		}
		rest := out.UnprocessedKeys[table].Keys
		if len(rest) == 0 {
			return found, nil
		}
		if len(rest) == len(ask.Keys) {
			_ = smithytime.SleepWithContext(ctx, pause) // when ctx has ended, the next call fails
			pause = min(2*pause, time.Second)
		}
		ask.Keys = rest
	}
}

// expressionNames returns the names of the attributes that have a # in expressions, since
// some are words of DynamoDB's.
func expressionNames(expressions ...string) map[string]string {
	list := map[string]string{}
	for _, text := range expressions {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != '#' && !unicode.IsLetter(r) }) {
			if name, ok := strings.CutPrefix(word, "#"); ok {
				list[word] = name
			}
		}
	}
	return list
}

// LedgerListAPI is what a [LedgerLister] needs of DynamoDB: reading alone.
type LedgerListAPI interface {
	BatchGetter
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// LedgerLister reads many items of a ledger for a person. All its reads are consistent: what was recorded before a
// call is found. It reads no bytes of events, but is billed for them. It is safe for concurrent use.
type LedgerLister struct {
	client LedgerListAPI
	table  string
}

// NewLedgerLister returns a lister of the table of that name.
func NewLedgerLister(client LedgerListAPI, table string) *LedgerLister {
	return &LedgerLister{client, table}
}

// Get implements [ledger.Getter].
func (l *LedgerLister) Get(ctx context.Context, eventIDs []string, content bool) (map[string]ledger.Item, error) {
	return readItems(ctx, l.client, l.table, eventIDs, content)
}

// PageUnits is how many read units one page of [LedgerLister.Each] takes: a page has at most 1 MB, and a unit of a
// consistent read 4 KB (AWS, "Read consistency and capacity consumption" in the guide for DynamoDB).
const PageUnits = 256

// Each calls found with every item of the table. Before each page it calls pause; an error of pause ends it.
// Otherwise, the error is DynamoDB's.
func (l *LedgerLister) Each(ctx context.Context, pause func() error, found func(ledger.Item)) error {
	for after := attributes(nil); ; {
		if err := pause(); err != nil {
			return err
		}
		out, err := l.client.Scan(ctx, &dynamodb.ScanInput{
			TableName:                &l.table,
			ConsistentRead:           aws.Bool(true),
			ExclusiveStartKey:        after,
			ProjectionExpression:     &withoutContent,
			ExpressionAttributeNames: expressionNames(withoutContent),
		})
		if err != nil {
			return failed("Scan", err)
		}
		for _, i := range decodeAll(out.Items) {
			found(i)
		}
		if after = out.LastEvaluatedKey; after == nil {
			return nil
		}
	}
}
