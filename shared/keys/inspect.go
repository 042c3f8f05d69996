package keys

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
	"slices"
	"time"

	"payhook.example/shared/payment"
)

// Inspector reads and deletes keys of the shared table, for a person. It is safe for concurrent use.
type Inspector struct{ store InspectStore }

// NewInspector returns an Inspector of a store.
func NewInspector(store InspectStore) *Inspector { return &Inspector{store} }

// Cached is the content of the table for a key id. Its times are in UTC.
type Cached struct {
	ID string // as it was sent to the service
	// Key is the key; nil if the service did not know the id, or if Refused.
	Key *rsa.PublicKey
	// Refused is the reason why the functions do not use the key that the service returned; nil if they use it.
	Refused   error
	FetchedAt time.Time // when the request was sent to the service
	// UnknownSince is the time at which the service first reported a known key as unknown; zero if it has not. If Key
	// is not nil, the functions still use the key.
	UnknownSince time.Time
	ExpiresAt    time.Time // from this time, no function uses it
}

// Find returns the content of the table for a key id, and false if there is none. The id can have any spelling. The
// error wraps that of the store.
func (i *Inspector) Find(ctx context.Context, id string) (Cached, bool, error) {
	canonical, _ := payment.KeyID(id)
	r, err := i.store.Get(ctx, canonical)
	if err != nil || r == nil {
		return Cached{}, false, err
	}
	return cachedIn(r), true, nil
}

// List returns the content of the table for every key id, keys before unknown ids, and of both the one that was fetched
// last first. It reads the whole table. The error wraps that of the store.
func (i *Inspector) List(ctx context.Context) ([]Cached, error) {
	records, err := i.store.Records(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Cached, len(records))
	for n := range records {
		all[n] = cachedIn(&records[n])
	}
	slices.SortFunc(all, func(a, b Cached) int {
		if unknown := a.Key == nil && a.Refused == nil; unknown != (b.Key == nil && b.Refused == nil) {
			if unknown {
				return 1
			}
			return -1
		}
		return cmp.Or(b.FetchedAt.Compare(a.FetchedAt), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// cachedIn returns the content of a record.
func cachedIn(r *Record) Cached {
	found := Cached{ID: cmp.Or(r.SentAs, r.ID), FetchedAt: r.FetchedAt, UnknownSince: r.UnknownSince,
		ExpiresAt: r.ExpiresAt}
	switch {
	case r.Rejected != nil:
		found.Refused = &PolicyError{r.Rejected}
	case r.JWK != "":
		found.Key, found.Refused = ParseJWK([]byte(r.JWK), r.ID)
	}
	return found
}

// Drop deletes a key id from the table, so that a function without its own copy fetches the key again. It does nothing
// if the table does not contain the id. The error wraps that of the store.
func (i *Inspector) Drop(ctx context.Context, id string) error {
	canonical, _ := payment.KeyID(id)
	return i.store.Delete(ctx, canonical)
}

// Thumbprint returns the JWK thumbprint of a key with SHA-256 (RFC 7638), in base64url without padding. Two people can
// compare it to check that they have the same key. It is safe for concurrent use.
func Thumbprint(key *rsa.PublicKey) string {
	encode := base64.RawURLEncoding.EncodeToString
	// Section 3: only the required members, in this order, without white space.
	sum := sha256.Sum256([]byte(`{"e":"` + encode(big.NewInt(int64(key.E)).Bytes()) + `","kty":"RSA","n":"` +
		encode(key.N.Bytes()) + `"}`))
	return encode(sum[:])
}
