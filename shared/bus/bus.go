// Package bus puts events on an EventBridge bus, and those that are too large for it in a bucket ([LargeEvents]).
//
// It guarantees that the detail of every event is published byte for byte, that
// an event is reported as published only if its store took it, that only failed
// entries are retried, and that an event which makes a whole request fail fails alone.
//
// A consumer calls [Resolve] with every detail.
package bus

import (
	"context"
	"time"

	"payhook.example/shared/calls"
)

// AtOnce is how many events are sent at the same time, unless they are large.
const AtOnce = requests * maxEntries

const (
	maxEntries = 10                    // of one request (AWS, PutEvents)
	requests   = 50                    // how many are made at the same time
	attempts   = 4                     // how often an entry is tried in total
	backoff    = 50 * time.Millisecond // the longest first pause, doubled for every further one
)

// Bus is an event bus. It is safe for concurrent use.
type Bus struct {
	store    Store
	source   string
	maxBytes int
}

// New returns the bus of a store, to which every event is sent with that source. The
// total size of the entries of a request, counted as by [Bus.Size], stays under maxBytes. If
// EventBridge has a smaller limit, it rejects the request, and Publish splits it.
func New(store Store, source string, maxBytes int) *Bus { return &Bus{store, source, maxBytes} }

// Event is what is put on the bus.
type Event struct {
	DetailType string    // the eventName
	Detail     []byte    // a JSON object: the event's bytes, or its claim check
	Time       time.Time // the eventTimestamp; a store may leave out what it cannot represent
	DeliveryID string    // the only resource; "" for none
}

// Size returns the size of an event in bytes, as EventBridge counts it (AWS,
// "Calculating PutEvents event entry size" in the EventBridge user guide). That page does not
// say whether a trace header counts; [Bus.Fits] and [Bus.Publish] count it.
func (b *Bus) Size(e Event) int { return Entry{b.source, e}.size() }

// Fits reports whether an event is small enough for the bus.
func (b *Bus) Fits(e Event) bool { return b.Size(e) < b.maxBytes }

// Publish puts events on the bus, in as few requests as they fit in, several at once, and returns for each nil if it is
// on the bus, and otherwise why it is not known to be. An event that [Check] finds is not sent; its error is the
// [*DetailError]. Publish stops trying when ctx ends.
func (b *Bus) Publish(ctx context.Context, events []Event) []error {
	results := make([]error, len(events))
	var good []int // positions
	for i, e := range events {
		if results[i] = Check(e.Detail); results[i] == nil {
			good = append(good, i)
		}
	}
	var batches [][]int
	size := func(n int) int { return b.Size(events[good[n]]) }
	for begin, end := range calls.Split(len(good), maxEntries, b.maxBytes-1, size) {
		batches = append(batches, good[begin:end])
	}
	calls.Parallel(len(batches), requests, func(i int) { b.publish(ctx, events, batches[i], results) })
	return results
}

// publish puts the events at the positions of one batch on the bus. It makes at most 2n-1 requests for n events to find
// those that EventBridge rejects, and tries what is left of each at most attempts times.
func (b *Bus) publish(ctx context.Context, events []Event, batch []int, results []error) {
	entries := make([]Entry, len(batch))
	for i, position := range batch {
		entries[i] = Entry{b.source, events[position]}
	}
	for attempt := 1; ; attempt++ {
		failures, err := b.store.Put(ctx, entries)
		if len(batch) > 1 && ctx.Err() == nil && faultOf(err) == OfEntry {
			// Any of the entries may be the cause, and would take the others with it at every attempt.
			half := len(batch) / 2
			b.publish(ctx, events, batch[:half], results)
			b.publish(ctx, events, batch[half:], results)
			return
		}
		again := 0
		for i, position := range batch {
			failure := err
			if err == nil {
				failure = failures[i]
			}
			results[position] = failure
			if failure != nil && faultOf(failure) == OfService {
				entries[again], batch[again] = entries[i], position
				again++
			}
		}
		if again == 0 || attempt == attempts || calls.Pause(ctx, backoff<<(attempt-1)) != nil {
			return
		}
		entries, batch = entries[:again], batch[:again]
	}
}
