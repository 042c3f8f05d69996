package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/token"
)

// Token makes n random calls of each store and fails the test if their results differ. The stores must be empty.
func Token(t *testing.T, seed uint64, n int, stores ...token.Store) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	for call := range n {
		text, saves := fmt.Sprintf(`{"%0*d":"ü\n"}`, r.IntN(4000), call), r.IntN(10) == 0
		do := func(s token.Store) any {
			if saves {
				return s.Save(t.Context(), text)
			}
			text, err := s.Load(t.Context())
			return []any{text, err}
		}
		want := do(stores[0])
		for _, other := range stores[1:] {
			if diff := cmp.Diff(want, do(other), cmpopts.EquateErrors()); diff != "" {
				t.Fatalf("seed %d, call %d (-%T +%T):\n%s", seed, call, stores[0], other, diff)
			}
		}
	}
}
