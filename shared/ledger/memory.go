package ledger

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is a [Store] in memory. The zero value is empty and ready to use. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	items   map[string]Item
	index   map[string]Item
	lagging bool
}

// Insert implements [Store].
func (m *Memory) Insert(_ context.Context, items []Item) []Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]Result, len(items))
	for n, i := range items {
		if _, exists := m.items[i.EventID]; !exists {
			m.set(i)
			results[n].Done = true
		}
	}
	return results
}

// Change implements [Store].
func (m *Memory) Change(_ context.Context, changes []Change) []Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]Result, len(changes))
	for n, c := range changes {
		old, exists := m.items[c.EventID]
		if !exists || !each(func(f field) bool { return f.zero(&c.Where) || f.equal(&c.Where, &old) }) {
			results[n].Item = old
			continue
		}
		changed := old
		each(func(f field) bool {
			if !f.zero(&c.Set) || !c.Keeps(f.part) {
				f.copy(&changed, &c.Set)
			}
			return true
		})
		if c.Lease {
			changed.Attempts++
		}
		m.set(changed)
		results[n].Done = true
		if c.Lease {
			results[n].Item = m.items[c.EventID]
			results[n].Item.Size = 0
		}
	}
	return results
}

// field is a field of an item.
type field struct {
	part  Part
	zero  func(*Item) bool
	equal func(a, b *Item) bool
	copy  func(to, from *Item)
}

func of[T any](part Part, at func(*Item) *T, equal func(a, b T) bool) field {
	var zero T
	return field{
		part,
		func(i *Item) bool { return equal(*at(i), zero) },
		func(a, b *Item) bool { return equal(*at(a), *at(b)) },
		func(to, from *Item) { *at(to) = *at(from) },
	}
}

func same[T comparable](a, b T) bool { return a == b }

func sameTime(a, b time.Time) bool { return a.Equal(b) }

// fields are the fields of an item that a table has, except EventID.
var fields = []field{
	of(Identity, func(i *Item) *Digest { return &i.Digest }, same),
	of(Identity, func(i *Item) *string { return &i.DeliveryID }, same),
	of(Identity, func(i *Item) *time.Time { return &i.RecordedAt }, sameTime),
	of(Identity, func(i *Item) *string { return &i.Decision.By }, same),
	of(Identity, func(i *Item) *time.Time { return &i.Decision.At }, sameTime),
	of(Identity, func(i *Item) *string { return &i.Decision.Reason }, same),
	of(Identity, func(i *Item) *string { return &i.Amount }, same),
	of(Identity, func(i *Item) *string { return &i.Currency }, same),
	of(Content, func(i *Item) *[]byte { return &i.Detail }, bytes.Equal),
	of(Content, func(i *Item) *int { return &i.Size }, same),
	of(Content, func(i *Item) *bool { return &i.Claimed }, same),
	of(Rest, func(i *Item) *State { return &i.State }, same),
	of(Rest, func(i *Item) *string { return &i.Shard }, same),
	of(Rest, func(i *Item) *time.Time { return &i.Due }, sameTime),
	of(Rest, func(i *Item) *int { return &i.Attempts }, same),
	of(Rest, func(i *Item) *Holder { return &i.Holder }, same),
	of(Rest, func(i *Item) *string { return &i.Cause }, same),
	of(Rest, func(i *Item) *string { return &i.Problem }, same),
	of(Rest, func(i *Item) *time.Time { return &i.EventTimestamp }, sameTime),
	of(Rest, func(i *Item) *time.Time { return &i.PublishedAt }, sameTime),
	of(Rest, func(i *Item) *time.Time { return &i.ExpiresAt }, sameTime),
}

// each reports whether holds returns true for each field. It stops at the first that it does not.
func each(holds func(field) bool) bool {
	for _, f := range fields {
		if !holds(f) {
			return false
		}
	}
	return true
}

// set stores an item, with times as precise as those of a table.
func (m *Memory) set(i Item) {
	i.EventName = ""
	for _, t := range []*time.Time{&i.RecordedAt, &i.Decision.At, &i.Due, &i.PublishedAt, &i.EventTimestamp} {
		if !t.IsZero() {
			*t = time.UnixMilli(t.UnixMilli()).UTC()
		}
	}
	if !i.ExpiresAt.IsZero() {
		i.ExpiresAt = time.Unix(i.ExpiresAt.Unix(), 0).UTC()
	}
	i.Detail = slices.Clone(i.Detail)
	if m.items == nil {
		m.items, m.index = map[string]Item{}, map[string]Item{}
	}
	m.items[i.EventID] = i
	m.project(i.EventID)
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
func (m *Memory) Query(_ context.Context, q Query) (page []Item, next *Cursor, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	direction := 1
	if q.Later {
		direction = -1
	}
	order := func(a, b Cursor) int {
		return direction * cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.EventID, b.EventID))
	}
	for _, i := range m.index {
		if i.Shard == q.Shard && i.Due.After(q.At) == q.Later && (q.After == nil || order(i.cursor(), *q.After) > 0) {
			page = append(page, i)
		}
	}
	slices.SortFunc(page, func(a, b Item) int { return order(a.cursor(), b.cursor()) })
	if len(page) > q.Limit {
		page = page[:q.Limit]
		last := page[q.Limit-1].cursor()
		next = &last
	}
	return page, next, nil
}

func (i Item) cursor() Cursor { return Cursor{i.EventID, i.Shard, i.Due} }
