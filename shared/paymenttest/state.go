package paymenttest

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"time"
	"uuid"

	"payhook.example/shared/keys"
)

// State is all that a service needs to answer requests, so every process that serves it with [State.Handler]
// answers the same. It contains no private key of webhooks.
type State struct {
	Keys           map[string]json.RawMessage `json:"keys"`           // the published JWKs by their ids
	TokenManagerID string                     `json:"tokenManagerId"` // the required access_token_manager_id
	ClientID       string                     `json:"clientId"`
	ClientSecret   string                     `json:"clientSecret"`
	// FormEncoded means that client id and secret are form-encoded for HTTP Basic (RFC 6749, section 2.3.1). Otherwise
	// they are sent unchanged.
	FormEncoded bool `json:"formEncoded,omitempty"`
	// KeysBearer means that key lookup needs a valid token. The interface does not specify this.
	KeysBearer   bool `json:"keysBearer,omitempty"`
	TokenSeconds int  `json:"tokenSeconds"` // the lifetime of new tokens
	// TokenKey signs tokens, with HMAC and SHA-256. A new one revokes all tokens.
	TokenKey []byte             `json:"tokenKey"`
	Faults   map[Endpoint]Fault `json:"faults"` // "" is none
}

// DefaultTokenLifetime is the lifetime of tokens, unless the state says another.
const DefaultTokenLifetime = time.Hour

// NewState returns a state without a key. It has new client credentials and, unless s has them, the token manager
// manager-1 and the default lifetime of tokens.
func NewState(s State) State {
	s.Keys, s.Faults = map[string]json.RawMessage{}, map[Endpoint]Fault{}
	s.TokenManagerID = cmp.Or(s.TokenManagerID, "manager-1")
	s.ClientID, s.ClientSecret = "client-"+uuid.New().String(), "secret-"+uuid.New().String()
	s.TokenSeconds = cmp.Or(s.TokenSeconds, int(DefaultTokenLifetime/time.Second))
	s.TokenKey = []byte(rand.Text())
	return s
}

// Key is a key that signs webhooks.
type Key struct {
	ID      string // a UUID
	Private *rsa.PrivateKey
}

// NewKey generates a key of that many bits with a new id.
func NewKey(bits int) Key { return Key{uuid.New().String(), must(rsa.GenerateKey(rand.Reader, bits))} }

// JWK returns the public key of k in the form of section 2.6.
func (k Key) JWK() []byte {
	return keys.FormatJWK(k.ID, &k.Private.PublicKey)
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

// Handler returns the service as a handler that remembers nothing between requests, for a function of which several
// copies run at once.
func (s State) Handler() http.Handler { return newServer(s).handler() }
