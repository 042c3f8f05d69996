package objects_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/objects"
)

func TestEachNumberOnceAndNoMoreThanTheLimitAtOnce(t *testing.T) {
	for _, test := range []struct{ n, limit, atOnce int }{{0, 4, 0}, {1, 4, 1}, {5, 1, 1}, {3, 4, 3}, {100, 4, 4}} {
		synctest.Test(t, func(t *testing.T) {
			var running, most atomic.Int64
			var mu sync.Mutex
			calls := map[int]int{}
			proceed := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				objects.Parallel(test.n, test.limit, func(i int) {
					most.Store(max(most.Load(), running.Add(1)))
					mu.Lock()
					calls[i]++
					mu.Unlock()
					<-proceed
					running.Add(-1)
				})
			}()
			synctest.Wait() // as many calls run as ever will at once
			if got := int(running.Load()); got != test.atOnce {
				t.Errorf("%d calls, limit %d: %d at once, want %d", test.n, test.limit, got, test.atOnce)
			}
			close(proceed)
			<-done
			if len(calls) != test.n || int(most.Load()) > test.limit {
				t.Errorf("%d calls, limit %d: %d numbers, up to %d at once", test.n, test.limit, len(calls),
					most.Load())
			}
			for i, n := range calls {
				if i < 0 || i >= test.n || n != 1 {
					t.Errorf("%d calls for %d", n, i)
				}
			}
		})
	}
}

// Functions that fail together do not try again together.
func TestAPauseIsARandomPartOfTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		different := map[time.Duration]bool{}
		for range 100 {
			start := time.Now()
			if err := objects.Pause(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			if different[took] = true; took > time.Second {
				t.Errorf("a pause of %s", took)
			}
		}
		if len(different) < 90 {
			t.Errorf("%d different pauses", len(different))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if err := objects.Pause(ctx, time.Hour); err == nil {
			t.Error("the end of the context is no error")
		}
	})
}
