package intake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parallel"
	"payhook.example/shared/payment"
)

// event is one event of a delivery on its way to the ledger.
type event struct {
	payment.RawEvent
	entry ledger.Item // of the event as it is, or once that is stored, of its claim check
	large bool        // it is published as a claim check
}

// newEvent returns an event that came with a delivery at that time.
func (p *Pipeline) newEvent(raw payment.RawEvent, deliveryID string, at time.Time) event {
	entry := ledger.NewItem(raw, deliveryID, at)
	return event{raw, entry, len(raw.Bytes) > p.opts.ClaimBytes || !p.bus.Fits(busEvent(entry))}
}

func busEvent(e ledger.Item) bus.Event {
	return bus.Event{DetailType: e.EventName, Detail: e.Detail, Time: e.EventTimestamp, DeliveryID: e.DeliveryID}
}

// recording is the result of the step that records a delivery.
type recording struct {
	entries    []ledger.Item // new: this invocation publishes them
	conflicts  []event       // seen before with other content
	duplicates int
	pending    int   // of duplicates: not published yet
	claimed    int   // of entries
	unrecorded int   // not known to be recorded
	err        error // of one that is unrecorded
	eventIDs   EventIDs
}

// record records every event of a delivery. What is new is held by this invocation.
func (p *Pipeline) record(ctx context.Context, delivery payment.Delivery, at time.Time, inv invocation) recording {
	events, conflicts, duplicates := p.distinct(delivery, at)
	rec := recording{conflicts: conflicts, duplicates: len(duplicates), eventIDs: EventIDs{}}
	for _, id := range duplicates {
		rec.eventIDs.add(Duplicate, id)
	}
	w := writer{pipeline: p, events: events, results: make([]ledger.Recording, len(events)), holder: ledger.NewHolder(),
		due: inv.heldUntil}
	w.write(ctx)

	rec.entries = make([]ledger.Item, 0, len(events))
	for i, r := range w.results {
		entry := events[i].entry
		id := entry.EventID
		switch {
		case r.Err != nil:
			rec.eventIDs.add(Unrecorded, id)
			rec.unrecorded++
			rec.err = r.Err
		case r.Outcome == ledger.Recorded:
			rec.entries = append(rec.entries, entry)
			if entry.Claimed {
				rec.claimed++
			}
		case r.Outcome == ledger.Duplicate:
			rec.eventIDs.add(Duplicate, id)
			rec.duplicates++
			if r.State == ledger.Pending {
				rec.pending++
			}
		case r.Outcome == ledger.Conflict:
			rec.conflicts = append(rec.conflicts, events[i])
		}
	}
	for _, e := range rec.conflicts {
		rec.eventIDs.add(Conflicting, e.entry.EventID)
	}
	if rec.err != nil {
		rec.err = unrecorded(ctx, rec.err)
	}
	return rec
}

// unrecorded returns the error of a delivery of which an event was not recorded.
func unrecorded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errOutOfTime, err)
	}
	return fmt.Errorf("%w: %w", errLedger, err)
}

// distinct returns the events of a delivery, each eventId once, the further
// contents of eventIds that occur with several, and the eventIds of events that repeat
// another.
func (p *Pipeline) distinct(delivery payment.Delivery, at time.Time) (events, conflicts []event,
	duplicates []string) {
	events = make([]event, 0, len(delivery.Events))
	type content struct {
		id     string
		digest ledger.Digest
	}
	ids := make(map[string]bool, len(delivery.Events))
	contents := make(map[content]bool, len(delivery.Events))
	for _, raw := range delivery.Events {
		e := p.newEvent(raw, delivery.DeliveryID, at)
		c := content{e.entry.EventID, e.entry.Digest}
		if contents[c] {
			duplicates = append(duplicates, c.id)
			continue
		}
		contents[c] = true
		if ids[e.entry.EventID] {
			conflicts = append(conflicts, e)
			continue
		}
		ids[e.entry.EventID] = true
		events = append(events, e)
	}
	return events, conflicts, duplicates
}

// writer records the events of one delivery.
type writer struct {
	pipeline *Pipeline
	events   []event
	results  []ledger.Recording // of each event
	holder   ledger.Holder
	due      time.Time
}

// write records the events. Large events that the ledger has are not uploaded again.
func (w *writer) write(ctx context.Context) {
	var small, large []int
	for i, e := range w.events {
		if e.large {
			large = append(large, i)
		} else {
			small = append(small, i)
		}
	}
	var wg sync.WaitGroup
	if len(large) > 0 {
		wg.Go(func() { w.recordLarge(ctx, w.skipKnown(ctx, large)) })
	}
	w.record(ctx, small)
	wg.Wait()
}

// recordLarge stores the events at these positions and records their claim checks,
// each after its event is stored.
func (w *writer) recordLarge(ctx context.Context, positions []int) {
	parallel.Each(len(positions), Parallel, func(n int) {
		i := positions[n]
		entry, err := w.pipeline.claim(ctx, w.events[i])
		if err != nil {
			w.results[i].Err = err
			return
		}
		w.events[i].entry = entry
		w.record(ctx, []int{i})
	})
}

// claim stores a large event and returns the entry of its claim check.
func (p *Pipeline) claim(ctx context.Context, e event) (ledger.Item, error) {
	detail, err := p.claims.Put(ctx, e.RawEvent)
	return e.entry.AsClaim(detail), err
}

// record writes the entries of the events at these positions.
func (w *writer) record(ctx context.Context, positions []int) {
	entries := make([]ledger.Item, len(positions))
	for n, i := range positions {
		entries[n] = w.events[i].entry
	}
	for n, r := range w.pipeline.ledger.Record(ctx, entries, w.holder, w.due) {
		w.results[positions[n]] = r
	}
}

// skipKnown stores the outcomes of those events that the ledger has within the
// window, and returns the positions of the others. It takes at most half of the time
// that is left. What can't be read counts as unknown: the write decides.
func (w *writer) skipKnown(ctx context.Context, positions []int) (unknown []int) {
	p := w.pipeline
	deadline, _ := ctx.Deadline() // begin has set it
	ctx, cancel := context.WithTimeout(ctx, deadline.Sub(p.opts.Now())/2)
	defer cancel()
	ids := make([]string, len(positions))
	for n, i := range positions {
		ids[n] = w.events[i].entry.EventID
	}
	found, _ := p.ledger.Known(ctx, ids)
	for _, i := range positions {
		entry := w.events[i].entry
		known := found[entry.EventID]
		switch outcome := known.Outcome(entry.Digest, p.opts.Now()); outcome {
		case ledger.Recorded:
			unknown = append(unknown, i)
		default:
			w.results[i] = ledger.Recording{Outcome: outcome, State: known.State}
		}
	}
	return unknown
}
