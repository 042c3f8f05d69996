package keys

import (
	"context"
	"strconv"
	"time"
)

// budget limits the requests per minute for ids that are not cached. The cache's mu guards it.
type budget struct {
	name   string    // of its items in the table
	minute time.Time // that used belongs to
	used   int       // by this process while the table fails; more than the limit if the budget is used up
}

// spend takes one request from the budget of misses. If this is used up and the webhook came from a known source, it
// takes one from the reserve. It reports whether one was left. While the table fails, every process has its own
// budgets.
func (l *lookup) spend(ctx context.Context) bool {
	return l.take(ctx, &l.misses) || l.knows(ctx) && l.take(ctx, &l.reserve)
}

func (l *lookup) take(ctx context.Context, b *budget) bool {
	minute, limit := l.opts.Now().Truncate(time.Minute), l.opts.MissBudget
	use := func(n int) (left bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !b.minute.Equal(minute) {
			b.minute, b.used = minute, 0
		}
		b.used += n
		return b.used <= limit
	}
	if !use(0) {
		return false
	}
	if !l.tableFailed {
		left, err := withTable(ctx, l, func(ctx context.Context) (bool, error) {
			return l.store.Take(ctx, b.name+"#"+strconv.FormatInt(minute.Unix()/60, 10), limit, minute.Add(time.Hour))
		})
		if err == nil {
			if !left {
				use(limit + 1)
			}
			return left
		}
	}
	return use(1)
}
