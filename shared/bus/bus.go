// Package bus puts events on an EventBridge bus.
//
// It guarantees that the detail of every event is published byte for byte, that
// an event is reported as published only if EventBridge gave it an id, that
// only failed entries are retried (PutEvents answers 200 with failed entries inside;
// AWS, "PutEvents" in the EventBridge API reference), and that an event which
// makes EventBridge reject a whole request fails alone.
package bus

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"

	"payhook.example/shared/parallel"
)

// API is what of EventBridge the bus needs. A client with retries of its own retries
// the whole batch; give it one attempt, as this package retries.
type API interface {
	PutEvents(context.Context, *eventbridge.PutEventsInput,
		...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error)
}

// AtOnce is how many events are sent at the same time, unless they are large.
const AtOnce = requests * maxEntries

const (
	maxEntries = 10                    // of one PutEvents request (AWS, PutEvents)
	requests   = 50                    // how many are made at the same time
	attempts   = 4                     // how often an entry is tried in total
	backoff    = 50 * time.Millisecond // the longest first pause, doubled for every further one
)

// Bus is an EventBridge event bus. It is safe for concurrent use.
type Bus struct {
	client   API
	name     *string
	source   *string
	maxBytes int
}

// New returns the bus of that name, to which every event is sent with that source. The
// total size of the entries of a request, counted as by [Bus.Size], stays under maxBytes. If
// EventBridge has a smaller limit, it rejects the request, and Publish splits it.
func New(client API, name, source string, maxBytes int) *Bus {
	return &Bus{client, &name, &source, maxBytes}
}

// Name returns the name of the bus.
func (b *Bus) Name() string { return *b.name }

// Event is what is put on the bus. Its time is left out if the SDK can't
// represent it.
type Event struct {
	DetailType string    // the eventName
	Detail     []byte    // a JSON object: the event's bytes, or its claim check
	Time       time.Time // the eventTimestamp
	DeliveryID string    // the only resource; "" for none
}

// Size returns the size of an event in bytes, as EventBridge counts it (AWS,
// "Calculating PutEvents event entry size" in the EventBridge user guide). That page does not
// say whether a trace header counts; [Bus.Fits] and [Bus.Publish] count it.
func (b *Bus) Size(e Event) int {
	const timeSize = 14
	return timeSize + len(*b.source) + len(e.DetailType) + len(e.Detail) + len(e.DeliveryID)
}

// Fits reports whether an event is small enough for the bus.
func (b *Bus) Fits(e Event) bool { return b.Size(e) < b.maxBytes }

// Publish puts events on the bus, in as few requests as they fit in, several
// at once, and returns for each nil if it is on the bus, and otherwise why it
// is not known to be. An event that [Check] finds is not sent; its error is the
// [*DetailError]. Publish stops trying when ctx ends.
func (b *Bus) Publish(ctx context.Context, events []Event) []error {
	results := make([]error, len(events))
	for i, e := range events {
		results[i] = Check(e.Detail)
	}
	batches := b.batches(events, results)
	parallel.Each(len(batches), requests, func(i int) { b.publish(ctx, events, batches[i], results) })
	return results
}

// batches returns the positions of the events of each request, in order,
// without those that are found to be wrong.
func (b *Bus) batches(events []Event, wrong []error) [][]int {
	var batches [][]int
	var batch []int
	bytes := 0
	for i, e := range events {
		if wrong[i] != nil {
			continue
		}
		size := b.Size(e)
		if len(batch) == maxEntries || len(batch) > 0 && bytes+size >= b.maxBytes {
			batches = append(batches, batch)
			batch, bytes = nil, 0
		}
		batch = append(batch, i)
		bytes += size
	}
	if batch != nil {
		batches = append(batches, batch)
	}
	return batches
}

// publish puts the events at the positions of one batch on the bus. It makes
// at most 2n-1 requests for n events to find those that EventBridge rejects,
// and tries what is left of each at most attempts times.
func (b *Bus) publish(ctx context.Context, events []Event, batch []int, results []error) {
	entries := make([]types.PutEventsRequestEntry, len(batch))
	for i, position := range batch {
		entries[i] = b.entry(events[position])
	}
	for attempt := 1; ; attempt++ {
		out, err := b.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: entries})
		if len(batch) > 1 && ctx.Err() == nil && faultOf(err) == ofEntry {
			// Any of the entries may be the cause, and would take the others with it
			// at every attempt.
			half := len(batch) / 2
			b.publish(ctx, events, batch[:half], results)
			b.publish(ctx, events, batch[half:], results)
			return
		}
		again := 0
		for i, position := range batch {
			failure, transient := failureAt(out, err, i)
			results[position] = failure
			if transient {
				entries[again], batch[again] = entries[i], position
				again++
			}
		}
		if again == 0 || attempt == attempts || parallel.Pause(ctx, backoff<<(attempt-1)) != nil {
			return
		}
		entries, batch = entries[:again], batch[:again]
	}
}

func (b *Bus) entry(e Event) types.PutEventsRequestEntry {
	entry := types.PutEventsRequestEntry{
		EventBusName: b.name,
		Source:       b.source,
		DetailType:   &e.DetailType,
		Detail:       aws.String(string(e.Detail)),
	}
	// The SDK computes Time from UnixNano, which wraps around for years before
	// 1678 and after 2262: EventBridge would get another time. Without a Time it
	// takes that of the request; the detail still holds the event's own.
	if t := e.Time; t.Equal(time.Unix(0, t.UnixNano())) {
		entry.Time = &t
	}
	if e.DeliveryID != "" {
		entry.Resources = []string{e.DeliveryID}
	}
	return entry
}

// EntryError is why EventBridge did not take one entry.
type EntryError struct {
	Code string // as in ThrottlingException; "" if EventBridge gave no reason
}

func (e *EntryError) Error() string { return "bus: entry not taken: " + e.Code }

// failureAt returns why the entry at position i of a request is not on the
// bus, and whether it may help to try again; nil and false if it is.
func failureAt(out *eventbridge.PutEventsOutput, err error, i int) (failure error, transient bool) {
	if err != nil {
		return err, faultOf(err) == ofService
	}
	if i >= len(out.Entries) {
		return &EntryError{}, true
	}
	entry := out.Entries[i]
	if entry.ErrorCode == nil && aws.ToString(entry.EventId) != "" {
		return nil, false
	}
	code := aws.ToString(entry.ErrorCode)
	switch code {
	case "", "ThrottlingException", "InternalFailure", "InternalException", "ServiceUnavailable":
		return &EntryError{code}, true
	}
	return &EntryError{code}, false
}

// fault says where the cause of a failed request is.
type fault int

const (
	ofService fault = iota // it may succeed another time
	ofCaller               // who calls, and which bus: the same for every entry
	ofEntry                // what was sent: EventBridge rejects at least one entry
)

// callerErrors are the client errors that do not depend on the entries (AWS,
// "Common Error Types" in the EventBridge API reference).
var callerErrors = []string{
	"AccessDeniedException", "AccessDenied", "NotAuthorized", "OptInRequired",
	"ExpiredTokenException", "ExpiredToken", "RequestExpired",
	"IncompleteSignature", "InvalidSignatureException", "SignatureDoesNotMatch",
	"MissingAuthenticationToken", "MissingAuthenticationTokenException",
	"InvalidClientTokenId", "UnrecognizedClientException",
	"ResourceNotFoundException", "UnknownOperationException",
}

// retryable are the codes after which the SDK would try again, throttling
// among them.
var retryable = retry.IsErrorRetryables(retry.DefaultRetryables)

// faultOf returns where the cause of a failed request is. Without an error it is not in
// the entries.
func faultOf(err error) fault {
	if retryable.IsErrorRetryable(err) == aws.TrueTernary {
		return ofService
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if ok && slices.Contains(callerErrors, api.ErrorCode()) {
		return ofCaller
	}
	// The SDK does not know the fault of an error that the model of PutEvents
	// does not list, so the status decides where there is one.
	type response interface {
		error
		HTTPStatusCode() int
	}
	if r, ok := errors.AsType[response](err); ok {
		status := r.HTTPStatusCode()
		if status/100 != 4 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests {
			return ofService
		}
		return ofEntry
	}
	if !ok || api.ErrorFault() != smithy.FaultClient {
		return ofService
	}
	return ofEntry
}
