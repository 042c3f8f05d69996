package storetest

import (
	"context"
	"fmt"
	"testing"

	"payhook.example/shared/token"
)

// Token makes n random calls of stores and of one in memory, and fails the test if their results differ. The stores
// must be empty.
func Token(t *testing.T, seed uint64, n int, stores ...token.Store) {
	t.Helper()
	r := newRandom(seed)
	stores = append([]token.Store{&token.Memory{}}, stores...)
	for call := range n {
		text, saves := fmt.Sprintf(`{"%0*d":"ü\n"}`, r.IntN(4000), call), r.IntN(10) == 0
		compare(t, fmt.Sprintf("seed %d, call %d", seed, call), stores, func(ctx context.Context, s token.Store) any {
			if saves {
				return s.Save(ctx, text)
			}
			text, err := s.Load(ctx)
			return []any{text, err}
		})
	}
}
