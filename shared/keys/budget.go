package keys

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
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

const (
	// knownFor is how long a source is known after an authentic webhook.
	knownFor = 7 * 24 * time.Hour
	// recordEvery is the minimum time between two records of a source in the table.
	recordEvery = 24 * time.Hour
	// sourcePause is how long a source stays a stranger before the table is read again, and how long a write that
	// failed is not tried again.
	sourcePause = time.Minute
)

// sighting is the last authentic webhook of a source that the table or this process recorded.
type sighting struct {
	at       time.Time
	recordAt time.Time // when it must be recorded again
}

// network returns the network that identifies a source: an IPv4 address, or the /64 of an IPv6 address, because a host
// can use any address of its /64 (RFC 4291, section 2.5.1). The zero Addr gives the zero Prefix.
func network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits) // fails only for bits that are out of range
	return prefix
}

// sourceName returns the name of a source in the table. The name contains a hash instead of the address. The hash does
// not protect against an attacker who tries all addresses.
func sourceName(source netip.Prefix) string {
	sum := sha256.Sum256([]byte(source.String()))
	return "source#" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// RecordSource records that an authentic webhook came from this address, so that the address can use the reserve for a
// week. Call it only after the signature was verified. It makes at most one call of the table for each address and day,
// or minute if the call fails. It returns no error, because only later webhooks benefit. It ignores the zero Addr.
//
// An attacker who repeats a captured webhook within its time window also becomes a known source. This gives access only
// to the reserve.
func (c *Cache) RecordSource(ctx context.Context, from netip.Addr) {
	l, now := &lookup{Cache: c, source: network(from)}, c.opts.Now()
	c.mu.Lock()
	last := c.known[l.source]
	c.mu.Unlock()
	if !l.source.IsValid() || now.Before(last.recordAt) {
		return
	}
	at, err := withTable(ctx, l, func(ctx context.Context) (time.Time, error) {
		return c.store.RecordSource(ctx, sourceName(l.source), now.Truncate(time.Millisecond), now.Add(-recordEvery),
			now.Add(knownFor))
	})
	s := sighting{at, at.Add(recordEvery)}
	if err != nil {
		s = sighting{now, now.Add(sourcePause)}
	}
	c.know(l.source, s)
}

func (c *Cache) know(source netip.Prefix, s sighting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pauses, source)
	keep(c.known, source, s)
}

// knows reports whether an authentic webhook came from the source within a week.
func (l *lookup) knows(ctx context.Context) bool {
	now := l.opts.Now()
	l.mu.Lock()
	last, pause := l.known[l.source], l.pauses[l.source]
	l.mu.Unlock()
	switch {
	case now.Sub(last.at) < knownFor:
		return true
	case !l.source.IsValid() || now.Before(pause) || l.tableFailed:
		return false
	}
	at, err := withTable(ctx, l, func(ctx context.Context) (time.Time, error) {
		return l.store.Source(ctx, sourceName(l.source))
	})
	switch {
	case err != nil:
		return false
	case now.Sub(at) < knownFor:
		l.know(l.source, sighting{at, at.Add(recordEvery)})
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	keep(l.pauses, l.source, now.Add(sourcePause))
	return false
}
