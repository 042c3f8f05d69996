package intake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/calls"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
)

// conflict is an event in conflict, and what the ledger has; without Detail, unless it is of the same delivery.
type conflict struct{ item, first ledger.Item }

func busEvent(i ledger.Item) bus.Event {
	return bus.Event{DetailType: i.EventName, Detail: i.Detail, Time: i.EventTimestamp, DeliveryID: i.DeliveryID}
}

// record records every event of a delivery, and counts what becomes of each. It returns what is new, which this
// invocation holds, and what is in conflict. The error is why an event is not known to be recorded.
func (p *Pipeline) record(ctx context.Context, delivery payment.Delivery, inv invocation,
	r *Result) (items []ledger.Item, conflicts []conflict, err error) {
	start := p.opts.Now()
	defer func() { r.Steps.Record = p.since(start) }()
	events, others := distinct(delivery, start, r)
	owner := ledger.NewLeaseOwner()
	results := p.write(ctx, events, owner, inv.heldUntil)
	items = make([]ledger.Item, 0, len(events))
	for i, result := range results {
		item := events[i]
		switch {
		case result.Err != nil:
			r.EventIDs.add(Unrecorded, item.EventID)
			r.Unrecorded++
			err = unrecorded(ctx, result.Err)
		case result.Done:
			item.LeaseOwner = owner
			items = append(items, item)
			r.Recorded++
			if item.Large {
				r.Large++
			}
		default:
			conflicts = r.compare(conflicts, item, *result.Found)
		}
	}
	for _, other := range others {
		first := events[other.of]
		first.State = ledger.Pending
		if found := results[other.of].Found; found != nil {
			first = *found
		}
		conflicts = r.compare(conflicts, other.item, first)
	}
	return items, conflicts, err
}

// compare counts an event that is not new as a duplicate of what the ledger has, or appends it to those in conflict.
func (r *Result) compare(conflicts []conflict, item, first ledger.Item) []conflict {
	if item.Digest != first.Digest {
		r.Conflicts++
		r.EventIDs.add(Conflicting, item.EventID)
		return append(conflicts, conflict{item, first})
	}
	r.Duplicates++
	result := Duplicate
	switch first.State {
	case ledger.Pending:
		r.PendingDuplicates++
	case ledger.Dismissed:
		result = Dismissed
	}
	r.EventIDs.add(result, item.EventID)
	return conflicts
}

// unrecorded returns the error of a delivery of which an event was not recorded.
func unrecorded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", OutOfTime, err)
	}
	return fmt.Errorf("%w: %w", LedgerUnavailable, err)
}

// content is a further content of an eventId of a delivery.
type content struct {
	item ledger.Item
	of   int // the position of the first one
}

// distinct returns the events of a delivery that came at that time, each eventId once, and the further contents of
// eventIds that occur with several. It counts the events that repeat another as duplicates.
func distinct(delivery payment.Delivery, at time.Time, r *Result) (events []ledger.Item, others []content) {
	events = make([]ledger.Item, 0, len(delivery.Events))
	type key struct {
		id     string
		digest ledger.Digest
	}
	ids := make(map[string]int, len(delivery.Events)) // the position in events
	seen := make(map[key]bool, len(delivery.Events))
	for _, raw := range delivery.Events {
		item := ledger.NewItem(raw, delivery.DeliveryID, at)
		k := key{item.EventID, item.Digest}
		first, known := ids[item.EventID]
		switch {
		case seen[k]:
			r.Duplicates++
			r.EventIDs.add(Duplicate, item.EventID)
		case known:
			others = append(others, content{item, first})
		default:
			ids[item.EventID] = len(events)
			events = append(events, item)
		}
		seen[k] = true
	}
	return events, others
}

// write records the events of one delivery, for owner until then. A large event becomes its claim check, once it is
// stored. Large events that the ledger has are not stored again.
func (p *Pipeline) write(ctx context.Context, events []ledger.Item, owner ledger.LeaseOwner,
	until time.Time) []ledger.WriteResult {
	results := make([]ledger.WriteResult, len(events))
	record := func(positions ...int) {
		items := make([]ledger.Item, len(positions))
		for n, i := range positions {
			items[n] = events[i]
		}
		for n, r := range p.ledger.Record(ctx, items, owner, until) {
			results[positions[n]] = r
		}
	}
	var small, large []int
	for i := range events {
		if p.isLarge(events[i]) {
			large = append(large, i)
		} else {
			small = append(small, i)
		}
	}
	var wg sync.WaitGroup
	if len(large) > 0 {
		wg.Go(func() {
			unknown := p.skipKnown(ctx, events, large, results)
			calls.Parallel(len(unknown), Parallel, func(n int) {
				i := unknown[n]
				if results[i].Err = p.storeLarge(ctx, &events[i]); results[i].Err == nil {
					record(i)
				}
			})
		})
	}
	record(small...)
	wg.Wait()
	return results
}

// isLarge reports whether an event is published as a claim check.
func (p *Pipeline) isLarge(i ledger.Item) bool {
	return len(i.Detail) > p.opts.LargeEventBytes || !p.bus.Fits(busEvent(i))
}

// storeLarge stores a large event and makes the item that of its claim check.
func (p *Pipeline) storeLarge(ctx context.Context, i *ledger.Item) error {
	event, err := payment.DecodeRawEvent(i.Detail)
	if err != nil {
		return err
	}
	detail, err := p.largeEvents.Put(ctx, event)
	if err == nil {
		i.Detail, i.Large = detail, true
	}
	return err
}

// skipKnown stores the results of those events that the ledger has within the window, and returns the positions of the
// others. It takes at most half of the time that is left. What can't be read counts as unknown: the write decides.
func (p *Pipeline) skipKnown(ctx context.Context, events []ledger.Item, positions []int,
	results []ledger.WriteResult) (unknown []int) {
	ctx, cancel := p.half(ctx)
	defer cancel()
	ids := make([]string, len(positions))
	for n, i := range positions {
		ids[n] = events[i].EventID
	}
	found, _ := p.ledger.Known(ctx, ids)
	for _, i := range positions {
		if known := found[events[i].EventID]; known.RecordedAnew(events[i].Digest, p.opts.Now()) {
			unknown = append(unknown, i)
		} else {
			results[i].Found = &known
		}
	}
	return unknown
}

// half returns a context for half of the time that is left.
func (p *Pipeline) half(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline() // begin has set it
	return context.WithTimeout(ctx, deadline.Sub(p.opts.Now())/2)
}
