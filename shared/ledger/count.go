package ledger

import (
	"fmt"
	"time"
)

// Counts are of items that are pending.
type Counts struct {
	Pending int
	Overdue int
	Oldest  time.Time // when the oldest was recorded
	Damaged []string  // each event that could not be decoded, with the error
}

// Count counts items that are pending.
func Count(items []Item, now time.Time) Counts {
	n := Counts{Pending: len(items), Oldest: now}
	for _, item := range items {
		if item.Overdue(now) {
			n.Overdue++
		}
		if !item.RecordedAt.IsZero() && item.RecordedAt.Before(n.Oldest) {
			n.Oldest = item.RecordedAt
		}
		if item.Err != nil {
			n.Damaged = append(n.Damaged, fmt.Sprintf("%s: %v", item.EventID, item.Err))
		}
	}
	return n
}
