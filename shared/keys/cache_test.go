package keys

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// Each call of the table has half a second, whoever makes it.
func TestATableThatNeverAnswersDelaysEachCallByHalfASecond(t *testing.T) {
	for name, call := range map[string]func(w *world, c *Cache) (Found, error){
		"lookup": func(w *world, c *Cache) (Found, error) { return c.Lookup(w.Context(), id, sender) },
		"refetch": func(w *world, c *Cache) (Found, error) {
			return c.Refetch(w.Context(), id, Found{Key: &generated(1).PublicKey}, sender)
		},
		"a sender": func(w *world, c *Cache) (Found, error) {
			c.RecordSender(w.Context(), sender)
			return Found{Key: &rsa.PublicKey{}, TableFailed: true}, nil
		},
	} {
		run(t, 1, func(w *world) {
			w.takes, w.table.takes = 0, time.Hour
			begin := time.Now()
			found, err := call(w, w.all[0])
			found.Save(w.Context())
			took := time.Since(begin)
			if err != nil || !found.TableFailed || found.Key == nil || took != 500*time.Millisecond {
				w.Errorf("%s: %+v, %v after %s", name, found, err, took)
			}
		})
	}
}

// A service that never answers is unavailable after the timeout, and is asked again at once, then a second later.
func TestAServiceThatNeverAnswersDelaysALookupByItsTimeout(t *testing.T) {
	run(t, 1, func(w *world) {
		w.takes, w.table.takes = time.Hour, 0
		for _, want := range []time.Duration{3 * time.Second, 3 * time.Second, 0} {
			begin := time.Now()
			_, err := w.lookup(w.all[0], id, nil, sender)
			if took := time.Since(begin); took != want || !errors.Is(err, ErrUnavailable) {
				w.Errorf("%v after %s, want %s", err, took, want)
			}
		}
	})
}

func TestLookupIgnoresRecordsThatItMustNotUse(t *testing.T) {
	good := string(text(t, members(generated(0).N, 65537)))
	for name, c := range map[string]struct {
		jwk, sentAs string
		ahead       time.Duration
		want        string
	}{
		"not a JWK":                     {"{}", id, 0, "key endpoint 1"},
		"a key that the policy rejects": {string(text(t, members(odd(1024), 65537))), id, 0, "key endpoint 1"},
		"the spelling of another id":    {good, id[:35] + "0", 0, "key endpoint 1"},
		"a clock that is a bit ahead":   {good, id, 5 * time.Minute, "key table 0"},
		"a clock that is too far ahead": {good, id, 5*time.Minute + time.Second, "key endpoint 1"},
	} {
		run(t, 1, func(w *world) {
			w.table.takes = 0
			at := time.Now().Add(c.ahead)
			r := Record{ID: itemID, Version: "1", JWK: c.jwk, SentAs: c.sentAs, FetchedAt: at, Answer: Fresh}
			_, _, _ = w.Memory.Put(w.Context(), r, "")
			found, err := w.lookup(w.all[0], id, nil, sender)
			if got := result(found, err, w.calls.Load()); got != c.want {
				w.Errorf("%s: %s", name, got)
			}
		})
	}
}

// Nothing tells whether such an item is newer. A cache that cannot replace it does without the table.
func TestAnItemThatCannotBeReplacedIsATableThatFails(t *testing.T) {
	run(t, 1, func(w *world) {
		w.stuck = true
		found, err := w.lookup(w.all[0], id, nil, sender)
		if result(found, err, w.calls.Load()) != "key endpoint 1 table-failed" {
			w.Errorf("%+v, %v", found, err)
		}
	})
}

// The SDK repeats a write whose answer was lost. The condition of the second one is not met.
func TestAWriteThatIsRepeatedTookEffect(t *testing.T) {
	run(t, 1, func(w *world) {
		w.twice = true
		found, err := w.lookup(w.all[0], id, nil, sender)
		if result(found, err, w.calls.Load()) != "key endpoint 1" || w.stored(time.Now()) == "nothing <nil>" {
			w.Errorf("%+v, %v", found, err)
		}
	})
}

func TestLookupMakesNoCallForAMalformedID(t *testing.T) {
	run(t, 1, func(w *world) {
		for _, bad := range []string{"", "..", "../../admin", id + "/x", id[:35] + "/", "misses#1", id + "?a=b",
			strings.Repeat("a", 36)} {
			_, err := w.lookup(w.all[0], bad, nil, sender)
			if _, again := w.all[0].Refetch(w.Context(), bad, Found{}, sender); !errors.Is(err, ErrMalformedID) ||
				!errors.Is(again, ErrMalformedID) {
				w.Errorf("%q: got %v, %v", bad, err, again)
			}
		}
		if n := int(w.calls.Load()) + w.count(""); n != 0 {
			w.Errorf("%d calls were made", n)
		}
	})
}

// Memory has 4096 entries of each kind, and begins again when it is full.
func TestMemoryIsEmptiedWhenItIsFull(t *testing.T) {
	c := New(nil, &Memory{}, Options{})
	address := func(kind byte, i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, kind, byte(i >> 8), byte(i)}), 32)
	}
	lengths := func() [4]int { return [4]int{len(c.keys), len(c.others), len(c.known), len(c.pauses)} }
	key := &generated(0).PublicKey
	for i := range 4097 {
		c.remember(&entry{Record{ID: fmt.Sprint("key ", i)}, key})
		c.remember(&entry{ID: fmt.Sprint("unknown ", i)})
		c.know(address(0, i), sighting{})
		(&lookup{Cache: c, sender: address(1, i)}).knows(t.Context())
		if want := i%4096 + 1; lengths() != [4]int{want, want, want, want} {
			t.Fatalf("%d: %v", i, lengths())
		}
	}
	// What becomes known is no longer unknown, and the other way round.
	c.remember(&entry{Record{ID: "unknown 4096"}, key})
	c.remember(&entry{ID: "key 4096"})
	c.know(address(1, 4096), sighting{})
	if c.keys["key 4096"] != nil || lengths() != [4]int{1, 1, 2, 0} {
		t.Errorf("%v", lengths())
	}
}

// flood looks up n invented ids from an address and returns the number of requests.
func (w *world) flood(c *Cache, from netip.Addr, n int) int32 {
	w.Helper()
	before := w.calls.Load()
	for range n {
		_, err := w.lookup(c, invented(0), nil, from)
		if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrOutOfBudget) {
			w.Fatal(err)
		}
	}
	return w.calls.Load() - before
}

// still makes the calls of the table and the requests take no time.
func still(w *world) { w.takes, w.table.takes = 0, 0 }

// Invented ids cannot use up what a key in use, or a sender of authentic webhooks, needs.
func TestBudgetsLimitInventedIDsOverAllProcesses(t *testing.T) {
	run(t, 3, func(w *world) {
		still(w)
		a, b := w.all[0], w.all[1]
		w.all[2].RecordSender(w.Context(), sender)
		_, _ = w.lookup(a, id, nil, stranger)
		if n := w.flood(a, stranger, 50) + w.flood(b, stranger, 50); n != 59 { // one was used for the key
			w.Errorf("%d requests for a stranger", n)
		}
		if n := w.flood(b, netip.Addr{}, 1); n != 0 {
			w.Error("a webhook without an address caused a request")
		}
		time.Sleep(time.Hour)
		w.flood(a, stranger, 61)
		w.say("404")
		before := w.calls.Load()
		for range 60 { // a key in use is asked for every ten seconds, without a budget
			for _, c := range w.all {
				if found, err := w.lookup(c, id, nil, stranger); err != nil || !found.Withdrawn {
					w.Fatal(found, err)
				}
			}
			time.Sleep(time.Second)
		}
		if n := w.calls.Load() - before; n != 6 {
			w.Errorf("%d requests for a withdrawn key in a minute", n)
		}
		w.say("")
		w.flood(a, stranger, 61)
		other := spellings[0][:35] + "0"
		w.publish(other, generated(1))
		if found, err := w.lookup(b, other, nil, stranger); !errors.Is(err, ErrOutOfBudget) || found.Key != nil {
			w.Errorf("a stranger gets %v, %v", found.Key, err)
		}
		if _, err := w.lookup(b, other, generated(1), sender); err != nil {
			w.Errorf("a known sender gets %v", err)
		}
		if n := w.flood(a, sender, 40) + w.flood(b, sender, 20); n != 59 {
			w.Errorf("%d requests for a known sender", n)
		}
	})
}

// When the budgets of a minute are used up, an invented id costs a read. A stranger pays for the wait as well.
func TestUsedUpBudgetCostsNoWrite(t *testing.T) {
	run(t, 1, func(w *world) {
		still(w)
		c := w.all[0]
		c.RecordSender(w.Context(), sender)
		w.flood(c, stranger, 6) // the last finds that nothing is left
		w.flood(c, sender, 5)
		minute := time.Now().Truncate(time.Minute)
		name := fmt.Sprint("#", minute.Unix()/60)
		expires := w.expires["reserve"+name]
		if got := w.counters; len(got) != 2 || got["misses"+name] != 5 || got["reserve"+name] != 5 ||
			!w.expires["misses"+name].Equal(expires) || !expires.Equal(minute.Add(time.Hour)) {
			w.Errorf("%v, until %v", got, w.expires)
		}
		reads, calls := w.count("Get"), w.count("")
		if n := w.flood(c, stranger, 20); n != 0 || w.count("Get")-reads != 20 || w.count("")-calls > 21 {
			w.Errorf("%d requests, and %d calls of the table", n, w.count("")-calls)
		}
		lease := Record{ID: itemID, Version: "1", AskedAs: id, LeasedUntil: time.Now().Add(3 * time.Second)}
		_, _, _ = w.Memory.Put(w.Context(), lease, "")
		begin := time.Now()
		if _, err := w.lookup(c, id, nil, stranger); !errors.Is(err, ErrOutOfBudget) || time.Since(begin) != 0 {
			w.Errorf("a stranger waits: %v after %s", err, time.Since(begin))
		}
	}, budgetOf(5))
}

// Without a budget, a cache gives back what it leased, with what was said to another spelling.
func TestALeaseWithoutABudgetIsGivenBack(t *testing.T) {
	run(t, 2, func(w *world) {
		still(w)
		w.flood(w.all[0], stranger, 1)
		w.say("429 60")
		before := Record{ID: itemID, Version: "1", AskedAs: id, Answer: Unavailable, Failures: 3,
			LeasedUntil: time.Now().Add(time.Minute), ExpiresAt: time.Now().Add(5 * time.Hour)}
		_, _, _ = w.Memory.Put(w.Context(), before, "")
		puts := w.count("Put")
		_, err := w.lookup(w.all[1], spellings[1], nil, stranger)
		r, _ := w.Memory.Get(w.Context(), itemID)
		if !errors.Is(err, ErrOutOfBudget) || *r != before || w.count("Put") != puts+2 {
			w.Errorf("%v, %+v", err, r)
		}
		unknown := strings.Repeat("b", 32)
		_, err = w.lookup(w.all[1], unknown, nil, stranger)
		if r, _ := w.Memory.Get(w.Context(), unknown); !errors.Is(err, ErrOutOfBudget) || r != nil {
			w.Errorf("%v, %+v", err, r)
		}
	}, budgetOf(1))
}

func TestSenderIsKnownForAWeekAndRecordedOnceADay(t *testing.T) {
	run(t, 2, func(w *world) {
		still(w)
		a, b := w.all[0], w.all[1]
		name, begin := senderName(network(sender)), time.Now()
		record := func(after time.Duration, c *Cache, calls int, at time.Duration) {
			w.Helper()
			time.Sleep(after)
			before := w.count("RecordSender")
			for range 3 {
				c.RecordSender(w.Context(), sender)
				c.RecordSender(w.Context(), netip.Addr{}) // is ignored
			}
			if n, got := w.count("RecordSender")-before, w.senders[name]; n != calls || !got.Equal(begin.Add(at)) {
				w.Errorf("%d calls, want %d; seen at %v, want %v", n, calls, got, at)
			}
		}
		record(0, a, 1, 0)
		record(time.Hour, b, 1, 0) // a write whose condition fails
		record(23*time.Hour-time.Second, a, 0, 0)
		record(0, b, 0, 0)
		record(time.Second, b, 1, 24*time.Hour)
		if expires := w.expires[name]; !expires.Equal(begin.Add(8*24*time.Hour)) || len(w.senders) != 1 ||
			len(name) != len("sender#")+43 { // a hash instead of the address
			w.Errorf("%s expires at %s, of %v", name, expires, w.senders)
		}
		time.Sleep(7*24*time.Hour - time.Minute)
		for _, known := range []bool{true, false} {
			for _, c := range []*Cache{b, w.cache()} {
				w.flood(c, stranger, 3)
				if n := w.flood(c, sender, 1); (n == 1) != known {
					w.Errorf("%d requests after %s", n, time.Since(begin))
				}
			}
			time.Sleep(time.Minute)
		}
	}, budgetOf(2))
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

func TestKnownSendersWithoutTheTable(t *testing.T) {
	run(t, 2, func(w *world) {
		still(w)
		w.table.fail("down")
		c := w.all[0]
		c.RecordSender(w.Context(), sender)
		for _, test := range []struct {
			c    *Cache
			from netip.Addr
			want int32
		}{{c, stranger, 2}, {c, sender, 2}, {c, sender, 0}, {w.all[1], sender, 2}} { // each cache has its own budgets
			if n := w.flood(test.c, test.from, 10); n != test.want {
				w.Errorf("%s caused %d requests, want %d", test.from, n, test.want)
			}
		}
		w.table.fail("")
		c.RecordSender(w.Context(), sender)
		if len(w.senders) != 0 {
			w.Error("the write was tried again at once")
		}
		time.Sleep(time.Minute)
		if c.RecordSender(w.Context(), sender); len(w.senders) != 1 {
			w.Error("not recorded")
		}
	}, budgetOf(2))
}

// The table is asked about a sender once, if it can be asked.
func TestWhatIsKnownOfASender(t *testing.T) {
	run(t, 1, func(w *world) {
		still(w)
		recorded, other := network(sender), network(stranger)
		w.cache().RecordSender(w.Context(), sender)
		for _, test := range []struct {
			name                string
			sender              netip.Prefix
			failedBefore, fails bool // the table
			known, failed       bool
			calls               int
		}{
			{name: "no sender", sender: netip.Prefix{}},
			{name: "the table failed before", sender: recorded, failedBefore: true, failed: true},
			{name: "the table fails", sender: recorded, fails: true, failed: true, calls: 1},
			{name: "recorded", sender: recorded, known: true, calls: 1},
			{name: "in memory", sender: recorded, fails: true, known: true},
			{name: "not recorded", sender: other, calls: 1},
			{name: "not asked again", sender: other, fails: true},
		} {
			w.table.fail(map[bool]string{true: "down"}[test.fails])
			before := w.count("Sender")
			l := &lookup{Cache: w.all[0], sender: test.sender}
			l.tableFailed.Store(test.failedBefore)
			known, calls := l.knows(w.Context()), w.count("Sender")-before
			if known != test.known || l.tableFailed.Load() != test.failed || calls != test.calls {
				w.Errorf("%s: %v, %v, %d calls", test.name, known, l.tableFailed.Load(), calls)
			}
		}
	})
}

// A known sender must get its own result while an unknown one looks up the same id in the same cache.
func TestAKnownSenderDoesNotWaitForAnUnknownOne(t *testing.T) {
	run(t, 1, func(w *world) {
		c := w.all[0]
		c.RecordSender(w.Context(), sender)
		w.flood(c, stranger, 1)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { _, _ = w.lookup(c, id, nil, stranger) })
		}
		all.Go(func() {
			if _, err := w.lookup(c, id, generated(0), sender); err != nil {
				w.Error(err)
			}
		})
		all.Wait()
	}, budgetOf(1))
}
