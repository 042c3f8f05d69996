package keys

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"uuid"
)

// deployed returns the options of a deployment.
func deployed() Options { return Options{Freshness: time.Hour, MaxAge: 24 * time.Hour, MissBudget: 60} }

// fleet is a payment service, a shared table and a clock. Each of its caches represents one function process.
type fleet struct {
	t       *testing.T
	db      *table
	server  *httptest.Server
	fetches atomic.Int32
	now     time.Time
	broken  atomic.Bool // calls of the table fail

	mu     sync.Mutex
	next   []bool                            // which of the next calls of the table fail
	answer func(http.ResponseWriter, string) // with the requested id
}

// failNext says which of the next calls of the table fail.
func (f *fleet) failNext(fails ...bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = fails
}

func (f *fleet) fails() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.next) == 0 {
		return f.broken.Load()
	}
	fails := f.next[0]
	f.next = f.next[1:]
	return fails
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, db: &table{}, now: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}
	f.db.Hook = func(_ context.Context, next func() error) error {
		if f.fails() {
			return errors.New("table is broken")
		}
		return next()
	}
	f.serve(0)
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.fetches.Add(1)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.answer(w, path.Base(r.URL.Path))
	}))
	t.Cleanup(f.server.Close)
	return f
}

// serve makes the service return one key: the generated key with that number.
func (f *fleet) serve(n int) {
	f.answers(func(w http.ResponseWriter, asked string) {
		if asked != id {
			http.NotFound(w, nil)
			return
		}
		f.writeKey(w, n)
	})
}

func (f *fleet) writeKey(w http.ResponseWriter, n int) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text(f.t, members(generated(n).N, 65537)))
}

func (f *fleet) answers(answer func(w http.ResponseWriter, asked string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// answerJSON makes the service return a text.
func (f *fleet) answerJSON(text string) {
	f.answers(func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	})
}

func (f *fleet) down() {
	f.answers(func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusServiceUnavailable) })
}

func (f *fleet) cache(change ...func(*Options)) *Cache {
	opts := deployed()
	opts.Now = func() time.Time { return f.now }
	for _, c := range change {
		c(&opts)
	}
	return New(origin(f.t, f.server.Client(), f.server.URL), f.db, opts)
}

func (f *fleet) pass(d time.Duration) { f.now = f.now.Add(d) }

// lookup looks a key up, and waits until it is in the table.
func (f *fleet) lookup(c *Cache, id string, from netip.Addr) (Found, error) {
	found, err := c.Lookup(f.t.Context(), id, from)
	found.Wait()
	return found, err
}

func (f *fleet) refetch(c *Cache, id string, failed Found, from netip.Addr) (Found, error) {
	found, err := c.Refetch(f.t.Context(), id, failed, from)
	found.Wait()
	return found, err
}

// expect looks id up and checks the result.
func (f *fleet) expect(c *Cache, want error, source Source, fetches int32) Found {
	f.t.Helper()
	before := f.fetches.Load()
	found, err := f.lookup(c, id, netip.Addr{})
	if !errors.Is(err, want) || want == nil && found.Key == nil {
		f.t.Fatalf("got %v, want %v", err, want)
	}
	if found.Source != source {
		f.t.Errorf("found in %q, want %q", found.Source, source)
	}
	if n := f.fetches.Load() - before; n != fetches {
		f.t.Errorf("%d fetches, want %d", n, fetches)
	}
	return found
}

func TestLookupFetchesAKeyOnceForAllFunctions(t *testing.T) {
	f := newFleet(t)
	one, other := f.cache(), f.cache()
	f.expect(one, nil, Service, 1)
	f.expect(one, nil, InMemory, 0)
	f.expect(other, nil, SharedTable, 0)
	f.expect(other, nil, InMemory, 0)

	f.pass(time.Hour) // no copy is fresh any more
	f.expect(other, nil, Service, 1)
	f.expect(one, nil, SharedTable, 0)
}

func TestLookupUsesAStaleKeyUntilMaxAge(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expect(c, nil, Service, 1)
	f.down()
	f.pass(2 * time.Hour)
	f.expect(c, nil, Stale, 1)
	f.expect(c, nil, Stale, 0) // within the pause
	f.pass(10 * time.Second)
	f.expect(c, nil, Stale, 1)
	f.expect(f.cache(), nil, Stale, 1) // a new function gets it from the table
	f.pass(22*time.Hour - 10*time.Second - time.Millisecond)
	f.expect(c, nil, Stale, 1)
	f.pass(time.Millisecond)
	f.expect(c, ErrUnavailable, Service, 1)
	f.expect(f.cache(), ErrUnavailable, Service, 1)
	f.serve(0)
	f.expect(c, nil, Service, 1)
}

func TestLookupCachesAnUnknownIDForAMinute(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.answers(func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusNotFound) })
	for _, found := range []Found{f.expect(c, ErrUnknown, Service, 1), f.expect(c, ErrUnknown, InMemory, 0),
		f.expect(f.cache(), ErrUnknown, SharedTable, 0)} {
		if found.Withdrawn {
			t.Errorf("it is withdrawn: %+v", found)
		}
	}
	if r := f.stored(); r.JWK != "" || !r.UnknownSince.IsZero() || !r.ExpiresAt.Equal(f.now.Add(time.Minute)) {
		t.Errorf("stored %+v", r)
	}
	f.serve(0)
	f.pass(time.Minute - time.Millisecond)
	f.expect(c, ErrUnknown, InMemory, 0)
	f.pass(time.Millisecond)
	f.expect(c, nil, Service, 1)
}

func TestBudgetLimitsInventedIDsOverAllFunctions(t *testing.T) {
	f := newFleet(t)
	f.expect(f.cache(), nil, Service, 1)
	fleet := []*Cache{f.cache(), f.cache(), f.cache()}
	flood := func() (asked int32, outOfBudget int) {
		before := f.fetches.Load()
		for i := range 300 {
			_, err := f.lookup(fleet[i%len(fleet)], uuid.New().String(), netip.Addr{})
			switch {
			case errors.Is(err, ErrOutOfBudget):
				outOfBudget++
			case !errors.Is(err, ErrUnknown):
				t.Fatal(err)
			}
		}
		return f.fetches.Load() - before, outOfBudget
	}
	if asked, out := flood(); asked != 59 || out != 241 { // one was used for the known key
		t.Errorf("%d calls, %d out of budget", asked, out)
	}
	// Known keys are not affected, even if they must be fetched again.
	f.expect(fleet[0], nil, SharedTable, 0)
	f.pass(time.Hour)
	flood()
	f.expect(fleet[0], nil, Service, 1)
	f.pass(time.Minute)
	if asked, _ := flood(); asked != 60 {
		t.Errorf("%d calls in the next minute", asked)
	}
}

func TestLookupWorksWithoutTheTable(t *testing.T) {
	f := newFleet(t)
	f.broken.Store(true)
	c := f.cache(func(o *Options) { o.MissBudget = 5 })
	if found := f.expect(c, nil, Service, 1); !found.TableFailed {
		t.Error("TableFailed is false")
	}
	f.expect(c, nil, InMemory, 0)
	f.pass(2 * time.Hour)
	f.expect(c, nil, Service, 1)
	// Each function then has its own budget.
	var out int
	for range 20 {
		if _, err := f.lookup(c, uuid.New().String(), netip.Addr{}); errors.Is(err, ErrOutOfBudget) {
			out++
		}
	}
	if out != 15 {
		t.Errorf("%d of 20 were out of a budget of 5", out)
	}
	f.broken.Store(false)
	f.pass(2 * time.Hour)
	f.expect(c, nil, Service, 1)
	f.expect(f.cache(), nil, SharedTable, 0)
}

// answering is a service without a network.
type answering struct{ key *rsa.PublicKey }

func (a answering) Fetch(context.Context, string) (*rsa.PublicKey, string, error) {
	return a.key, "", nil
}

// Each call of the table has half a second, whoever makes it.
func TestATableThatNeverAnswersDelaysEachCallByHalfASecond(t *testing.T) {
	key := &generated(0).PublicKey
	for name, call := range map[string]func(ctx context.Context, c *Cache) bool{ // reports whether it was right
		"lookup": func(ctx context.Context, c *Cache) bool {
			found, err := c.Lookup(ctx, id, sender)
			found.Wait()
			return err == nil && found.TableFailed && found.Key != nil
		},
		"refetch": func(ctx context.Context, c *Cache) bool {
			found, err := c.Refetch(ctx, id, Found{Key: &generated(1).PublicKey}, sender)
			found.Wait()
			return err == nil && found.TableFailed && found.Key != nil
		},
		"a source": func(ctx context.Context, c *Cache) bool {
			c.RecordSource(ctx, sender)
			return c.known[network(sender)].recordAt.After(time.Now())
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := New(nil, &table{Hook: func(ctx context.Context, _ func() error) error {
				<-ctx.Done()
				return ctx.Err()
			}}, deployed())
			c.origin = answering{key}
			start := time.Now()
			if right := call(t.Context(), c); !right || time.Since(start) != tableTimeout {
				t.Errorf("%s: right %t, after %s", name, right, time.Since(start))
			}
		})
	}
}

func TestConcurrentLookupsMakeOneFetch(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	const callers = 50
	arrived := make(chan struct{}, callers)
	release := make(chan struct{})
	f.answers(func(w http.ResponseWriter, _ string) {
		<-release
		f.writeKey(w, 0)
	})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			arrived <- struct{}{}
			if _, err := f.lookup(c, id, netip.Addr{}); err != nil {
				t.Error(err)
			}
		})
	}
	for range callers {
		<-arrived
	}
	close(release)
	wg.Wait()
	if n := f.fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
}

func TestCancelledLookupDoesNotStopTheFetch(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	asked, release := make(chan struct{}), make(chan struct{})
	f.answers(func(w http.ResponseWriter, _ string) {
		close(asked)
		<-release
		f.writeKey(w, 0)
	})
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := c.Lookup(ctx, id, netip.Addr{})
		gaveUp <- err
	}()
	<-asked
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	patient := make(chan error)
	go func() {
		_, err := f.lookup(c, id, netip.Addr{})
		patient <- err
	}()
	close(release)
	if err := <-patient; err != nil {
		t.Error(err)
	}
	if n := f.fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
}

func TestRefetchFindsAKeyRotatedUnderTheSameID(t *testing.T) {
	f := newFleet(t)
	c, other := f.cache(), f.cache()
	old := f.expect(c, nil, Service, 1)
	f.expect(other, nil, SharedTable, 0)
	late := f.cache()
	f.expect(late, nil, SharedTable, 0)
	f.serve(1)

	refetch := func(c *Cache, failed Found, fetches int32, want int) {
		t.Helper()
		before := f.fetches.Load()
		found, _ := f.refetch(c, id, failed, netip.Addr{})
		if n := f.fetches.Load() - before; n != fetches {
			t.Errorf("%d fetches, want %d", n, fetches)
		}
		if want < 0 {
			if found.Key != nil {
				t.Error("another key was found")
			}
		} else if !generated(want).PublicKey.Equal(found.Key) {
			t.Errorf("got %v", found.Key)
		}
	}
	refetch(c, old, 0, -1) // younger than a minute
	f.pass(time.Minute)
	refetch(c, old, 1, 1)
	refetch(other, old, 0, 1) // from the table
	now := f.expect(c, nil, InMemory, 0)
	refetch(c, now, 0, -1)
	f.pass(time.Minute)
	refetch(late, old, 1, 1) // the record in the table is a minute old
	refetch(c, now, 0, -1)   // another function has just fetched it
	f.pass(time.Minute)
	refetch(c, now, 1, -1) // the same key
	f.down()
	f.pass(time.Minute)
	now = f.expect(c, nil, InMemory, 0)
	refetch(c, now, 1, -1)
	refetch(c, now, 0, -1) // forged signatures cause no further call
	f.expect(c, nil, InMemory, 0)
}

func TestRefetchAgeFollowsAShortFreshness(t *testing.T) {
	f := newFleet(t)
	c := f.cache(func(o *Options) { o.Freshness = 30 * time.Second })
	old := f.expect(c, nil, Service, 1)
	for _, want := range []int32{1, 2} { // fetches
		if _, err := f.refetch(c, id, old, netip.Addr{}); err != nil || f.fetches.Load() != want {
			t.Errorf("after %s: %d fetches, want %d, %v", f.now.Sub(old.FetchedAt), f.fetches.Load(), want, err)
		}
		f.pass(10 * time.Second)
	}
}

func TestRefetchIsCountedAgainstTheBudget(t *testing.T) {
	f := newFleet(t)
	c := f.cache(func(o *Options) { o.MissBudget = 1 })
	old := f.expect(c, nil, Service, 1)
	f.serve(1)
	f.pass(time.Minute)
	if _, err := f.lookup(c, uuid.New().String(), netip.Addr{}); !errors.Is(err, ErrUnknown) {
		t.Fatal(err)
	}
	before := f.fetches.Load()
	if found, err := f.refetch(c, id, old, netip.Addr{}); found.Key != nil ||
		!errors.Is(err, ErrOutOfBudget) || f.fetches.Load() != before {
		t.Errorf("got %v, %v", found.Key, err)
	}
	f.expect(c, nil, InMemory, 0)
}

func TestLookupIgnoresRecordsThatItMustNotUse(t *testing.T) {
	good := text(t, members(generated(0).N, 65537))
	for name, test := range map[string]struct {
		jwk   []byte
		ahead time.Duration
		want  Source
	}{
		"a key that the policy rejects": {text(t, members(odd(1024), 65537)), 0, Service},
		"a clock that is a bit ahead":   {good, 5 * time.Minute, SharedTable},
		"a clock that is too far ahead": {good, 5*time.Minute + time.Second, Service},
	} {
		f := newFleet(t)
		if err := f.db.Put(t.Context(), Record{ID: itemID, JWK: string(test.jwk),
			FetchedAt: f.now.Add(test.ahead), ExpiresAt: f.now.Add(48 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if found, err := f.lookup(f.cache(), id, netip.Addr{}); found.Source != test.want || err != nil {
			t.Errorf("%s: found in %q, %v", name, found.Source, err)
		}
	}
}

func TestLookupMakesNoCallForAMalformedID(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	for _, bad := range []string{"", "..", "../../admin", id + "/x", id[:35] + "/", "misses#1", id + "?a=b",
		strings.Repeat("a", 36)} {
		if _, err := f.lookup(c, bad, netip.Addr{}); !errors.Is(err, ErrMalformedID) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	if n := f.fetches.Load() + int32(f.db.Calls("Get")); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

// spellings are texts of one key id.
var spellings = []string{id, strings.ToUpper(id), itemID, strings.ToUpper(itemID)}

func TestAllSpellingsOfAnIDAreOneKey(t *testing.T) {
	f := newFleet(t)
	var asked []string
	f.answers(func(w http.ResponseWriter, a string) {
		asked = append(asked, a)
		f.writeKey(w, 0)
	})
	find := func(c *Cache, spelling string, want Source) Found {
		t.Helper()
		found, err := f.lookup(c, spelling, netip.Addr{})
		if err != nil || found.Source != want || !generated(0).PublicKey.Equal(found.Key) {
			t.Errorf("%s: %+v, %v, want %s", spelling, found, err, want)
		}
		return found
	}
	c := f.cache()
	find(c, spellings[3], Service)
	for _, spelling := range spellings {
		find(c, spelling, InMemory)
		find(f.cache(), spelling, SharedTable)
	}
	items, _ := f.db.Records(t.Context())
	if len(items) != 1 || items[0].ID != itemID || !slices.Equal(asked, spellings[3:]) {
		t.Errorf("asked for %q, items %v", asked, items)
	}
	// The service knows this spelling, so it is asked for this one again.
	f.pass(time.Hour)
	old := find(c, spellings[0], Service)
	f.pass(time.Minute)
	if found, err := f.refetch(c, spellings[1], old, netip.Addr{}); err != nil || found.Key != nil {
		t.Errorf("%+v, %v", found, err)
	}
	f.pass(time.Hour)
	find(f.cache(), spellings[2], Service)
	if want := slices.Repeat(spellings[3:], 4); !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
}

// The service knows one spelling only. Anyone can send others.
func TestAnotherSpellingMakesNoKeyUnknown(t *testing.T) {
	for n, known := range spellings {
		others := slices.Delete(slices.Clone(spellings), n, n+1)
		f := newFleet(t)
		f.answers(func(w http.ResponseWriter, asked string) {
			if asked != known {
				http.NotFound(w, nil)
				return
			}
			f.writeKey(w, 0)
		})
		for _, c := range []*Cache{f.cache(), f.cache()} { // the second function finds the first's record
			for _, other := range others {
				if found, err := f.lookup(c, other, netip.Addr{}); !errors.Is(err, ErrUnknown) {
					t.Errorf("%s: %+v, %v", other, found, err)
				}
			}
		}
		inUse := func(c *Cache, want Source) Found {
			t.Helper()
			found, err := f.lookup(c, known, netip.Addr{})
			if err != nil || found.Source != want || found.Withdrawn {
				t.Errorf("%s: %+v, %v, want %s", known, found, err, want)
			}
			return found
		}
		c := f.cache()
		found := inUse(c, Service)
		for range 3 { // freshness ends, and the grace of an unknown key
			for _, other := range others {
				again, err := f.refetch(c, other, found, netip.Addr{})
				if err != nil || again.Key != nil || again.Withdrawn {
					t.Errorf("%s: %+v, %v", other, again, err)
				}
				if found, err := f.lookup(c, other, netip.Addr{}); err != nil || found.Withdrawn {
					t.Errorf("%s: %+v, %v", other, found, err)
				}
				f.pass(31 * time.Minute)
			}
		}
		inUse(f.cache(), SharedTable)
		f.pass(25 * time.Hour) // nothing is cached any more
		if _, err := f.lookup(c, others[0], netip.Addr{}); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		inUse(f.cache(), Service)
		inUse(c, SharedTable)
	}
}

// A function that cannot read the table learns from another spelling nothing about the key.
func TestAnotherSpellingWithoutTheTableRemovesNoKey(t *testing.T) {
	f := newFleet(t)
	f.expect(f.cache(), nil, Service, 1)
	f.pass(time.Hour)
	for range 3 {
		f.failNext(true) // the read
		found, err := f.lookup(f.cache(), strings.ToUpper(id), netip.Addr{})
		if err != nil || found.Withdrawn || !f.stored().UnknownSince.IsZero() {
			t.Errorf("%+v, %v", found, err)
		}
		f.pass(5 * time.Minute)
	}
}

// A service that changes how it writes the same key, or forgets a spelling, makes nothing unknown.
func TestAKeyThatTheServiceSpellsOtherwiseStaysInUse(t *testing.T) {
	good := generated(0).PublicKey
	octets := append([]byte{0}, good.N.Bytes()...)
	f := newFleet(t)
	c, other := f.cache(), f.cache()
	f.expectInUse(c, Service, 1)
	f.expectInUse(other, SharedTable, 0)
	stored := f.stored().JWK
	for name, change := range map[string]func(m map[string]any){
		"leading zeros": func(m map[string]any) {
			m["n"], m["e"] = base64.RawURLEncoding.EncodeToString(octets), "AAEAAQ"
		},
		"padding": func(m map[string]any) {
			m["n"], m["e"] = base64.URLEncoding.EncodeToString(good.N.Bytes()), "AAEAAQ=="
		},
		"members that are null": func(m map[string]any) { m["d"], m["p"], m["use"], m["key_ops"] = nil, nil, nil, nil },
		"no use and no alg":     func(m map[string]any) { delete(m, "use"); delete(m, "alg"); m["key_ops"] = []int{} },
		"no hyphens in the kid": func(m map[string]any) { m["kid"] = strings.ToUpper(itemID) },
	} {
		m := members(good.N, 65537)
		change(m)
		f.answerJSON("\uFEFF" + string(text(t, m)))
		f.pass(time.Hour)
		f.expectInUse(c, Service, 1)
		f.expectInUse(other, SharedTable, 0)
		if got := f.stored().JWK; got != stored {
			t.Errorf("%s: stored %s", name, got)
		}
	}
}

func TestLookupSendsTheIDAsReceived(t *testing.T) {
	f := newFleet(t)
	var asked string
	f.answers(func(w http.ResponseWriter, a string) {
		asked = a
		http.NotFound(w, nil)
	})
	for _, spelling := range spellings {
		if _, err := f.lookup(f.cache(), spelling, netip.Addr{}); !errors.Is(err, ErrUnknown) || asked != spelling {
			t.Errorf("requested %q: %v", asked, err)
		}
	}
}

// InMemory has 4096 entries of each kind, and begins again when it is full.
func TestMemoryIsEmptiedWhenItIsFull(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	source := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
	}
	known := &entry{key: &generated(0).PublicKey}
	for i := range 4097 {
		name := fmt.Sprint(i)
		c.remember(&entry{ID: "unknown " + name})
		c.remember(&entry{ID: "key " + name, key: known.key})
		c.know(source(i), sighting{})
		other := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)
		(&lookup{Cache: c, source: other}).knows(t.Context())
		want := i + 1
		if i == 4096 {
			want = 1
		}
		if len(c.unknown) != want || len(c.keys) != want || len(c.known) != want || len(c.pauses) != want {
			t.Fatalf("%d: %d unknown, %d keys, %d known and %d unknown sources", i, len(c.unknown), len(c.keys),
				len(c.known), len(c.pauses))
		}
	}
	// What becomes known is no longer unknown, and the other way round.
	c.remember(&entry{ID: "unknown 4096", key: known.key})
	c.remember(&entry{ID: "key 4096"})
	if c.keys["key 4096"] != nil || len(c.unknown) != 1 {
		t.Errorf("%v, %v", c.keys, c.unknown)
	}
	c.know(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 16, 0}), 32), sighting{})
	if len(c.pauses) != 0 {
		t.Errorf("%v", c.pauses)
	}
}

// The interface does not promise a type: only what is the requested key is used.
func TestAKeyOfAnyContentTypeIsUsedAndItsTypeReported(t *testing.T) {
	for header, want := range map[string]string{
		"application/json; charset=utf-8": "", "application/jwk+json": "", "text/html": "text/html", "": "none",
	} {
		f := newFleet(t)
		answer := func(text []byte) {
			f.answers(func(w http.ResponseWriter, _ string) {
				w.Header()["Content-Type"] = []string{header}
				_, _ = w.Write(text)
			})
		}
		key, page := text(t, members(generated(0).N, 65537)), []byte("<html>")
		c := f.cache()
		for _, step := range []struct {
			answer []byte
			err    error
			source Source
			after  time.Duration
		}{{page, ErrUnavailable, Service, 0}, {key, nil, Service, 0}, {page, nil, Stale, time.Hour}} {
			f.pass(step.after)
			answer(step.answer)
			if found := f.expect(c, step.err, step.source, 1); found.UnexpectedType != want {
				t.Errorf("%q: reported %q", header, found.UnexpectedType)
			}
		}
	}
}
