// Package keys looks up the public keys that key ids name.
//
// It guarantees that a key is used only if its JWK meets section 2.6 of the payment service's interface ([ParseJWK]),
// and that it is not used for longer than Options.MaxAge after it was requested from the service.
//
// [Cache.Lookup] looks in memory, then in the table that all functions share ([Store]), and then calls the service
// ([Origin]). A slow or failing table delays a lookup but does not make it fail.
//
// # Withdrawal
//
// The interface does not specify error bodies (section 7), so a 404 or 410 of the service cannot be distinguished from
// that of a gateway in front of it. For an id without a cached key, both mean "unknown". A cached key is removed only
// if the service answers "unknown" again at least Options.UnknownGrace after the first such answer, and has not
// returned the key in between. Until then the key is used, and each Found that contains it is Stale and Withdrawn. The
// time of the first answer is stored in the table with the key, so the rule applies to all functions together. While
// the table fails, it applies to each process on its own.
//
// During that time the service is called for the key at most every 10 seconds, over all functions together (two
// concurrent calls are both sent), and only if a webhook needs the key. These calls are not counted against a budget,
// because the key is known.
//
// A JWK that the policy rejects removes the cached key at once, because it says that the key with this id must not be
// used. The reason is stored in the table, so all functions return the same [*PolicyError]. Any other answer, with any
// status, means that the service is unavailable ([ErrNotJWK]): anyone can make the functions call the service, so an
// answer that does not name the key must not remove it.
//
// # Key ids
//
// All spellings of a key id ([payment.KeyID]) are one key, in memory and in the table. But the service may know one
// spelling only, and anyone can send others. So a key is fetched again in the spelling for which the service returned
// it, and an id is unknown only in the spelling that the service was asked for.
//
// # Budgets
//
// Every key id has its own URL, so invented ids could cause any number of calls of the service. Two budgets limit
// these, over all functions together: Options.MissBudget calls a minute for all callers, and when these are used up, as
// many calls a minute for source addresses that have sent an authentic webhook within a week ([Cache.RecordSource]). So
// invented ids from unknown sources cannot block the ids of new real keys. The service is called at most 2 * MissBudget
// times a minute for ids that are not cached.
//
// The cost in the table is one conditional write for each function process, source address and day, after a webhook was
// verified; it changes the item once a day. When the budget of a minute is used up, it is one read for each process,
// source address and minute. A webhook whose key is in memory causes no call.
package keys

import (
	"cmp"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"payhook.example/shared/payment"
)

// The errors of a lookup. Every error that a [Cache] returns wraps one of them or the context's error, or is a
// [*PolicyError].
var (
	// ErrMalformedID is returned when [payment.KeyID] does not accept a key id. No call is made.
	ErrMalformedID = errors.New("keys: key id is not a UUID")
	// ErrUnknown is returned when the service does not know the id and no usable key is cached.
	ErrUnknown = errors.New("keys: unknown key")
	// ErrUnavailable is returned when the service does not answer or does not return a key, and no usable key is
	// cached.
	ErrUnavailable = errors.New("keys: key service unavailable")
	// ErrOutOfBudget is returned when the id is not cached and the budgets of this minute are used up. The id can be
	// that of a real key.
	ErrOutOfBudget = errors.New("keys: key requests out of budget")
)

// Options are the options of a [Cache]. The comment of each field ends with the default that replaces the zero value.
type Options struct {
	Freshness time.Duration // age at which a key is fetched again; required
	MaxAge    time.Duration // age at which a key is no longer used; required
	// UnknownGrace is how long the service must report a cached key as unknown before the key is removed; 5 minutes.
	UnknownGrace time.Duration
	UnknownTTL   time.Duration    // how long an id that is not cached stays unknown; 1 minute
	MissBudget   int              // calls a minute for ids that are not cached, in each of the two budgets; required
	Now          func() time.Time // time.Now
}

// retryPause is the minimum time between two calls for a cached key after the service has not returned it.
const retryPause = 10 * time.Second

func (o *Options) setDefaults() {
	o.UnknownGrace = cmp.Or(o.UnknownGrace, 5*time.Minute)
	o.UnknownTTL = cmp.Or(o.UnknownTTL, time.Minute)
	if o.Freshness <= 0 || o.MaxAge <= 0 || o.MissBudget <= 0 {
		panic("keys: an option is missing")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Source is the origin of the result of a lookup.
type Source string

// The sources of a result.
const (
	InMemory    Source = "memory"
	SharedTable Source = "table"
	Service     Source = "origin"
	Stale       Source = "stale" // cached and due to be fetched again, but the service did not return it
)

// Found is the result of a lookup. If the lookup fails, Key is nil and the other fields are set.
type Found struct {
	Key       *rsa.PublicKey
	FetchedAt time.Time // when the key was requested from the service
	Source    Source
	// Withdrawn reports that the service returned this key earlier and no longer does: it reports the id as unknown, or
	// sends a key that the policy rejects. If Key is not nil, it is within Options.UnknownGrace; otherwise it was
	// removed.
	Withdrawn bool
	// TableFailed reports that a call of the shared table failed.
	TableFailed bool
	// UnexpectedType is the type of the service's answer in this lookup, unless it is JSON.
	UnexpectedType string

	writing *writing // nil: none
}

// writing is a write of the shared table that goes on while the key is used.
type writing struct {
	done   chan struct{}
	failed bool // once done is closed
}

// UnusualExponent reports whether the key has another public exponent than 65537.
func (f *Found) UnusualExponent() bool { return f.Key != nil && f.Key.E != 65537 }

// Wait waits until a key that was fetched is in the shared table. The key can be used before. A Lambda function must
// not answer before the write has ended, because it can be frozen then.
func (f *Found) Wait() {
	if f.writing != nil {
		<-f.writing.done
		f.TableFailed = f.TableFailed || f.writing.failed
		f.writing = nil
	}
}

// tableTimeout is the timeout of each call of the table.
const tableTimeout = 500 * time.Millisecond

// maxRemembered limits the memory that invented ids and unknown sources can occupy.
const maxRemembered = 4096

// maxSkew is the maximum difference by which the clock of another function can be ahead of this one. A record from
// further in the future would not expire in time.
const maxSkew = 5 * time.Minute

// Cache looks up keys by their ids. It is safe for concurrent use.
type Cache struct {
	origin interface {
		Fetch(ctx context.Context, id string) (text []byte, unexpectedType string, err error)
	}
	store  Store
	opts   Options
	flight singleflight.Group

	mu      sync.Mutex
	keys    map[string]*entry // by the canonical form of their ids, like unknown
	unknown map[string]*entry
	misses  budget
	reserve budget
	sources sources
}

// entry is what is known of a key id: a record and its key, which is nil if the service does not know the id or the
// policy rejects the key. It is immutable.
type entry struct {
	Record
	key     *rsa.PublicKey
	retryAt time.Time // the service is not called before this time
}

func (e *entry) withdrawn() bool { return e != nil && !e.UnknownSince.IsZero() }

func (e *entry) found(from Source) Found {
	return Found{Key: e.key, FetchedAt: e.FetchedAt, Source: from, Withdrawn: e.withdrawn()}
}

// cached returns the result of an entry without a key.
func (e *entry) cached(from Source) (Found, error) {
	if e.Rejected != nil {
		return e.found(from), fmt.Errorf("%w (cached)", &PolicyError{e.Rejected})
	}
	return e.found(from), fmt.Errorf("%w (cached)", ErrUnknown)
}

// New returns a Cache that fetches keys from origin and shares them through store.
func New(origin *Origin, store Store, opts Options) *Cache {
	opts.setDefaults()
	return &Cache{
		origin:  origin,
		store:   store,
		opts:    opts,
		keys:    map[string]*entry{},
		unknown: map[string]*entry{},
		misses:  budget{name: "misses", limit: opts.MissBudget},
		reserve: budget{name: "reserve", limit: opts.MissBudget},
		sources: sources{known: map[netip.Prefix]sighting{}, unknown: map[netip.Prefix]time.Time{}},
	}
}

// Lookup returns the key with that id, from memory if it is fresh there. from is the source address of the webhook; the
// zero Addr is an unknown source. Concurrent lookups of one id make one fetch; every caller must call [Found.Wait]. The
// fetch continues when ctx ends, until the timeouts of table and origin, so that other callers get its result.
//
// The error wraps [ErrMalformedID], [ErrUnknown], [ErrUnavailable], [ErrOutOfBudget] or ctx's, or is a [*PolicyError].
func (c *Cache) Lookup(ctx context.Context, id string, from netip.Addr) (Found, error) {
	canonical, ok := payment.KeyID(id)
	if !ok {
		return Found{}, fmt.Errorf("keys: %w", ErrMalformedID)
	}
	if found, err, ok := c.remembered(canonical, id); ok {
		return found, err
	}
	source := network(from)
	// The lookup of an unknown source must not determine the result of a known one.
	l := &lookup{Cache: c, id: canonical, sentAs: id, source: source}
	return l.once(ctx, id+" "+source.String(), l.find)
}

// Refetch fetches a key again after a signature did not verify with it, because the service can have published another
// key with the same id. It returns the key if it differs, and nil otherwise. It does not fetch a key again that is
// younger than a minute, or than a third of Options.Freshness if that is less, and the budgets limit the calls that
// forged signatures can cause. from is as for Lookup.
func (c *Cache) Refetch(ctx context.Context, id string, failed Found, from netip.Addr) (Found, error) {
	canonical, _ := payment.KeyID(id)
	now := c.opts.Now()
	if e := c.entry(canonical); now.Sub(failed.FetchedAt) < c.refetchAge() || e != nil && now.Before(e.retryAt) {
		return Found{}, nil
	}
	source := network(from)
	l := &lookup{Cache: c, id: canonical, sentAs: id, source: source}
	found, err := l.once(ctx, "refetch "+id+" "+source.String(), func(ctx context.Context) (Found, error) {
		return l.refetch(ctx, failed)
	})
	if found.Key != nil && found.Key.Equal(failed.Key) {
		found.Key = nil
	}
	return found, err
}

// refetchAge is the age at which a key is fetched again after a signature did not verify.
func (c *Cache) refetchAge() time.Duration { return min(time.Minute, c.opts.Freshness/3) }

// once runs work once for all concurrent callers with the same name.
func (l *lookup) once(ctx context.Context, name string, work func(context.Context) (Found, error)) (Found, error) {
	result := l.flight.DoChan(name, func() (any, error) {
		found, err := work(context.WithoutCancel(ctx))
		found.TableFailed = l.tableFailed
		return found, err
	})
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

// fresh reports whether a key can be used without a call of the service.
func (c *Cache) fresh(e *entry, now time.Time) bool {
	return !e.withdrawn() && now.Sub(e.FetchedAt) < c.opts.Freshness
}

// answered reports whether e says that an id has no key, for this spelling and not too long ago.
func (c *Cache) answered(e *entry, sentAs string, now time.Time) bool {
	return e != nil && e.key == nil && e.SentAs == sentAs && now.Sub(e.FetchedAt) < c.opts.UnknownTTL
}

// remembered returns the result that is in memory. It reports false if there is none or it is too old, or if the id is
// unknown in another spelling than sentAs.
func (c *Cache) remembered(id, sentAs string) (Found, error, bool) {
	now := c.opts.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.keys[id]; e != nil {
		switch age := now.Sub(e.FetchedAt); {
		case c.fresh(e, now):
			return e.found(InMemory), nil, true
		case age < c.opts.MaxAge && now.Before(e.retryAt):
			return e.found(Stale), nil, true
		}
	}
	if u := c.unknown[id]; c.answered(u, sentAs, now) {
		found, err := u.cached(InMemory)
		return found, err, true
	}
	return Found{}, nil, false
}

// lookup is one search for a key in the table and at the service. It is not safe for concurrent use.
type lookup struct {
	*Cache
	id          string // in its canonical form
	sentAs      string // the id in the request to the service
	source      netip.Prefix
	tableFailed bool // a call of the table failed
}

// withTable makes a call of the table, and records in l if it fails.
func (l *lookup) withTable(ctx context.Context, call func(context.Context) error) error {
	err := l.Cache.withTable(ctx, call)
	if err != nil {
		l.tableFailed = true
	}
	return err
}

// find looks in the table and then calls the service.
func (l *lookup) find(ctx context.Context) (Found, error) {
	// Another call can have ended since the caller looked in memory.
	if found, err, ok := l.remembered(l.id, l.sentAs); ok {
		return found, err
	}
	shared := l.read(ctx)
	cached := l.usable(l.id, shared)
	now := l.opts.Now()
	switch {
	case cached == nil && l.answered(shared, l.sentAs, now):
		l.forget(shared)
		return shared.cached(SharedTable)
	case cached == nil:
		if !l.spend(ctx) {
			return Found{}, fmt.Errorf("keys: %w", ErrOutOfBudget)
		}
	case l.fresh(cached, now):
		l.remember(l.id, cached)
		return cached.found(SharedTable), nil
	case now.Before(cached.retryAt): // another function has just called the service
		l.remember(l.id, cached)
		return cached.found(Stale), nil
	}
	// A cached key is not a miss, so a flood of invented ids cannot prevent its refresh.
	return l.fetch(ctx, cached, shared)
}

func (l *lookup) refetch(ctx context.Context, failed Found) (Found, error) {
	shared := l.read(ctx)
	cached := l.usable(l.id, shared)
	// Another function can have fetched it already.
	if cached != nil && cached.FetchedAt.After(failed.FetchedAt) &&
		l.opts.Now().Sub(cached.FetchedAt) < l.refetchAge() {
		l.remember(l.id, cached)
		return cached.found(SharedTable), nil
	}
	if !l.spend(ctx) {
		return Found{}, fmt.Errorf("keys: %w", ErrOutOfBudget)
	}
	return l.fetch(ctx, cached, shared)
}

// usable returns the usable key that is cached for id in memory or in the table, or nil. shared is the table's record;
// nil for none. One without a key that was written by a function without a copy of the key does not apply to the copy
// in memory.
func (c *Cache) usable(id string, shared *entry) *entry {
	e := c.entry(id)
	if shared != nil && (e == nil || shared.key != nil && shared.FetchedAt.After(e.FetchedAt) ||
		shared.withdrawn() && !shared.FetchedAt.Before(e.FetchedAt)) {
		e = shared
	}
	if e == nil || e.key == nil || c.opts.Now().Sub(e.FetchedAt) >= c.opts.MaxAge {
		return nil
	}
	return e
}

// fetch calls the service and stores its answer in memory and in the table. cached is the key to use if the service
// does not return one; nil for none. shared is the table's record.
func (l *lookup) fetch(ctx context.Context, cached, shared *entry) (Found, error) {
	// The age starts before the request, because the answer can be that old. It is in milliseconds, as in the table.
	asked := l.opts.Now().Truncate(time.Millisecond)
	if cached != nil {
		l.sentAs = cmp.Or(cached.SentAs, l.sentAs)
	}
	text, unexpected, err := l.origin.Fetch(ctx, l.sentAs)
	var key *rsa.PublicKey
	if err == nil {
		if key, err = ParseJWK(text, l.sentAs); errors.Is(err, ErrNotJWK) {
			err = unavailable("answer", err)
		}
	}
	switch {
	case errors.Is(err, ErrUnknown):
		return l.notKnown(ctx, asked, cached, shared)
	case errors.Is(err, ErrUnavailable) && cached != nil:
		last := l.stale(*cached)
		last.UnexpectedType = unexpected
		return last, nil
	case errors.Is(err, ErrUnavailable):
		return Found{Source: Service, FetchedAt: asked, UnexpectedType: unexpected}, err
	}
	e := &entry{key: key, ID: l.id, SentAs: l.sentAs, FetchedAt: asked,
		ExpiresAt: asked.Add(l.opts.MaxAge)}
	if rejected, ok := errors.AsType[*PolicyError](err); ok {
		e = l.gone(asked, cached, shared)
		e.Rejected = rejected.Violations
		l.forget(e)
	} else {
		e.JWK = string(FormatJWK(l.sentAs, key))
		l.remember(l.id, e)
	}
	found := e.found(Service)
	found.UnexpectedType = unexpected
	if !l.tableFailed {
		w := &writing{done: make(chan struct{})}
		found.writing = w
		go func() {
			defer close(w.done)
			put := func(ctx context.Context) error { return l.store.Put(ctx, e.Record) }
			w.failed = l.Cache.withTable(ctx, put) != nil
		}()
	}
	return found, err
}

// stale returns a cached key that the service did not return, and delays its next fetch.
func (l *lookup) stale(cached entry) Found {
	cached.retryAt = l.opts.Now().Add(retryPause)
	l.remember(l.id, &cached)
	return cached.found(Stale)
}

// notKnown handles the answer that the service does not know the id. It removes a cached key if the service has given
// the first such answer long enough ago.
func (l *lookup) notKnown(ctx context.Context, asked time.Time, cached, shared *entry) (Found, error) {
	// The grace starts at the answer: Lambda can freeze the process during the call.
	since := l.opts.Now().Truncate(time.Millisecond)
	if cached == nil {
		// The table can contain a key that could not be read.
		gone := l.gone(asked, nil, shared)
		cached = l.remove(ctx, gone, time.Time{})
		switch {
		case cached == nil:
			return l.removed(gone)
		case cached.SentAs != l.sentAs: // the service was asked for another spelling
			return l.stale(*cached), nil
		}
	}
	last := *cached
	if !last.withdrawn() {
		last.UnknownSince = since
	}
	reported := l.fromTable(ctx, func(ctx context.Context) (*Record, error) {
		return l.store.ReportUnknown(ctx, l.id, asked, last.UnknownSince)
	})
	if reported != nil && !reported.FetchedAt.Before(last.FetchedAt) { // the table can lack the copy
		last = *reported
	}
	if last.FetchedAt.After(asked) { // another function has just fetched the key
		l.remember(l.id, &last)
		return last.found(SharedTable), nil
	}
	if asked.Sub(last.UnknownSince) >= l.opts.UnknownGrace {
		if gone := l.gone(asked, &last, shared); l.remove(ctx, gone, asked.Add(-l.opts.UnknownGrace)) == nil {
			return l.removed(gone)
		}
	}
	return l.stale(last), nil
}

// gone returns the entry of an id that has no key, after the service was asked at that time. One that had a key is
// needed as long as a copy can be used, which is older than the report.
func (l *lookup) gone(asked time.Time, cached, shared *entry) *entry {
	e := &entry{ID: l.id, SentAs: l.sentAs, FetchedAt: asked, ExpiresAt: asked.Add(l.opts.UnknownTTL)}
	if known := cmp.Or(cached, shared); known.withdrawn() {
		e.UnknownSince = known.UnknownSince
	} else if cached != nil {
		e.UnknownSince = asked
	}
	if end := e.UnknownSince.Add(l.opts.MaxAge); end.After(e.ExpiresAt) {
		e.ExpiresAt = end
	}
	return e
}

// removed stores in memory that the service does not know the id, and returns this result.
func (l *lookup) removed(e *entry) (Found, error) {
	l.forget(e)
	return e.found(Service), fmt.Errorf("%w to the service", ErrUnknown)
}

// remove records in the table that the id has no key. It returns the key that the table contains, unless it was
// reported as unknown by oldest; nil for none. Without the table, each process decides on its own.
func (l *lookup) remove(ctx context.Context, gone *entry, oldest time.Time) (kept *entry) {
	return l.fromTable(ctx, func(ctx context.Context) (*Record, error) {
		return l.store.Remove(ctx, gone.Record, oldest)
	})
}

// withTable runs a call of the table with its timeout.
func (c *Cache) withTable(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	return call(ctx)
}

// fromTable returns the record that a call of the table returns; nil for none that can be used.
func (l *lookup) fromTable(ctx context.Context, call func(context.Context) (*Record, error)) (e *entry) {
	_ = l.withTable(ctx, func(ctx context.Context) error {
		r, err := call(ctx)
		e = l.parse(r)
		return err
	})
	return e
}

// read returns the table's record of the id.
func (l *lookup) read(ctx context.Context) *entry {
	return l.fromTable(ctx, func(ctx context.Context) (*Record, error) { return l.store.Get(ctx, l.id) })
}

// parse returns the entry of a record, with a nil key if the id is unknown. It returns nil for a record that the policy
// rejects.
func (c *Cache) parse(r *Record) *entry {
	if r == nil || r.FetchedAt.After(c.opts.Now().Add(maxSkew)) {
		return nil
	}
	e := &entry{Record: *r}
	if r.JWK != "" {
		var err error
		if e.key, err = ParseJWK([]byte(r.JWK), r.ID); err != nil {
			return nil
		}
		e.retryAt = r.UnknownAt.Add(retryPause) // long past if it was never reported as unknown
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

// forget stores in memory that the id has no key.
func (l *lookup) forget(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, l.id)
	if len(l.unknown) >= maxRemembered {
		clear(l.unknown)
	}
	l.unknown[l.id] = e
}
