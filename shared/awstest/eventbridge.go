package awstest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
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
	maxLevels     = 1000
	maxDetailType = 128 // characters
)

// EventBridge keeps every entry that was put on any of its buses. It is safe
// for concurrent use.
//
// It fails a whole request with ValidationException if it does not have 1 to 10
// entries, or they have 1 MB or more in all, or none of them has Source,
// DetailType and Detail, or one has a detail that is nested deeper than 1000
// levels or holds an integer of more than 64 bits. For the last two, AWS documents
// the limits and not the answer; this is the worst one for the other entries. It
// fails an entry with InvalidArgument if one of Source, DetailType and Detail is
// missing or DetailType is too long, and with MalformedDetail if Detail is not a
// JSON object.
type EventBridge struct {
	// Answer, if set, is asked for every request that AWS would not reject as a
	// whole, before anything is kept: an error fails the request, and a code at a position fails that entry.
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
	if err := checkRequest(in.Entries); err != nil {
		return nil, err
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
		code, failed := codes[i]
		if !failed {
			code = checkEntry(entry)
			failed = code != ""
		}
		if failed {
			out.FailedEntryCount++
			out.Entries = append(out.Entries, types.PutEventsResultEntry{ErrorCode: aws.String(code), ErrorMessage: aws.String(code)})
			continue
		}
		eb.entries = append(eb.entries, entry)
		out.Entries = append(out.Entries, types.PutEventsResultEntry{EventId: aws.String(strconv.Itoa(len(eb.entries)))})
	}
	return out, nil
}

// checkRequest returns why EventBridge rejects a whole request, or nil.
func checkRequest(entries []types.PutEventsRequestEntry) error {
	if n := len(entries); n == 0 || n > maxEntries {
		return invalid(fmt.Sprintf("1 to %d entries", maxEntries))
	}
	bytes, complete := 0, false
	for _, e := range entries {
		bytes += entrySize(e)
		complete = complete || aws.ToString(e.Source) != "" && aws.ToString(e.DetailType) != "" && aws.ToString(e.Detail) != ""
	}
	if !complete {
		return invalid("no entry has Source, DetailType and Detail")
	}
	if bytes >= tooManyBytes {
		return invalid("Total size of the entries in the request is over the limit.")
	}
	for i, e := range entries {
		if _, problem := checkDetail(aws.ToString(e.Detail)); problem != "" {
			return invalid(fmt.Sprintf("Detail of entry %d %s", i, problem))
		}
	}
	return nil
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

// checkEntry returns the code with which EventBridge fails one entry, or "".
func checkEntry(e types.PutEventsRequestEntry) string {
	if aws.ToString(e.Source) == "" || aws.ToString(e.DetailType) == "" || aws.ToString(e.Detail) == "" ||
		utf8.RuneCountInString(*e.DetailType) > maxDetailType {
		return "InvalidArgument"
	}
	if object, _ := checkDetail(*e.Detail); !object {
		return "MalformedDetail"
	}
	return ""
}

// checkDetail reports whether a detail is a JSON object, and what in it is
// beyond EventBridge's limits.
func checkDetail(detail string) (object bool, problem string) {
	dec := json.NewDecoder(strings.NewReader(detail))
	dec.UseNumber()
	for level := 0; ; {
		token, err := dec.Token()
		if err != nil {
			return object && err == io.EOF && json.Valid([]byte(detail)), ""
		}
		switch token := token.(type) {
		case json.Delim:
			object = object || level == 0 && token == '{'
			if token == '{' || token == '[' {
				if level++; level > maxLevels {
					return false, fmt.Sprintf("is nested deeper than %d levels", maxLevels)
				}
			} else {
				level--
			}
		case json.Number:
			if strings.ContainsAny(string(token), ".eE") {
				continue
			}
			if _, err := strconv.ParseInt(string(token), 10, 64); err != nil {
				return false, "has an integer of more than 64 bits"
			}
		}
	}
}
