package intake

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
)

// Redriver publishes what has been pending longer than whoever recorded it can
// still be working on it. It is safe for concurrent use, and several may run
// at once: no two of them publish the same item.
type Redriver struct {
	publisher
	page int
}

// NewRedriver returns a redriver of that ledger.
func NewRedriver(ledger *ledger.Ledger, bus *bus.Bus, opts Options) *Redriver {
	opts.setDefaults()
	return &Redriver{publisher: publisher{ledger, bus, opts}, page: 25}
}

// Redriven says what a run of redrive did.
type Redriven struct {
	Found     int // due, as the index had it
	Leased    int // of these, taken by this run
	Published int // on the bus, and marked so
	Unmarked  int // on the bus and not marked so: a later run publishes them again
	Failed    int // leased, and not known to be on the bus
	Parked    int // of these, kept aside for good: they failed too often
	Errors    int // calls of the ledger that failed
	// Oldest is how long ago the oldest item was recorded that was pending when the
	// run began: of those that were due, and in each shard of those that are due
	// last, which have been failing longest.
	Oldest time.Duration
	// Left: the time was up before every item that was due had its turn.
	Left bool
	// Err is the first error of the ledger.
	Err error
}

// chunk is how many items are leased and published at a time: what a run that
// dies leaves leased.
const chunk = 200

// Run publishes what is due, the longest due first, until nothing is or ctx's
// deadline is near. An item that can't be published is tried again by a later
// run, behind all that is due by now, so that it holds up nobody.
func (r *Redriver) Run(ctx context.Context) (result Redriven) {
	start := r.opts.Now()
	deadline, work := r.opts.deadlines(ctx, start)
	ctx, cancel := context.WithDeadline(ctx, work)
	defer cancel()
	holder := ledger.NewHolder()
	patience := min(r.opts.Patience, work.Sub(start)/3)

	cursors := make([]ledger.Cursor, ledger.Shards)
	open := make([]int, ledger.Shards)
	for shard := range open {
		open[shard] = shard
	}
	r.lookAtWaiting(ctx, start, &result)
	for len(open) > 0 {
		if ctx.Err() != nil {
			result.Left = true
			return result
		}
		var pending []ledger.Pending
		pending, open = r.next(ctx, open, cursors, start, &result)
		slices.SortFunc(pending, func(a, b ledger.Pending) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.EventID, b.EventID)) })
		result.Found += len(pending)
		result.age(pending, start)
		for part := range slices.Chunk(pending, chunk) {
			// A chunk that may not end in time is not begun: its items would
			// have to wait for their leases to run out.
			if r.opts.Now().Add(patience).After(work) {
				result.Left = true
				return result
			}
			entries, corrupt := r.lease(ctx, part, holder, deadline.Add(r.opts.Grace), &result)
			done := r.publish(ctx, entries, patience)
			result.Published += done.marked
			result.Unmarked += done.unmarked
			result.Failed += done.pending + len(corrupt)
			for _, e := range corrupt {
				done.failed = append(done.failed, failure{e, ledger.ErrCorrupt})
			}
			r.setAside(ctx, done.failed, holder, deadline.Add(r.opts.Grace), &result)
		}
	}
	return result
}

// lookAtWaiting measures the age of what is pending and not due: what was postponed
// is due up to an hour later, and counts as well. One query for each shard is
// enough: what has been failing longest is due last, or has company that has been
// failing for as long as it is postponed.
func (r *Redriver) lookAtWaiting(ctx context.Context, at time.Time, result *Redriven) {
	var mu sync.Mutex
	each(ledger.Shards, min(16, r.opts.Parallel), func(shard int) {
		waiting, err := r.ledger.Waiting(ctx, shard, at, r.page)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			result.fail(err)
		}
		result.age(waiting, at)
	})
}

func (r *Redriven) age(pending []ledger.Pending, at time.Time) {
	for _, p := range pending {
		if !p.RecordedAt.IsZero() {
			r.Oldest = max(r.Oldest, at.Sub(p.RecordedAt))
		}
	}
}

// next returns the next page of every open shard, and which shards stay open.
func (r *Redriver) next(ctx context.Context, open []int, cursors []ledger.Cursor, at time.Time, result *Redriven) (pending []ledger.Pending, still []int) {
	var mu sync.Mutex
	each(len(open), min(16, r.opts.Parallel), func(i int) {
		shard := open[i]
		page, cursor, err := r.ledger.Due(ctx, shard, at, cursors[shard], r.page)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			result.fail(err)
			return
		}
		pending = append(pending, page...)
		if cursors[shard] = cursor; cursor != nil {
			still = append(still, shard)
		}
	})
	return pending, still
}

// lease returns those of the items that this run alone holds now, and those of
// them that are not what was recorded.
func (r *Redriver) lease(ctx context.Context, pending []ledger.Pending, holder ledger.Holder, until time.Time, result *Redriven) (entries, corrupt []ledger.Entry) {
	var mu sync.Mutex
	entries = make([]ledger.Entry, 0, len(pending))
	each(len(pending), r.opts.Parallel, func(i int) {
		e, mine, err := r.ledger.Lease(ctx, pending[i], holder, until)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			result.fail(err)
		}
		switch {
		case mine && err != nil:
			corrupt = append(corrupt, e)
		case mine:
			entries = append(entries, e)
		}
	})
	result.Leased += len(entries) + len(corrupt)
	return entries, corrupt
}

// pauseAfter is how long an item that failed so often is left alone: twice as
// long every time, from a minute to an hour.
func pauseAfter(attempts int) time.Duration {
	return min(time.Minute<<min(max(attempts-1, 0), 10), time.Hour)
}

// setAside parks items that failed too often or that EventBridge is known to
// reject, and leaves the others alone for longer every time, so that they take
// no time from those that can be published.
func (r *Redriver) setAside(ctx context.Context, failed []failure, holder ledger.Holder, leased time.Time, result *Redriven) {
	var mu sync.Mutex
	each(len(failed), r.opts.Parallel, func(i int) {
		e := failed[i]
		now := r.opts.Now()
		var err error
		parked := false
		switch again := now.Add(pauseAfter(e.Attempts)); {
		case r.opts.Parking != nil && (e.Attempts >= r.opts.MaxAttempts || e.unpublishable()):
			err = r.park(ctx, e)
			parked = err == nil
		case again.After(leased):
			err = r.ledger.Postpone(ctx, e.Entry, holder, again)
		}
		mu.Lock()
		defer mu.Unlock()
		if parked {
			result.Parked++
		}
		if err != nil {
			result.fail(err)
		}
	})
}

func (r *Redriven) fail(err error) {
	r.Errors++
	if r.Err == nil {
		r.Err = err
	}
}
