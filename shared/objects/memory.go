package objects

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a [Store] in memory. The zero value is empty and ready to use. It is safe for concurrent use, if its fields
// are only changed while nobody uses it.
type Memory struct {
	Now func() time.Time // nil means [time.Now]
	// Fails, if set, is called before every call, with the method's name and the key or prefix. It may wait. Its error
	// is that of the call.
	Fails func(ctx context.Context, call, key string) error

	mu      sync.Mutex
	objects map[string]object
}

type object struct {
	body     []byte
	storedAt time.Time
}

// call does what a method does, unless it fails.
func (m *Memory) call(ctx context.Context, name, key string, do func()) error {
	if m.Fails != nil {
		if err := m.Fails(ctx, name, key); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
	return nil
}

// Put implements [Putter].
func (m *Memory) Put(ctx context.Context, key string, body []byte) error {
	return m.call(ctx, "Put", key, func() { m.put(key, body) })
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
func (m *Memory) Create(ctx context.Context, key string, body []byte) (existed bool, err error) {
	err = m.call(ctx, "Create", key, func() {
		if _, existed = m.objects[key]; !existed {
			m.put(key, body)
		}
	})
	return existed, err
}

// Get implements [Getter].
func (m *Memory) Get(ctx context.Context, key string, limit int) (body []byte, err error) {
	err = m.call(ctx, "Get", key, func() {
		if o, exists := m.objects[key]; exists {
			body = append([]byte{}, o.body...)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case body == nil:
		return nil, ErrNotFound
	case len(body) > limit:
		body = body[:limit+1]
	}
	return body, nil
}

// List implements [Lister].
func (m *Memory) List(ctx context.Context, prefix, after string, limit int) (page []Object, more bool, err error) {
	err = m.call(ctx, "List", prefix, func() {
		for key, o := range m.objects {
			if strings.HasPrefix(key, prefix) && key > after {
				page = append(page, Object{key, len(o.body), o.storedAt})
			}
		}
	})
	slices.SortFunc(page, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	return page[:min(len(page), limit)], len(page) > limit, err
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
