package token

import (
	"context"
	"sync"
)

// Memory is a [Store] in memory. The zero value is empty and ready to use. It is safe for concurrent use.
type Memory struct {
	// Few is what Limited reports. It is not changed while somebody uses the store.
	Few bool

	mu   sync.Mutex
	text string
}

// Load implements [Source].
func (m *Memory) Load(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.text == "" {
		return "", ErrNone
	}
	return m.text, nil
}

// Save implements [Store].
func (m *Memory) Save(_ context.Context, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = text
	return nil
}

// Limited implements [Store].
func (m *Memory) Limited() bool { return m.Few }
