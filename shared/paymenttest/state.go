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

// State is all that a service needs to answer requests. The sender of webhooks writes it,
// and every process that serves it with [Stateless] reads it, so that they agree. It
// contains no private key of webhooks.
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
		ClientID:       cmp.Or(opts.ClientID, "client-"+uuid.New().String()),
		ClientSecret:   cmp.Or(opts.ClientSecret, "secret-"+uuid.New().String()),
		FormEncoded:    opts.FormEncoded, KeysBearer: opts.KeysBearer,
		TokenSeconds: int(DefaultTokenLifetime / time.Second),
		TokenKey:     []byte(rand.Text()),
	}
}

// Publish adds the public key of k.
func (s State) Publish(k Key) { s.Keys[k.ID] = k.JWK() }

// snapshot returns a copy of the state.
func (s *Server) snapshot() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	state.Keys, state.Faults = maps.Clone(state.Keys), maps.Clone(state.Faults)
	return state
}

// Stateless returns the service as a handler that remembers nothing between requests, for
// a function of which several copies run at once. It reads the state for every request;
// if that fails, it answers 503.
func Stateless(read func(context.Context) (State, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state, err := read(r.Context())
		if err != nil {
			http.Error(w, `{"error":"the state cannot be read"}`, http.StatusServiceUnavailable)
			return
		}
		newServer(Options{}, state).handler().ServeHTTP(w, r)
	})
}
