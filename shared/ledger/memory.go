package ledger

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
)

// Memory is a [Store] in memory. The zero value is empty and ready to use. It is safe for concurrent use. What is
// written with an Err is read with it.
type Memory struct {
	mu      sync.Mutex
	items   map[string]Item
	index   map[string]Item
	lagging bool
}

// Write implements [Store].
func (m *Memory) Write(_ context.Context, writes []Write) []Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]Result, len(writes))
	for n := range writes {
		results[n] = m.write(&writes[n])
	}
	return results
}

func (m *Memory) write(w *Write) Result {
	i, exists := m.items[w.Item.EventID]
	if exists != (w.If != nil) {
		return Result{}
	}
	if exists && !i.meets(w.If) {
		found := i
		return Result{Found: &found}
	}
	set := w.Item.stored()
	for _, f := range Fields {
		if from := f.of(&set); f.Part > w.Keep || !from.IsZero() {
			f.of(&i).Set(from)
		}
	}
	i.Err = cmp.Or(w.Item.Err, i.Err)
	r := Result{Done: true}
	if w.Lease {
		i.Attempts++
		leased := i
		r.Found = &leased
	}
	if m.items == nil {
		m.items, m.index = map[string]Item{}, map[string]Item{}
	}
	m.items[i.EventID] = i
	m.project(i.EventID)
	return r
}

func (f Field) of(i *Item) reflect.Value { return reflect.ValueOf(f.At(i)).Elem() }

// meets reports whether i has the values of those fields of a condition that are not zero.
func (i Item) meets(condition *Item) bool {
	wanted := condition.stored()
	for _, f := range Fields {
		want := f.of(&wanted)
		if !want.IsZero() && !reflect.DeepEqual(want.Interface(), f.of(&i).Interface()) {
			return false
		}
	}
	return true
}

// stored returns a copy of i with times as precise as those of a table.
func (i Item) stored() Item {
	i.Detail = slices.Clone(i.Detail)
	for _, f := range Fields {
		switch at := f.At(&i).(type) {
		case *time.Time:
			if !at.IsZero() {
				*at = time.UnixMilli(at.UnixMilli()).UTC()
			}
		case *Seconds:
			if t := time.Time(*at); !t.IsZero() {
				*at = Seconds(time.Unix(t.Unix(), 0).UTC())
			}
		}
	}
	return i
}

// project makes the index have what the table has of an item.
func (m *Memory) project(eventID string) {
	i, exists := m.items[eventID]
	switch {
	case m.lagging:
	case exists && i.Shard != "":
		m.index[eventID] = Item{EventID: i.EventID, Shard: i.Shard, Due: i.Due, RecordedAt: i.RecordedAt, Size: i.Size,
			Claimed: i.Claimed, Cause: i.Cause}
	default:
		delete(m.index, eventID)
	}
}

// Lag says whether the index stays as it is while items change. When it does so no more, it has what the
// table has.
func (m *Memory) Lag(lagging bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lagging = lagging
	for id := range m.items {
		m.project(id)
	}
	for id := range m.index {
		m.project(id)
	}
}

// Expire deletes the items whose window has passed at that time, as TTL does.
func (m *Memory) Expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.items, func(_ string, i Item) bool { return !i.ExpiresAt.IsZero() && i.ExpiresAt.Before(now) })
}

// Delete deletes an item.
func (m *Memory) Delete(_ context.Context, eventID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.items, eventID)
	m.project(eventID)
}

// Items returns the items by eventId.
func (m *Memory) Items() map[string]Item {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.items)
}

// Get implements [Store].
func (m *Memory) Get(_ context.Context, eventIDs []string, content bool) (map[string]Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make(map[string]Item, len(eventIDs))
	for _, id := range eventIDs {
		if i, exists := m.items[id]; exists {
			if i.Detail = slices.Clone(i.Detail); !content {
				i.Detail, i.Size = nil, 0
			}
			found[id] = i
		}
	}
	return found, nil
}

// Query implements [Store].
func (m *Memory) Query(_ context.Context, q Query) (page []Item, next *Item, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	direction := 1
	if q.Later {
		direction = -1
	}
	order := func(a, b Item) int { return direction * ByDue(a, b) }
	for _, i := range m.index {
		if i.Shard == q.Shard && i.Due.After(q.At) == q.Later && (q.After == nil || order(i, *q.After) > 0) {
			page = append(page, i)
		}
	}
	slices.SortFunc(page, order)
	if len(page) > q.Limit {
		page = page[:q.Limit]
		next = &page[q.Limit-1]
	}
	return page, next, nil
}
