package keys

import (
	"context"
	"net/netip"
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
// webhook came from a known source, it takes one from the reserve. ok reports
// whether one was left, failed whether the table failed. While the table fails,
// every process has its own budgets.
func (c *Cache) spend(ctx context.Context, source netip.Prefix, tableFailed bool) (ok, failed bool) {
	if ok, failed = c.take(ctx, &c.misses, tableFailed); ok {
		return true, failed
	}
	known, knowFailed := c.knows(ctx, source, tableFailed || failed)
	failed = failed || knowFailed
	if !known {
		return false, failed
	}
	ok, takeFailed := c.take(ctx, &c.reserve, tableFailed || failed)
	return ok, failed || takeFailed
}

func (c *Cache) take(ctx context.Context, b *budget, tableFailed bool) (ok, failed bool) {
	now := c.opts.Now()
	minute := now.Truncate(time.Minute)
	c.mu.Lock()
	spent := b.spent.Equal(minute)
	c.mu.Unlock()
	if spent {
		return false, false
	}
	if !tableFailed {
		var left bool
		err := c.withTable(ctx, func(ctx context.Context) (err error) {
			left, err = c.table.spend(ctx, b.name, now, b.limit)
			return err
		})
		if err == nil {
			if !left {
				c.mu.Lock()
				b.spent = minute
				c.mu.Unlock()
			}
			return left, false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.local.Equal(minute) {
		b.local, b.used = minute, 0
	}
	if b.used >= b.limit {
		return false, true
	}
	b.used++
	return true, true
}
