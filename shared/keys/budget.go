package keys

import (
	"context"
	"time"
)

// budget limits the requests per minute for ids that are not cached. The cache's mu
// guards it.
type budget struct {
	name  string // of its items in the table
	limit int

	spent time.Time // the minute in which the budget in the table is used up
	local time.Time // the minute that used belongs to, while the table fails
	used  int
}

// spend takes one request from the budget of misses. If this is used up and the
// webhook came from a known source, it takes one from the reserve. It reports whether
// one was left. While the table fails, every process has its own budgets.
func (l *lookup) spend(ctx context.Context) bool {
	return l.take(ctx, &l.misses) || l.knows(ctx) && l.take(ctx, &l.reserve)
}

func (l *lookup) take(ctx context.Context, b *budget) bool {
	now := l.opts.Now()
	minute := now.Truncate(time.Minute)
	l.mu.Lock()
	spent := b.spent.Equal(minute)
	l.mu.Unlock()
	if spent {
		return false
	}
	if !l.tableFailed {
		var left bool
		err := l.withTable(ctx, func(ctx context.Context) (err error) {
			left, err = l.table.spend(ctx, b.name, now, b.limit)
			return err
		})
		if err == nil {
			if !left {
				l.mu.Lock()
				b.spent = minute
				l.mu.Unlock()
			}
			return left
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !b.local.Equal(minute) {
		b.local, b.used = minute, 0
	}
	if b.used >= b.limit {
		return false
	}
	b.used++
	return true
}
