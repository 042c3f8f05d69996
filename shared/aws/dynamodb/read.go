package dynamodb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
)

// BatchGetter reads many items.
type BatchGetter interface {
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput,
		...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
}

// readItems returns those of at most 100 items that exist, with the attributes that are wanted, with consistent reads.
// With an error it returns what it could read.
//
// DynamoDB answers a part of the keys if the items are larger than 16 MB in sum,
// or if it is busy (AWS, "BatchGetItem" in the DynamoDB API reference). The rest is
// asked for again until ctx ends.
func readItems(ctx context.Context, client BatchGetter, table string, eventIDs []string,
	wanted string) (map[string]ledger.Item, error) {
	found := make(map[string]ledger.Item, len(eventIDs))
	ask := types.KeysAndAttributes{
		ConsistentRead:           aws.Bool(true),
		ProjectionExpression:     aws.String(wanted),
		ExpressionAttributeNames: expressionNames(wanted),
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

// stateful are the attributes of an item that say which delivery brought it, and its state.
const stateful = "#eventId, #deliveryId, #recordedAt, #state, #publishedAt, #parkedAt, #expiresAt"

// Find returns what the ledger has of at most 100 different eventIds in the form of [ledger.Key], by that form, in
// one call of DynamoDB unless it answers only a part. The error is DynamoDB's. An item of which something
// cannot be decoded has [ledger.Item.Err].
func (l *LedgerLister) Find(ctx context.Context, eventIDs []string) (map[string]ledger.Item, error) {
	return readItems(ctx, l.client, l.table, eventIDs, stateful)
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
			ProjectionExpression:     aws.String(stateful),
			ExpressionAttributeNames: expressionNames(stateful),
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

// LedgerInspectAPI is what of DynamoDB a [LedgerInspector] needs: reading alone.
type LedgerInspectAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// LedgerInspector reads a ledger for a person. It guarantees that it writes nothing, and that it reads the
// bytes of an event only with FindContent. It is safe for concurrent use.
type LedgerInspector struct {
	client LedgerInspectAPI
	table  string
}

// NewLedgerInspector returns an inspector of the table of that name.
func NewLedgerInspector(client LedgerInspectAPI, table string) *LedgerInspector {
	return &LedgerInspector{client, table}
}

// Find returns what the ledger has of an event at this moment, and false if it has
// nothing: the event was never accepted, or its window is over. The error
// is DynamoDB's, or that of the item.
func (i *LedgerInspector) Find(ctx context.Context, eventID string) (ledger.Item, bool, error) {
	return i.find(ctx, ledger.Key(eventID), findable)
}

// FindContent is [LedgerInspector.Find] with the bytes of an event that is pending.
func (i *LedgerInspector) FindContent(ctx context.Context, eventID string) (ledger.Item, bool, error) {
	return i.find(ctx, ledger.Key(eventID), findable+", #event")
}

// findable are the attributes of an item without the bytes of the event.
const findable = "#eventId, #deliveryId, #digest, #recordedAt, #state, #shard, #due, #attempts, #claimed, " +
	"#publishedAt, #eventTimestamp, #parkedAt, #expiresAt"

func (i *LedgerInspector) find(ctx context.Context, id, wanted string) (ledger.Item, bool, error) {
	out, err := i.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:                &i.table,
		Key:                      keyOf(id),
		ConsistentRead:           aws.Bool(true),
		ProjectionExpression:     &wanted,
		ExpressionAttributeNames: expressionNames(wanted),
	})
	if err != nil {
		return ledger.Item{}, false, failed("GetItem", err)
	}
	if len(out.Item) == 0 {
		return ledger.Item{}, false, nil
	}
	found := decode(out.Item)
	if found.Err != nil {
		err = fmt.Errorf("ledger: find %s: %w", id, found.Err)
	}
	return found, true, err
}

// Backlog returns everything that the index of pending items holds, due or
// not, the longest due first, even items that could not be decoded ([ledger.Item.Err]). The index
// follows the table with a delay, so an item may be missing, or no longer pending. It takes
// about 100 bytes of memory for each. The error is DynamoDB's.
//
// It reads the whole index, about 100 bytes for each item: a megabyte, or 128 read units, has
// 10,000 of them.
func (i *LedgerInspector) Backlog(ctx context.Context) ([]ledger.Item, error) {
	var all []ledger.Item
	for after := attributes(nil); ; {
		out, err := i.client.Scan(ctx, &dynamodb.ScanInput{
			TableName:         &i.table,
			IndexName:         aws.String(names.LedgerPendingIndex),
			ExclusiveStartKey: after,
		})
		if err != nil {
			return nil, failed("Scan", err)
		}
		all = append(all, decodeAll(out.Items)...)
		if after = out.LastEvaluatedKey; after == nil {
			break
		}
	}
	slices.SortFunc(all, func(a, b ledger.Item) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.EventID, b.EventID))
	})
	return all, nil
}
