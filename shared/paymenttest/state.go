package paymenttest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"time"
	"uuid"
)

// State is all that a service needs to answer requests, so every process that serves it with [State.Handler]
// answers the same. It contains no private key of webhooks.
type State struct {
	Keys           map[string]json.RawMessage `json:"keys"` // the published JWKs by their ids
	TokenManagerID string                     `json:"tokenManagerId"`
	ClientID       string                     `json:"clientId"`
	ClientSecret   string                     `json:"clientSecret"`
	FormEncoded    bool                       `json:"formEncoded,omitempty"`
	KeysBearer     bool                       `json:"keysBearer,omitempty"`
	TokenSeconds   int                        `json:"tokenSeconds"` // the lifetime of new tokens
	// TokenKey signs tokens, with HMAC and SHA-256. A new one revokes all tokens.
	TokenKey []byte             `json:"tokenKey"`
	Faults   map[Endpoint]Fault `json:"faults,omitempty"`
}

// NewState returns the state of a service with the options, without a key. Only the
// options of the endpoints matter.
func NewState(opts Options) State {
	return State{
		Keys: map[string]json.RawMessage{}, Faults: map[Endpoint]Fault{},
		TokenManagerID: cmp.Or(opts.TokenManagerID, "manager-1"),
		ClientID:       "client-" + uuid.New().String(),
		ClientSecret:   "secret-" + uuid.New().String(),
		FormEncoded:    opts.FormEncoded, KeysBearer: opts.KeysBearer,
		TokenSeconds: int(DefaultTokenLifetime / time.Second),
		TokenKey:     []byte(rand.Text()),
	}
}

// Publish adds the public key of k.
func (s State) Publish(k Key) { s.Keys[k.ID] = k.JWK() }

// Change changes the state of the service, as [Server.Misbehave] and others do. Its context does not matter.
func (s *Server) Change(_ context.Context, do func(*State) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return do(&s.state)
}

// snapshot returns a copy of the state.
func (s *Server) snapshot() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	state.Keys, state.Faults = maps.Clone(state.Keys), maps.Clone(state.Faults)
	return state
}

// Handler returns the service as a handler that remembers nothing between requests, for a function of which several
// copies run at once.
func (s State) Handler() http.Handler { return newServer(Options{}, s).handler() }
