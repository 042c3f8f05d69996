package explain

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
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
