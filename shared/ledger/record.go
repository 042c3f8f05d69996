package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"payhook.example/shared/calls"
)

// slowAfter is the share of the time until ctx's deadline after which the ledger is slow.
const slowAfter = 8

// Record writes events as pending, except those whose eventId was recorded before within the window, and returns the
// result of each. It is done if the event is new. Otherwise it has what the ledger has instead, without Detail: a
// duplicate if the digests are the same, and other content if not; or an error if it is not known whether the event was
// written. The eventIds must differ. All events have the present time as RecordedAt. Until the given time, only owner
// may publish the events that are new. Events that are not tried before ctx ends have its error.
//
// The cost is one write for each event that is new. An event whose eventId the table has costs a read, or a failed
// write and a read; once its window has passed, a second write.
//
// A caller that ran out of time repeats its call. To write first what was written then would take all the time again.
// So the first round has as many events as are written at once. If the table has any of them, the others are looked up
// before they are written. If the first round takes more than an eighth of the time, all events are looked up while it
// continues. So every call with a deadline gets further as long as a read and a write, one after the other, take less
// than the other seven eighths, and the items of all events can be read in half of these. New events are not looked up
// otherwise.
func (l *Ledger) Record(ctx context.Context, events []Item, owner LeaseOwner, until time.Time) []WriteResult {
	now := l.opts.Now()
	w := l.newWriter(events, owner, until, func(old Item, i *Item) bool { return old.RecordedAnew(i.Digest, now) })
	n := min(l.opts.Parallel*l.opts.Batch, len(events))
	first, rest := w.all[:n], w.all[n:]
	lookedUp := make(chan map[string]Item, 1)
	slow := time.AfterFunc(timeLeft(ctx)/slowAfter, func() { lookedUp <- l.lookUp(ctx, w.ids(w.all)) })
	stored := w.recordNew(ctx, first)
	switch {
	case !slow.Stop():
		w.known = <-lookedUp
	case len(stored) > 0:
		w.known = l.lookUp(ctx, w.ids(slices.Concat(stored, rest)))
	}
	w.compare() // also what could not be written
	w.finish(ctx, append(stored, w.recordNew(ctx, w.undecided(rest))...))
	return w.results
}

// timeLeft returns the time until ctx's deadline.
func timeLeft(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return math.MaxInt64
}

// lookUp returns what the table has of eventIds. It takes at most half of the time that is
// left. What it can't read counts as unknown: the condition of the write decides.
func (l *Ledger) lookUp(ctx context.Context, ids []string) map[string]Item {
	ctx, cancel := context.WithTimeout(ctx, timeLeft(ctx)/2)
	defer cancel()
	found, _ := l.Known(ctx, ids)
	return found
}

// readsPerWrite is how many reads are made at the same time for each write: most items of
// a large delivery that is repeated must be read in one round if calls are slow.
const readsPerWrite = 3

// Known returns what the ledger has of different eventIds in lower case, by eventId, as the last write left it and
// without the events' bytes, but is billed for them. With an error it returns what it could read.
func (l *Ledger) Known(ctx context.Context, eventIDs []string) (map[string]Item, error) {
	parts := slices.Collect(slices.Chunk(eventIDs, MaxReads))
	found, errs := make([]map[string]Item, len(parts)), make([]error, len(parts))
	calls.Parallel(len(parts), readsPerWrite*l.opts.Parallel, func(n int) {
		found[n], errs[n] = l.store.Get(ctx, parts[n], false)
	})
	all := make(map[string]Item, len(eventIDs))
	for n, part := range found {
		for _, i := range part {
			if i.Err != nil {
				errs[n] = errors.Join(errs[n], fmt.Errorf("ledger: read %s: %w", i.EventID, i.Err))
				delete(part, i.EventID)
			}
		}
		maps.Copy(all, part)
	}
	return all, errors.Join(errs...)
}

// writer writes events as pending. Its methods take positions of events.
type writer struct {
	ledger  *Ledger
	events  []Item
	all     []int         // the positions of the events
	results []WriteResult // zero: not decided
	owner   LeaseOwner
	until   time.Time
	may     func(old Item, e *Item) bool // whether e may replace an item
	known   map[string]Item              // what was read, until it is written over
}

func (l *Ledger) newWriter(events []Item, owner LeaseOwner, until time.Time,
	may func(old Item, e *Item) bool) *writer {
	w := &writer{ledger: l, events: events, results: make([]WriteResult, len(events)), owner: owner, until: until,
		may: may}
	for i := range events {
		w.all = append(w.all, i)
	}
	return w
}

func (w *writer) ids(positions []int) []string {
	ids := make([]string, len(positions))
	for n, i := range positions {
		ids[n] = w.events[i].EventID
	}
	return ids
}

// undecided returns those of the positions that have no result.
func (w *writer) undecided(positions []int) (left []int) {
	for _, i := range positions {
		if w.results[i] == (WriteResult{}) {
			left = append(left, i)
		}
	}
	return left
}

// recordNew inserts the events at these positions, or replaces the items that are known if they still are as they were
// read. It returns the positions of the events that the table has, or has otherwise. It makes one write for each.
func (w *writer) recordNew(ctx context.Context, positions []int) (stored []int) {
	if err := ctx.Err(); err != nil {
		w.fail(positions, err)
		return nil
	}
	writes := make([]Write, len(positions))
	for n, i := range positions {
		e := &w.events[i]
		writes[n].Item = e.pending(w.owner, w.until)
		if old, ok := w.known[e.EventID]; ok {
			writes[n].If = old.recording(old.State)
			writes[n].If.ExpiresAt = old.ExpiresAt
			delete(w.known, e.EventID)
		}
	}
	for n, r := range w.ledger.write(ctx, "record", nil, writes...) {
		switch i := positions[n]; {
		case r.Done, r.Err != nil:
			w.results[i] = r
		default:
			stored = append(stored, i)
		}
	}
	return stored
}

// compareWithStored reads the items of the events at these positions that are not known, and decides about them. It
// returns the positions of the events that may be written. It makes one read for each.
func (w *writer) compareWithStored(ctx context.Context, positions []int) (left []int) {
	unread := slices.DeleteFunc(w.ids(positions), func(id string) bool { return w.known[id].EventID != "" })
	read, err := w.ledger.Known(ctx, unread)
	maps.Copy(read, w.known)
	w.known = read
	w.compare()
	if err != nil {
		w.fail(slices.DeleteFunc(slices.Clone(positions), func(i int) bool {
			return w.known[w.events[i].EventID].EventID != ""
		}), err)
	}
	return w.undecided(positions)
}

// compare sets the results of the events whose items are known and must not be replaced.
func (w *writer) compare() {
	for i := range w.events {
		e := &w.events[i]
		old, ok := w.known[e.EventID]
		if !ok || w.may(old, e) {
			continue
		}
		if old.Digest == e.Digest && old.LeaseOwner == w.owner {
			w.results[i] = WriteResult{Done: true} // our own write, whose answer was lost before it was tried again
		} else {
			w.results[i] = WriteResult{Found: &old}
		}
	}
}

// errContended is the error of an event whose item others write again and again.
var errContended = errors.New("the item changed after each read")

// maxRounds is how often an item is read and changed, or inserted after it was deleted.
const maxRounds = 3

// finish decides about the events at these positions, which the table had a moment ago.
func (w *writer) finish(ctx context.Context, positions []int) {
	for range maxRounds {
		if len(positions) == 0 {
			return
		}
		positions = w.recordNew(ctx, w.compareWithStored(ctx, positions))
	}
	w.fail(positions, errContended)
}

// fail sets the error of the events at these positions.
func (w *writer) fail(positions []int, err error) {
	for _, i := range positions {
		w.results[i] = WriteResult{Err: fmt.Errorf("ledger: record %s: %w", w.events[i].EventID, err)}
	}
}

// Replace writes events as pending, for redrive to publish from the given time on, even if the ledger has other content
// under their ids, and returns the result of each. It replaces what is published with other content, which is in
// conflict from then on, and what is dismissed. The result has what the ledger has instead if that is the event itself,
// pending, published or parked, or other content that is pending or parked: nothing is written before that is published
// or dismissed. All have the present time as RecordedAt.
func (l *Ledger) Replace(ctx context.Context, events []Item, from time.Time) []WriteResult {
	now := l.opts.Now()
	w := l.newWriter(events, NewLeaseOwner(), from, func(old Item, i *Item) bool {
		return !old.Current(now) || old.State == Dismissed || old.State == Published && old.Digest != i.Digest
	})
	w.finish(ctx, w.recordNew(ctx, w.all))
	return w.results
}
