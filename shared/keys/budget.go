package keys

import (
	"context"
	"strconv"
	"time"
)

// budget limits the requests per minute for ids that are not cached. The cache's mu guards it.
type budget struct {
	name  string // of its items in the table
	limit int

	spent time.Time // the minute in which the budget in the table is used up
	local time.Time // the minute that used belongs to, while the table fails
	used  int
}

// spend takes one request from the budget of misses. If this is used up and the webhook came from a known source, it
// takes one from the reserve. It reports whether one was left. While the table fails, every process has its own
// budgets.
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
			name := b.name + "#" + strconv.FormatInt(minute.Unix()/60, 10)
			left, err = l.store.Take(ctx, name, b.limit, minute.Add(time.Hour))
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

// TakeHourly takes one from a budget of this hour, which all functions share, and reports whether one was left. name
// must not be one of this package.
func TakeHourly(ctx context.Context, store Store, name string, now time.Time, limit int) (bool, error) {
	hour := now.Truncate(time.Hour)
	return store.Take(ctx, name+"#"+strconv.FormatInt(hour.Unix()/3600, 10), limit, hour.Add(2*time.Hour))
}
