package ledger

import (
	"context"
	"fmt"
	"time"
)

// MarkPublished marks entries as published and removes their bytes, and returns
// the error of each. It does nothing for an entry that is not pending any more.
// It keeps the time that the event has on the bus, by which an archive of the bus is
// searched. The item is smaller than before, so this costs no write unit.
func (l *Ledger) MarkPublished(ctx context.Context, entries []Entry) []error {
	now := l.opts.Now()
	changes := make([]Change, len(entries))
	for i, e := range entries {
		set := Item{State: Published, PublishedAt: now}
		// An event whose time the SDK can't represent has that of the PutEvents request on the bus.
		if t := e.EventTimestamp; t.Equal(time.Unix(0, t.UnixNano())) {
			set.EventTimestamp = t
		}
		changes[i] = l.marking(e, Item{}, set)
	}
	return l.mark(ctx, changes)
}

// MarkParked marks an entry as parked and removes its bytes. The caller has stored it for a
// person to look at. It does nothing for an entry that is not pending any more, or was
// recorded anew: what the caller stored is of the first recording, and may be replayed already.
func (l *Ledger) MarkParked(ctx context.Context, e Entry) error {
	// RecordedAt is zero if it could not be decoded.
	return l.mark(ctx, []Change{l.marking(e, Item{RecordedAt: e.RecordedAt},
		Item{State: Parked, ParkedAt: l.opts.Now()})})[0]
}

// marking returns the change that marks e.
func (l *Ledger) marking(e Entry, where, set Item) Change {
	where.State, where.Digest = Pending, e.Digest
	// From now on, not from recordedAt: an event may be published long after it was
	// recorded. The clock of the receiver that recorded it may be ahead.
	begin := l.opts.Now()
	if e.RecordedAt.After(begin) {
		begin = e.RecordedAt
	}
	set.ExpiresAt = begin.Add(l.opts.Window)
	return Change{EventID: e.EventID, Where: where, Set: set}
}

func (l *Ledger) mark(ctx context.Context, changes []Change) []error {
	results := make([]error, len(changes))
	l.inBatches(len(changes), ofNoSize, func(begin, end int) {
		for n, r := range l.store.Change(ctx, changes[begin:end]) {
			if r.Err != nil {
				results[begin+n] = fmt.Errorf("ledger: mark %s: %w", changes[begin+n].EventID, r.Err)
			}
		}
	})
	return results
}
