package keys

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"uuid"
)

var (
	sender   = netip.MustParseAddr("192.0.2.10")
	stranger = netip.MustParseAddr("198.51.100.20")
)

// flood looks up n invented ids from an unknown address and returns the number of calls of the service.
func (f *fleet) flood(c *Cache, from netip.Addr, n int) int32 {
	f.t.Helper()
	before := f.fetches.Load()
	for range n {
		if _, err := f.lookup(c, uuid.New().String(), from); !errors.Is(err, ErrUnknown) &&
			!errors.Is(err, ErrOutOfBudget) {
			f.t.Fatal(err)
		}
	}
	return f.fetches.Load() - before
}

func (f *fleet) find(c *Cache, from netip.Addr) error {
	_, err := f.lookup(c, id, from)
	return err
}

func TestReserveServesKnownSourcesDuringAFlood(t *testing.T) {
	f := newFleet(t)
	verifier, flooded, fresh := f.cache(), f.cache(), f.cache()
	verifier.RecordSource(t.Context(), sender)
	if n := f.flood(flooded, stranger, 300); n != 60 {
		t.Fatalf("%d calls of the service", n)
	}
	if err := f.find(flooded, stranger); !errors.Is(err, ErrOutOfBudget) {
		t.Errorf("an unknown source gets %v", err)
	}
	if err := f.find(flooded, netip.Addr{}); !errors.Is(err, ErrOutOfBudget) {
		t.Errorf("a webhook without an address gets %v", err)
	}
	if err := f.find(fresh, sender); err != nil {
		t.Errorf("a known source gets %v in a function that has not seen it", err)
	}
}

// A flood must not prevent that a key which was replaced under its id is fetched again.
func TestRefetchUsesTheReserve(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	c.RecordSource(t.Context(), sender)
	old := f.expect(c, nil, Service, 1)
	f.serve(1)
	f.pass(time.Minute)
	f.flood(c, stranger, 60)
	for from, want := range map[netip.Addr]error{stranger: ErrOutOfBudget, {}: ErrOutOfBudget} {
		if found, err := f.refetch(c, id, old, from); !errors.Is(err, want) || found.Key != nil {
			t.Errorf("from %s: %v, %v", from, found.Key, err)
		}
	}
	if found, err := f.refetch(c, id, old, sender); err != nil || !generated(1).PublicKey.Equal(found.Key) {
		t.Errorf("a known source gets %v, %v", found.Key, err)
	}
}

func TestReserveIsLimitedOverAllFunctions(t *testing.T) {
	f := newFleet(t)
	change := func(o *Options) { o.MissBudget = 5 }
	fleet := []*Cache{f.cache(change), f.cache(change)}
	fleet[0].RecordSource(t.Context(), sender)
	if n := f.flood(fleet[0], sender, 20) + f.flood(fleet[1], sender, 20); n != 10 {
		t.Errorf("%d calls of the service, want 10", n)
	}
	f.pass(time.Minute)
	if n := f.flood(fleet[1], sender, 20); n != 10 {
		t.Errorf("%d calls in the next minute, want 10", n)
	}
}

func TestSourceIsKnownForAWeek(t *testing.T) {
	f := newFleet(t)
	c := f.cache(func(o *Options) { o.MissBudget = 2 })
	c.RecordSource(t.Context(), sender)
	for _, step := range []struct {
		pass time.Duration
		want error
	}{{7*24*time.Hour - time.Minute, nil}, {time.Minute, ErrOutOfBudget}} {
		f.pass(step.pass)
		for _, c := range []*Cache{c, f.cache(func(o *Options) { o.MissBudget = 2 })} {
			f.flood(c, stranger, 3)
			if _, err := f.lookup(c, uuid.New().String(), sender); errors.Is(err,
				ErrOutOfBudget) != (step.want != nil) {
				t.Errorf("%v after it was seen: %v", step.pass, err)
			}
		}
	}
}

func TestRecordSourceWritesOnceADay(t *testing.T) {
	f := newFleet(t)
	one, other := f.cache(), f.cache()
	record := func(c *Cache, calls int, at time.Time) {
		t.Helper()
		before := f.tableCalls()
		for range 3 {
			c.RecordSource(t.Context(), sender)
		}
		if n := f.tableCalls() - before; n != calls {
			t.Errorf("%d calls, want %d", n, calls)
		}
		if got := f.db.sources[sourceName(network(sender))]; !got.Equal(at) {
			t.Errorf("seen at %v, want %v", got.UTC(), at)
		}
	}
	first := f.now
	record(one, 1, first)
	f.pass(time.Hour)
	record(other, 1, first) // a write whose condition fails
	f.pass(23*time.Hour - time.Second)
	record(one, 0, first)
	record(other, 0, first)
	f.pass(time.Second)
	record(other, 1, f.now)
	if expires := f.db.expires[sourceName(network(sender))]; !expires.Equal(f.now.Add(7 * 24 * time.Hour)) {
		t.Errorf("expires at %s", expires)
	}
}

func TestTableContainsNoAddress(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	c.RecordSource(t.Context(), sender)
	c.RecordSource(t.Context(), netip.Addr{}) // is ignored
	for key := range f.db.sources {
		if !strings.HasPrefix(key, "source#") || len(key) != len("source#")+43 {
			t.Errorf("key %q", key)
		}
	}
	if n := len(f.db.sources); n != 1 {
		t.Errorf("%d items", n)
	}
}

func TestNetworkIsAnIPv4AddressOrASlash64(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true},
		{"2001:db8:0:1::1", "2001:db8:0:2::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true},
	} {
		a, b := network(netip.MustParseAddr(c.a)), network(netip.MustParseAddr(c.b))
		if (a == b) != c.same || !a.IsValid() || !b.IsValid() {
			t.Errorf("%s is %v, %s is %v", c.a, a, c.b, b)
		}
	}
	if network(netip.Addr{}).IsValid() {
		t.Error("the zero Addr has a network")
	}
}

func TestKnownSourcesWithoutTheTable(t *testing.T) {
	f := newFleet(t)
	f.broken.Store(true)
	change := func(o *Options) { o.MissBudget = 2 }
	c, other := f.cache(change), f.cache(change)
	c.RecordSource(t.Context(), sender)
	if n := f.flood(c, stranger, 10); n != 2 {
		t.Errorf("an unknown source caused %d calls, want 2", n)
	}
	if n := f.flood(c, sender, 10); n != 2 {
		t.Errorf("a known source caused %d calls, want 2", n)
	}
	if n := f.flood(other, sender, 10); n != 2 {
		t.Errorf("a source that this process does not know caused %d calls, want 2", n)
	}
	// A failed write is retried after a pause.
	f.broken.Store(false)
	c.RecordSource(t.Context(), sender)
	if n := len(f.db.sources); n != 0 {
		t.Errorf("%d items", n)
	}
	f.pass(time.Minute)
	c.RecordSource(t.Context(), sender)
	if _, ok := f.db.sources[sourceName(network(sender))]; !ok {
		t.Error("not recorded")
	}
}

// A known source must get its own result while an unknown source looks up the same id.
func TestKnownSourceDoesNotShareTheLookupOfAnUnknownOne(t *testing.T) {
	f := newFleet(t)
	c := f.cache(func(o *Options) { o.MissBudget = 1 })
	c.RecordSource(t.Context(), sender)
	f.flood(c, stranger, 1)
	asked, release := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	f.db.Hook = func(_ context.Context, next func() error) error {
		err := next()
		if !held.Swap(true) { // the first read
			close(asked)
			<-release
		}
		return err
	}
	strangers := make(chan error)
	go func() { strangers <- f.find(c, stranger) }()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a failing test would block here
	defer cancel()
	if _, err := c.Lookup(ctx, id, sender); err != nil {
		t.Error(err)
	}
	close(release)
	<-strangers
}

// The table is asked about a source once, if it can be asked.
func TestWhatIsKnownOfASource(t *testing.T) {
	f := newFleet(t)
	recorded, other := network(sender), network(stranger)
	f.cache().RecordSource(t.Context(), sender)
	c := f.cache()
	for _, test := range []struct {
		name          string
		source        netip.Prefix
		tableFailed   bool
		broken        bool
		known, failed bool
		calls         int
	}{
		{"no source", netip.Prefix{}, false, false, false, false, 0},
		{"the table failed before", recorded, true, false, false, true, 0},
		{"the table fails", recorded, false, true, false, true, 0},
		{"recorded", recorded, false, false, true, false, 1},
		{"in memory", recorded, false, true, true, false, 0},
		{"not recorded", other, false, false, false, false, 1},
		{"not asked again", other, false, true, false, false, 0},
	} {
		f.broken.Store(test.broken)
		before := f.db.Calls("Source")
		l := &lookup{Cache: c, source: test.source, tableFailed: test.tableFailed}
		known := l.knows(t.Context())
		failed := l.tableFailed
		if known != test.known || failed != test.failed || f.db.Calls("Source")-before != test.calls {
			t.Errorf("%s: %v, %v, %d calls", test.name, known, failed, f.db.Calls("Source")-before)
		}
	}
}
