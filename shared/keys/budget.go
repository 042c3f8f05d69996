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
	used   int       // by this cache while the table fails; more than the limit if the budget is used up
}

// usedUp reports whether the budget of this minute is known to be used up.
func (l *lookup) usedUp(b *budget) bool { return !l.use(b, 0) }

// use counts n requests of this cache. It reports whether the budget is not known to be used up.
func (l *lookup) use(b *budget, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if minute := l.now().Truncate(time.Minute); !b.minute.Equal(minute) {
		b.minute, b.used = minute, 0
	}
	b.used += n
	return b.used <= l.opts.MissBudget
}

// take takes one request from a budget, and reports whether one was left. While the table fails, every cache has its
// own budgets.
func (l *lookup) take(ctx context.Context, b *budget) bool {
	if l.usedUp(b) {
		return false
	}
	left, limit, minute := false, l.opts.MissBudget, l.now().Truncate(time.Minute)
	if l.tableFailed.Load() || l.table(ctx, func(ctx context.Context) (err error) {
		name := b.name + "#" + strconv.FormatInt(minute.Unix()/60, 10)
		left, err = l.store.Take(ctx, name, limit, minute.Add(time.Hour))
		return err
	}) {
		return l.use(b, 1)
	}
	return left || l.use(b, limit+1)
}

const (
	knownFor    = 7 * 24 * time.Hour // how long a sender is known after an authentic webhook
	recordEvery = 24 * time.Hour     // the minimum time between two records of a sender in the table
	senderPause = time.Minute        // until the table is read again for a stranger, and a failed write is repeated
)

// sighting is the last authentic webhook of a sender that the table or this cache recorded.
type sighting struct {
	at       time.Time
	recordAt time.Time // when it must be recorded again
}

// network returns the network that identifies a sender: an IPv4 address, or the /64 of an IPv6 address, because a host
// can use any address of its /64 (RFC 4291, section 2.5.1). The zero Addr gives the zero Prefix.
func network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	prefix, _ := addr.Prefix(min(addr.BitLen(), 64)) // fails only for bits that are out of range
	return prefix
}

// senderName returns the name of a sender in the table. The name contains a hash instead of the address. The hash does
// not protect against an attacker who tries all addresses.
func senderName(sender netip.Prefix) string {
	sum := sha256.Sum256([]byte(sender.String()))
	return "sender#" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// RecordSender records that an authentic webhook came from this address, so that the address can use the reserve for a
// week. Call it only after the signature was verified. It makes at most one call of the table for each address and day,
// or minute if the call fails. It returns no error, because only later webhooks benefit. It ignores the zero Addr.
//
// An attacker who repeats a captured webhook within its time window also becomes a known sender. This gives access only
// to the reserve.
func (c *Cache) RecordSender(ctx context.Context, from netip.Addr) {
	l, now := &lookup{Cache: c, sender: network(from)}, c.now()
	c.mu.Lock()
	last := c.known[l.sender]
	c.mu.Unlock()
	if !l.sender.IsValid() || now.Before(last.recordAt) {
		return
	}
	s := sighting{now, now.Add(senderPause)}
	l.table(ctx, func(ctx context.Context) error {
		at, err := c.store.RecordSender(ctx, senderName(l.sender), now, now.Add(-recordEvery), now.Add(knownFor))
		if err == nil {
			s = sighting{at, at.Add(recordEvery)}
		}
		return err
	})
	c.know(l.sender, s)
}

func (c *Cache) know(sender netip.Prefix, s sighting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pauses, sender)
	keep(c.known, sender, s)
}

// knows reports whether an authentic webhook came from the sender within a week.
func (l *lookup) knows(ctx context.Context) bool {
	now := l.now()
	l.mu.Lock()
	last, pause := l.known[l.sender], l.pauses[l.sender]
	l.mu.Unlock()
	switch {
	case now.Sub(last.at) < knownFor:
		return true
	case !l.sender.IsValid() || now.Before(pause) || l.tableFailed.Load():
		return false
	}
	var at time.Time
	switch {
	case l.table(ctx, func(ctx context.Context) (err error) {
		at, err = l.store.Sender(ctx, senderName(l.sender))
		return err
	}):
		return false
	case now.Sub(at) < knownFor:
		l.know(l.sender, sighting{at, at.Add(recordEvery)})
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	keep(l.pauses, l.sender, now.Add(senderPause))
	return false
}
