// Package keys finds the public key that a key id names.
//
// It guarantees that a key is used only if its JWK is what section 2.6 of the
// payment service's interface says and nothing else ([ParseJWK]), and that it
// is never used longer than Options.MaxAge after the service was asked for it.
//
// [Cache.Lookup] looks in memory, then in the DynamoDB table that all
// functions share, then asks the service ([Origin]). A table that is broken or
// slow costs time and shared knowledge, never an answer.
//
// # Withdrawal
//
// The interface shows no error bodies (section 7), so a 404 or 410 of the
// service cannot be told from one of a gateway in front of it. For an id of
// which no key is cached, each of them means "unknown". A cached key is removed
// only if the service answers "unknown" again at least Options.UnknownGrace
// after the first such answer, and gave the key at no time in between. Until
// then the key is used, and each Found that holds it is Stale and Withdrawn. The
// time of the first answer is in the table, beside the key, so the rule holds
// for all functions together. While the table is broken it holds for each
// process on its own.
//
// During that time the service is asked about the key at most every
// Options.RetryPause, over all functions together (two that ask at the same
// moment both ask), and only if a webhook needs the key. These calls spend no
// budget, since the key is known.
//
// A JWK that the policy refuses removes the cached key at once: the service
// itself sent it, as JSON and with status 200, and it describes a key that must
// not be used.
//
// # Budgets
//
// Every key id has its own URL, so invented ids could make the functions ask
// the service without limit. Two budgets limit this, over all functions
// together: Options.MissBudget calls a minute for everybody, and when these are
// spent, Options.MissReserve calls a minute for source addresses that have sent
// an authentic webhook within a week ([Cache.RecordSource]). So invented ids
// from strangers cannot block the ids of new real keys. The service is asked at
// most MissBudget + MissReserve times a minute for ids that are not cached.
//
// What this costs in DynamoDB: one conditional write for each function process,
// source address and day, after a webhook was verified; it changes the item once
// a day. When the budget of a minute is spent, one read for each process, source
// address and minute. A webhook whose key is in memory costs no call at all.
package keys

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"payhook.example/shared/rfc9562"
)

// The ways in which a lookup fails. Every error of this package wraps one of
// them or is a [*PolicyError].
var (
	// ErrMalformedID is returned for a key id that is not a UUID. No call is made.
	ErrMalformedID = errors.New("key id is not a UUID")
	// ErrUnknown is returned when the service does not know the id, and no key is
	// cached that may still be used.
	ErrUnknown = errors.New("unknown key")
	// ErrUnavailable is returned when the service does not answer, or answers with
	// something that is not a key, and no key is cached that may still be used.
	ErrUnavailable = errors.New("key service unavailable")
	// ErrOutOfBudget is returned when the id is not cached and the budgets of this
	// minute are spent. The id may be that of a real key.
	ErrOutOfBudget = errors.New("key lookups out of budget")
)

// Options configure a [Cache]. The zero value of each stands for the default
// that is named.
type Options struct {
	Exponents []int         // public exponents that are allowed; 65537
	Freshness time.Duration // age at which a key is fetched again; 1 hour
	MaxAge    time.Duration // age from which a key is not used; 24 hours
	// UnknownGrace is how long the service must call a cached key unknown before
	// the key is removed; 5 minutes.
	UnknownGrace time.Duration
	UnknownTTL   time.Duration // how long an id that is not cached stays unknown; 1 minute
	MissBudget   int           // calls a minute for ids that are not cached; 60
	MissReserve  int           // as many more for known source addresses; 60
	// TableTimeout bounds each call of the table; 500 ms.
	TableTimeout time.Duration
	// RetryPause is the time between two calls for a cached key that the service
	// did not give; 10 seconds.
	RetryPause time.Duration
	// RefetchAge is the age from which [Cache.Refetch] asks again; 1 minute.
	RefetchAge time.Duration
	Now        func() time.Time // time.Now
}

func (o *Options) setDefaults() {
	if o.Exponents == nil {
		o.Exponents = []int{65537}
	}
	for _, d := range []struct {
		option *time.Duration
		value  time.Duration
	}{
		{&o.Freshness, time.Hour},
		{&o.MaxAge, 24 * time.Hour},
		{&o.UnknownGrace, 5 * time.Minute},
		{&o.UnknownTTL, time.Minute},
		{&o.TableTimeout, 500 * time.Millisecond},
		{&o.RetryPause, 10 * time.Second},
		{&o.RefetchAge, time.Minute},
	} {
		if *d.option == 0 {
			*d.option = d.value
		}
	}
	for _, n := range []*int{&o.MissBudget, &o.MissReserve} {
		if *n == 0 {
			*n = 60
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Source is where a lookup found its answer.
type Source string

// The sources of an answer.
const (
	Memory      Source = "memory"
	SharedTable Source = "table"
	Service     Source = "origin"
	Stale       Source = "stale" // cached, and due to be fetched again: the service did not give it
)

// Found is the result of a lookup. A lookup that fails fills in everything but
// the key.
type Found struct {
	Key       *rsa.PublicKey
	FetchedAt time.Time // when the service was asked for the key
	Source    Source
	// Withdrawn reports that the service gave this key before and does not any
	// more: it calls the id unknown, or sends a key that the policy refuses. With a
	// Key, the key is within Options.UnknownGrace; without one, it was removed.
	Withdrawn bool
	// TableFailed reports that the shared table could not be used.
	TableFailed bool
}

// maxRemembered bounds the memory that strangers can make a process use.
const maxRemembered = 4096

// maxSkew is how far the clock of another function may be ahead of ours. A
// record from further in the future would never grow old.
const maxSkew = 5 * time.Minute

// Cache finds keys by their ids. It is safe for concurrent use.
type Cache struct {
	origin interface {
		Fetch(ctx context.Context, id string) ([]byte, error)
	}
	table  *Table
	opts   Options
	flight singleflight.Group

	mu      sync.Mutex
	keys    map[string]*entry
	unknown map[string]unknown
	misses  budget
	reserve budget
	sources sources
}

// entry is a cached key, or with a nil key what the table says of an unknown
// id. It never changes.
type entry struct {
	key       *rsa.PublicKey
	fetchedAt time.Time
	// unknownSince is when the service first answered that it does not know the id
	// of a key that it had given; zero if it has not.
	unknownSince time.Time
	retryAt      time.Time // not asked again before then
	expires      time.Time // from the table: when it may delete the item
}

// unknown says how long an id stays unknown.
type unknown struct {
	until     time.Time
	withdrawn bool
}

func (e *entry) withdrawn() bool { return !e.unknownSince.IsZero() }

func (e *entry) found(from Source) Found {
	return Found{Key: e.key, FetchedAt: e.fetchedAt, Source: from, Withdrawn: e.withdrawn()}
}

// New returns a cache in front of origin that shares what it learns by table.
func New(origin *Origin, table *Table, opts Options) *Cache {
	opts.setDefaults()
	return &Cache{
		origin:  origin,
		table:   table,
		opts:    opts,
		keys:    map[string]*entry{},
		unknown: map[string]unknown{},
		misses:  budget{name: "misses", limit: opts.MissBudget},
		reserve: budget{name: "reserve", limit: opts.MissReserve},
		sources: sources{known: map[netip.Prefix]sighting{}, strangers: map[netip.Prefix]time.Time{}},
	}
}

// Lookup returns the key of that id, from memory if it is fresh there. from is
// the address that the webhook came from; the zero Addr counts as a stranger's.
// Concurrent lookups of one id cost one fetch. The fetch goes on when ctx ends,
// for as long as the timeouts of table and origin allow, so that its result is
// not lost to the others that wait for it.
//
// The error wraps [ErrMalformedID], [ErrUnknown], [ErrUnavailable],
// [ErrOutOfBudget] or ctx's, or is a [*PolicyError].
func (c *Cache) Lookup(ctx context.Context, id string, from netip.Addr) (Found, error) {
	if !rfc9562.Valid(id) {
		return Found{}, fmt.Errorf("keys: %w", ErrMalformedID)
	}
	if found, err, ok := c.remembered(id); ok {
		return found, err
	}
	source := network(from)
	// A stranger's lookup of the same id must not decide over a known source's.
	return c.once(ctx, id+" "+source.String(), func(ctx context.Context) (Found, error) { return c.find(ctx, id, source) })
}

// Refetch asks the service again for a key under which a signature did not
// verify, since the service may have published another key under the same id.
// It returns the key that was found if it is another one, and nil otherwise. A
// key younger than a minute is not asked for again, and the budgets limit how
// often forged signatures can make the functions ask. from is as for Lookup.
func (c *Cache) Refetch(ctx context.Context, id string, failed Found, from netip.Addr) (Found, error) {
	now := c.opts.Now()
	if now.Sub(failed.FetchedAt) < c.opts.RefetchAge {
		return Found{}, nil
	}
	if e := c.entry(id); e != nil && now.Before(e.retryAt) {
		return Found{}, nil
	}
	source := network(from)
	found, err := c.once(ctx, "refetch "+id+" "+source.String(), func(ctx context.Context) (Found, error) {
		return c.refetch(ctx, id, failed, source)
	})
	if err != nil || found.Key == nil || found.Key.Equal(failed.Key) {
		found.Key = nil
	}
	return found, err
}

// once runs work for all callers that ask at one time.
func (c *Cache) once(ctx context.Context, name string, work func(context.Context) (Found, error)) (Found, error) {
	result := c.flight.DoChan(name, func() (any, error) { return work(context.WithoutCancel(ctx)) })
	select {
	case r := <-result:
		return r.Val.(Found), r.Err
	case <-ctx.Done():
		return Found{}, fmt.Errorf("keys: %w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

func (c *Cache) entry(id string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys[id]
}

// fresh reports whether a key can be used without asking the service.
func (c *Cache) fresh(e *entry, now time.Time) bool {
	return !e.withdrawn() && now.Sub(e.fetchedAt) < c.opts.Freshness
}

// remembered answers from memory alone. It reports false if memory does not
// know, or no longer well enough.
func (c *Cache) remembered(id string) (Found, error, bool) {
	now := c.opts.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.keys[id]; e != nil {
		switch age := now.Sub(e.fetchedAt); {
		case c.fresh(e, now):
			return e.found(Memory), nil, true
		case age < c.opts.MaxAge && now.Before(e.retryAt):
			return e.found(Stale), nil, true
		}
	}
	if u, ok := c.unknown[id]; ok && now.Before(u.until) {
		return Found{Source: Memory, Withdrawn: u.withdrawn}, fmt.Errorf("keys: remembered: %w", ErrUnknown), true
	}
	return Found{}, nil, false
}

// find looks in the table and asks the service.
func (c *Cache) find(ctx context.Context, id string, source netip.Prefix) (Found, error) {
	// Another call may have ended between the look at memory and this one.
	if found, err, ok := c.remembered(id); ok {
		return found, err
	}
	shared, tableFailed := c.read(ctx, id)
	cached := c.usable(id, shared)
	now := c.opts.Now()
	switch {
	case cached == nil && shared != nil && shared.key == nil && now.Sub(shared.fetchedAt) < c.opts.UnknownTTL:
		c.forget(id, shared.fetchedAt, shared.withdrawn())
		return Found{Source: SharedTable, Withdrawn: shared.withdrawn()}, fmt.Errorf("keys: remembered: %w", ErrUnknown)
	case cached == nil:
		ok, failed := c.spend(ctx, source, tableFailed)
		tableFailed = tableFailed || failed
		if !ok {
			return Found{TableFailed: tableFailed}, fmt.Errorf("keys: %w", ErrOutOfBudget)
		}
	case c.fresh(cached, now):
		c.remember(id, cached)
		return cached.found(SharedTable), nil
	case now.Before(cached.retryAt): // another function has just asked
		c.remember(id, cached)
		return cached.found(Stale), nil
	}
	// A cached key is not a miss: a flood of invented ids cannot keep it from being
	// fetched again.
	return c.fetch(ctx, id, cached, shared, tableFailed)
}

func (c *Cache) refetch(ctx context.Context, id string, failed Found, source netip.Prefix) (Found, error) {
	shared, tableFailed := c.read(ctx, id)
	cached := c.usable(id, shared)
	// Another function may have fetched it already.
	if cached != nil && cached.fetchedAt.After(failed.FetchedAt) && c.opts.Now().Sub(cached.fetchedAt) < c.opts.RefetchAge {
		c.remember(id, cached)
		return cached.found(SharedTable), nil
	}
	ok, spendFailed := c.spend(ctx, source, tableFailed)
	tableFailed = tableFailed || spendFailed
	if !ok {
		return Found{TableFailed: tableFailed}, fmt.Errorf("keys: %w", ErrOutOfBudget)
	}
	return c.fetch(ctx, id, cached, shared, tableFailed)
}

// usable returns the key that is cached for id, in memory or in the table, and
// nil if none may be used. shared is what the table holds; nil for nothing.
func (c *Cache) usable(id string, shared *entry) *entry {
	e := c.newest(c.entry(id), shared)
	if e == nil || e.key == nil || c.opts.Now().Sub(e.fetchedAt) >= c.opts.MaxAge {
		return nil
	}
	return e
}

// newest returns the later of what memory and the table hold of an id.
func (c *Cache) newest(own, shared *entry) *entry {
	switch {
	case shared == nil:
		return own
	case own == nil:
		return shared
	case own.fetchedAt.After(shared.fetchedAt):
		return own
	case shared.key == nil && !shared.withdrawn():
		// Written by a function that had no copy of the key, so it does not speak of
		// ours.
		return own
	case shared.fetchedAt.After(own.fetchedAt):
		return shared
	}
	// Both are one answer of the service. The earliest report counts, and the latest
	// call.
	e := *shared
	if own.withdrawn() && (!e.withdrawn() || own.unknownSince.Before(e.unknownSince)) {
		e.unknownSince = own.unknownSince
	}
	if own.retryAt.After(e.retryAt) {
		e.retryAt = own.retryAt
	}
	return &e
}

// fetch asks the service, and stores its answer in memory and in the table.
// cached is the key that may be used if the service does not give one; nil for
// none. shared is what the table held.
func (c *Cache) fetch(ctx context.Context, id string, cached, shared *entry, tableFailed bool) (Found, error) {
	// The age counts from before the question, as the answer cannot be newer, and
	// in milliseconds, as the table does.
	asked := c.opts.Now().Truncate(time.Millisecond)
	found := Found{Source: Service, FetchedAt: asked, TableFailed: tableFailed}
	text, err := c.origin.Fetch(ctx, id)
	var key *rsa.PublicKey
	if err == nil {
		if key, err = ParseJWK(text, id, c.opts.Exponents); errors.Is(err, errNotAJWK) {
			err = unavailable("answer", err)
		}
	}
	switch {
	case errors.Is(err, ErrUnknown):
		return c.notKnown(ctx, id, asked, cached, shared, tableFailed)
	case errors.Is(err, ErrUnavailable) && cached != nil:
		stale := *cached
		stale.retryAt = c.opts.Now().Add(c.opts.RetryPause)
		c.remember(id, &stale)
		found = stale.found(Stale)
		found.TableFailed = tableFailed
		return found, nil
	case errors.Is(err, ErrUnavailable):
		return found, err
	}
	r := record{fetchedAt: asked, expires: asked.Add(c.opts.MaxAge)}
	if key == nil { // refused
		found.Withdrawn = cached != nil
		c.forget(id, asked, found.Withdrawn)
		if found.Withdrawn {
			r.unknownSince = asked
		} else {
			r.expires = asked.Add(c.opts.UnknownTTL)
		}
	} else {
		found.Key = key
		c.remember(id, &entry{key: key, fetchedAt: asked})
		var formatErr error
		if r.jwk, formatErr = FormatJWK(id, key); formatErr != nil {
			return found, fmt.Errorf("keys: %w", formatErr)
		}
	}
	if !tableFailed {
		found.TableFailed = c.withTable(ctx, func(ctx context.Context) error { return c.table.put(ctx, id, r) }) != nil
	}
	return found, err
}

// notKnown handles the answer that the service did not know id when it was
// asked. It decides whether that removes the cached key.
func (c *Cache) notKnown(ctx context.Context, id string, asked time.Time, cached, shared *entry, tableFailed bool) (Found, error) {
	// From this answer to the next question: a process may be frozen in between.
	since := c.opts.Now().Truncate(time.Millisecond)
	if cached != nil && cached.withdrawn() {
		since = cached.unknownSince
	}
	remove := cached == nil || asked.Sub(since) >= c.opts.UnknownGrace
	// Without a copy of its own, this process tries the table again even if that has
	// just failed: it may hold the key.
	skipTable := tableFailed && cached != nil
	if remove && !skipTable {
		r := record{fetchedAt: asked, expires: asked.Add(c.opts.UnknownTTL)}
		if cached != nil {
			r.unknownSince = since
			r.expires = later(r.expires, cached.fetchedAt.Add(c.opts.MaxAge)) // as long as a copy could be used
		}
		if shared != nil {
			r.expires = later(r.expires, shared.expires)
		}
		skipTable = c.withTable(ctx, func(ctx context.Context) (err error) {
			// The table refuses if it holds a key for which this answer is too early.
			remove, err = c.table.remove(ctx, id, r, asked.Add(-c.opts.UnknownGrace))
			return err
		}) != nil
		if skipTable {
			remove = true // as each process decides on its own
		}
	}
	if !remove && !skipTable {
		skipTable = c.withTable(ctx, func(ctx context.Context) error {
			r, err := c.table.reportUnknown(ctx, id, asked, since)
			if held := c.parse(r, id); held != nil {
				cached = c.newest(cached, held)
			}
			return err
		}) != nil
		if cached == nil && skipTable {
			return Found{Source: Service, FetchedAt: asked, TableFailed: true}, unavailable("the table holds a key that could not be read", nil)
		}
	}
	tableFailed = tableFailed || skipTable
	switch {
	case remove || cached == nil:
		withdrawn := cached != nil || shared != nil && shared.withdrawn()
		c.forget(id, asked, withdrawn)
		return Found{Source: Service, FetchedAt: asked, Withdrawn: withdrawn, TableFailed: tableFailed}, fmt.Errorf("keys: origin: %w", ErrUnknown)
	case cached.fetchedAt.After(asked): // another function has just been given the key
		c.remember(id, cached)
		found := cached.found(SharedTable)
		found.TableFailed = tableFailed
		return found, nil
	}
	stale := *cached
	if !stale.withdrawn() {
		stale.unknownSince = since
	}
	stale.retryAt = c.opts.Now().Add(c.opts.RetryPause)
	c.remember(id, &stale)
	found := stale.found(Stale)
	found.TableFailed = tableFailed
	return found, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// withTable bounds a call of the table.
func (c *Cache) withTable(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.TableTimeout)
	defer cancel()
	return call(ctx)
}

// read returns what the table holds of id; nil for nothing that counts.
func (c *Cache) read(ctx context.Context, id string) (shared *entry, failed bool) {
	err := c.withTable(ctx, func(ctx context.Context) error {
		r, err := c.table.get(ctx, id)
		shared = c.parse(r, id)
		return err
	})
	return shared, err != nil
}

// parse returns what a record says, with a nil key if it says that the id is
// unknown. A record that the policy refuses counts as none.
func (c *Cache) parse(r *record, id string) *entry {
	if r == nil || r.fetchedAt.After(c.opts.Now().Add(maxSkew)) {
		return nil
	}
	e := &entry{fetchedAt: r.fetchedAt, unknownSince: r.unknownSince, expires: r.expires}
	if r.jwk != nil {
		var err error
		if e.key, err = ParseJWK(r.jwk, id, c.opts.Exponents); err != nil {
			return nil
		}
		if !r.unknownAt.IsZero() {
			e.retryAt = r.unknownAt.Add(c.opts.RetryPause)
		}
	}
	return e
}

func (c *Cache) remember(id string, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unknown, id)
	if len(c.keys) >= maxRemembered {
		clear(c.keys)
	}
	c.keys[id] = e
}

// forget remembers that the service did not know id at that time.
func (c *Cache) forget(id string, at time.Time, withdrawn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.keys, id)
	if len(c.unknown) >= maxRemembered {
		clear(c.unknown)
	}
	c.unknown[id] = unknown{at.Add(c.opts.UnknownTTL), withdrawn}
}
