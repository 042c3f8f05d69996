package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
)

// Known is what the ledger has of an eventId, without the event itself.
type Known struct {
	Digest  Digest
	Pending bool
	Parked  bool // it was not published
	// Current reports whether the window has not passed. A pending item is current,
	// however old it is. An item that is not current may be deleted at any time, and
	// its eventId can be recorded again.
	Current bool
}

// MaxKnown is how many eventIds one call of [Ledger.Known] takes: what one
// BatchGetItem reads (AWS, "BatchGetItem" in the DynamoDB API reference).
const MaxKnown = 100

// Known returns what the ledger has of up to MaxKnown different eventIds in lower
// case, by eventId, with a consistent read. It does not transfer the events' bytes,
// but is billed for them. With an error it returns what it could read.
//
// DynamoDB answers a part of the keys if the items are larger than 16 MB in sum,
// or if it is busy (AWS, "BatchGetItem" in the DynamoDB API reference). The rest is
// asked for again until ctx ends.
func (l *Ledger) Known(ctx context.Context, eventIDs []string) (map[string]Known, error) {
	known := make(map[string]Known, len(eventIDs))
	if len(eventIDs) == 0 {
		return known, nil
	}
	ask := types.KeysAndAttributes{
		ConsistentRead:           aws.Bool(true),
		ProjectionExpression:     aws.String("#eventId, #digest, #shard, #parkedAt, #expiresAt"),
		ExpressionAttributeNames: knownNames,
	}
	for _, id := range eventIDs {
		ask.Keys = append(ask.Keys, keyOf(id))
	}
	now := l.now().Unix()
	pause := 25 * time.Millisecond
	for {
		out, err := l.client.BatchGetItem(ctx,
			&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{*l.table: ask}})
		if err != nil {
			return known, fmt.Errorf("ledger: read %d items: %w", len(ask.Keys), err)
		}
		items, err := decodeAll(out.Responses[*l.table])
		if err != nil {
			return known, fmt.Errorf("ledger: read %d items: %w", len(ask.Keys), err)
		}
		for _, i := range items {
			known[i.EventID] = Known{
				Digest: i.digest(), Pending: i.pending(), Parked: i.ParkedAt != 0,
				Current: i.pending() || i.ExpiresAt > now,
			}
		}
		rest := out.UnprocessedKeys[*l.table].Keys
		if len(rest) == 0 {
			return known, nil
		}
		if len(rest) == len(ask.Keys) {
			sleep(ctx, pause) // when ctx has ended, the next call fails
			pause = min(2*pause, time.Second)
		}
		ask.Keys = rest
	}
}

var knownNames = map[string]string{
	"#eventId": names.LedgerKey, "#digest": attrDigest, "#shard": names.LedgerPendingShard,
	"#parkedAt": attrParkedAt, "#expiresAt": names.LedgerTTL,
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
