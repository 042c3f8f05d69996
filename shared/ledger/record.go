package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"payhook.example/shared/objects"
)

// Outcome is what becomes of an event that is sent or replayed.
type Outcome int

// The outcomes. The zero Outcome stands for none: the attempt failed.
const (
	Recorded  Outcome = iota + 1 // new: it is pending now
	Duplicate                    // recorded before, with the same content
	Conflict                     // recorded before, with other content; nothing was written
)

// Recording is the result of an attempt to write one event.
type Recording struct {
	Outcome Outcome
	Found   *Item // what the ledger has instead, without Detail; nil if the event was written
	Err     error // if not nil, it is not known whether the event was written
}

// slowAfter is the share of the time until ctx's deadline after which the ledger is slow.
const slowAfter = 8

// Record writes events as pending, except those whose eventId was recorded before
// within the window, and returns the result of each. The eventIds must differ. All
// events have the present time as RecordedAt. Until due, only holder may publish
// the events that are new. Events that are not tried before ctx ends have its error.
//
// The cost is one write for each event that is new. An event whose eventId the table has
// costs a read, or a failed write and a read; once its window has passed, a second write.
//
// A caller that ran out of time repeats its call. To write first what was written then
// would take all the time again. So the first round has as many events as are written at
// once. If the table has any of them, the others are looked up before they are written.
// If the first round takes more than an eighth of the time, all events are looked up
// while it continues. So every call with a deadline gets further as long as a read and a
// write, one after the other, take less than the other seven eighths, and the items of all
// events can be read in half of these. New events are not looked up otherwise.
func (l *Ledger) Record(ctx context.Context, events []Item, holder Holder, due time.Time) []Recording {
	now := l.opts.Now()
	w := l.newWrite(events, holder, due, func(old, i Item) bool { return old.Outcome(i.Digest, now) == Recorded })
	first, rest := w.all(), []int(nil)
	if n := l.opts.Parallel * l.opts.Batch; n < len(events) {
		first, rest = first[:n], first[n:]
	}
	lookedUp := make(chan map[string]Item, 1)
	slow := time.AfterFunc(timeLeft(ctx)/slowAfter, func() { lookedUp <- l.lookUp(ctx, w.ids(w.all())) })
	exist := w.insert(ctx, first)
	var known map[string]Item
	switch {
	case !slow.Stop():
		known = <-lookedUp
	case len(exist) > 0:
		known = l.lookUp(ctx, w.ids(slices.Concat(exist, rest)))
	}
	w.decide(known)
	exist = append(w.undecided(exist), w.insert(ctx, w.undecided(rest))...)
	w.replace(ctx, exist, known)
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

// Known returns what the ledger has of different eventIds in lower case, by eventId,
// as the last write left it and without the events' bytes, but is billed for them. With an
// error it returns what it could read.
func (l *Ledger) Known(ctx context.Context, eventIDs []string) (map[string]Item, error) {
	parts := slices.Collect(slices.Chunk(eventIDs, MaxReads))
	found, errs := make([]map[string]Item, len(parts)), make([]error, len(parts))
	objects.Parallel(len(parts), readsPerWrite*l.opts.Parallel, func(n int) {
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

// write writes events as pending. Its methods take positions of events.
type write struct {
	ledger  *Ledger
	events  []Item
	results []Recording // zero: not decided
	holder  Holder
	due     time.Time
	may     func(old, e Item) bool // whether e may replace an item
}

func (l *Ledger) newWrite(events []Item, holder Holder, due time.Time, may func(old, e Item) bool) write {
	return write{l, events, make([]Recording, len(events)), holder, due, may}
}

func (w write) all() []int {
	all := make([]int, len(w.events))
	for i := range all {
		all[i] = i
	}
	return all
}

func (w write) ids(positions []int) []string {
	ids := make([]string, len(positions))
	for n, i := range positions {
		ids[n] = w.events[i].EventID
	}
	return ids
}

// undecided returns those of the positions that have no result.
func (w write) undecided(positions []int) (left []int) {
	for _, i := range positions {
		if w.results[i] == (Recording{}) {
			left = append(left, i)
		}
	}
	return left
}

// decide sets the results of the events whose items are known and must not be replaced.
func (w write) decide(known map[string]Item) {
	for i, e := range w.events {
		if old, ok := known[e.EventID]; ok && !w.may(old, e) {
			w.results[i] = w.resultOf(old, e)
		}
	}
}

// resultOf returns the result of an event whose item the ledger keeps.
func (w write) resultOf(old, e Item) Recording {
	switch {
	case old.Digest != e.Digest:
		return Recording{Outcome: Conflict, Found: &old}
	case old.Holder == w.holder:
		// Our own write, whose answer was lost before it was tried again.
		return Recording{Outcome: Recorded}
	}
	return Recording{Outcome: Duplicate, Found: &old}
}

func (w write) fail(i int, err error) {
	w.results[i] = Recording{Err: fmt.Errorf("ledger: record %s: %w", w.events[i].EventID, err)}
}

// inBatches makes the calls of the store for the events at these positions, sets the results of those that were
// written or failed, and returns the positions of the others.
func (w write) inBatches(positions []int, call func(batch []int) []Result) (left []int) {
	undone := make([]bool, len(positions))
	size := func(n int) int { return len(w.events[positions[n]].Detail) }
	w.ledger.inBatches(len(positions), size, func(begin, end int) {
		for n, r := range call(positions[begin:end]) {
			switch i := positions[begin+n]; {
			case r.Err != nil:
				w.fail(i, r.Err)
			case r.Done:
				w.results[i] = Recording{Outcome: Recorded}
			default:
				undone[begin+n] = true
			}
		}
	})
	for n, i := range positions {
		if undone[n] {
			left = append(left, i)
		}
	}
	return left
}

// insert inserts the events at these positions, and returns those that the table has.
func (w write) insert(ctx context.Context, positions []int) (exist []int) {
	return w.inBatches(positions, func(batch []int) []Result {
		if err := ctx.Err(); err != nil {
			return slices.Repeat([]Result{{Err: err}}, len(batch))
		}
		items := make([]Item, len(batch))
		for n, i := range batch {
			items[n] = w.events[i].pending(w.holder, w.due)
		}
		return w.ledger.store.Insert(ctx, items)
	})
}

// errContended is the error of an event whose item others write again and again.
var errContended = errors.New("the item changed after each read")

// replaceRounds is how often an item is read and changed, or inserted after it was deleted.
const replaceRounds = 3

// replace decides about the events at these positions, which the table had a moment ago: it reads their items,
// unless they are known, and replaces those that it may.
func (w write) replace(ctx context.Context, positions []int, known map[string]Item) {
	for range replaceRounds {
		if len(positions) == 0 {
			return
		}
		unknown := slices.DeleteFunc(w.ids(positions), func(id string) bool { return known[id].EventID != "" })
		read, err := w.ledger.Known(ctx, unknown)
		maps.Copy(read, known)
		known = nil // later rounds read all
		var changed, gone []int
		for _, i := range positions {
			old, ok := read[w.events[i].EventID]
			switch {
			case ok && w.may(old, w.events[i]):
				changed = append(changed, i)
			case ok:
				w.results[i] = w.resultOf(old, w.events[i])
			case err != nil:
				w.fail(i, err)
			default: // deleted since
				gone = append(gone, i)
			}
		}
		positions = append(w.change(ctx, changed, read), w.insert(ctx, gone)...)
	}
	for _, i := range positions {
		w.fail(i, errContended)
	}
}

// change replaces the items of events if they still are as they were read. It returns the positions of those that
// are not.
func (w write) change(ctx context.Context, positions []int, known map[string]Item) (left []int) {
	return w.inBatches(positions, func(batch []int) []Result {
		changes := make([]Change, len(batch))
		for n, i := range batch {
			e := w.events[i]
			old := known[e.EventID]
			changes[n] = Change{EventID: e.EventID, Set: e.pending(w.holder, w.due), Where: Item{
				State: old.State, Digest: old.Digest, RecordedAt: old.RecordedAt, ExpiresAt: old.ExpiresAt}}
		}
		return w.ledger.store.Change(ctx, changes)
	})
}

// Replace writes events as pending, for redrive to publish from due on, even if
// the ledger has other content under their ids, and returns the result of each.
// It replaces what is published with other content, which is in conflict from then on, and what is dismissed. The
// outcome is Duplicate if the ledger has the event itself as pending, published or parked, and Conflict if other
// content is pending or parked: nothing is written before that is published or dismissed. All have the present time as
// RecordedAt.
func (l *Ledger) Replace(ctx context.Context, events []Item, due time.Time) []Recording {
	now := l.opts.Now()
	w := l.newWrite(events, NewHolder(), due, func(old, i Item) bool {
		return !old.Current(now) || old.State == Dismissed || old.State == Published && old.Digest != i.Digest
	})
	w.replace(ctx, w.insert(ctx, w.all()), nil)
	return w.results
}
