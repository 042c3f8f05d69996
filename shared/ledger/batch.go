package ledger

import "payhook.example/shared/objects"

// maxBatchBytes is the largest sum of events in a batch of requests or, if it leases them,
// of answers. No event is as large. AWS
// documents no limit for BatchExecuteStatement; BatchWriteItem takes 16 MB.
const maxBatchBytes = 1 << 20

// inBatches calls do for each batch of n elements of these sizes, several at the same
// time, with the elements from begin to before end.
func (l *Ledger) inBatches(n int, size func(i int) int, do func(begin, end int)) {
	var ends []int
	var begin, bytes int
	for i := range n {
		if i-begin == l.opts.Batch || bytes+size(i) > maxBatchBytes {
			ends = append(ends, i)
			begin, bytes = i, 0
		}
		bytes += size(i)
	}
	if n > 0 {
		ends = append(ends, n)
	}
	objects.Parallel(len(ends), l.opts.Parallel, func(n int) {
		begin := 0
		if n > 0 {
			begin = ends[n-1]
		}
		do(begin, ends[n])
	})
}

// ofNoSize is the size of what does not count.
func ofNoSize(int) int { return 0 }
