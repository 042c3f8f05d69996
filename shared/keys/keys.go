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
// that of a gateway in front of it. A cached key is removed only if the service answers "unknown" again at least
// Options.UnknownGrace after the first such answer, and has not returned the key in between. Until then the key is
// used, and each Found that contains it is Stale and Withdrawn. The table has the time of the first answer, so the rule
// applies to all functions together; while the table fails, it applies to each process on its own.
//
// During that time the service is called for the key at most every 10 seconds, over all functions together (two
// concurrent calls are both sent), and only if a webhook needs the key. No budget counts these calls.
//
// A JWK that the policy rejects removes the cached key at once. The reason is stored in the table, so all functions
// return the same [*PolicyError]. Any other answer, with any status, means that the service is unavailable
// ([ErrNotJWK]): anyone can make the functions call the service, so an answer that does not name the key must not
// remove it.
//
// # Key ids
//
// All spellings of a key id ([payment.KeyID]) are one key, in memory and in the table. But the service may know one
// spelling only, and anyone can send others. So a key is fetched again in the spelling for which the service returned
// it, and an id is unknown only in the spelling that the service was asked for.
//
// # Budgets
//
// Anyone can invent key ids, and each is a call of the service. Two budgets limit these, over all functions together:
// Options.MissBudget calls a minute for all callers, and when these are used up, as many for source addresses that have
// sent an authentic webhook within a week ([Cache.RecordSource]). So invented ids from unknown sources cannot block the
// ids of new real keys.
//
// The cost in the table is one conditional write for each function process, source address and day. When the budget of
// a minute is used up, it is one read for each process, source address and minute. A webhook whose key is in memory
// causes no call.
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
	// Freshness is the age at which a key is fetched again; [Freshness].
	Freshness time.Duration
	MaxAge    time.Duration // age at which a key is no longer used; 24 hours
	// UnknownGrace is how long the service must report a cached key as unknown before the key is removed; 5 minutes.
	UnknownGrace time.Duration
	UnknownTTL   time.Duration    // how long an id that is not cached stays unknown; 1 minute
	MissBudget   int              // calls a minute for ids that are not cached, in each of the two budgets; 60
	Now          func() time.Time // time.Now
}

// Freshness is how long a key is used before it is fetched again (the interface, section 5.4), so that a key which the
// service withdraws is used for little longer. The least setting keyMaxAge is not shorter.
const Freshness = time.Hour

// missBudget limits the calls of the service a minute for keys that are not cached (the interface, section 8). A
// service has few keys, so that one a second is enough for all of them; more help only who invents key ids.
const missBudget = 60

// retryPause is the minimum time between two calls for a cached key after the service has not returned it.
const retryPause = 10 * time.Second

// tableTimeout is the timeout of each call of the table.
const tableTimeout = 500 * time.Millisecond

// maxSkew is the maximum difference by which the clock of another function can be ahead of this one. A record from
// further in the future would not expire in time.
const maxSkew = 5 * time.Minute

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
	Withdrawn      bool
	TableFailed    bool   // a call of the shared table failed
	UnexpectedType string // of the service's answer in this lookup, unless it is JSON

	written func() error // waits for the write of the shared table; nil: there is none
}

// UnusualExponent reports whether the key has another public exponent than 65537.
func (f *Found) UnusualExponent() bool { return f.Key != nil && f.Key.E != 65537 }

// Wait waits until a key that was fetched is in the shared table. The key can be used before. A Lambda function must
// not answer before the write has ended, because it can be frozen then.
func (f *Found) Wait() {
	if f.written != nil && f.written() != nil {
		f.TableFailed = true
	}
}

// Cache looks up keys by their ids. It is safe for concurrent use.
type Cache struct {
	origin interface {
		Fetch(ctx context.Context, id string) (key *rsa.PublicKey, unexpectedType string, err error)
	}
	store  Store
	opts   Options
	flight singleflight.Group

	mu      sync.Mutex
	keys    map[string]*entry // by the canonical form of their ids, like unknown
	unknown map[string]*entry
	misses  budget
	reserve budget
	known   map[netip.Prefix]sighting  // sources of authentic webhooks
	pauses  map[netip.Prefix]time.Time // unknown sources, and until when the table is not read again
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

// New returns a Cache that fetches keys from origin and shares them through store.
func New(origin *Origin, store Store, opts Options) *Cache {
	opts.Freshness = cmp.Or(opts.Freshness, Freshness)
	opts.MaxAge = cmp.Or(opts.MaxAge, 24*time.Hour)
	opts.UnknownGrace = cmp.Or(opts.UnknownGrace, 5*time.Minute)
	opts.UnknownTTL = cmp.Or(opts.UnknownTTL, time.Minute)
	opts.MissBudget = cmp.Or(opts.MissBudget, missBudget)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Cache{origin: origin, store: store, opts: opts,
		keys: map[string]*entry{}, unknown: map[string]*entry{},
		misses: budget{name: "misses"}, reserve: budget{name: "reserve"},
		known: map[netip.Prefix]sighting{}, pauses: map[netip.Prefix]time.Time{}}
}

// Lookup returns the key with that id, from memory if it is fresh there. from is the source address of the webhook; the
// zero Addr is an unknown source. Concurrent lookups of one id make one fetch; every caller must call [Found.Wait]. The
// fetch continues when ctx ends, until the timeouts of table and origin, so that other callers get its result.
//
// The error wraps [ErrMalformedID], [ErrUnknown], [ErrUnavailable], [ErrOutOfBudget] or ctx's, or is a [*PolicyError].
func (c *Cache) Lookup(ctx context.Context, id string, from netip.Addr) (Found, error) {
	canonical, ok := payment.KeyID(id)
	if !ok {
		return Found{}, ErrMalformedID
	}
	l := &lookup{Cache: c, id: canonical, sentAs: id, source: network(from)}
	if found, err, ok := l.remembered(); ok {
		return found, err
	}
	return l.once(ctx, "find", l.find)
}

// Refetch fetches a key again after a signature did not verify with it, because the service can have published another
// key with the same id. It returns the key if it differs, and nil otherwise. It does not fetch a key again that is
// younger than a minute, or than a third of Options.Freshness if that is less, and the budgets limit the calls that
// forged signatures can cause. from is as for Lookup.
func (c *Cache) Refetch(ctx context.Context, id string, failed Found, from netip.Addr) (Found, error) {
	canonical, _ := payment.KeyID(id)
	l := &lookup{Cache: c, id: canonical, sentAs: id, source: network(from)}
	now := c.opts.Now()
	if e := l.key(); now.Sub(failed.FetchedAt) < c.refetchAge() || e != nil && now.Before(e.retryAt) {
		return Found{}, nil
	}
	found, err := l.once(ctx, "refetch", func(ctx context.Context) (Found, error) { return l.refetch(ctx, failed) })
	if found.Key != nil && found.Key.Equal(failed.Key) {
		found.Key = nil
	}
	return found, err
}

// refetchAge is the age at which a key is fetched again after a signature did not verify.
func (c *Cache) refetchAge() time.Duration { return min(time.Minute, c.opts.Freshness/3) }

// lookup is one search for a key in the table and at the service. It is not safe for concurrent use.
type lookup struct {
	*Cache
	id          string // in its canonical form
	sentAs      string // the id in the request to the service
	source      netip.Prefix
	tableFailed bool      // a call of the table failed
	shared      *entry    // the table's record; nil for none
	cached      *entry    // the key to use if the service does not return one; nil for none
	asked       time.Time // when the service was called
}

// once runs work once for all concurrent callers. The lookup of an unknown source must not determine the result of a
// known one.
func (l *lookup) once(ctx context.Context, what string, work func(context.Context) (Found, error)) (Found, error) {
	result := l.flight.DoChan(what+" "+l.sentAs+" "+l.source.String(), func() (any, error) {
		found, err := work(context.WithoutCancel(ctx))
		found.TableFailed = l.tableFailed
		return found, err
	})
	select {
	case r := <-result:
		return r.Val.(Found), r.Err
	case <-ctx.Done():
		return Found{}, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// key returns the key in memory; nil for none.
func (l *lookup) key() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[l.id]
}

// remembered returns the result that is in memory. It reports false if the table must be read.
func (l *lookup) remembered() (Found, error, bool) {
	l.mu.Lock()
	e := cmp.Or(l.keys[l.id], l.unknown[l.id])
	l.mu.Unlock()
	return l.current(e, InMemory)
}

// current returns the result of an entry that was found there. It reports false if the service must be called: the
// entry is too old, or says that the id is unknown in another spelling.
func (l *lookup) current(e *entry, from Source) (Found, error, bool) {
	if e == nil {
		return Found{}, nil, false
	}
	now := l.opts.Now()
	age := now.Sub(e.FetchedAt)
	if e.key == nil {
		err := ErrUnknown
		if e.Rejected != nil {
			err = &PolicyError{e.Rejected}
		}
		return e.found(from), fmt.Errorf("%w (cached)", err), e.SentAs == l.sentAs && age < l.opts.UnknownTTL
	}
	if e.withdrawn() || age >= l.opts.Freshness {
		from = Stale
	}
	return e.found(from), nil, age < l.opts.MaxAge && (from != Stale || now.Before(e.retryAt))
}

func (l *lookup) find(ctx context.Context) (Found, error) {
	// Another call can have ended since the caller looked in memory.
	if found, err, ok := l.remembered(); ok {
		return found, err
	}
	l.read(ctx)
	e := cmp.Or(l.cached, l.shared)
	if found, err, ok := l.current(e, SharedTable); ok { // another function has just called the service
		l.remember(e)
		return found, err
	}
	// A cached key is not a miss, so a flood of invented ids cannot prevent its refresh.
	if l.cached == nil && !l.spend(ctx) {
		return Found{}, ErrOutOfBudget
	}
	return l.fetch(ctx)
}

func (l *lookup) refetch(ctx context.Context, failed Found) (Found, error) {
	l.read(ctx)
	// Another function can have fetched it already.
	if e := l.cached; e != nil && e.FetchedAt.After(failed.FetchedAt) &&
		l.opts.Now().Sub(e.FetchedAt) < l.refetchAge() {
		l.remember(e)
		return e.found(SharedTable), nil
	}
	if !l.spend(ctx) {
		return Found{}, ErrOutOfBudget
	}
	return l.fetch(ctx)
}

// read reads the table, and finds the key that can be used.
func (l *lookup) read(ctx context.Context) {
	l.shared = l.fromTable(ctx, func(ctx context.Context) (*Record, error) { return l.store.Get(ctx, l.id) })
	e, shared := l.key(), l.shared
	// A record without a key that was written by a function without a copy does not apply to the copy in memory.
	if shared != nil && (e == nil || shared.key != nil && shared.FetchedAt.After(e.FetchedAt) ||
		shared.withdrawn() && !shared.FetchedAt.Before(e.FetchedAt)) {
		e = shared
	}
	if e != nil && e.key != nil && l.opts.Now().Sub(e.FetchedAt) < l.opts.MaxAge {
		l.cached = e
	}
}

// fetch calls the service and stores its answer in memory and in the table.
func (l *lookup) fetch(ctx context.Context) (Found, error) {
	// The age starts before the request, because the answer can be that old. It is in milliseconds, as in the table.
	l.asked = l.opts.Now().Truncate(time.Millisecond)
	if l.cached != nil {
		l.sentAs = cmp.Or(l.cached.SentAs, l.sentAs)
	}
	key, unexpected, err := l.origin.Fetch(ctx, l.sentAs)
	rejected, isRejected := errors.AsType[*PolicyError](err)
	var found Found
	switch {
	case errors.Is(err, ErrUnknown):
		return l.notKnown(ctx, err)
	case isRejected:
		e := l.gone()
		e.Rejected = rejected.Violations
		found = l.save(ctx, e)
	case err == nil:
		found = l.save(ctx, &entry{key: key, ID: l.id, SentAs: l.sentAs, JWK: string(FormatJWK(l.sentAs, key)),
			FetchedAt: l.asked, ExpiresAt: l.asked.Add(l.opts.MaxAge)})
	case l.cached != nil:
		found, err = l.stale(*l.cached), nil
	default:
		found = Found{Source: Service, FetchedAt: l.asked}
	}
	found.UnexpectedType = unexpected
	return found, err
}

// save stores an answer of the service in memory, and in the table while the result is used.
func (l *lookup) save(ctx context.Context, e *entry) Found {
	l.remember(e)
	found := e.found(Service)
	if !l.tableFailed {
		written := make(chan error, 1)
		w := *l // the caller reads l meanwhile
		go func() {
			_, err := withTable(ctx, &w, func(ctx context.Context) (any, error) {
				return nil, w.store.Put(ctx, e.Record)
			})
			written <- err
		}()
		found.written = sync.OnceValue(func() error { return <-written })
	}
	return found
}

// stale returns a cached key that the service did not return, and delays its next fetch.
func (l *lookup) stale(cached entry) Found {
	cached.retryAt = l.opts.Now().Add(retryPause)
	l.remember(&cached)
	return cached.found(Stale)
}

// notKnown handles the answer that the service does not know the id. It removes a cached key if the service has given
// the first such answer long enough ago. While the table fails, each process decides on its own.
func (l *lookup) notKnown(ctx context.Context, unknown error) (Found, error) {
	// The grace starts at the answer: Lambda can freeze the process during the call.
	since := l.opts.Now().Truncate(time.Millisecond)
	if l.cached == nil {
		// The table can contain a key that could not be read.
		if l.cached = l.remove(ctx, time.Time{}); l.cached == nil {
			return l.removed(), unknown
		}
		if l.cached.SentAs != l.sentAs { // the service was asked for another spelling
			return l.stale(*l.cached), nil
		}
	}
	last := *l.cached
	if !last.withdrawn() {
		last.UnknownSince = since
	}
	reported := l.fromTable(ctx, func(ctx context.Context) (*Record, error) {
		return l.store.ReportUnknown(ctx, l.id, l.asked, last.UnknownSince)
	})
	if reported != nil && !reported.FetchedAt.Before(last.FetchedAt) { // the table can lack the copy
		last = *reported
	}
	if last.FetchedAt.After(l.asked) { // another function has just fetched the key
		l.remember(&last)
		return last.found(SharedTable), nil
	}
	l.cached = &last
	if graceEnd := l.asked.Add(-l.opts.UnknownGrace); !last.UnknownSince.After(graceEnd) &&
		l.remove(ctx, graceEnd) == nil {
		return l.removed(), unknown
	}
	return l.stale(last), nil
}

// gone returns the entry of an id that has no key. One that had a key is needed as long as a copy can be used, which is
// older than the report.
func (l *lookup) gone() *entry {
	e := &entry{ID: l.id, SentAs: l.sentAs, FetchedAt: l.asked, ExpiresAt: l.asked.Add(l.opts.UnknownTTL)}
	if known := cmp.Or(l.cached, l.shared); known.withdrawn() {
		e.UnknownSince = known.UnknownSince
	} else if l.cached != nil {
		e.UnknownSince = l.asked
	}
	if end := e.UnknownSince.Add(l.opts.MaxAge); end.After(e.ExpiresAt) {
		e.ExpiresAt = end
	}
	return e
}

// remove records in the table that the id has no key. It returns the key that the table contains, unless it was
// reported as unknown by oldest; nil for none.
func (l *lookup) remove(ctx context.Context, oldest time.Time) (kept *entry) {
	gone := l.gone()
	return l.fromTable(ctx, func(ctx context.Context) (*Record, error) {
		return l.store.Remove(ctx, gone.Record, oldest)
	})
}

func (l *lookup) removed() Found {
	e := l.gone()
	l.remember(e)
	return e.found(Service)
}

// withTable makes a call of the table with its timeout, and records in l if it fails.
func withTable[T any](ctx context.Context, l *lookup, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	result, err := call(ctx)
	l.tableFailed = l.tableFailed || err != nil
	return result, err
}

// fromTable returns the record that a call of the table returns; nil for none that can be used.
func (l *lookup) fromTable(ctx context.Context, call func(context.Context) (*Record, error)) *entry {
	r, _ := withTable(ctx, l, call)
	if r == nil || r.FetchedAt.After(l.opts.Now().Add(maxSkew)) {
		return nil
	}
	key, refused := r.Key()
	if refused != nil && r.Rejected == nil {
		return nil
	}
	return &entry{*r, key, r.UnknownAt.Add(retryPause)} // long past if it was never reported as unknown
}

// remember stores in memory what is known of a key id.
func (c *Cache) remember(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.keys, e.ID)
	delete(c.unknown, e.ID)
	if e.key != nil {
		keep(c.keys, e.ID, e)
	} else {
		keep(c.unknown, e.ID, e)
	}
}

// keep stores a value in a map of the memory. Maps that are full are emptied, because invented ids and unknown sources
// could occupy any amount.
func keep[K comparable, V any](m map[K]V, k K, v V) {
	if len(m) >= 4096 {
		clear(m)
	}
	m[k] = v
}
