// Package paymenttest simulates the payment service for tests, as net/http/httptest does for web servers. It serves
// public keys and tokens (sections 4.1 and 4.2 of the payment service's interface), signs and sends webhooks (sections
// 2.2, 4.3 and 5.4), protects an API (section 4.4), and injects faults on request.
//
// It guarantees that it follows the interface unless a fault is set. It generates its keys at the start unless one is
// given, its signatures are those of package signature, and its token endpoint rejects every deviation from section
// 4.1. It listens only on 127.0.0.1, and answers 403 to web pages of other origins.
//
//	service := paymenttest.NewServer(paymenttest.Options{})
//	defer service.Close()
//	payload := paymenttest.Delivery(paymenttest.Event())
//	answer, err := service.Send(ctx, paymenttest.Webhook{URL: hook, Payload: payload})
//
// Other processes use the control endpoint of a server. [State.Handler] is the service in a second form, for a Lambda
// function.
package paymenttest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
	"uuid"

	"payhook.example/shared/keys"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

// Options are the options of a [Server]. The comment of each field ends with its default, which replaces the zero
// value.
type Options struct {
	Key Key // the first signing key; one that the process generates once, with a new id

	// Scheme defines the locations of the proof of a webhook; DefaultScheme.
	Scheme signature.Scheme
	// Identity has the client certificates for webhooks to https URLs; none.
	Identity *Identity

	State // with which it starts; as of NewState
}

// Server is a payment service. It is safe for concurrent use.
type Server struct {
	// URL is the base URL of keys, tokens and the API: baseUrl and authUrl.
	URL string

	opts   Options
	server *http.Server

	mu         sync.Mutex
	key        Key // the signing key
	state      State
	latest     map[wire.Endpoint][]ReceivedRequest
	webhookURL string
	last       []byte // the last delivery of an Order without a flaw
}

var firstKey = sync.OnceValue(func() Key { return NewKey(2048) })

// NewServer starts a payment service on a free port of 127.0.0.1. It panics if it cannot
// listen, like httptest.NewServer. The caller must close it.
func NewServer(opts Options) *Server {
	s := newServer(NewState(opts.State))
	s.opts = opts
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("paymenttest: %v", err))
	}
	s.URL = "http://" + listener.Addr().String()
	if opts.Key.Private == nil {
		opts.Key = Key{uuid.New().String(), firstKey().Private}
	}
	s.use(opts.Key)
	mux := http.NewServeMux()
	mux.Handle("/", s.handler())
	mux.Handle("POST "+ControlPath, s.Control())
	s.server = &http.Server{Handler: NotForPages(mux), ReadHeaderTimeout: 10 * time.Second}
	go s.server.Serve(listener)
	return s
}

// newServer returns a service that does not listen and has no signing key.
func newServer(state State) *Server {
	return &Server{state: state, latest: map[wire.Endpoint][]ReceivedRequest{}}
}

// Close stops the service and closes all open connections.
func (s *Server) Close() { s.server.Close() }

// ReceivedRequest is a request that the service received.
type ReceivedRequest struct {
	Header http.Header
	Status int // of the answer; 0 if the connection was cut
}

// Requests returns the latest 1,000 requests to an endpoint, oldest first.
func (s *Server) Requests(e wire.Endpoint) []ReceivedRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.latest[e])
}

func (s *Server) record(e wire.Endpoint, r ReceivedRequest) {
	const kept = 1000
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := append(s.latest[e], r)
	s.latest[e] = latest[max(0, len(latest)-kept):]
}

// Key returns the current signing key.
func (s *Server) Key() Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key
}

// use signs with a key from now on. The previous keys stay published.
func (s *Server) use(key Key) {
	if id, ok := signature.StaticKeyID(string(s.opts.Scheme.KeyID)); ok {
		key.ID = id
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
	s.state.Publish(key)
}

// Change changes the state of the service, starting with the next request.
func (s *Server) Change(do func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.state)
}

// Sender returns a Sender with the current signing key.
func (s *Server) Sender() Sender {
	return Sender{Key: s.Key(), Scheme: s.opts.Scheme, Identity: s.opts.Identity}
}

// Send sends w, signed with the current key, and returns the answer. It returns an error
// if w is invalid or if there was no answer.
func (s *Server) Send(ctx context.Context, w Webhook) (Answer, error) { return s.Sender().Send(ctx, w) }

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
	TokenKey []byte                       `json:"tokenKey"`
	Faults   map[wire.Endpoint]wire.Fault `json:"faults"` // "" is none
}

// DefaultTokenLifetime is the lifetime of tokens, unless the state says another.
const DefaultTokenLifetime = time.Hour

// NewState returns a state without a key. It has new client credentials and, unless s has them, the token manager
// manager-1 and the default lifetime of tokens.
func NewState(s State) State {
	s.Keys, s.Faults = map[string]json.RawMessage{}, map[wire.Endpoint]wire.Fault{}
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
