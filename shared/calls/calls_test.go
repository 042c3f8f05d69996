package calls_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/calls"
)

func TestEachNumberOnceAndNoMoreThanTheLimitAtOnce(t *testing.T) {
	for _, test := range []struct{ n, limit, atOnce int }{{0, 4, 0}, {1, 4, 1}, {5, 1, 1}, {3, 4, 3}, {100, 4, 4}} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			running, most, made := 0, 0, make([]int, test.n)
			proceed, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				calls.Parallel(test.n, test.limit, func(i int) {
					mu.Lock()
					running++
					most = max(most, running)
					made[i]++
					mu.Unlock()
					<-proceed
					mu.Lock()
					running--
					mu.Unlock()
				})
			}()
			synctest.Wait() // as many made run as ever will at once
			if running != test.atOnce {
				t.Errorf("%d made, limit %d: %d at once, want %d", test.n, test.limit, running, test.atOnce)
			}
			close(proceed)
			<-done
			if running != 0 || most > test.limit || !slices.Equal(made, slices.Repeat([]int{1}, test.n)) {
				t.Errorf("%d made, limit %d: %d at once, of %v; %d run", test.n, test.limit, most, made, running)
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
			if err := calls.Pause(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			if different[took] = true; took < time.Second/2 || took > time.Second {
				t.Errorf("a pause of %s", took)
			}
		}
		if len(different) < 90 {
			t.Errorf("%d different pauses", len(different))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if err := calls.Pause(ctx, time.Hour); err == nil {
			t.Error("the end of the context is no error")
		}
	})
	for attempt, want := range map[int]time.Duration{0: 25, 1: 25, 2: 50, 6: 800, 7: 1000, 99: 1000} {
		if got := calls.Backoff(attempt); got != want*time.Millisecond {
			t.Errorf("after attempt %d: %s", attempt, got)
		}
	}
}

func TestAPartHasAtMostSoManyElementsAndBytes(t *testing.T) {
	for _, test := range []struct{ sizes, parts []int }{
		{nil, nil}, {[]int{1, 1, 1, 1, 1, 1, 1}, []int{3, 6, 7}}, {[]int{4, 4, 2, 8}, []int{3, 4}},
		{[]int{4, 4, 3, 8}, []int{2, 3, 4}}, {[]int{20, 1, 20}, []int{1, 2, 3}}, {[]int{10}, []int{1}},
	} {
		var ends []int
		begin := 0
		for b, e := range calls.Split(len(test.sizes), 3, 10, func(i int) int { return test.sizes[i] }) {
			if b != begin {
				t.Errorf("%v: from %d, want %d", test.sizes, b, begin)
			}
			begin, ends = e, append(ends, e)
		}
		if !slices.Equal(ends, test.parts) {
			t.Errorf("%v: %v, want %v", test.sizes, ends, test.parts)
		}
	}
	for range calls.Split(2, 1, 1, func(int) int { return 1 }) {
		break // and no further part is made
	}
}
