package token

import (
	"context"
	"strings"
	"sync/atomic"

	"payhook.example/shared/payment"
)

// Source is where a [Reader] finds the token, and a [Refresher] the client credentials. It is safe for concurrent
// use. Package shared/aws/tokenstore has those of a stack.
type Source interface {
	// Load returns the text that was saved last. Its errors are ErrNone, if there is none yet, and *StoreError. A text
	// of white space counts as none.
	Load(context.Context) (string, error)
}

// Store is where a [Refresher] keeps the token. [Memory] is one in memory.
type Store interface {
	Source
	// Save replaces the text. A call that fails may have taken effect. Its error is a *StoreError.
	Save(ctx context.Context, text string) error
	// Limited reports whether only 100 texts a day can be saved.
	Limited() bool
}

// StoreError is returned when a text could not be loaded or saved. Its own text contains no ARN and no stored data.
type StoreError struct {
	Store string // a description, such as "the secret with the token"
	Err   error  // the failed call, such as GetSecretValue, with the code of its answer
	// Replaceable is true if a text cannot be read, and one that is saved in its place can be.
	Replaceable bool
}

func (e *StoreError) Error() string { return "token: " + e.Store + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *StoreError) Unwrap() error { return e.Err }

// load returns the text of a source without a byte order mark. Its errors are [ErrNone] and [*StoreError].
func load(ctx context.Context, source Source) (string, error) {
	text, err := source.Load(ctx)
	text = string(payment.WithoutBOM([]byte(text)))
	if err == nil && strings.TrimSpace(text) == "" {
		err = ErrNone
	}
	return text, err
}

// Memory is a [Store] in memory. The zero value is empty and ready to use. It is safe for concurrent use.
type Memory struct {
	// Few is what Limited reports. It is not changed while somebody uses the store.
	Few bool

	text atomic.Pointer[string]
}

// Load implements [Source].
func (m *Memory) Load(context.Context) (string, error) {
	if text := m.text.Load(); text != nil && *text != "" {
		return *text, nil
	}
	return "", ErrNone
}

// Save implements [Store].
func (m *Memory) Save(_ context.Context, text string) error {
	m.text.Store(&text)
	return nil
}

// Limited implements [Store].
func (m *Memory) Limited() bool { return m.Few }
