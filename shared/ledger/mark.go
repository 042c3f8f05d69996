package ledger

import (
	"context"
	"strings"
	"time"
)

// MarkPublished marks items as published and removes their bytes, and returns
// the error of each. It does nothing for an event that is not pending any more.
// It keeps amount and currency, for a person who compares a later conflict, and the time that the event has on the
// bus, by which an archive of the bus is searched. The item is smaller than before, so this costs no write unit.
func (l *Ledger) MarkPublished(ctx context.Context, items []Item) []error {
	now := l.opts.Now()
	writes := make([]Write, len(items))
	for n := range items {
		i, w := &items[n], &writes[n]
		w.Item = Item{EventID: i.EventID, State: Published, PublishedAt: now, ExpiresAt: l.expiry(i.RecordedAt),
			Amount: i.Amount, Currency: i.Currency}
		// An event whose time the SDK can't represent has that of the PutEvents request on the bus.
		if t := i.EventTimestamp; t.Equal(time.Unix(0, t.UnixNano())) {
			w.Item.EventTimestamp = t
		}
		w.If, w.Kept = &Item{State: Pending, Digest: i.Digest}, Identity
	}
	errs := make([]error, len(items))
	for n, r := range l.write(ctx, "mark", nil, writes...) {
		errs[n] = r.Err
	}
	return errs
}

// expiry returns the end of the window of an item that is published or dismissed now. The window does not begin at
// recordedAt: an event may be published long after it was recorded. The clock of the receiver that recorded it may be
// ahead.
func (l *Ledger) expiry(recordedAt time.Time) time.Time {
	begin := l.opts.Now()
	if recordedAt.After(begin) {
		begin = recordedAt
	}
	return begin.Add(l.opts.Window)
}

// maxProblem is how many bytes a problem has at most.
const maxProblem = 512

// Park makes a pending item wait for a person, with its bytes and without an end. cause is a short code, and problem
// the same for a person, without a value of the payload; it is cut after 512 bytes. Park does nothing for an event
// that is not pending any more, was recorded anew, or was leased by another owner than i has.
func (l *Ledger) Park(ctx context.Context, i Item, cause, problem string) error {
	if len(problem) > maxProblem {
		problem = strings.ToValidUTF8(problem[:maxProblem], "")
	}
	where := i.recording(Pending)
	where.LeaseOwner = i.LeaseOwner
	return l.write(ctx, "park", nil, Write{If: where, Kept: Content, Item: Item{EventID: i.EventID,
		State: Parked, Shard: shardOf(Parked, i.EventID), ParkedAt: l.opts.Now(), Attempts: i.Attempts, Cause: cause,
		Problem: problem, Amount: i.Amount, Currency: i.Currency}})[0].Err
}

// Replay makes a parked event pending again, for redrive to publish from then on. Of i, which the caller has read,
// EventID is required; the event must still have its Digest, RecordedAt and ParkedAt unless they are zero. A result
// that is not done and has no error has the item that was found instead: pending, published or dismissed, recorded or
// parked anew, or none.
func (l *Ledger) Replay(ctx context.Context, i Item, note Note, from time.Time) WriteResult {
	owner := NewLeaseOwner()
	r := l.decide(ctx, "replay", i, Write{Kept: Content, Item: Item{EventID: i.EventID, State: Pending,
		Shard: shardOf(Pending, i.EventID), LeasedUntil: from, LeaseOwner: owner, Note: note}})
	// It may be our own write, whose answer was lost before it was tried again.
	r.Done = r.Done || r.Found != nil && r.Found.LeaseOwner == owner
	return r
}

// Dismiss removes the bytes of a parked event. It keeps the digest for the length of the window: until then, the
// same content sent again is a duplicate. What it requires and returns is as with [Ledger.Replay].
func (l *Ledger) Dismiss(ctx context.Context, i Item, note Note) WriteResult {
	r := l.decide(ctx, "dismiss", i, Write{Kept: Identity,
		Item: Item{EventID: i.EventID, State: Dismissed, ExpiresAt: l.expiry(i.RecordedAt), Note: note}})
	if f := r.Found; f != nil { // likewise
		r.Done = r.Done || f.State == Dismissed && f.Note.By == note.By && f.Note.Reason == note.Reason &&
			f.Note.At.UnixMilli() == note.At.UnixMilli()
	}
	return r
}

// decide changes a parked item.
func (l *Ledger) decide(ctx context.Context, what string, i Item, w Write) WriteResult {
	w.If = i.recording(Parked)
	w.If.ParkedAt = i.ParkedAt
	return l.write(ctx, what, nil, w)[0]
}
