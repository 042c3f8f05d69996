package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/shared/parallel"
)

// maxKeys is how many items one BatchGetItem reads (AWS, "BatchGetItem" in the DynamoDB
// API reference).
const maxKeys = 100

// readsPerWrite is how many reads are made at the same time for each write: most items of
// a large delivery that is repeated must be read in one round if calls are slow.
const readsPerWrite = 3

// Known returns what the ledger has of different eventIds in lower case, by eventId,
// with consistent reads, a hundred in one call: EventID, Digest, DeliveryID, Shard, Holder,
// ParkedAt and ExpiresAt of each. It does not transfer the events' bytes, but is billed for them. With an
// error it returns what it could read.
//
// DynamoDB answers a part of the keys if the items are larger than 16 MB in sum,
// or if it is busy (AWS, "BatchGetItem" in the DynamoDB API reference). The rest is
// asked for again until ctx ends.
func (l *Ledger) Known(ctx context.Context, eventIDs []string) (map[string]Item, error) {
	parts := slices.Collect(slices.Chunk(eventIDs, maxKeys))
	found, errs := make([]map[string]Item, len(parts)), make([]error, len(parts))
	parallel.Each(len(parts), readsPerWrite*l.opts.Parallel, func(n int) {
		found[n], errs[n] = l.readPart(ctx, parts[n])
	})
	all := make(map[string]Item, len(eventIDs))
	for _, part := range found {
		maps.Copy(all, part)
	}
	return all, errors.Join(errs...)
}

// readPart is one call of Known, and those for what DynamoDB leaves of it.
func (l *Ledger) readPart(ctx context.Context, eventIDs []string) (found map[string]Item, failed error) {
	found = make(map[string]Item, len(eventIDs))
	const wanted = "#eventId, #digest, #deliveryId, #shard, #holder, #parkedAt, #expiresAt"
	err := readItems(ctx, l.client, l.table, eventIDs, wanted, func(i Item) {
		if i.Err != nil {
			failed = fmt.Errorf("ledger: read %s: %w", i.EventID, i.Err)
			return
		}
		found[i.EventID] = i
	})
	return found, cmp.Or(err, failed)
}

// readItems calls got with each item that exists, with the attributes that are wanted. It asks again for what
// DynamoDB leaves.
func readItems(ctx context.Context, client batchGetter, table *string, eventIDs []string, wanted string,
	got func(Item)) error {
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
			&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{*table: ask}})
		if err != nil {
			return fmt.Errorf("ledger: read %d items: %w", len(ask.Keys), err)
		}
		for _, i := range decodeAll(out.Responses[*table]) {
			got(i)
		}
		rest := out.UnprocessedKeys[*table].Keys
		if len(rest) == 0 {
			return nil
		}
		if len(rest) == len(ask.Keys) {
			_ = smithytime.SleepWithContext(ctx, pause) // when ctx has ended, the next call fails
			pause = min(2*pause, time.Second)
		}
		ask.Keys = rest
	}
}

// batchGetter is what readItems needs.
type batchGetter interface {
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput,
		...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
}
