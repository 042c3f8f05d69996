// Package ledger remembers every event that was accepted, by its eventId.
//
// It guarantees that of all callers that record one eventId within the de-duplication window exactly one is told that
// the event is new, and that a recorded event can be found until it is published or a person dismisses it: nothing
// deletes an item that is pending or parked, neither the window nor DynamoDB's TTL.
//
// The table belongs to one stack: redrive publishes everything in it on the bus of the stack.
//
// # Layout
//
// One item for each event ([Item]), and an index that is sparse: it has what is pending or parked, each in shards of
// its own. An event arrives in one write to the table and one to the index, and is published by one more of each. At
// 10,000 events a second that is about 310 index writes a second for each of 64 shards, under a third of what one
// partition takes (AWS, "Best practices for designing and using partition keys").
//
// All but the event takes about 220 bytes while the event is pending. So an event of up to 800 bytes
// costs one write unit (1 KiB) for each write; the
// representative event of section 2 of the interface has about 720.
package ledger

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"payhook.example/shared/calls"
)

// Shards is how many partitions of the index the items of a state are spread over.
const Shards = 64

// MaxEventBytes is the size of the largest event that can be recorded. An item has at most 400 KB
// of 1,024 bytes each, including attribute names (AWS, "Constraints in Amazon DynamoDB"). The
// other attributes have less than 3 KB, also if the event is parked again after a replay.
const MaxEventBytes = 400<<10 - 3<<10

// defaultParallel is how many calls a ledger makes at the same time: enough for a thousand
// items. It makes three times as many reads. A client should keep as many connections.
const defaultParallel = 40

// Options are the options of a [Ledger]. The zero value of each stands for the default that is named.
type Options struct {
	Window   time.Duration    // how long an eventId is remembered; required
	Parallel int              // calls at the same time, of reads three times as many; 40
	Batch    int              // items in one call; MaxWrites, which is also the most
	Now      func() time.Time // time.Now
}

// Ledger is the table. It is safe for concurrent use.
type Ledger struct {
	store Store
	opts  Options
}

// New returns the ledger that is in store. It panics without a window.
func New(store Store, opts Options) *Ledger {
	if opts.Window <= 0 {
		panic("ledger: no window")
	}
	opts.Parallel = cmp.Or(opts.Parallel, defaultParallel)
	opts.Batch = cmp.Or(opts.Batch, MaxWrites)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Ledger{store, opts}
}

// maxBatchBytes is the largest sum of events in a batch of requests or, if it leases them,
// of answers. No event is as large. AWS
// documents no limit for BatchExecuteStatement; BatchWriteItem takes 16 MB.
const maxBatchBytes = 1 << 20

// write makes writes in batches, several at the same time, and returns the result of each. The answers have the events
// of these items; nil for none. An error says what was tried.
func (l *Ledger) write(ctx context.Context, what string, answers []Item, writes ...Write) []WriteResult {
	size := func(n int) int {
		if answers != nil {
			return answers[n].Size
		}
		return len(writes[n].Item.Detail)
	}
	var batches [][]Write
	for begin, end := range calls.Split(len(writes), l.opts.Batch, maxBatchBytes, size) {
		batches = append(batches, writes[begin:end])
	}
	results := make([][]WriteResult, len(batches))
	calls.Parallel(len(batches), l.opts.Parallel, func(n int) {
		results[n] = l.store.Write(ctx, batches[n])
		for i := range results[n] {
			if r := &results[n][i]; r.Err != nil {
				r.Err = fmt.Errorf("ledger: %s %s: %w", what, batches[n][i].Item.EventID, r.Err)
			}
		}
	})
	return slices.Concat(results...)
}

// LeaseOwner identifies an invocation that records or leases events. By it a writer
// recognizes its own write when the answer to the write was lost.
type LeaseOwner [8]byte

// NewLeaseOwner returns a random lease owner.
func NewLeaseOwner() (h LeaseOwner) {
	rand.Read(h[:]) // never fails
	return h
}
