package paymenttest

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// State is all that a service without memory knows. The sender of webhooks writes it, and
// every process that serves it reads it, so that they agree. It contains no private key
// of webhooks.
type State struct {
	Keys           map[string]json.RawMessage `json:"keys"` // the published JWKs by their ids
	TokenManagerID string                     `json:"tokenManagerId"`
	ClientID       string                     `json:"clientId"`
	ClientSecret   string                     `json:"clientSecret"`
	FormEncoded    bool                       `json:"formEncoded,omitempty"`
	KeysBearer     bool                       `json:"keysBearer,omitempty"`
	TokenSeconds   int                        `json:"tokenSeconds"` // the lifetime of new tokens
	// TokenKey signs tokens, with HMAC and SHA-256. A new one revokes all tokens.
	TokenKey []byte `json:"tokenKey"`
	// Faults are the faults of all requests. Fault.Times must be 0: nothing counts.
	Faults map[Endpoint]Fault `json:"faults,omitempty"`
}

// NewState returns the state of a service with the options, without a key.
// Client, Identity, Control and Now do not matter.
func NewState(opts Options) State {
	opts.setDefaults()
	return State{
		Keys: map[string]json.RawMessage{}, TokenManagerID: opts.TokenManagerID,
		ClientID: opts.ClientID, ClientSecret: opts.ClientSecret, FormEncoded: opts.FormEncoded,
		KeysBearer: opts.KeysBearer, TokenSeconds: int(opts.TokenLifetime / time.Second),
		TokenKey: []byte(rand.Text()), Faults: map[Endpoint]Fault{},
	}
}

// Publish adds the public key of k.
func (s State) Publish(k Key) { s.Keys[k.ID] = k.JWK() }

// Misbehave sets the fault of an endpoint; the zero Fault removes it. It returns an error
// for faults with Times, which a service without memory does not have.
func (s State) Misbehave(e Endpoint, f Fault) error {
	if f.Name == "" {
		delete(s.Faults, e)
		return nil
	}
	if f.Times != 0 {
		return fmt.Errorf("paymenttest: a service without memory has no fault %q of %d requests", f.Name, f.Times)
	}
	// It checks the fault.
	if err := newServer(Options{}).Misbehave(e, f); err != nil {
		return err
	}
	s.Faults[e] = f
	return nil
}

// ErrHangUp is the value with which a handler of [Stateless] panics instead of giving an
// answer, as a handler of net/http does.
var ErrHangUp = http.ErrAbortHandler

// Stateless returns the service as a handler that remembers nothing between requests, for
// a function of which several copies run at once. It reads the state for every request;
// if that fails, it answers 503. Its tokens contain their expiry and are signed, so that
// each copy accepts those of the others.
func Stateless(read func(context.Context) (State, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state, err := read(r.Context())
		if err != nil {
			http.Error(w, `{"error":"the state cannot be read"}`, http.StatusServiceUnavailable)
			return
		}
		server, err := state.server()
		if err != nil {
			http.Error(w, `{"error":"the state has an unknown fault"}`, http.StatusServiceUnavailable)
			return
		}
		server.handler().ServeHTTP(w, r)
	})
}

// server returns a service for one request.
func (s State) server() (*Server, error) {
	server := newServer(Options{TokenManagerID: s.TokenManagerID, FormEncoded: s.FormEncoded, Now: time.Now,
		KeysBearer: s.KeysBearer, ClientID: s.ClientID, ClientSecret: s.ClientSecret})
	server.lifetime, server.tokenKey = time.Duration(s.TokenSeconds)*time.Second, s.TokenKey
	for id, jwk := range s.Keys {
		server.published[id] = jwk
	}
	for e, f := range s.Faults {
		if err := server.Misbehave(e, f); err != nil {
			return nil, err
		}
	}
	return server, nil
}

// tokenPrefix starts every token.
const tokenPrefix = "token-"

// signToken returns a token that expires at that time: the time, a random text and the
// HMAC of both.
func signToken(key []byte, expiry time.Time) string {
	text := tokenPrefix + strconv.FormatInt(expiry.UnixMilli(), 10) + "-" + rand.Text()
	return text + "." + macOf(key, text)
}

// tokenExpiry returns when a token of signToken expires, or the zero time if the token is
// not of that key.
func tokenExpiry(key []byte, token string) time.Time {
	text, mac, _ := strings.Cut(token, ".")
	if !hmac.Equal([]byte(mac), []byte(macOf(key, text))) {
		return time.Time{}
	}
	digits, _, _ := strings.Cut(strings.TrimPrefix(text, tokenPrefix), "-")
	milliseconds, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds)
}

func macOf(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
