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

// compareKeys makes n random calls of a store and of one in memory, and fails the test if their results differ. The
// store must be empty.
func compareKeys(t *testing.T, seed uint64, n int, store keyStore) {
	t.Helper()
	m, r := &keys.Memory{}, newRandom(seed)
	stores := []keyStore{{m, m}, store}
	for call := range n {
		what, do := r.keyCall()
		compare(t, fmt.Sprintf("seed %d, call %d, %s", seed, call, what), stores, do)
	}
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
	k, one, other, name := r.record(), r.time(), r.time(), fmt.Sprint("name#", r.IntN(3))
	result := func(values ...any) any { return values }
	switch r.IntN(11) {
	case 0, 1:
		return "put", func(ctx context.Context, s keyStore) any { return s.Put(ctx, k) }
	case 2, 3:
		k.JWK, k.Rejected, k.UnknownAt = "", nil, time.Time{}
		return "remove", func(ctx context.Context, s keyStore) any {
			kept, err := s.Remove(ctx, k, one)
			return result(kept, err)
		}
	case 4, 5:
		return "report unknown", func(ctx context.Context, s keyStore) any {
			found, err := s.ReportUnknown(ctx, k.ID, one, other)
			return result(found, err)
		}
	case 6:
		limit := r.IntN(20)
		return "take", func(ctx context.Context, s keyStore) any {
			left, err := s.Take(ctx, name, limit, one)
			return result(left, err)
		}
	case 7:
		return "record source", func(ctx context.Context, s keyStore) any {
			at, err := s.RecordSource(ctx, "source "+name, one, other, one)
			seen, failed := s.Source(ctx, "source "+name)
			return result(at, err, seen, failed)
		}
	case 8:
		return "list", func(ctx context.Context, s keyStore) any {
			all, err := s.Records(ctx)
			slices.SortFunc(all, func(a, b keys.Record) int { return cmp.Compare(a.ID, b.ID) })
			return result(all, err)
		}
	case 9:
		return "delete", func(ctx context.Context, s keyStore) any { return s.Delete(ctx, k.ID) }
	}
	return "get", func(ctx context.Context, s keyStore) any {
		found, err := s.Store.Get(ctx, k.ID)
		again, failed := s.InspectStore.Get(ctx, k.ID)
		seen, unseen := s.Source(ctx, "source "+name)
		return result(found, err, again, failed, seen, unseen)
	}
}
