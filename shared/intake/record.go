package intake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
)

// event is one event of a delivery on its way to the ledger.
type event struct {
	payment.RawEvent
	item  ledger.Item // of the event as it is, or once that is stored, of its claim check
	large bool        // it is published as a claim check
}

// conflict is an event in conflict, and what the ledger has; without Detail, unless it is of the same delivery.
type conflict struct {
	event
	first ledger.Item
}

// content is a further content of an eventId of a delivery.
type content struct {
	event
	of int // the position of the first one
}

// newEvent returns an event that came with a delivery at that time.
func (p *Pipeline) newEvent(raw payment.RawEvent, deliveryID string, at time.Time) event {
	item := ledger.NewItem(raw, deliveryID, at)
	return event{RawEvent: raw, item: item, large: len(raw.Bytes) > p.opts.ClaimBytes || !p.bus.Fits(busEvent(item))}
}

func busEvent(i ledger.Item) bus.Event {
	return bus.Event{DetailType: i.EventName, Detail: i.Detail, Time: i.EventTimestamp, DeliveryID: i.DeliveryID}
}

// recording is the result of the step that records a delivery.
type recording struct {
	items      []ledger.Item // new: this invocation publishes them
	conflicts  []conflict    // seen before with other content
	duplicates int
	pending    int   // of duplicates: not published yet
	claimed    int   // of items
	unrecorded int   // not known to be recorded
	err        error // of one that is unrecorded
	eventIDs   EventIDs
}

// record records every event of a delivery. What is new is held by this invocation.
func (p *Pipeline) record(ctx context.Context, delivery payment.Delivery, at time.Time, inv invocation) recording {
	events, others, duplicates := p.distinct(delivery, at)
	rec := recording{duplicates: len(duplicates), eventIDs: EventIDs{}}
	for _, id := range duplicates {
		rec.eventIDs.add(Duplicate, id)
	}
	w := writer{pipeline: p, events: events, results: make([]ledger.Recording, len(events)), holder: ledger.NewHolder(),
		due: inv.heldUntil}
	w.write(ctx)

	rec.items = make([]ledger.Item, 0, len(events))
	for i, r := range w.results {
		item := events[i].item
		id := item.EventID
		switch {
		case r.Err != nil:
			rec.eventIDs.add(Unrecorded, id)
			rec.unrecorded++
			rec.err = r.Err
		case r.Outcome == ledger.Recorded:
			item.Holder = w.holder
			rec.items = append(rec.items, item)
			if item.Claimed {
				rec.claimed++
			}
		default:
			rec.compare(events[i], *r.Found)
		}
	}
	for _, c := range others {
		first := events[c.of].item
		first.State = ledger.Pending
		if found := w.results[c.of].Found; found != nil {
			first = *found
		}
		rec.compare(c.event, first)
	}
	if rec.err != nil {
		rec.err = unrecorded(ctx, rec.err)
	}
	return rec
}

// compare adds an event that is not new: a duplicate of what the ledger has, or in conflict with it.
func (r *recording) compare(e event, first ledger.Item) {
	if e.item.Digest != first.Digest {
		r.conflicts = append(r.conflicts, conflict{e, first})
		r.eventIDs.add(Conflicting, e.item.EventID)
		return
	}
	r.duplicates++
	fate := Duplicate
	switch first.State {
	case ledger.Pending:
		r.pending++
	case ledger.Dismissed:
		fate = Dismissed
	}
	r.eventIDs.add(fate, e.item.EventID)
}

// unrecorded returns the error of a delivery of which an event was not recorded.
func unrecorded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errOutOfTime, err)
	}
	return fmt.Errorf("%w: %w", errLedger, err)
}

// distinct returns the events of a delivery, each eventId once, the further contents of eventIds that occur with
// several, and the eventIds of events that repeat another.
func (p *Pipeline) distinct(delivery payment.Delivery, at time.Time) (events []event, others []content,
	duplicates []string) {
	events = make([]event, 0, len(delivery.Events))
	type key struct {
		id     string
		digest ledger.Digest
	}
	ids := make(map[string]int, len(delivery.Events)) // the position in events
	seen := make(map[key]bool, len(delivery.Events))
	for _, raw := range delivery.Events {
		e := p.newEvent(raw, delivery.DeliveryID, at)
		k := key{e.item.EventID, e.item.Digest}
		if seen[k] {
			duplicates = append(duplicates, k.id)
			continue
		}
		seen[k] = true
		if i, ok := ids[k.id]; ok {
			others = append(others, content{e, i})
			continue
		}
		ids[k.id] = len(events)
		events = append(events, e)
	}
	return events, others, duplicates
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
	objects.Parallel(len(positions), Parallel, func(n int) {
		i := positions[n]
		item, err := w.pipeline.claim(ctx, w.events[i])
		if err != nil {
			w.results[i].Err = err
			return
		}
		w.events[i].item = item
		w.record(ctx, []int{i})
	})
}

// claim stores a large event and returns the item of its claim check.
func (p *Pipeline) claim(ctx context.Context, e event) (ledger.Item, error) {
	detail, err := p.claims.Put(ctx, e.RawEvent)
	return e.item.AsClaim(detail), err
}

// record writes the items of the events at these positions.
func (w *writer) record(ctx context.Context, positions []int) {
	items := make([]ledger.Item, len(positions))
	for n, i := range positions {
		items[n] = w.events[i].item
	}
	for n, r := range w.pipeline.ledger.Record(ctx, items, w.holder, w.due) {
		w.results[positions[n]] = r
	}
}

// skipKnown stores the outcomes of those events that the ledger has within the
// window, and returns the positions of the others. It takes at most half of the time
// that is left. What can't be read counts as unknown: the write decides.
func (w *writer) skipKnown(ctx context.Context, positions []int) (unknown []int) {
	p := w.pipeline
	ctx, cancel := p.half(ctx)
	defer cancel()
	ids := make([]string, len(positions))
	for n, i := range positions {
		ids[n] = w.events[i].item.EventID
	}
	found, _ := p.ledger.Known(ctx, ids)
	for _, i := range positions {
		known := found[w.events[i].item.EventID]
		if outcome := known.Outcome(w.events[i].item.Digest, p.opts.Now()); outcome == ledger.Recorded {
			unknown = append(unknown, i)
		} else {
			w.results[i] = ledger.Recording{Outcome: outcome, Found: &known}
		}
	}
	return unknown
}

// half returns a context for half of the time that is left.
func (p *Pipeline) half(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline() // begin has set it
	return context.WithTimeout(ctx, deadline.Sub(p.opts.Now())/2)
}
