package paymenttest

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"uuid"

	"payhook.example/shared/signature"
)

// Key is a key that signs webhooks.
type Key struct {
	ID      string // a UUID
	Private *rsa.PrivateKey
}

// NewKey generates a key of that many bits with a new id.
func NewKey(bits int) Key { return Key{uuid.New().String(), newRSAKey(bits)} }

// JWK returns the public key of k in the form of section 2.6.
func (k Key) JWK() []byte {
	encode := base64.RawURLEncoding.EncodeToString
	jwk, _ := json.Marshal(map[string]string{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": k.ID,
		"n": encode(k.Private.N.Bytes()),
		"e": encode(big.NewInt(int64(k.Private.E)).Bytes()),
	})
	return jwk
}

// Key returns the current signing key.
func (s *Server) Key() Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key
}

// Rotate replaces the signing key by a new key with a new id, and returns it. The
// previous keys stay published.
func (s *Server) Rotate() Key { return s.use(NewKey(2048)) }

func (s *Server) use(key Key) Key {
	if id, ok := signature.StaticKeyID(s.opts.Scheme.KeyID.String()); ok {
		key.ID = id
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
	s.state.Publish(key)
	return key
}

// Publish serves jwk, which is not checked, as the key with that id. With nil, the id is unknown.
func (s *Server) Publish(id string, jwk []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if jwk == nil {
		delete(s.state.Keys, id)
		return
	}
	s.state.Keys[id] = jwk
}

// answerKey answers a key lookup (section 4.2).
func (s *Server) answerKey(state State, r *http.Request, _ []byte) answer {
	if r.Method != http.MethodGet {
		return answer{status: http.StatusMethodNotAllowed, header: http.Header{"Allow": {http.MethodGet}}}
	}
	if state.KeysBearer && !s.bearer(state, r) {
		return unauthorized()
	}
	jwk, ok := state.Keys[r.URL.Path[len(keysPath):]]
	if !ok {
		return answer{status: http.StatusNotFound, body: []byte(`{"error":"no such key"}`)}
	}
	return answer{status: http.StatusOK, body: jwk}
}
