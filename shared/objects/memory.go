package objects

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a [Store] in memory. The zero value is empty and ready to use. It is safe for concurrent use.
type Memory struct {
	Now func() time.Time // nil means [time.Now]

	mu      sync.Mutex
	objects map[string]object
}

type object struct {
	body     []byte
	storedAt time.Time
}

// Put implements [Putter].
func (m *Memory) Put(_ context.Context, key string, body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, body)
	return nil
}

func (m *Memory) put(key string, body []byte) {
	now := time.Now
	if m.Now != nil {
		now = m.Now
	}
	if m.objects == nil {
		m.objects = map[string]object{}
	}
	m.objects[key] = object{slices.Clone(body), now()}
}

// Create implements [Creator].
func (m *Memory) Create(_ context.Context, key string, body []byte) (existed bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, existed = m.objects[key]; !existed {
		m.put(key, body)
	}
	return existed, nil
}

// Get implements [Getter]. It never denies access.
func (m *Memory) Get(_ context.Context, key string, limit int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, exists := m.objects[key]
	if !exists {
		return nil, ErrNotFound
	}
	body := o.body
	if len(body) > limit {
		body = body[:limit+1]
	}
	return append([]byte{}, body...), nil
}

// List implements [Lister].
func (m *Memory) List(_ context.Context, prefix, after string, limit int) (page []Object, more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, o := range m.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			page = append(page, Object{key, len(o.body), o.storedAt})
		}
	}
	slices.SortFunc(page, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	more = len(page) > limit
	return page[:min(len(page), limit)], more, nil
}

// Delete removes an object, as the end of its retention does.
func (m *Memory) Delete(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
}

// Objects returns a copy of the objects by their keys.
func (m *Memory) Objects() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string][]byte{}
	for key, o := range m.objects {
		all[key] = slices.Clone(o.body)
	}
	return all
}

// Keys returns the keys in their order.
func (m *Memory) Keys() []string { return slices.Sorted(maps.Keys(m.Objects())) }
