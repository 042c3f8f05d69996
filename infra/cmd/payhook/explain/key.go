package explain

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"payhook.example/shared/keys"
)

// maxKeys is how many keys are requested from the key service.
const maxKeys = 16

// keyRing fetches each key once. It implements [intake.Keys].
type keyRing struct {
	origin  *keys.Origin
	failed  int // requests in a row without an answer
	results []*keyResult
}

// keyResult is the answer of the key service for one id.
type keyResult struct {
	id  string
	key *rsa.PublicKey // nil if it must not be used, or if there is none
	err error
}

// get returns the answer for an id. It requests no more keys after maxKeys, or after two
// requests in a row without an answer.
func (k *keyRing) get(ctx context.Context, id string) *keyResult {
	if i := slices.IndexFunc(k.results, func(r *keyResult) bool { return r.id == id }); i >= 0 {
		return k.results[i]
	}
	r := &keyResult{id: id}
	if len(k.results) >= maxKeys || k.failed >= 2 {
		r.err = fmt.Errorf("%w: not looked up", keys.ErrUnavailable)
		return r
	}
	r.key, _, r.err = k.origin.Fetch(ctx, id)
	k.failed++
	if !errors.Is(r.err, keys.ErrUnavailable) {
		k.failed = 0
	}
	k.results = append(k.results, r)
	return r
}

// isDown reports whether an error of a lookup shows that the key service is down. With another status, or if
// the host does not exist, a setting can be wrong.
func isDown(err error) bool {
	if status, ok := errors.AsType[keys.StatusError](err); ok {
		return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
	}
	if host, ok := errors.AsType[*net.DNSError](err); ok && host.IsNotFound {
		return false
	}
	_, failed := errors.AsType[net.Error](err) // also a timeout
	return failed || errors.Is(err, io.EOF)
}

// Lookup implements [intake.Keys].
func (k *keyRing) Lookup(ctx context.Context, id string, _ netip.Addr) (keys.Found, error) {
	r := k.get(ctx, id)
	return keys.Found{Key: r.key}, r.err
}

// Refetch implements [intake.Keys]. There is no cache, so there is no newer key.
func (*keyRing) Refetch(context.Context, string, keys.Found, netip.Addr) (keys.Found, error) {
	return keys.Found{}, nil
}

// RecordSource implements [intake.Keys]. It does nothing.
func (*keyRing) RecordSource(context.Context, netip.Addr) {}

// digestInfo is the beginning of the DigestInfo of a SHA-256 (RFC 8017, section 9.2).
const digestInfo = "\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"

// digestIn returns the SHA-256 in a signature of PKCS #1 v1.5, if the owner of the key made
// it. It only explains: what Payhook accepts is decided by package signature.
func digestIn(key *rsa.PublicKey, signature []byte) (digest []byte, ok bool) {
	s := new(big.Int).SetBytes(signature)
	if len(signature) != key.Size() || s.Cmp(key.N) >= 0 {
		return nil, false
	}
	encoded := s.Exp(s, big.NewInt(int64(key.E)), key.N).FillBytes(make([]byte, key.Size()))
	padding := slices.Repeat([]byte{0xff}, key.Size()-3-len(digestInfo)-sha256.Size)
	head := slices.Concat([]byte{0, 1}, padding, []byte{0}, []byte(digestInfo))
	return bytes.CutPrefix(encoded, head)
}
