// Package parallel makes calls at the same time, up to a limit.
package parallel

import "golang.org/x/sync/errgroup"

// Each calls do once for each number from 0 to n-1, with at most limit calls at
// the same time, and returns when all calls have returned. A single call is made
// in the caller's goroutine.
func Each(n, limit int, do func(i int)) {
	if n == 1 || limit == 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var g errgroup.Group
	g.SetLimit(limit)
	for i := range n {
		g.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = g.Wait() // do returns no error
}
