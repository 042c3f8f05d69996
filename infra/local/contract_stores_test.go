package local

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// compare makes a call of each store and fails the test if a result differs from that of the first one.
func compare[S any](t *testing.T, what string, stores []S, do func(context.Context, S) any) {
	t.Helper()
	compareLater(t, what, 0, stores, do)
}

// compareLater repeats a call that only reads for that long until the results are the same.
func compareLater[S any](t *testing.T, what string, wait time.Duration, stores []S, do func(context.Context, S) any) {
	t.Helper()
	want := do(t.Context(), stores[0])
	for n, other := range stores[1:] {
		for deadline := time.Now().Add(wait); ; {
			diff := different(want, do(t.Context(), other))
			if diff == "" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s (-store 0 +store %d):\n%s", what, n+1, diff)
			}
		}
	}
}

// compareCalls makes n random calls of each store and fails the test if a result differs from that of the first one.
func compareCalls[S any](t *testing.T, seed uint64, n int, stores []S,
	random func(*random) (what string, call func(context.Context, S) any)) {
	t.Helper()
	r := newRandom(seed)
	for number := range n {
		what, call := random(r)
		compare(t, fmt.Sprintf("seed %d, call %d, %s", seed, number, what), stores, call)
	}
}

// different returns how two results differ; "" if they do not.
func different(a, b any) string {
	if reflect.DeepEqual(a, b) { // much faster
		return ""
	}
	return cmp.Diff(a, b, cmpopts.EquateErrors())
}

// atOnce makes a call ten times at the same time, and returns how often it was true.
func atOnce[S any](call func(ctx context.Context, s S, n int) bool) func(context.Context, S) any {
	return func(ctx context.Context, s S) any {
		var done atomic.Int32
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() {
				if call(ctx, s, n) {
					done.Add(1)
				}
			})
		}
		all.Wait()
		return done.Load()
	}
}

// random chooses calls about few events, so that they meet.
type random struct{ *rand.Rand }

func newRandom(seed uint64) *random { return &random{rand.New(rand.NewPCG(seed, 0))} }

const fewEvents = 6

func idOf(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n) }

func (r *random) id() string { return idOf(r.IntN(fewEvents)) }

func allIDs() (all []string) {
	for n := range fewEvents {
		all = append(all, idOf(n))
	}
	return all
}

// time returns one of few times. Some have fewer digits: they are numbers in a table.
func (r *random) time() time.Time {
	if n := r.IntN(16); n < 3 {
		return time.UnixMilli([]int64{9000, 10_000, 99_000}[n]).UTC()
	}
	return time.UnixMilli(1769860800123 + 1000*r.Int64N(4)).UTC()
}

// some returns one of these, often the zero value.
func some[T any](r *random, of ...T) (t T) {
	if n := r.IntN(2 * len(of)); n < len(of) {
		return of[n]
	}
	return t
}
