package keys

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// answering is a service without a network.
type answering struct{ key *rsa.PublicKey }

func (a answering) Fetch(context.Context, string) (*rsa.PublicKey, string, error) {
	return a.key, "", nil
}

// Each call of the table has half a second, whoever makes it.
func TestATableThatNeverAnswersDelaysEachCallByHalfASecond(t *testing.T) {
	key := &generated(0).PublicKey
	for name, call := range map[string]func(ctx context.Context, c *Cache) (Found, error){
		"lookup": func(ctx context.Context, c *Cache) (Found, error) { return c.Lookup(ctx, id, sender) },
		"refetch": func(ctx context.Context, c *Cache) (Found, error) {
			return c.Refetch(ctx, id, Found{Key: &generated(1).PublicKey}, sender)
		},
		"a source": func(ctx context.Context, c *Cache) (Found, error) {
			c.RecordSource(ctx, sender)
			return Found{Key: key, TableFailed: true}, nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &table{wait: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
			c := New(nil, store, Options{})
			c.origin = answering{key}
			start := time.Now()
			found, err := call(t.Context(), c)
			found.Wait()
			if took := time.Since(start); err != nil || !found.TableFailed || found.Key == nil || took != tableTimeout {
				t.Errorf("%s: %+v, %v after %s", name, found, err, took)
			}
		})
	}
}

// One caller gives up while the service is asked. The others get the result.
func TestConcurrentLookupsMakeOneFetchThatNobodyCancels(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	asked, release := make(chan struct{}), make(chan struct{})
	f.asked = func(string) { close(asked); <-release }
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
	const callers = 50
	arrived := make(chan struct{}, callers)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			arrived <- struct{}{}
			if found, err := f.lookup(c, id, netip.Addr{}); err != nil || found.Key == nil {
				t.Errorf("%+v, %v", found, err)
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

// Between two looks into memory, another caller has fetched the key.
func TestMemoryIsReadAgainBeforeTheTable(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	_, _ = f.lookup(c, id, netip.Addr{})
	before := f.db.count("")
	found, err := (&lookup{Cache: c, id: itemID, sentAs: id}).find(t.Context())
	if got := result(found, err, 0); got != "key memory 0" || f.db.count("") != before {
		t.Errorf("%s after %d calls of the table", got, f.db.count("")-before)
	}
}

func TestLookupIgnoresRecordsThatItMustNotUse(t *testing.T) {
	good := string(text(t, members(generated(0).N, 65537)))
	for name, test := range map[string]struct {
		jwk   string
		ahead time.Duration
		want  string
	}{
		"not a JWK":                     {"{}", 0, "key origin 1"},
		"a key that the policy rejects": {string(text(t, members(odd(1024), 65537))), 0, "key origin 1"},
		"a clock that is a bit ahead":   {good, 5 * time.Minute, "key table 0"},
		"a clock that is too far ahead": {good, 5*time.Minute + time.Second, "key origin 1"},
	} {
		f := newFleet(t)
		at := f.now.Add(test.ahead)
		_ = f.db.Put(t.Context(), Record{ID: itemID, JWK: test.jwk, FetchedAt: at, ExpiresAt: at.Add(24 * time.Hour)})
		found, err := f.lookup(f.cache(), id, netip.Addr{})
		if got := result(found, err, f.fetches.Load()); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestLookupMakesNoCallForAMalformedID(t *testing.T) {
	f := newFleet(t)
	for _, bad := range []string{"", "..", "../../admin", id + "/x", id[:35] + "/", "misses#1", id + "?a=b",
		strings.Repeat("a", 36)} {
		if _, err := f.lookup(f.cache(), bad, netip.Addr{}); !errors.Is(err, ErrMalformedID) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	if n := int(f.fetches.Load()) + f.db.count(""); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

// The service is asked for the spelling that was received, and again for the one that it knew.
func TestAllSpellingsOfAnIDAreOneKey(t *testing.T) {
	f := newFleet(t)
	var asked []string
	f.known, f.asked = spellings, func(id string) { asked = append(asked, id) }
	f.play(`
		0  . . a/3   key origin 1
		0  . . a/0   key memory 0
		0  . . a/1   key memory 0
		0  . . a/2   key memory 0
		0  . . new/0 key table 0
		0  . . new/1 key table 0
		0  . . new/2 key table 0
		1h . . a/0   key origin 1
		1m . . a/1+  none origin 1
		1h . . new/2 key origin 1`)
	items, _ := f.db.Records(t.Context())
	if len(items) != 1 || items[0].ID != itemID || !slices.Equal(asked, slices.Repeat(spellings[3:], 4)) {
		t.Errorf("asked for %q, items %v", asked, items)
	}
}

// Memory has 4096 entries of each kind, and begins again when it is full.
func TestMemoryIsEmptiedWhenItIsFull(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	source := func(kind byte, i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, kind, byte(i >> 8), byte(i)}), 32)
	}
	key := &generated(0).PublicKey
	lengths := func() [4]int { return [4]int{len(c.keys), len(c.unknown), len(c.known), len(c.pauses)} }
	for i := range 4097 {
		c.remember(&entry{ID: fmt.Sprint("key ", i), key: key})
		c.remember(&entry{ID: fmt.Sprint("unknown ", i)})
		c.know(source(0, i), sighting{})
		(&lookup{Cache: c, source: source(1, i)}).knows(t.Context())
		if want := i%4096 + 1; lengths() != [4]int{want, want, want, want} {
			t.Fatalf("%d: %v", i, lengths())
		}
	}
	// What becomes known is no longer unknown, and the other way round.
	c.remember(&entry{ID: "unknown 4096", key: key})
	c.remember(&entry{ID: "key 4096"})
	c.know(source(1, 4096), sighting{})
	if c.keys["key 4096"] != nil || lengths() != [4]int{1, 1, 2, 0} {
		t.Errorf("%v", lengths())
	}
}

// Invented ids cannot use up what a key in use, or a source of authentic webhooks, needs.
func TestBudgetsLimitInventedIDsOverAllFunctions(t *testing.T) {
	f := newFleet(t)
	a, b, verifier := f.cache(), f.cache(), f.cache()
	verifier.RecordSource(t.Context(), sender)
	old, _ := f.lookup(a, id, stranger)
	if n := f.flood(a, stranger, 50) + f.flood(b, stranger, 50); n != 59 { // one was used for the key
		t.Errorf("%d calls of the service for a stranger", n)
	}
	if got := f.flood(b, netip.Addr{}, 1); got != 0 {
		t.Error("a webhook without an address caused a call")
	}
	f.service = "404"
	f.pass(time.Hour)
	f.flood(a, stranger, 61)
	before := f.fetches.Load()
	for range 60 { // a key in use is asked for every ten seconds, without a budget
		for _, c := range []*Cache{a, b, verifier} {
			if found, err := f.lookup(c, id, stranger); err != nil || !found.Withdrawn {
				t.Fatal(found, err)
			}
		}
		f.pass(time.Second)
	}
	if n := f.fetches.Load() - before; n != 6 {
		t.Errorf("%d calls for a withdrawn key in a minute", n)
	}
	f.service = "key2"
	f.flood(a, stranger, 61)
	if found, err := f.refetch(b, id, old, stranger); !errors.Is(err, ErrOutOfBudget) || found.Key != nil {
		t.Errorf("a stranger gets %v, %v", found.Key, err)
	}
	if found, err := f.refetch(b, id, old, sender); err != nil || !generated(1).PublicKey.Equal(found.Key) {
		t.Errorf("a known source gets %v, %v", found.Key, err)
	}
	if n := f.flood(a, sender, 40) + f.flood(b, sender, 40); n != 59 {
		t.Errorf("%d calls of the service for a known source", n)
	}
	f.pass(time.Minute)
	if n := f.flood(a, sender, 200); n != 120 {
		t.Errorf("%d calls in the next minute", n)
	}
}

// When the budgets of a minute are spent, invented ids cost one read each.
func TestSpentBudgetCostsNoWrite(t *testing.T) {
	f := newFleet(t, budgetOf(5))
	c := f.cache()
	c.RecordSource(t.Context(), sender)
	f.flood(c, sender, 11) // the last finds that nothing is left
	minute := fmt.Sprint(start.Unix() / 60)
	if got := f.db.counters; len(got) != 2 || got["misses#"+minute] != 5 || got["reserve#"+minute] != 5 {
		t.Errorf("%v", got)
	}
	for name, expires := range f.db.expires {
		if !strings.HasPrefix(name, "source#") && !expires.Equal(start.Add(time.Hour)) {
			t.Errorf("%s expires at %s", name, expires)
		}
	}
	reads, calls := f.db.count("Get"), f.db.count("")
	if n := f.flood(c, sender, 20); n != 0 || f.db.count("Get")-reads != 20 || f.db.count("")-calls != 20 {
		t.Errorf("%d calls of the service, and %d of the table", n, f.db.count("")-calls)
	}
}

func TestSourceIsKnownForAWeekAndRecordedOnceADay(t *testing.T) {
	f := newFleet(t, budgetOf(2))
	a, b := f.cache(), f.cache()
	name := sourceName(network(sender))
	record := func(after time.Duration, c *Cache, calls int, at time.Time) {
		t.Helper()
		f.pass(after)
		before := f.db.count("RecordSource")
		for range 3 {
			c.RecordSource(t.Context(), sender)
			c.RecordSource(t.Context(), netip.Addr{}) // is ignored
		}
		if n, got := f.db.count("RecordSource")-before, f.db.sources[name]; n != calls || !got.Equal(at) {
			t.Errorf("%d calls, want %d; seen at %v, want %v", n, calls, got, at)
		}
	}
	record(0, a, 1, start)
	record(time.Hour, b, 1, start) // a write whose condition fails
	record(23*time.Hour-time.Second, a, 0, start)
	record(0, b, 0, start)
	record(time.Second, b, 1, start.Add(24*time.Hour))
	if expires := f.db.expires[name]; !expires.Equal(start.Add(8*24*time.Hour)) || len(f.db.sources) != 1 ||
		len(name) != len("source#")+43 { // a hash instead of the address
		t.Errorf("%s expires at %s, of %v", name, expires, f.db.sources)
	}
	f.pass(7*24*time.Hour - time.Minute)
	for _, known := range []bool{true, false} {
		for _, c := range []*Cache{b, f.cache()} {
			f.flood(c, stranger, 3)
			if n := f.flood(c, sender, 1); (n == 1) != known {
				t.Errorf("%d calls at %s", n, f.now)
			}
		}
		f.pass(time.Minute)
	}
}

func TestNetworkIsAnIPv4AddressOrASlash64(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8:0:1::1": "2001:db8:0:1::/64",
		"2001:db8:0:1:ffff::2": "2001:db8:0:1::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := network(netip.MustParseAddr(addr)); got.String() != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
	if network(netip.Addr{}).IsValid() {
		t.Error("the zero Addr has a network")
	}
}

func TestKnownSourcesWithoutTheTable(t *testing.T) {
	f := newFleet(t, budgetOf(2))
	f.db.fail("down")
	c := f.cache()
	c.RecordSource(t.Context(), sender)
	for _, test := range []struct {
		c    *Cache
		from netip.Addr
		want int32
	}{{c, stranger, 2}, {c, sender, 2}, {c, sender, 0}, {f.cache(), sender, 2}} { // each process has its own budgets
		if n := f.flood(test.c, test.from, 10); n != test.want {
			t.Errorf("%s caused %d calls, want %d", test.from, n, test.want)
		}
	}
	f.db.fail("")
	c.RecordSource(t.Context(), sender)
	if len(f.db.sources) != 0 {
		t.Error("the write was tried again at once")
	}
	f.pass(time.Minute)
	if c.RecordSource(t.Context(), sender); len(f.db.sources) != 1 {
		t.Error("not recorded")
	}
}

// The table is asked about a source once, if it can be asked.
func TestWhatIsKnownOfASource(t *testing.T) {
	f := newFleet(t)
	recorded, other := network(sender), network(stranger)
	f.cache().RecordSource(t.Context(), sender)
	c := f.cache()
	for _, test := range []struct {
		name                string
		source              netip.Prefix
		failedBefore, fails bool // the table
		known, failed       bool
		calls               int
	}{
		{"no source", netip.Prefix{}, false, false, false, false, 0},
		{"the table failed before", recorded, true, false, false, true, 0},
		{"the table fails", recorded, false, true, false, true, 1},
		{"recorded", recorded, false, false, true, false, 1},
		{"in memory", recorded, false, true, true, false, 0},
		{"not recorded", other, false, false, false, false, 1},
		{"not asked again", other, false, true, false, false, 0},
	} {
		f.db.fail(map[bool]string{true: "down"}[test.fails])
		before := f.db.count("Source")
		l := &lookup{Cache: c, source: test.source, tableFailed: test.failedBefore}
		known, calls := l.knows(t.Context()), f.db.count("Source")-before
		if known != test.known || l.tableFailed != test.failed || calls != test.calls {
			t.Errorf("%s: %v, %v, %d calls", test.name, known, l.tableFailed, calls)
		}
	}
}

// A known source must get its own result while an unknown source looks up the same id.
func TestKnownSourceDoesNotShareTheLookupOfAnUnknownOne(t *testing.T) {
	f := newFleet(t, budgetOf(1))
	c := f.cache()
	c.RecordSource(t.Context(), sender)
	f.flood(c, stranger, 1)
	asked, release := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(asked); <-release })
	f.db.wait = func(context.Context) error { first(); return nil }
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = f.lookup(c, id, stranger) })
	<-asked
	f.db.wait = nil
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a failing test would block here
	defer cancel()
	if _, err := c.Lookup(ctx, id, sender); err != nil {
		t.Error(err)
	}
	close(release)
	wg.Wait()
}
