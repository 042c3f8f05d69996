package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"payhook.example/shared/objects"
)

// key returns one of few keys, of which many begin with others.
func (r *random) key() (key string) {
	for range 1 + r.IntN(3) {
		key += []string{"a", "a/", "B", "a-", "0.json", "ü"}[r.IntN(6)]
	}
	return key
}

// objectCall returns what a call does, and the call, which returns its result.
func (r *random) objectCall() (what string, do func(ctx context.Context, s objects.Store) any) {
	key, after, limit := r.key(), "", 1+r.IntN(8)
	body := bytes.Repeat([]byte{byte('a' + r.IntN(26))}, r.IntN(4)*r.IntN(10))
	switch r.IntN(8) {
	case 0:
		return "put " + key, func(ctx context.Context, s objects.Store) any {
			mine := bytes.Clone(body)
			defer clear(mine) // what is stored stays
			return s.Put(ctx, key, mine)
		}
	case 1, 2:
		return "create " + key, func(ctx context.Context, s objects.Store) any {
			mine := bytes.Clone(body)
			defer clear(mine)
			existed, err := s.Create(ctx, key, mine)
			return []any{existed, err}
		}
	case 3, 4:
		limit = r.IntN(30)
		return fmt.Sprint("get ", key, limit), func(ctx context.Context, s objects.Store) any {
			found, err := s.Get(ctx, key, limit)
			defer clear(found)
			return []any{string(found), err}
		}
	}
	prefix := key
	if r.IntN(2) == 0 {
		prefix, after = "", r.key()
	}
	return fmt.Sprintf("list %q after %q, %d", prefix, after, limit), func(ctx context.Context, s objects.Store) any {
		page, more, err := s.List(ctx, prefix, after, limit)
		for n, o := range page {
			if o.StoredAt.IsZero() {
				err = errors.New("no time of " + o.Key)
			}
			page[n].StoredAt = time.Time{} // the clocks differ
		}
		return []any{append([]objects.Object{}, page...), more, err}
	}
}
