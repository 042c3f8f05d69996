package intake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"payhook.example/shared/calls"
	"payhook.example/shared/ledger"
	"payhook.example/shared/wire"
)

// Redriver publishes what is pending and not held by an invocation that can still be working on it. It is safe for
// concurrent use, and several may run at once: no two of them publish the same item.
type Redriver struct {
	pipeline    *Pipeline
	maxAttempts int
}

// NewRedriver returns a redriver that publishes with the pipeline. It parks an event after maxAttempts attempts.
func NewRedriver(p *Pipeline, maxAttempts int) *Redriver { return &Redriver{p, maxAttempts} }

const (
	// chunkSize is how many items are leased and published at a time. A run that stops leaves at most so many leased.
	chunkSize = 200
	// chunkBytes is how many bytes of events a chunk has at most. The function has 512 MiB. A run that published 800
	// events of 200 to 408 KB took 201 MiB (VmHWM); with 16 MiB it took 338 MiB, and without the limit 398 MiB.
	chunkBytes = 8 << 20
	// pageSize is how many items of a shard are read at a time.
	pageSize = 25
	// queries is how many shards are read at the same time.
	queries = 16
)

// Run publishes what is due, the longest due first, until nothing is or ctx's deadline is near. An item that can't be
// published is tried again by a later run, after all that is due by now, so that it delays no other item.
func (r *Redriver) Run(ctx context.Context) Redriven {
	inv, ctx, cancel := r.pipeline.begin(ctx)
	defer cancel()
	run := &run{redriver: r, times: inv, owner: ledger.NewLeaseOwner()}
	run.timeout = min(publishTimeout, inv.workUntil.Sub(inv.start)/3)
	run.publishDue(ctx)
	return run.result
}

// Redriven is the result of a run of redrive. Its counts are in the log.
type Redriven struct {
	wire.RedriveCounts

	// PublishErr is why the first of those that failed is not known to be on the bus.
	PublishErr error `json:"-"`
	// Oldest is how long ago the oldest item was recorded that was pending when the run began: of those that were due,
	// and in each shard of those that are due last, which have been failing longest.
	Oldest time.Duration `json:"-"`
	Unread bool          `json:"-"` // not every shard was read, so that Oldest is not known
	Err    error         `json:"-"` // the first
}

// run is one run of redrive.
type run struct {
	redriver *Redriver
	times    invocation
	owner    ledger.LeaseOwner
	timeout  time.Duration // to publish and mark a chunk
	result   Redriven
	unread   bool // a query failed
}

// publishDue publishes what is due, page by page of all shards.
//
// Before, it measures the age of what is pending and not due: what was postponed is due up to an hour later, and counts
// as well. One page of each shard is enough: the item that has been failing longest is due last, or the items that are
// due later have been failing for as long as it is postponed.
func (r *run) publishDue(ctx context.Context) {
	open := make([]int, ledger.Shards) // the shards that have more pages
	for shard := range open {
		open[shard] = shard
	}
	r.result.Unread = true // until the first page of every shard is read
	cursors := make([]*ledger.Item, ledger.Shards)
	r.nextPages(ctx, open, true, cursors)
	for len(open) > 0 {
		if ctx.Err() != nil {
			r.result.Left = true
			return
		}
		var pending []ledger.Item
		pending, open = r.nextPages(ctx, open, false, cursors)
		r.result.Unread = r.unread
		slices.SortFunc(pending, ledger.ByIndexTime)
		r.result.Found += len(pending)
		size := func(i int) int { return pending[i].Size }
		for begin, end := range calls.Split(len(pending), chunkSize, chunkBytes, size) {
			// A chunk that may not end in time is not begun: its items would have to wait until their leases end.
			if r.redriver.pipeline.opts.Now().Add(r.timeout).After(r.times.workUntil) {
				r.result.Left = true
				return
			}
			r.publishChunk(ctx, pending[begin:end])
		}
	}
}

// publishChunk leases items and publishes those that this run holds.
func (r *run) publishChunk(ctx context.Context, pending []ledger.Item) {
	items, corrupt := r.lease(ctx, pending)
	// The lease can have taken long, and the marks need time as well.
	left := r.times.workUntil.Sub(r.redriver.pipeline.opts.Now())
	var published Result
	failed := append(r.redriver.pipeline.publish(ctx, items, min(r.timeout, left)*3/4, &published), corrupt...)
	if len(failed) > 0 && r.result.PublishErr == nil {
		r.result.PublishErr = failed[0].err
	}
	r.result.Published += published.Published
	r.result.Unmarked += published.Unmarked
	r.result.Failed += len(failed)
	r.postpone(ctx, failed)
}

// nextPages returns the next page of every open shard, of what is due or only later, and which shards stay open.
func (r *run) nextPages(ctx context.Context, open []int, later bool,
	cursors []*ledger.Item) (pending []ledger.Item, still []int) {
	pages := make([]struct {
		items []ledger.Item
		next  *ledger.Item
		err   error
	}, len(open))
	calls.Parallel(len(open), queries, func(i int) {
		pages[i].items, pages[i].next, pages[i].err = r.redriver.pipeline.ledger.Pending(ctx, open[i],
			ledger.Query{At: r.times.start, Later: later, After: cursors[open[i]], Limit: pageSize})
	})
	for i, page := range pages {
		r.note(page.err)
		r.unread = r.unread || page.err != nil
		for _, p := range page.items {
			if !p.RecordedAt.IsZero() {
				r.result.Oldest = max(r.result.Oldest, r.times.start.Sub(p.RecordedAt))
			}
			if p.Err != nil && !later {
				r.note(fmt.Errorf("intake: pending event %s: %w", p.EventID, p.Err))
			}
		}
		pending = append(pending, page.items...)
		if page.next != nil && !later {
			cursors[open[i]] = page.next
			still = append(still, open[i])
		}
	}
	return pending, still
}

// lease returns those of the items that only this run holds now, and those of them that are not what was recorded.
func (r *run) lease(ctx context.Context, pending []ledger.Item) (items []ledger.Item, corrupt []failure) {
	for _, l := range r.redriver.pipeline.ledger.Lease(ctx, pending, r.owner, r.times.heldUntil) {
		r.note(l.Err)
		switch {
		case l.Done && l.Err != nil:
			corrupt = append(corrupt, failure{*l.Found, l.Err})
		case l.Done:
			items = append(items, *l.Found)
		}
	}
	r.result.Leased += len(items) + len(corrupt)
	return items, corrupt
}

// pauseAfter returns how long an item waits after so many failed attempts: twice as
// long each time, from a minute to an hour.
func pauseAfter(attempts int) time.Duration {
	return min(time.Minute<<min(max(attempts-1, 0), 10), time.Hour)
}

// postpone parks items that failed too often or that can't be published, and postpones the
// others, for longer each time, so that they take no time from those that can be published.
func (r *run) postpone(ctx context.Context, failed []failure) {
	errs, parked := make([]error, len(failed)), make([]bool, len(failed))
	calls.Parallel(len(failed), Parallel, func(i int) {
		f := failed[i]
		switch again := r.redriver.pipeline.opts.Now().Add(pauseAfter(f.item.Attempts)); {
		case f.item.Attempts >= r.redriver.maxAttempts || f.unpublishable():
			errs[i] = r.redriver.pipeline.parkEvent(ctx, f)
			parked[i] = errs[i] == nil
		case again.After(r.times.heldUntil):
			errs[i] = r.redriver.pipeline.ledger.Postpone(ctx, f.item, r.owner, again)
		}
	})
	for i, err := range errs {
		if parked[i] {
			r.result.Parked++
		}
		r.note(err)
	}
}

// note counts an error, if it is one.
func (r *run) note(err error) {
	if err == nil {
		return
	}
	r.result.Errors++
	if r.result.Err == nil {
		r.result.Err = err
	}
}
