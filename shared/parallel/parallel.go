// Package parallel makes calls at the same time, up to a limit.
package parallel

import (
	"sync"
	"sync/atomic"
)

// Each calls do once for each number from 0 to n-1, with at most limit calls at
// the same time, and returns when all calls have returned. The caller's goroutine
// makes calls as well, so a single call starts no other goroutine.
func Each(n, limit int, do func(i int)) {
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
