// Package keys finds the public key that a key id names.
//
// It guarantees that a key is used only if its JWK is what section 2.6 of the
// payment service's interface says and nothing else ([ParseJWK]), that it is
// never used longer than the hard age after the service was asked for it, and
// that strangers who make up key ids can make us ask the service only so often
// a minute, however many functions run.
//
// [Cache.Lookup] looks in memory, then in the DynamoDB table that all
// functions share, then asks the service ([Origin]). A table that is broken or
// slow costs time and shared knowledge, never an answer.
package keys

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"payhook/shared/uuid"
)

// The ways in which a lookup fails. Every error of this package wraps one of
// them or is a [*PolicyError].
var (
	// ErrMalformedID: the key id is no UUID. Nothing was asked of anyone.
	ErrMalformedID = errors.New("key id is not a UUID")
	// ErrUnknown: the service does not know the id.
	ErrUnknown = errors.New("unknown key")
	// ErrUnavailable: the service did not answer, or not with a key, and no key
	// young enough is cached.
	ErrUnavailable = errors.New("key service unavailable")
	// ErrOutOfBudget: the id is not cached, and this minute's budget of ids that
	// may be asked of the service is spent. The id might be real.
	ErrOutOfBudget = errors.New("key lookups out of budget")
)

// Options are the knobs of a [Cache]. The zero value of each stands for the
// default that is named.
type Options struct {
	Exponents  []int         // public exponents that are allowed; 65537
	Freshness  time.Duration // age at which a key is fetched again; 1 hour
	MaxAge     time.Duration // age from which a key is not used; 24 hours
	UnknownTTL time.Duration // how long an unknown id stays unknown; 1 minute
	MissBudget int           // ids not cached that may be asked of the service a minute; 60
	// TableTimeout bounds each call of the table; 500 ms.
	TableTimeout time.Duration
	// RetryPause is how long a key that could not be fetched again is left in
	// peace; 10 seconds.
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
		{&o.UnknownTTL, time.Minute},
		{&o.TableTimeout, 500 * time.Millisecond},
		{&o.RetryPause, 10 * time.Second},
		{&o.RefetchAge, time.Minute},
	} {
		if *d.option == 0 {
			*d.option = d.value
		}
	}
	if o.MissBudget == 0 {
		o.MissBudget = 60
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
	Stale       Source = "stale" // cached, older than fresh, since the service did not answer
)

// Found is what a lookup found, and how. A lookup that fails fills in all but
// the key.
type Found struct {
	Key       *rsa.PublicKey
	FetchedAt time.Time // when the service was asked for the key
	Source    Source
	// TableFailed: the shared table could not be used.
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

	mu          sync.Mutex
	keys        map[string]*entry
	unknown     map[string]time.Time // id -> until when
	spentMinute time.Time            // the minute whose budget is known to be spent
	localMinute time.Time            // while the table is broken: a budget of our own
	localMisses int
}

type entry struct {
	key       *rsa.PublicKey
	fetchedAt time.Time
	retryAt   time.Time // not before then, after a fetch that failed
}

// New returns a cache in front of origin that shares what it learns by table.
func New(origin *Origin, table *Table, opts Options) *Cache {
	opts.setDefaults()
	return &Cache{
		origin:  origin,
		table:   table,
		opts:    opts,
		keys:    map[string]*entry{},
		unknown: map[string]time.Time{},
	}
}

// Lookup returns the key of that id, from memory if it is fresh there. Lookups
// of one id at one time cost one fetch. The fetch goes on when ctx ends, for
// as long as the time-outs of table and origin allow, so that the work is not
// lost to the others that wait for it.
//
// The error wraps [ErrMalformedID], [ErrUnknown], [ErrUnavailable],
// [ErrOutOfBudget] or ctx's, or is a [*PolicyError].
func (c *Cache) Lookup(ctx context.Context, id string) (Found, error) {
	if !uuid.Valid(id) {
		return Found{}, fmt.Errorf("keys: %w", ErrMalformedID)
	}
	if found, err, ok := c.remembered(id); ok {
		return found, err
	}
	return c.once(ctx, id, func(ctx context.Context) (Found, error) { return c.find(ctx, id) })
}

// Refetch asks the service again for a key under which a signature did not
// verify, since the service may have put another key under the same id. It
// returns the key that was found if it is another one, and nil otherwise. A
// key younger than a minute is not asked for again, and the budget of misses
// bounds what forged signatures can make us ask.
func (c *Cache) Refetch(ctx context.Context, id string, failed Found) (Found, error) {
	now := c.opts.Now()
	if now.Sub(failed.FetchedAt) < c.opts.RefetchAge {
		return Found{}, nil
	}
	if e := c.entry(id); e != nil && now.Before(e.retryAt) {
		return Found{}, nil
	}
	found, err := c.once(ctx, "refetch "+id, func(ctx context.Context) (Found, error) {
		return c.refetch(ctx, id, failed)
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

// remembered answers from memory alone. It reports false if memory does not
// know, or no longer well enough.
func (c *Cache) remembered(id string) (Found, error, bool) {
	now := c.opts.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.keys[id]; e != nil {
		switch age := now.Sub(e.fetchedAt); {
		case age < c.opts.Freshness:
			return Found{Key: e.key, FetchedAt: e.fetchedAt, Source: Memory}, nil, true
		case age < c.opts.MaxAge && now.Before(e.retryAt):
			return Found{Key: e.key, FetchedAt: e.fetchedAt, Source: Stale}, nil, true
		}
	}
	if until, ok := c.unknown[id]; ok && now.Before(until) {
		return Found{Source: Memory}, fmt.Errorf("keys: remembered: %w", ErrUnknown), true
	}
	return Found{}, nil, false
}

// find looks in the table and asks the service.
func (c *Cache) find(ctx context.Context, id string) (Found, error) {
	// Another flight may have landed between the look at memory and this one.
	if found, err, ok := c.remembered(id); ok {
		return found, err
	}
	stale := c.entry(id)
	shared, tableFailed := c.read(ctx, id)
	if shared != nil {
		now := c.opts.Now()
		age := now.Sub(shared.fetchedAt)
		switch {
		case shared.key == nil && age < c.opts.UnknownTTL:
			c.forget(id, shared.fetchedAt)
			return Found{Source: SharedTable}, fmt.Errorf("keys: remembered: %w", ErrUnknown)
		case shared.key != nil && age < c.opts.Freshness:
			c.remember(id, shared)
			return Found{Key: shared.key, FetchedAt: shared.fetchedAt, Source: SharedTable}, nil
		case shared.key != nil && (stale == nil || shared.fetchedAt.After(stale.fetchedAt)):
			stale = shared
		}
	}
	if stale != nil && c.opts.Now().Sub(stale.fetchedAt) >= c.opts.MaxAge {
		stale = nil
	}
	// A key that is known is not a miss: a flood of made-up ids can't keep it
	// from being fetched again.
	if stale == nil {
		ok, failed := c.spend(ctx, tableFailed)
		tableFailed = tableFailed || failed
		if !ok {
			return Found{TableFailed: tableFailed}, fmt.Errorf("keys: %w", ErrOutOfBudget)
		}
	}
	found, err := c.fetch(ctx, id, tableFailed)
	if err != nil && stale != nil && errors.Is(err, ErrUnavailable) {
		c.remember(id, &entry{key: stale.key, fetchedAt: stale.fetchedAt, retryAt: c.opts.Now().Add(c.opts.RetryPause)})
		return Found{Key: stale.key, FetchedAt: stale.fetchedAt, Source: Stale, TableFailed: found.TableFailed}, nil
	}
	return found, err
}

func (c *Cache) refetch(ctx context.Context, id string, failed Found) (Found, error) {
	// Another function may have fetched it already.
	shared, tableFailed := c.read(ctx, id)
	if shared != nil && shared.key != nil && shared.fetchedAt.After(failed.FetchedAt) &&
		c.opts.Now().Sub(shared.fetchedAt) < c.opts.RefetchAge {
		c.remember(id, shared)
		return Found{Key: shared.key, FetchedAt: shared.fetchedAt, Source: SharedTable}, nil
	}
	ok, spendFailed := c.spend(ctx, tableFailed)
	tableFailed = tableFailed || spendFailed
	if !ok {
		return Found{TableFailed: tableFailed}, fmt.Errorf("keys: %w", ErrOutOfBudget)
	}
	found, err := c.fetch(ctx, id, tableFailed)
	if errors.Is(err, ErrUnavailable) {
		c.mu.Lock()
		if e := c.keys[id]; e != nil {
			c.keys[id] = &entry{e.key, e.fetchedAt, c.opts.Now().Add(c.opts.RetryPause)}
		}
		c.mu.Unlock()
	}
	return found, err
}

// fetch asks the service, and lets memory and the table know what it said.
func (c *Cache) fetch(ctx context.Context, id string, tableFailed bool) (Found, error) {
	// The age counts from before the question, as the answer can't be newer.
	asked := c.opts.Now()
	found := Found{Source: Service, FetchedAt: asked, TableFailed: tableFailed}
	text, err := c.origin.Fetch(ctx, id)
	var key *rsa.PublicKey
	if err == nil {
		key, err = ParseJWK(text, id, c.opts.Exponents)
		if errors.Is(err, errNotAJWK) {
			return found, unavailable("answer", err)
		}
	}
	if errors.Is(err, ErrUnavailable) {
		return found, err
	}
	// From here on the service has spoken: this is the key, or there is none
	// that may be used, whatever was cached.
	r := record{fetchedAt: asked}
	expires := asked.Add(c.opts.UnknownTTL)
	if key == nil {
		c.forget(id, asked)
	} else {
		found.Key = key
		c.remember(id, &entry{key: key, fetchedAt: asked})
		expires = asked.Add(c.opts.MaxAge)
		if r.jwk, err = FormatJWK(id, key); err != nil {
			return found, fmt.Errorf("keys: %w", err)
		}
	}
	if !tableFailed {
		ctx, cancel := context.WithTimeout(ctx, c.opts.TableTimeout)
		defer cancel()
		found.TableFailed = c.table.put(ctx, id, r, expires) != nil
	}
	return found, err
}

// read returns what the table holds of id, with a nil key if that is that the
// id is unknown. A record that our own policy refuses counts as none.
func (c *Cache) read(ctx context.Context, id string) (shared *entry, failed bool) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.TableTimeout)
	defer cancel()
	r, err := c.table.get(ctx, id)
	if err != nil {
		return nil, true
	}
	if r == nil || r.fetchedAt.After(c.opts.Now().Add(maxSkew)) {
		return nil, false
	}
	shared = &entry{fetchedAt: r.fetchedAt}
	if r.jwk != nil {
		if shared.key, err = ParseJWK(r.jwk, id, c.opts.Exponents); err != nil {
			return nil, false
		}
	}
	return shared, false
}

// spend takes one from the budget of misses. While the table is broken, every
// process has a budget of its own.
func (c *Cache) spend(ctx context.Context, tableFailed bool) (ok, failed bool) {
	now := c.opts.Now()
	minute := now.Truncate(time.Minute)
	c.mu.Lock()
	spent := c.spentMinute.Equal(minute)
	c.mu.Unlock()
	if spent {
		return false, false
	}
	if !tableFailed {
		ctx, cancel := context.WithTimeout(ctx, c.opts.TableTimeout)
		defer cancel()
		left, err := c.table.spend(ctx, now, c.opts.MissBudget)
		if err == nil {
			if !left {
				c.mu.Lock()
				c.spentMinute = minute
				c.mu.Unlock()
			}
			return left, false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.localMinute.Equal(minute) {
		c.localMinute, c.localMisses = minute, 0
	}
	if c.localMisses >= c.opts.MissBudget {
		return false, true
	}
	c.localMisses++
	return true, true
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
func (c *Cache) forget(id string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.keys, id)
	if len(c.unknown) >= maxRemembered {
		clear(c.unknown)
	}
	c.unknown[id] = at.Add(c.opts.UnknownTTL)
}
