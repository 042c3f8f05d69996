package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// MarkPublished marks items as published and removes their bytes, and returns
// the error of each. It does nothing for an event that is not pending any more.
// It keeps amount and currency, for a person who compares a later conflict, and the time that the event has on the
// bus, by which an archive of the bus is searched. The item is smaller than before, so this costs no write unit.
func (l *Ledger) MarkPublished(ctx context.Context, items []Item) []error {
	now := l.opts.Now()
	changes := make([]Change, len(items))
	for n, i := range items {
		set := Item{State: Published, PublishedAt: now, ExpiresAt: l.expiry(i), Amount: i.Amount, Currency: i.Currency}
		// An event whose time the SDK can't represent has that of the PutEvents request on the bus.
		if t := i.EventTimestamp; t.Equal(time.Unix(0, t.UnixNano())) {
			set.EventTimestamp = t
		}
		changes[n] = Change{EventID: i.EventID, Where: Item{State: Pending, Digest: i.Digest}, Set: set}
	}
	results := make([]error, len(items))
	l.inBatches(len(items), ofNoSize, func(begin, end int) {
		for n, r := range l.store.Change(ctx, changes[begin:end]) {
			if r.Err != nil {
				results[begin+n] = fmt.Errorf("ledger: mark %s: %w", items[begin+n].EventID, r.Err)
			}
		}
	})
	return results
}

// expiry returns the end of the window of an item that is published or dismissed now. The window does not begin at
// recordedAt: an event may be published long after it was recorded. The clock of the receiver that recorded it may be
// ahead.
func (l *Ledger) expiry(i Item) time.Time {
	begin := l.opts.Now()
	if i.RecordedAt.After(begin) {
		begin = i.RecordedAt
	}
	return begin.Add(l.opts.Window)
}

// maxProblem is how many bytes a problem has at most.
const maxProblem = 512

// Park makes a pending item wait for a person, with its bytes and without an end. cause is a short code, and problem
// the same for a person, without a value of the payload; it is cut after 512 bytes. Park does nothing for an event
// that is not pending any more, was recorded anew, or was leased by another holder than i has.
func (l *Ledger) Park(ctx context.Context, i Item, cause, problem string) error {
	if len(problem) > maxProblem {
		problem = strings.ToValidUTF8(problem[:maxProblem], "")
	}
	where := i.recording(Pending)
	where.Holder = i.Holder
	r := l.change(ctx, Change{EventID: i.EventID, Where: where, Set: Item{
		State: Parked, Shard: shardOf(Parked, i.EventID), Due: l.opts.Now(), Attempts: i.Attempts, Cause: cause,
		Problem: problem, Amount: i.Amount, Currency: i.Currency}})
	if r.Err != nil {
		return fmt.Errorf("ledger: park %s: %w", i.EventID, r.Err)
	}
	return nil
}

// Replay makes a parked event pending again, for redrive to publish from due on. Of i, which the caller has read,
// EventID is required; the event must still have its Digest, RecordedAt and Due unless they are zero. A result that is
// not done and has no error has the item that was found instead: pending, published or dismissed, recorded or parked
// anew, or none.
func (l *Ledger) Replay(ctx context.Context, i Item, d Decision, due time.Time) Result {
	holder := NewHolder()
	r := l.decide(ctx, i, d, Item{State: Pending, Shard: shardOf(Pending, i.EventID), Due: due, Holder: holder})
	// It may be our own write, whose answer was lost before it was tried again.
	r.Done = r.Done || r.Err == nil && r.Item.Holder == holder
	return r
}

// Dismiss removes the bytes of a parked event. It keeps the digest for the length of the window: until then, the
// same content sent again is a duplicate. What it requires and returns is as with [Ledger.Replay].
func (l *Ledger) Dismiss(ctx context.Context, i Item, d Decision) Result {
	r := l.decide(ctx, i, d, Item{State: Dismissed, ExpiresAt: l.expiry(i)})
	found := r.Item.Decision
	own := found.By == d.By && found.Reason == d.Reason && found.At.UnixMilli() == d.At.UnixMilli()
	r.Done = r.Done || r.Err == nil && r.Item.State == Dismissed && own
	return r
}

// decide changes a parked item.
func (l *Ledger) decide(ctx context.Context, i Item, d Decision, set Item) Result {
	if err := d.check(); err != nil {
		return Result{Err: fmt.Errorf("ledger: %s %s: %w", set.State, i.EventID, err)}
	}
	set.Decision = d
	where := i.recording(Parked)
	where.Due = i.Due // when it was parked
	r := l.change(ctx, Change{EventID: i.EventID, Where: where, Set: set})
	if r.Err != nil {
		r.Err = fmt.Errorf("ledger: %s from %s to %s: %w", i.EventID, Parked, set.State, r.Err)
	}
	return r
}

func (l *Ledger) change(ctx context.Context, c Change) Result {
	return l.store.Change(ctx, []Change{c})[0]
}
