package keys

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"time"
)

const (
	// knownFor is how long after an authentic webhook its source is known.
	knownFor = 7 * 24 * time.Hour
	// recordEvery is how often the table is told again that a source is known.
	recordEvery = 24 * time.Hour
	// sourcePause is how long a source stays a stranger before the table is read
	// again, and how long a write that failed is not tried again.
	sourcePause = time.Minute
)

// sources are the networks that webhooks come from. The cache's mu guards them.
type sources struct {
	known     map[netip.Prefix]sighting  // have sent an authentic webhook
	strangers map[netip.Prefix]time.Time // until when the table is not read again
}

// sighting is the last authentic webhook of a source that the table or this
// process recorded.
type sighting struct {
	at       time.Time
	recordAt time.Time // when it is to be recorded again
}

// network returns what counts as one source: an IPv4 address, or the /64 of an
// IPv6 address, which is what one host is given (RFC 4291, section 2.5.1) and
// from which it can use any address. The zero Addr gives the zero Prefix.
func network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits) // fails only for bits that are out of range
	return prefix
}

// sourceName is the name of a source in the table. Its hash keeps the address
// itself out of the table; it does not hide it from somebody who tries all
// addresses.
func sourceName(source netip.Prefix) string {
	sum := sha256.Sum256([]byte(source.String()))
	return "source#" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// RecordSource records that an authentic webhook came from this address, so
// that the address may use the reserve for a week. Call it only after the
// signature was verified. It makes at most one call of the table for each
// address and day, or minute if the call fails, and reports no error: it is an
// aid for later webhooks. The zero Addr is ignored.
//
// Somebody who can repeat a captured webhook within its time window becomes
// known too. That gives access to the reserve and to nothing else.
func (c *Cache) RecordSource(ctx context.Context, from netip.Addr) {
	source := network(from)
	if !source.IsValid() {
		return
	}
	now := c.opts.Now()
	c.mu.Lock()
	last, ok := c.sources.known[source]
	c.mu.Unlock()
	if ok && now.Before(last.recordAt) {
		return
	}
	recorded := now
	err := c.withTable(ctx, func(ctx context.Context) (err error) {
		recorded, err = c.table.recordSource(ctx, sourceName(source), now)
		return err
	})
	if err != nil {
		c.know(source, sighting{now, now.Add(sourcePause)})
		return
	}
	c.know(source, sighting{recorded, recorded.Add(recordEvery)})
}

func (c *Cache) know(source netip.Prefix, s sighting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sources.strangers, source)
	if len(c.sources.known) >= maxRemembered {
		clear(c.sources.known)
	}
	c.sources.known[source] = s
}

// knows reports whether an authentic webhook came from a source within a week.
func (c *Cache) knows(ctx context.Context, source netip.Prefix, tableFailed bool) (known, failed bool) {
	if !source.IsValid() {
		return false, false
	}
	now := c.opts.Now()
	c.mu.Lock()
	last, ok := c.sources.known[source]
	stranger := now.Before(c.sources.strangers[source])
	c.mu.Unlock()
	switch {
	case ok && now.Sub(last.at) < knownFor:
		return true, false
	case stranger || tableFailed:
		return false, false
	}
	var at time.Time
	err := c.withTable(ctx, func(ctx context.Context) (err error) {
		at, err = c.table.sourceSeen(ctx, sourceName(source))
		return err
	})
	if err != nil {
		return false, true
	}
	if now.Sub(at) < knownFor {
		c.know(source, sighting{at, at.Add(recordEvery)})
		return true, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sources.strangers) >= maxRemembered {
		clear(c.sources.strangers)
	}
	c.sources.strangers[source] = now.Add(sourcePause)
	return false, false
}
