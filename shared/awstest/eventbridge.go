package awstest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
)

// The limits of PutEvents (AWS, "PutEvents" and "PutEventsRequestEntry" in the
// EventBridge API Reference).
const (
	maxEntries    = 10
	tooManyBytes  = 1 << 20 // "less than 1MB"
	maxDetailType = 128     // characters
)

// EventBridge is an EventBridge in memory. It stores the entries of all buses. It is safe
// for concurrent use.
// It has no limits of numbers and nested levels in a detail.
type EventBridge struct {
	// Answer, if set, is called for every request that AWS would not reject as a whole,
	// before its entries are stored. An error makes the request fail. A code makes the
	// entry at that position fail; entries at other positions are accepted.
	Answer func(entries []types.PutEventsRequestEntry) (codes map[int]string, err error)

	// Missing is whether no bus exists. PutEvents answers as if there were one, and the entries are lost.
	Missing bool
	// Describe, if set, is the error of each DescribeEventBus.
	Describe error

	mu      sync.Mutex
	entries []types.PutEventsRequestEntry
	calls   int
}

// Entries returns the accepted entries of all buses, in order.
func (eb *EventBridge) Entries() []types.PutEventsRequestEntry {
	eb.mu.Lock()
	defer eb.mu.Unlock()
	return slices.Clone(eb.entries)
}

// Calls returns the number of requests, including failed ones.
func (eb *EventBridge) Calls() int {
	eb.mu.Lock()
	defer eb.mu.Unlock()
	return eb.calls
}

// PutEvents stores entries.
func (eb *EventBridge) PutEvents(ctx context.Context, in *eventbridge.PutEventsInput,
	_ ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	eb.mu.Lock()
	defer eb.mu.Unlock()
	eb.calls++
	codes, err := map[int]string(nil), cmp.Or(ctx.Err(), checkRequest(in.Entries))
	if err == nil && eb.Answer != nil {
		codes, err = eb.Answer(in.Entries)
	}
	if err != nil {
		return nil, err
	}
	out := &eventbridge.PutEventsOutput{}
	for i, entry := range in.Entries {
		code, failed := codes[i]
		if !failed {
			code = checkEntry(entry)
		}
		result := types.PutEventsResultEntry{}
		if failed || code != "" {
			out.FailedEntryCount++
			result.ErrorCode, result.ErrorMessage = &code, &code
		} else {
			if !eb.Missing {
				eb.entries = append(eb.entries, entry)
			}
			result.EventId = aws.String(strconv.Itoa(len(eb.entries) + 1))
		}
		out.Entries = append(out.Entries, result)
	}
	return out, nil
}

// DescribeEventBus returns an error if there is no bus, or if Describe is set.
func (eb *EventBridge) DescribeEventBus(context.Context, *eventbridge.DescribeEventBusInput,
	...func(*eventbridge.Options)) (*eventbridge.DescribeEventBusOutput, error) {
	if eb.Missing {
		return nil, &types.ResourceNotFoundException{}
	}
	return &eventbridge.DescribeEventBusOutput{}, eb.Describe
}

// checkRequest returns the error of a request that EventBridge rejects as a whole, or nil.
func checkRequest(entries []types.PutEventsRequestEntry) error {
	size := 0
	for _, e := range entries {
		size += entrySize(e)
	}
	switch n := len(entries); {
	case n == 0 || n > maxEntries:
		return invalid(fmt.Sprintf("1 to %d entries", maxEntries))
	case size >= tooManyBytes:
		return invalid("Total size of the entries in the request is over the limit.")
	case !slices.ContainsFunc(entries, complete):
		return invalid("no entry has Source, DetailType and Detail")
	}
	return nil
}

// complete reports whether an entry has all that it needs.
func complete(e types.PutEventsRequestEntry) bool {
	return aws.ToString(e.Source) != "" && aws.ToString(e.DetailType) != "" && aws.ToString(e.Detail) != ""
}

// entrySize returns the size of an entry in bytes (AWS, "Sending events with
// PutEvents in Amazon EventBridge" in the EventBridge User Guide).
func entrySize(e types.PutEventsRequestEntry) int {
	size := len(aws.ToString(e.Source)) + len(aws.ToString(e.DetailType)) + len(aws.ToString(e.Detail))
	if e.Time != nil {
		size += 14
	}
	for _, r := range e.Resources {
		size += len(r)
	}
	return size
}

// checkEntry returns the error code of an entry that EventBridge rejects, or "".
func checkEntry(e types.PutEventsRequestEntry) string {
	if !complete(e) || utf8.RuneCountInString(*e.DetailType) > maxDetailType {
		return "InvalidArgument"
	}
	if detail := []byte(*e.Detail); !json.Valid(detail) || bytes.TrimLeft(detail, " \t\r\n")[0] != '{' {
		return "MalformedDetail"
	}
	return ""
}
