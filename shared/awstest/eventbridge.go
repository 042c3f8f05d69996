package awstest

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
)

// EventBridge keeps every entry that was put on any of its buses. It is safe
// for concurrent use.
type EventBridge struct {
	// Answer, if set, is asked for every request before anything is kept: an
	// error fails the request, and a code at a position fails that entry.
	// Positions that are not in the map are taken.
	Answer func(entries []types.PutEventsRequestEntry) (codes map[int]string, err error)

	mu      sync.Mutex
	entries []types.PutEventsRequestEntry
	calls   int
}

// Entries returns what was put on the buses, in order.
func (eb *EventBridge) Entries() []types.PutEventsRequestEntry {
	eb.mu.Lock()
	defer eb.mu.Unlock()
	return slices.Clone(eb.entries)
}

// Calls returns how many requests there were, failures included.
func (eb *EventBridge) Calls() int {
	eb.mu.Lock()
	defer eb.mu.Unlock()
	return eb.calls
}

// PutEvents keeps entries.
func (eb *EventBridge) PutEvents(ctx context.Context, in *eventbridge.PutEventsInput, _ ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	eb.mu.Lock()
	defer eb.mu.Unlock()
	eb.calls++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := len(in.Entries); n == 0 || n > 10 {
		return nil, invalid("1 to 10 entries")
	}
	var codes map[int]string
	if eb.Answer != nil {
		var err error
		if codes, err = eb.Answer(in.Entries); err != nil {
			return nil, err
		}
	}
	out := &eventbridge.PutEventsOutput{}
	for i, entry := range in.Entries {
		if code, failed := codes[i]; failed {
			out.FailedEntryCount++
			out.Entries = append(out.Entries, types.PutEventsResultEntry{ErrorCode: aws.String(code), ErrorMessage: aws.String(code)})
			continue
		}
		eb.entries = append(eb.entries, entry)
		out.Entries = append(out.Entries, types.PutEventsResultEntry{EventId: aws.String(strconv.Itoa(len(eb.entries)))})
	}
	return out, nil
}
