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

// EventBridge is an EventBridge in memory. It stores the entries of all buses. It is safe
// for concurrent use.
//
// It rejects a whole request with ValidationException if it does not have 1 to 10
// entries, or they have 1 MB or more in total, or none of them has Source, DetailType and
// Detail, or a detail is nested deeper than 1000 levels or contains an integer of more
// than 64 bits. For the last two, AWS documents the limits but not the error; this is the
// worst case for the other entries. It rejects an entry with InvalidArgument if Source,
// DetailType or Detail is missing or DetailType is too long, and with MalformedDetail if
// Detail is not a JSON object.
type EventBridge struct {
	// Answer, if set, is called for every request that AWS would not reject as a whole,
	// before its entries are stored. An error makes the request fail. A code makes the
	// entry at that position fail; entries at other positions are accepted.
	Answer func(entries []types.PutEventsRequestEntry) (codes map[int]string, err error)

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
			out.Entries = append(out.Entries,
				types.PutEventsResultEntry{ErrorCode: aws.String(code), ErrorMessage: aws.String(code)})
			continue
		}
		eb.entries = append(eb.entries, entry)
		out.Entries = append(out.Entries,
			types.PutEventsResultEntry{EventId: aws.String(strconv.Itoa(len(eb.entries)))})
	}
	return out, nil
}

// checkRequest returns the error of a request that EventBridge rejects as a whole, or nil.
func checkRequest(entries []types.PutEventsRequestEntry) error {
	if n := len(entries); n == 0 || n > maxEntries {
		return invalid(fmt.Sprintf("1 to %d entries", maxEntries))
	}
	bytes, complete := 0, false
	for _, e := range entries {
		bytes += entrySize(e)
		complete = complete || aws.ToString(e.Source) != "" && aws.ToString(e.DetailType) != "" &&
			aws.ToString(e.Detail) != ""
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

// checkEntry returns the error code of an entry that EventBridge rejects, or "".
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

// checkDetail reports whether a detail is a JSON object, and which limit of EventBridge it
// exceeds.
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
