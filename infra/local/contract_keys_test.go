package local

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"payhook.example/shared/keys"
)

// keyStore is a store of keys with all its parts.
type keyStore struct {
	keys.Store
	keys.InspectStore
}

// compareKeys compares a store, which must be empty, with one in memory.
func compareKeys(t *testing.T, seed uint64, store keyStore) {
	t.Helper()
	m := &keys.Memory{}
	stores := []keyStore{{m, m}, store}
	compareCalls(t, seed, 500, stores, (*random).keyCall)
	compare(t, "a budget of seven at the same time", stores, atOnce(func(ctx context.Context, s keyStore, _ int) bool {
		left, err := s.Take(ctx, "name#once", 7, time.UnixMilli(1769860800123))
		return left && err == nil
	}))
}

// record returns a record of few times, so that conditions hold as often as not.
func (r *random) record() keys.Record {
	k := keys.Record{ID: r.id(), SentAs: r.id(), FetchedAt: r.time(),
		ExpiresAt: r.time().Add(2 * time.Second).Truncate(time.Second)}
	if r.IntN(4) > 0 {
		k.JWK = fmt.Sprintf(`{"n":%d}`, r.IntN(1000))
	}
	if k.JWK == "" && r.IntN(2) == 0 {
		k.Rejected = []keys.Violation{keys.WrongUse, keys.WrongAlgorithm}
	}
	for _, at := range []*time.Time{&k.UnknownSince, &k.UnknownAt} {
		if r.IntN(3) == 0 {
			*at = r.time()
		}
	}
	return k
}

// keyCall returns what a call does, and the call, which returns its result.
func (r *random) keyCall() (what string, do func(ctx context.Context, s keyStore) any) {
	k, one, other, limit, name := r.record(), r.time(), r.time(), r.IntN(20), fmt.Sprint("name#", r.IntN(3))
	removed := k
	removed.JWK, removed.Rejected, removed.UnknownAt = "", nil, time.Time{}
	calls := []struct {
		what string
		do   func(ctx context.Context, s keyStore) (any, error)
	}{
		{"put", func(ctx context.Context, s keyStore) (any, error) { return nil, s.Put(ctx, k) }},
		{"delete", func(ctx context.Context, s keyStore) (any, error) { return nil, s.Delete(ctx, k.ID) }},
		{"remove", func(ctx context.Context, s keyStore) (any, error) { return s.Remove(ctx, removed, one) }},
		{"report unknown", func(ctx context.Context, s keyStore) (any, error) {
			return s.ReportUnknown(ctx, k.ID, one, other)
		}},
		{"take", func(ctx context.Context, s keyStore) (any, error) { return s.Take(ctx, name, limit, one) }},
		{"record source", func(ctx context.Context, s keyStore) (any, error) {
			return s.RecordSource(ctx, "source "+name, one, other, one)
		}},
		{"source", func(ctx context.Context, s keyStore) (any, error) { return s.Source(ctx, "source "+name) }},
		{"get", func(ctx context.Context, s keyStore) (any, error) { return s.Store.Get(ctx, k.ID) }},
		{"inspect", func(ctx context.Context, s keyStore) (any, error) { return s.InspectStore.Get(ctx, k.ID) }},
		{"list", func(ctx context.Context, s keyStore) (any, error) {
			all, err := s.Records(ctx)
			slices.SortFunc(all, func(a, b keys.Record) int { return cmp.Compare(a.ID, b.ID) })
			return all, err
		}},
	}
	call := calls[r.IntN(len(calls))]
	return call.what, func(ctx context.Context, s keyStore) any {
		got, err := call.do(ctx, s)
		return []any{got, err}
	}
}
