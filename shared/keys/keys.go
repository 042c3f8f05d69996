// Package keys looks up the public keys that key ids name.
//
// It guarantees that a key is used only if its JWK meets section 2.6 of the payment service's interface ([ParseJWK]),
// and that it is not used for longer than Options.MaxAge after it was requested from the service.
//
// Each execution environment has a cache. [Cache.Lookup] looks in its memory, then in the table that all caches share
// ([Store]), and then asks the service ([Endpoint]). While the table fails, each cache decides on its own.
//
// # Questions
//
// The record of an id has the time before which no cache asks the service (LeasedUntil), and its last answer. A cache
// that needs one leases the question: one conditional write over the record that it has read moves LeasedUntil to the
// end of the request's timeout. The answer is written only over the record of the lease. A key is also written over
// another record, unless that has a later key. So one cache asks at a time, and another one when the lease ends.
//
// Until LeasedUntil, a cache that finds a lease uses the key if there is one, or waits; one that finds an answer uses
// that. What an answer does to each [State], and how long it holds:
//
//	             key       unknown       refused   unavailable
//	none         fresh     unknown       refused   unavailable
//	fresh        fresh     withdrawn     refused   fresh
//	stale        fresh     withdrawn     refused   stale
//	withdrawn    fresh     withdrawn(1)  refused   withdrawn
//	removed      fresh     removed       refused   unavailable
//	refused      fresh     unknown(2)    refused   unavailable
//	unknown      fresh     unknown       refused   unavailable
//	unavailable  fresh     unknown(2)    refused   unavailable
//	holds        1 min     10 s          10 s      Retry-After, at most 1 min; without it 10 s with a key,
//	                                               otherwise 0 s, 1 s, 2 s and so on up to 10 s
//
// (1) Removed if the service was asked at least Options.UnknownGrace after the answer by which it was withdrawn: its
// error bodies are not specified (section 7), so a 404 can be a gateway's. (2) Removed if there was a key.
//
// Fresh, stale and withdrawn keys are used. A key becomes stale at the age of Options.Freshness or up to a twelfth
// earlier, at another time in each cache. An answer that is no key ([ErrNotJWK]) counts as unavailable, because anyone
// can make a cache ask ([Cache.Refetch]). The clocks of execution environments can differ: from when a cache has read a
// record, it holds no longer than a request takes, or a minute if it has an answer.
//
// # Key ids
//
// All spellings of a key id ([payment.KeyID]) are one key, but the service may know one only, and anyone can send
// others. So a key is fetched again in the spelling for which the service returned it, and the answer for an id without
// a key, like a lease, applies to the spelling that the service is asked for.
//
// # Budgets
//
// Anyone can invent key ids, and each is a request. Two budgets limit the requests for ids without a key, over all
// caches together: Options.MissBudget a minute for all callers, and when these are used up, as many for addresses
// that have sent an authentic webhook within a week ([Cache.RecordSender]). So invented ids cannot block those of new
// real keys. A known sender waits for another cache, or for a budget, at no cost; another sender takes one of the
// budget. When the budgets of a minute are used up, an invented id is a read of the table.
package keys

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"payhook.example/shared/payment"
)

// The errors of a lookup. Every error that a [Cache] returns wraps one of them, or is a [*PolicyError].
var (
	// ErrMalformedID is returned when [payment.KeyID] does not accept a key id. No call is made.
	ErrMalformedID = errors.New("keys: key id is not a UUID")
	// ErrUnknown is returned when the service does not know the id and there is no key that can be used.
	ErrUnknown = errors.New("keys: unknown key")
	// ErrUnavailable is returned when the service does not return a key in time, and there is none that can be used.
	ErrUnavailable = errors.New("keys: key endpoint unavailable")
	// ErrOutOfBudget is returned when there is no key and no budget. The id can be that of a real key.
	ErrOutOfBudget = errors.New("keys: key requests out of budget")
)

// Options are the options of a [Cache]. The comment of each field ends with the default that replaces the zero value.
type Options struct {
	Freshness    time.Duration // age at which a key is fetched again; [Freshness]
	MaxAge       time.Duration // age at which a key is no longer used; 24 hours
	UnknownGrace time.Duration // how long the service must report a key as unknown before it is removed; 5 minutes
	// MissBudget is how many requests for ids without a key are sent a minute, in each of the two budgets (the
	// interface, section 8); 60. A service has few keys; more help only who invents key ids.
	MissBudget int
	Now        func() time.Time                  // time.Now
	Random     func(time.Duration) time.Duration // returns a duration from 0 to less than this; [rand.N]
}

// Freshness is how long a key is used before it is fetched again (the interface, section 5.4), so that a key which the
// service withdraws is used for little longer. The least setting keyMaxAge is not shorter.
const Freshness = time.Hour

const (
	tableTimeout = 500 * time.Millisecond // of each call of the table
	// maxSkew is the maximum difference by which the clock of another cache can be ahead of this one. A record from
	// further in the future would not expire in time.
	maxSkew = 5 * time.Minute
)

// Source is where the result of a lookup was found.
type Source string

// The sources of a result.
const (
	InMemory    Source = "memory"
	SharedTable Source = "table"
	Service     Source = "endpoint"
	StaleKey    Source = "stale" // a key that is to be fetched again, and was not returned yet
)

// Found is the result of a lookup. If the lookup fails, Key is nil and the other fields are set.
type Found struct {
	Key            *rsa.PublicKey
	FetchedAt      time.Time // when the key was requested from the service
	Source         Source
	Withdrawn      bool   // the service returned a key and no longer does; if Key is nil, it was removed or refused
	TableFailed    bool   // a call of the shared table failed
	UnexpectedType string // of the service's answer in this lookup, unless it is JSON

	save func(context.Context) (failed bool) // writes the answer into the table; nil: there is nothing to write
}

// UnusualExponent reports whether the key has another public exponent than 65537.
func (f *Found) UnusualExponent() bool { return f.Key != nil && f.Key.E != 65537 }

// Save writes the answer of the service into the shared table, if there is one to write. Whoever looks a key up must
// call it, for other caches, and can use the key before.
func (f *Found) Save(ctx context.Context) {
	if f.save != nil {
		f.TableFailed, f.save = f.save(ctx) || f.TableFailed, nil
	}
}

// Cache looks up keys by their ids. It is safe for concurrent use.
type Cache struct {
	endpoint *Endpoint
	store    Store
	opts     Options
	early    time.Duration // how much earlier than Options.Freshness a key is stale in this cache

	mu      sync.Mutex
	keys    map[string]*entry // by the canonical form of their ids, like others
	others  map[string]*entry // ids without a key
	misses  budget
	reserve budget
	known   map[netip.Prefix]sighting  // senders of authentic webhooks
	pauses  map[netip.Prefix]time.Time // unknown senders, and until when the table is not read again
	busy    map[question]chan struct{} // closed when the caller who searches has the result
}

// question is what one caller of a cache at a time searches for. A sender is part of it, because it decides about
// the budgets.
type question struct {
	sentAs string
	sender netip.Prefix
}

// entry is a record and its key; nil for none. It is immutable.
type entry struct {
	Record
	key *rsa.PublicKey
}

// New returns a Cache that fetches keys from the endpoint and shares them through store.
func New(endpoint *Endpoint, store Store, opts Options) *Cache {
	opts.Freshness = cmp.Or(opts.Freshness, Freshness)
	opts.MaxAge = cmp.Or(opts.MaxAge, 24*time.Hour)
	opts.UnknownGrace = cmp.Or(opts.UnknownGrace, 5*time.Minute)
	opts.MissBudget = cmp.Or(opts.MissBudget, 60)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Random == nil {
		opts.Random = rand.N[time.Duration]
	}
	return &Cache{endpoint: endpoint, store: store, opts: opts, early: opts.Random(opts.Freshness / 12),
		keys: map[string]*entry{}, others: map[string]*entry{}, busy: map[question]chan struct{}{},
		misses: budget{name: "misses"}, reserve: budget{name: "reserve"},
		known: map[netip.Prefix]sighting{}, pauses: map[netip.Prefix]time.Time{}}
}

// now returns the time as the table has it: in milliseconds, and without a monotonic reading, which stands still while
// Lambda freezes the execution environment. No other time is compared with one of the table.
func (c *Cache) now() time.Time { return time.UnixMilli(c.opts.Now().UnixMilli()).UTC() }

// Lookup returns the key with that id, from memory if it is fresh there. from is the address that the webhook came
// from; the zero Addr is an unknown sender. It ends with ctx. Every caller must call [Found.Save].
func (c *Cache) Lookup(ctx context.Context, id string, from netip.Addr) (Found, error) {
	return c.find(ctx, id, nil, from)
}

// Refetch looks for another key with the id of a key with which a signature did not verify. It returns no key if the
// service has no other one, or returned this one less than a minute ago or a third of Options.Freshness. The error is
// that of a key that could not be fetched, also while another key with this id is used. from and Save are as for
// Lookup.
func (c *Cache) Refetch(ctx context.Context, id string, failed Found, from netip.Addr) (Found, error) {
	return c.find(ctx, id, &failed, from)
}

// lookup is one search for a key in the table and at the service.
type lookup struct {
	*Cache
	id          string // in its canonical form
	sentAs      string // the id in the webhook
	sender      netip.Prefix
	failed      *Found      // the key with which a signature did not verify; nil for none
	tableFailed atomic.Bool // a call of the table failed
	paid        bool        // one request was taken from a budget
	ends        time.Time   // until when it waits and asks, once it waits
}

// find returns what is in memory. Otherwise one caller of the cache at a time searches for the same, and each of the
// others then looks again.
func (c *Cache) find(ctx context.Context, id string, failed *Found, from netip.Addr) (found Found, err error) {
	canonical, ok := payment.KeyID(id)
	if !ok {
		return Found{}, ErrMalformedID
	}
	l := &lookup{Cache: c, id: canonical, sentAs: id, sender: network(from), failed: failed}
	for what := (question{id, l.sender}); ; {
		if found, err, ok = l.result(l.memory(), InMemory); ok {
			return found, err
		}
		c.mu.Lock()
		other := c.busy[what]
		if other == nil {
			mine := make(chan struct{})
			c.busy[what] = mine
			c.mu.Unlock()
			defer func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.busy, what)
				close(mine)
			}()
			found, err = l.search(ctx)
			found.TableFailed = found.TableFailed || l.tableFailed.Load()
			return found, err
		}
		c.mu.Unlock()
		if err := l.wait(ctx, other, c.endpoint.timeout); err != nil {
			return Found{}, err
		}
	}
}

// wait waits that long, or until a channel is closed. It returns an error if ctx ends, and if the time of the lookup
// had ended before: the caller looks once more at its end.
func (l *lookup) wait(ctx context.Context, other <-chan struct{}, d time.Duration) error {
	l.ends = cmp.Or(l.ends, l.now().Add(l.endpoint.timeout))
	left := l.ends.Sub(l.now())
	if left <= 0 {
		return fmt.Errorf("%w: another execution environment asks", ErrUnavailable)
	}
	timer := time.NewTimer(min(d, left))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-other:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	return nil
}

// search looks in the table, and asks the service or waits for the cache that does: it reads again after 100, 200 and
// 400 ms, and then every 500 ms, with jitter.
func (l *lookup) search(ctx context.Context) (Found, error) {
	e, err := l.read(ctx)
	if err != nil {
		l.tableFailed.Store(true)
		e = l.memory()
	}
	for pause := 100 * time.Millisecond; ; {
		if found, err, ok := l.result(e, SharedTable); ok {
			return found, err
		}
		var reason error // not to ask, except that another cache does
		leased := l.now().Before(e.LeasedUntil) && (e.key != nil || e.AskedAs == l.sentAs) && !l.tableFailed.Load()
		needsBudget := e.key == nil && !l.paid
		switch {
		case leased && !l.paid && !l.knows(ctx):
			if l.paid = l.take(ctx, &l.misses); !l.paid {
				return Found{}, ErrOutOfBudget
			}
		case leased:
		case needsBudget && l.usedUp(&l.misses) && (l.usedUp(&l.reserve) || !l.knows(ctx)):
			reason = ErrOutOfBudget
		case l.ends.IsZero() || l.now().Before(l.ends):
			found, other, err := l.ask(ctx, e)
			if other != nil {
				e = other
				continue
			}
			if reason = err; !errors.Is(err, ErrOutOfBudget) {
				return found, err
			}
		}
		if reason != nil && (l.tableFailed.Load() || !l.knows(ctx)) {
			return Found{}, reason
		}
		switch err := l.wait(ctx, nil, pause*3/4+l.opts.Random(pause/2)); {
		case err != nil && reason != nil:
			return Found{}, reason
		case err != nil:
			return Found{}, err
		}
		pause = min(2*pause, 500*time.Millisecond)
		if again, err := l.read(ctx); err == nil {
			e = again
		}
	}
}

// remembered has the errors of answers that are in a record; ErrUnavailable for any other.
var remembered = map[State]error{Unknown: ErrUnknown, Refused: &PolicyError{}}

// result returns the result of what is known. It reports false if the service must be asked, or is being asked.
func (l *lookup) result(e *entry, from Source) (Found, error, bool) {
	found := Found{Key: e.key, FetchedAt: e.FetchedAt, Source: from, Withdrawn: !e.UnknownSince.IsZero()}
	state, held := e.State(l.now(), l.opts.Freshness-l.early), l.now().Before(e.LeasedUntil)
	err := cmp.Or(remembered[e.Answer], ErrUnavailable)
	switch {
	case e.key == nil:
		return found, fmt.Errorf("%w (remembered)", err), held && e.Answer != None && e.AskedAs == l.sentAs
	case l.failed == nil && state == Fresh,
		l.failed != nil && e.FetchedAt.After(l.failed.FetchedAt) && !e.key.Equal(l.failed.Key):
		return found, nil, true
	case l.failed == nil:
		if !held || e.Answer != None { // otherwise another cache asks for it now
			found.Source = StaleKey
		}
		return found, nil, held
	}
	found.Key = nil
	if e.Answer != Unavailable { // the service has no other key, or has not answered yet
		err = nil
	}
	return found, err, held && e.Answer != None
}

// ask leases the question, asks the service, and keeps its answer. It returns the entry that is there instead if
// another cache was faster.
func (l *lookup) ask(ctx context.Context, e *entry) (Found, *entry, error) {
	leased := e.Record
	leased.Version, leased.Answer, leased.AskedAs = crand.Text(), None, cmp.Or(e.SentAs, l.sentAs)
	leased.LeasedUntil = cmp.Or(l.ends, l.now().Add(l.endpoint.timeout))
	leased.ExpiresAt = latest(e.ExpiresAt, leased.LeasedUntil.Add(kept))
	paid := make(chan bool, 1)
	if e.key == nil && !l.paid {
		go func() { paid <- l.take(ctx, &l.misses) || l.knows(ctx) && l.take(ctx, &l.reserve) }()
	} else {
		paid <- l.paid
	}
	other := l.put(ctx, leased, e.Version)
	l.paid = <-paid
	restore := func() {
		r := e.Record
		r.ExpiresAt = leased.ExpiresAt
		l.put(context.WithoutCancel(ctx), r, leased.Version)
		l.remember(e)
	}
	switch {
	case other != nil:
		return Found{}, l.merge(other), nil
	case e.key == nil && !l.paid:
		restore()
		return Found{}, nil, ErrOutOfBudget
	}
	l.remember(&entry{leased, e.key})
	a, unexpected, err := l.fetch(ctx, leased.AskedAs, leased.LeasedUntil.Sub(l.now()))
	if a.answer == Unavailable && ctx.Err() != nil { // which says nothing about the service
		restore()
		return Found{}, nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	next := &entry{e.after(a, &l.opts), cmp.Or(a.key, e.key)}
	if next.Version = crand.Text(); next.JWK == "" {
		next.key = nil
	}
	next = l.usable(next)
	if err == nil && next.key == nil { // the execution environment was frozen
		next.Answer, err = Unavailable, fmt.Errorf("%w: the answer came too late", ErrUnavailable)
	}
	l.remember(next)
	found, known, _ := l.result(next, Service)
	if found.UnexpectedType = unexpected; next.key != nil {
		err = known
	}
	if found.Key == nil { // nothing else is to be done
		if other := l.put(ctx, next.Record, leased.Version); other != nil && other.key != nil {
			return Found{}, l.merge(other), nil // another cache has the key meanwhile
		}
	} else if !l.tableFailed.Load() {
		found.save = func(ctx context.Context) bool {
			w := &lookup{Cache: l.Cache}
			w.put(ctx, next.Record, leased.Version)
			return w.tableFailed.Load()
		}
	}
	return found, nil, err
}

// fetch asks the service. It returns the type of the answer unless it is JSON, and its error if it has no key.
func (l *lookup) fetch(ctx context.Context, sentAs string, left time.Duration) (reply, string, error) {
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	asked := l.now()
	key, unexpected, err := l.endpoint.Fetch(ctx, sentAs)
	status, _ := errors.AsType[StatusError](err)
	a := reply{answer: Fresh, key: key, sentAs: sentAs, asked: asked, at: l.now(), retryAfter: status.RetryAfter}
	switch _, refused := errors.AsType[*PolicyError](err); {
	case refused:
		a.answer = Refused
	case errors.Is(err, ErrUnknown):
		a.answer = Unknown
	case err != nil:
		a.answer = Unavailable
	}
	return a, unexpected, err
}

// table makes a call of the table with its timeout, and records whether it fails.
func (l *lookup) table(ctx context.Context, call func(context.Context) error) (failed bool) {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	if failed = call(ctx) != nil; failed {
		l.tableFailed.Store(true)
	}
	return failed
}

// put writes a record if the one of a version is there. It returns the entry that is there instead. After a call of the
// table failed, it does nothing.
func (l *lookup) put(ctx context.Context, r Record, version string) (other *entry) {
	var stored bool
	var instead *Record
	if l.tableFailed.Load() || l.table(ctx, func(ctx context.Context) (err error) {
		stored, instead, err = l.store.Put(ctx, r, version)
		return err
	}) || stored {
		return nil
	}
	switch other = l.entryOf(instead); other.Version {
	case r.Version: // a write that was repeated
		return nil
	case version: // the item cannot be read
		l.tableFailed.Store(true)
		return nil
	}
	return other
}

// read returns what applies of what table and memory have. A failure is not recorded: the next read can succeed.
func (l *lookup) read(ctx context.Context) (*entry, error) {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	r, err := l.store.Get(ctx, l.id)
	if err != nil {
		return nil, err
	}
	return l.merge(l.entryOf(r)), nil
}

// entryOf returns the entry of a record that was read; nil stands for none. It has nothing that must not be used.
func (l *lookup) entryOf(r *Record) *entry {
	if r == nil {
		return &entry{ID: l.id}
	}
	key, err := r.Key()
	if err != nil || r.FetchedAt.After(l.now().Add(maxSkew)) {
		return &entry{ID: l.id, Version: r.Version}
	}
	e := &entry{*r, key}
	if e.LeasedUntil.After(l.now().Add(l.endpoint.timeout + maxSkew)) {
		e.LeasedUntil = time.Time{}
	}
	return l.usable(e)
}

// usable returns an entry without a key that is too old.
func (l *lookup) usable(e *entry) *entry {
	if e.key == nil || l.now().Sub(e.FetchedAt) < l.opts.MaxAge {
		return e
	}
	r := e.Record
	r.SentAs, r.JWK, r.FetchedAt, r.UnknownSince = "", "", time.Time{}, time.Time{}
	return &entry{Record: r}
}

// memory returns what is in memory.
func (l *lookup) memory() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usable(cmp.Or(l.keys[l.id], l.others[l.id], &entry{ID: l.id}))
}

// merge returns what applies of the entry of the table and that in memory, and remembers it. The table says when the
// service is asked next. Of the keys and removals of both, the latest applies. The table can have lost the record.
func (l *lookup) merge(shared *entry) *entry {
	m, e := l.memory(), *shared
	holds := askAgain // at most, but the clock of the cache that has written the record can be ahead
	if e.Answer == None {
		holds = l.endpoint.timeout
	}
	if limit := l.now().Add(holds); e.Version == m.Version { // it was read before
		e.LeasedUntil = m.LeasedUntil
	} else if e.LeasedUntil.After(limit) {
		e.LeasedUntil = limit
	}
	switch {
	case e.Version == "" && (m.key != nil || m.Answer != None):
		e = *m
		e.Version = ""
	case e.FetchedAt.Before(m.FetchedAt):
		e.key, e.SentAs, e.JWK, e.ExpiresAt = m.key, m.SentAs, m.JWK, m.ExpiresAt
		e.FetchedAt, e.UnknownSince = m.FetchedAt, m.UnknownSince
	case e.FetchedAt.Equal(m.FetchedAt) && e.UnknownSince.IsZero():
		e.UnknownSince = m.UnknownSince // which the table does not have because a write failed
	}
	l.remember(&e)
	return &e
}

// remember stores in memory what is known of a key id.
func (c *Cache) remember(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.keys, e.ID)
	delete(c.others, e.ID)
	if e.key != nil {
		keep(c.keys, e.ID, e)
	} else {
		keep(c.others, e.ID, e)
	}
}

// keep stores a value in a map of the memory. Maps that are full are emptied, because invented ids and unknown senders
// could occupy any amount.
func keep[K comparable, V any](m map[K]V, k K, v V) {
	if len(m) >= 4096 {
		clear(m)
	}
	m[k] = v
}
