package ledger

import (
	"bytes"
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
	mu    sync.Mutex
	items map[string]Item
	index map[string]Item // while it lags
}

// Write implements [Store].
func (m *Memory) Write(_ context.Context, writes []Write) []WriteResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]WriteResult, len(writes))
	for n := range writes {
		results[n] = m.write(&writes[n])
	}
	return results
}

func (m *Memory) write(w *Write) WriteResult {
	i, exists := m.items[w.Item.EventID]
	if exists != (w.If != nil) {
		return WriteResult{}
	}
	if exists && !i.meets(w.If) {
		found := i
		return WriteResult{Found: &found}
	}
	next := Item{Err: cmp.Or(w.Item.Err, i.Err)}
	for _, a := range Attributes {
		value := a.Value(&w.Item)
		if value == nil && a.In <= w.Kept {
			value = a.Value(&i)
		}
		if b, ok := value.([]byte); ok {
			value = bytes.Clone(b) // the caller's
		}
		a.Set(&next, value)
	}
	r := WriteResult{Done: true}
	if w.Lease {
		next.Attempts++
		leased := next
		r.Found = &leased
	}
	if m.items == nil {
		m.items = map[string]Item{}
	}
	m.items[next.EventID] = next
	return r
}

// meets reports whether i has the values of those fields of a condition that are not zero.
func (i Item) meets(condition *Item) bool {
	for _, a := range Attributes {
		if want := a.Value(condition); want != nil && !reflect.DeepEqual(want, a.Value(&i)) {
			return false
		}
	}
	return true
}

// Lag says whether the index stays as it is while items change.
func (m *Memory) Lag(lagging bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !lagging {
		m.index = nil
	} else if m.index == nil {
		m.index = map[string]Item{} // also if there are no items
		maps.Copy(m.index, m.items)
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
	order := func(a, b Item) int { return direction * ByIndexTime(a, b) }
	index := m.items
	if m.index != nil {
		index = m.index
	}
	for _, i := range index {
		if i.Shard == q.Shard && i.IndexTime().After(q.At) == q.Later && (q.After == nil || order(i, *q.After) > 0) {
			page = append(page, Item{EventID: i.EventID, Shard: i.Shard, LeasedUntil: i.LeasedUntil,
				ParkedAt: i.ParkedAt, RecordedAt: i.RecordedAt, Size: i.Size, Large: i.Large, Cause: i.Cause})
		}
	}
	slices.SortFunc(page, order)
	if len(page) > q.Limit {
		page = page[:q.Limit]
		next = &page[q.Limit-1]
	}
	return page, next, nil
}
