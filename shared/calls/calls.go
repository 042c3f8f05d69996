// Package calls says how calls of the stores are repeated, split, and made at the same time.
package calls

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Attempts is how often a call of a store is tried in total. With the pauses of [Backoff], the
// last attempt begins at least 3.2 s after the first, and at most 6.6 s plus the time of the calls.
const Attempts = 12

// Backoff returns the longest pause after an attempt of a store, the first of which is 1: 25 ms,
// doubled each time up to a second.
func Backoff(attempt int) time.Duration {
	return min(25*time.Millisecond<<min(max(attempt, 1)-1, 6), time.Second)
}

// PauseOf returns how much of the longest pause to wait: at random, but at least half, so that the
// sum has a lower limit. A test that needs the same pauses in every run sets it before it makes any call.
var PauseOf = func(longest time.Duration) time.Duration { return longest/2 + rand.N(longest/2+1) }

// Pause waits for a random part of the longest pause ([PauseOf]), so that functions that fail together
// do not try again together. It returns as soon as ctx has ended, with the error of ctx.
func Pause(ctx context.Context, longest time.Duration) error {
	timer := time.NewTimer(PauseOf(longest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() // also if both end together
}

// Parallel calls do once for each number from 0 to n-1, with at most limit calls at the same time, and returns when all
// calls have returned. The caller's goroutine makes calls as well, so a single call starts no other goroutine.
func Parallel(n, limit int, do func(i int)) {
	if min(n, limit) <= 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
			do(i - 1)
		}
	}
	var wg sync.WaitGroup
	for range min(n, limit) - 1 {
		wg.Go(func() {
			growStack()
			work()
		})
	}
	work()
	wg.Wait()
}

// Split returns the positions from 0 to n-1 in order, in parts with at most so many elements and at most so many bytes,
// unless an element is larger: where each part begins and ends.
func Split(n, elements, bytes int, sizeOf func(i int) int) iter.Seq2[int, int] {
	return func(yield func(begin, end int) bool) {
		begin, sum := 0, 0
		for i := range n {
			size := sizeOf(i)
			if i > begin && (i-begin == elements || sum+size > bytes) {
				if !yield(begin, i) {
					return
				}
				begin, sum = i, 0
			}
			sum += size
		}
		if begin < n {
			yield(begin, n)
		}
	}
}

// growStack makes the stack of a new goroutine as large as a call of the AWS SDK needs. The
// runtime begins with 2 to 8 KiB and copies the stack each time it doubles it, which takes
// longer the more functions are on it. That was 7 % of the CPU time of a delivery of 100 events.
//
//go:noinline
func growStack() {
	var frame [24 << 10]byte
	touch(&frame)
}

//go:noinline
func touch(*[24 << 10]byte) {}
