package keys

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// tableCalls returns the number of calls of the table.
func (f *fleet) tableCalls() int {
	return f.db.Calls("Get", "Put", "Remove", "ReportUnknown", "Take", "RecordSource", "Source")
}

// Each case makes calls of the table. TableFailed is true if and only if one of them fails, whichever it is.
func TestTableFailedReportsEveryCall(t *testing.T) {
	one := func(o *Options) { o.MissBudget = 1 }
	// fetched prepares a cache with a key that is due, and what the service answers then.
	fetched := func(then func(f *fleet)) func(f *fleet, c *Cache) {
		return func(f *fleet, c *Cache) {
			f.expect(c, nil, Service, 1)
			then(f)
			f.pass(time.Hour)
		}
	}
	flooded := func(f *fleet, c *Cache) {
		c.RecordSource(t.Context(), sender)
		f.flood(f.cache(one), stranger, 2)
	}
	for name, test := range map[string]struct {
		calls   int
		refetch bool
		prepare func(f *fleet, c *Cache)
	}{
		"a new key":                  {3, false, func(*fleet, *Cache) {}},
		"an unknown id":              {3, false, func(f *fleet, _ *Cache) { f.gone() }},
		"a key of the table":         {1, false, func(f *fleet, _ *Cache) { f.expect(f.cache(), nil, Service, 1) }},
		"a key that is due":          {2, false, fetched(func(*fleet) {})},
		"due, and no service":        {1, false, fetched((*fleet).down)},
		"a first report":             {2, false, fetched((*fleet).gone)},
		"a refetch":                  {3, true, fetched(func(f *fleet) { f.serve(1) })},
		"a source that memory knows": {4, false, flooded},
		"a source that the table knows": {5, false,
			func(f *fleet, _ *Cache) { flooded(f, f.cache(one)) }},
		"a removal": {3, false, func(f *fleet, c *Cache) {
			fetched((*fleet).gone)(f, c)
			f.expect(c, nil, Stale, 1)
			f.pass(time.Hour)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for fails := -1; fails < test.calls; fails++ {
				f := newFleet(t)
				c := f.cache(one)
				test.prepare(f, c)
				before := f.tableCalls()
				if fails >= 0 {
					next := make([]bool, fails+1)
					next[fails] = true
					f.failNext(next...)
				}
				lookup := func() (Found, error) { return f.lookup(c, id, sender) }
				if test.refetch {
					old := Found{Key: &generated(0).PublicKey}
					lookup = func() (Found, error) { return f.refetch(c, id, old, sender) }
				}
				found, err := lookup()
				if found.TableFailed != (fails >= 0) {
					t.Errorf("call %d fails: TableFailed is %t, %v", fails, found.TableFailed, err)
				}
				if name == "a new key" && err != nil {
					t.Errorf("call %d fails: %v, though the service has the key", fails, err)
				}
				if n := f.tableCalls() - before; fails < 0 && n != test.calls {
					t.Errorf("%d calls of the table, want %d", n, test.calls)
				}
			}
		})
	}
}

// The report that a key is unknown returns a record only if that has a key which was fetched later.
func TestAReportReturnsOnlyALaterKey(t *testing.T) {
	f := newFleet(t)
	at := f.now
	for name, test := range map[string]struct {
		jwk      string
		age, ttl time.Duration
		returns  bool
	}{
		"a later key":        {"{}", -time.Second, time.Hour, true},
		"an expired key":     {"{}", time.Hour, 0, false},
		"a later unknown":    {"", -time.Second, time.Hour, false},
		"an earlier unknown": {"", time.Second, time.Hour, false},
	} {
		if err := f.db.Put(t.Context(), Record{ID: name, JWK: test.jwk, FetchedAt: at.Add(-test.age),
			ExpiresAt: at.Add(test.ttl)}); err != nil {
			t.Fatal(err)
		}
		if got, err := f.db.ReportUnknown(t.Context(), name, at, at); (got != nil) != test.returns || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := f.db.ReportUnknown(t.Context(), "nothing", at, at); got != nil || err != nil {
		t.Errorf("nothing: %+v, %v", got, err)
	}
}

// When the budgets of a minute are spent, invented ids cost one read each.
func TestSpentBudgetCostsNoWrite(t *testing.T) {
	f := newFleet(t)
	c := f.cache(func(o *Options) { o.MissBudget = 5 })
	c.RecordSource(t.Context(), sender)
	f.flood(c, sender, 10)
	minute := strconv.FormatInt(f.now.Truncate(time.Minute).Unix()/60, 10)
	if got := f.db.counters; len(got) != 2 || got["misses#"+minute] != 5 || got["reserve#"+minute] != 5 {
		t.Errorf("%v", got)
	}
	for name, expires := range f.db.expires {
		if !strings.HasPrefix(name, "source#") && !expires.Equal(f.now.Truncate(time.Minute).Add(time.Hour)) {
			t.Errorf("%s expires at %s", name, expires)
		}
	}
	f.flood(c, sender, 1) // finds that nothing is left
	reads, writes := f.db.Calls("Get"), f.db.Calls("Take")
	if n := f.flood(c, sender, 20); n != 0 {
		t.Errorf("%d calls of the service", n)
	}
	if r, w := f.db.Calls("Get")-reads, f.db.Calls("Take")-writes; r != 20 || w != 0 {
		t.Errorf("%d reads and %d writes for 20 ids", r, w)
	}
}

// The write of the newer key failed, so the table holds the older one.
func TestMemoryIsUsedIfItIsNewerThanTheTable(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expect(c, nil, Service, 1)
	f.serve(1)
	f.pass(time.Hour)
	f.failNext(false, true)
	f.expect(c, nil, Service, 1)
	f.down()
	f.pass(time.Hour)
	if found := f.expect(c, nil, Stale, 1); !generated(1).PublicKey.Equal(found.Key) {
		t.Error("the older key of the table is used")
	}
}
