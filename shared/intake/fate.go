package intake

import "payhook.example/shared/ledger"

// Fate is what became of one event of a delivery. Its text is stable: logs have it.
type Fate string

// The fates. Conflicting and Unpublishable events are parked.
const (
	Published     Fate = "published" // on the bus, marked so or not
	Pending       Fate = "pending"   // left to redrive
	Duplicate     Fate = "duplicate"
	Dismissed     Fate = "dismissed" // a duplicate of an event that a person dismissed
	Conflicting   Fate = "conflict"
	Unpublishable Fate = "unpublishable"
	Unrecorded    Fate = "unrecorded" // not known to be recorded
)

// maxEventIDs is how many eventIds of a fate are kept, so that a log line stays short.
const maxEventIDs = 10

// EventIDs are eventIds of a delivery by what became of the events: of each fate, some of
// the first events. A delivery can have an eventId with several fates.
type EventIDs map[Fate][]string

func (ids EventIDs) add(fate Fate, eventID string) {
	if len(ids[fate]) < maxEventIDs {
		ids[fate] = append(ids[fate], eventID)
	}
}

// published adds the new events of a delivery: those that are not on the bus, by what
// became of them, and the others.
func (ids EventIDs) published(items []ledger.Item, failed []failure, parked map[string]bool) EventIDs {
	missing := make(map[string]bool, len(failed))
	for _, f := range failed {
		missing[f.EventID] = true
		if parked[f.EventID] {
			ids.add(Unpublishable, f.EventID)
		} else {
			ids.add(Pending, f.EventID)
		}
	}
	for _, e := range items {
		if !missing[e.EventID] {
			ids.add(Published, e.EventID)
		}
	}
	return ids
}

// Len returns how many eventIds are kept.
func (ids EventIDs) Len() (n int) {
	for _, of := range ids {
		n += len(of)
	}
	return n
}
