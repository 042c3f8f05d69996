package explain

import (
	"context"
	"crypto"
	_ "crypto/md5" // so that the digest of an old signature can be named
	"crypto/rsa"
	_ "crypto/sha1"
	_ "crypto/sha256"
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"payhook.example/shared/keys"
)

// keyRing fetches each key once.
type keyRing struct {
	fetch     Fetcher
	exponents []int // that are allowed
	limit     int   // of requests
	failed    int   // requests in a row without an answer

	results map[string]*keyResult // by the id in lower case
	order   []*keyResult
}

// keyResult is the answer of the key service for one id.
type keyResult struct {
	id    string
	state string
	cause string
	err   error
	jwk   []byte
	key   *rsa.PublicKey // also if it is refused; nil if there is none
}

// get returns the answer for an id, or nil if the limit of requests is reached.
func (k *keyRing) get(ctx context.Context, id string) *keyResult {
	name := strings.ToLower(id)
	if r, ok := k.results[name]; ok {
		return r
	}
	if len(k.order) >= k.limit || k.failed >= 2 || ctx.Err() != nil {
		return nil
	}
	r := &keyResult{id: id}
	r.jwk, r.err = k.fetch.Fetch(ctx, id)
	k.failed++
	switch {
	case errors.Is(r.err, keys.ErrUnknown), errors.Is(r.err, keys.ErrMalformedID):
		r.state, k.failed = unknown, 0
	case r.err != nil:
		r.state, r.cause = unavailable, r.err.Error()
	default:
		k.failed = 0
		k.read(r)
	}
	if k.results == nil {
		k.results = map[string]*keyResult{}
	}
	k.results[name] = r
	k.order = append(k.order, r)
	return r
}

// read reads the key of an answer.
func (k *keyRing) read(r *keyResult) {
	var err error
	r.state = usable
	if r.key, err = parseJWK(r.jwk, r.id, k.exponents); err == nil {
		return
	}
	r.cause = strings.TrimPrefix(cause(err), "keys: key rejected: ")
	if r.key = lenientKey(r.jwk); r.key == nil {
		r.state, r.cause = unavailable, "the answer is not a JWK with n and e"
		return
	}
	r.state = rejected
}

// text returns the JWK of an id as the service answers it.
func (k *keyRing) text(ctx context.Context, id string) ([]byte, error) {
	r := k.get(ctx, id)
	switch {
	case r == nil:
		return nil, fmt.Errorf("%w: not looked up", keys.ErrUnavailable)
	case r.id != id && r.err == nil: // in other case
		return r.jwk, nil
	}
	return r.jwk, r.err
}

// found returns the answers with a key.
func (k *keyRing) found() (with []*keyResult) {
	for _, r := range k.order {
		if r.key != nil {
			with = append(with, r)
		}
	}
	return with
}

func (k *keyRing) none() bool { return len(k.found()) == 0 }

// parseJWK is [keys.ParseJWK], with the error of a key service for what is no JWK.
func parseJWK(text []byte, id string, exponents []int) (*rsa.PublicKey, error) {
	key, err := keys.ParseJWK(text, id, exponents)
	if _, policy := errors.AsType[*keys.PolicyError](err); err != nil && !policy {
		return nil, fmt.Errorf("%w: %s", keys.ErrUnavailable, strings.TrimPrefix(err.Error(), "keys: "))
	}
	return key, err
}

// lenientKey returns the key of a JWK that must not be used, or nil if it has none. It
// serves to name the reason.
func lenientKey(text []byte) *rsa.PublicKey {
	var k struct {
		N string `json:"n"`
		E string `json:"e"`
	}
	if json.Unmarshal(text, &k, jsontext.AllowDuplicateNames(true)) != nil {
		return nil
	}
	decode := func(text string) *big.Int {
		text = strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(text), "=")
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(b) > maxSignature+1 {
			return new(big.Int)
		}
		return new(big.Int).SetBytes(b)
	}
	n, e := decode(k.N), decode(k.E)
	if n.BitLen() < 512 || n.Bit(0) == 0 || e.BitLen() > 31 || e.Cmp(big.NewInt(3)) < 0 {
		return nil
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}
}

// openedBy is a signature that a key made.
type openedBy struct {
	key *keyResult
	opening
}

// opening is the content of a signature.
type opening struct {
	hash   crypto.Hash
	digest []byte
}

// digestInfos are the beginnings of the DigestInfo of RFC 8017, section 9.2.
var digestInfos = []struct {
	hash   crypto.Hash
	prefix string
}{
	{crypto.SHA256, "3031300d060960864801650304020105000420"},
	{crypto.SHA1, "3021300906052b0e03021a05000414"},
	{crypto.SHA384, "3041300d060960864801650304020205000430"},
	{crypto.SHA512, "3051300d060960864801650304020305000440"},
	{crypto.MD5, "3020300c06082a864886f70d020505000410"},
}

// open returns the digest in a signature of PKCS #1 v1.5, if the owner of the key made
// it. It only explains: what Payhook accepts is decided by package signature.
func open(key *rsa.PublicKey, signature []byte) (opening, bool) {
	size := (key.N.BitLen() + 7) / 8
	s := new(big.Int).SetBytes(signature)
	if len(signature) != size || s.Cmp(key.N) >= 0 {
		return opening{}, false
	}
	em := s.Exp(s, big.NewInt(int64(key.E)), key.N).FillBytes(make([]byte, size))
	for _, info := range digestInfos {
		prefix, _ := hex.DecodeString(info.prefix)
		padding := size - 3 - len(prefix) - info.hash.Size()
		if padding < 8 {
			continue
		}
		head := slices.Concat([]byte{0, 1}, slices.Repeat([]byte{0xff}, padding), []byte{0}, prefix)
		if slices.Equal(em[:len(head)], head) {
			return opening{info.hash, em[len(head):]}, true
		}
	}
	return opening{}, false
}
