package intake

import (
	"context"
	"slices"
	"sync/atomic"

	"payhook.example/shared/ledger"
)

// inRounds calls record for every entry that the ledger is not known to have, with
// its position, and stores the outcomes of the others. record reports whether the
// ledger had the entry.
//
// A sender repeats a delivery that was not recorded in time. Writing first what was
// recorded then would take all the time again, so that no attempt gets further than
// the first. So the first round has as many entries as are written at once; if the
// ledger has any of them, the rest is looked up before it is written, which takes a
// hundredth of the calls. A new delivery is not looked up.
//
// Large events are looked up in any case: to upload one takes longer than to read
// its item.
func (r *Receiver) inRounds(ctx context.Context, entries []ledger.Entry, outcomes []ledger.Outcome, record func(i int) (again bool)) {
	var large, todo []int
	for i, e := range entries {
		if e.Claimed {
			large = append(large, i)
		} else {
			todo = append(todo, i)
		}
	}
	left := r.skipKnown(ctx, entries, large, outcomes)
	var again atomic.Bool
	again.Store(len(left) < len(large))
	todo = append(todo, left...)

	round := func(of []int) {
		each(len(of), r.opts.Parallel, func(n int) {
			if record(of[n]) {
				again.Store(true)
			}
		})
	}
	first := min(len(todo), r.opts.Parallel)
	round(todo[:first])
	rest := todo[first:]
	if again.Load() {
		rest = r.skipKnown(ctx, entries, rest, outcomes)
	}
	round(rest)
}

// skipKnown stores the outcomes of those entries that the ledger has within the
// window, and returns the positions of the others. It takes at most half of the time
// that is left. What can't be read counts as unknown: the write decides.
func (r *Receiver) skipKnown(ctx context.Context, entries []ledger.Entry, positions []int, outcomes []ledger.Outcome) (unknown []int) {
	if len(positions) == 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline.Sub(r.opts.Now())/2)
		defer cancel()
	}
	parts := slices.Collect(slices.Chunk(positions, ledger.MaxKnown))
	found := make([]map[string]ledger.Known, len(parts))
	each(len(parts), r.opts.Parallel, func(p int) {
		ids := make([]string, len(parts[p]))
		for n, i := range parts[p] {
			ids[n] = entries[i].EventID
		}
		found[p], _ = r.ledger.Known(ctx, ids)
	})
	for p, part := range parts {
		for _, i := range part {
			switch known, ok := found[p][entries[i].EventID]; {
			case !ok || !known.Current:
				unknown = append(unknown, i)
			case known.Digest == entries[i].Digest:
				outcomes[i] = ledger.Duplicate
			default:
				outcomes[i] = ledger.Conflict
			}
		}
	}
	return unknown
}
