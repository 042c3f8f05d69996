package storetest

import (
	"context"
	"fmt"
	"testing"

	"payhook.example/shared/token"
)

// Token makes n random calls of stores that have the same text, and fails the test if their results differ. The first
// is the one in memory.
func Token(t *testing.T, seed uint64, n int, stores ...token.Store) {
	t.Helper()
	r := newRandom(seed)
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
