package simulation

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"payhook.example/shared/wire"
)

var allPairs = flag.Bool("pairs", false, "try every pair of faults on every path, not a sample on the long ones")

// script is a decider without randomness: calls continue in the order in which they are made, and have the given
// faults.
type script struct {
	faults map[int]fault       // by the number of the call
	always func(c *call) fault // the faults that belong to the path
}

func (s *script) pick(int) int { return 0 }

// schedulesEmpty lets one empty shard represent all.
func (s *script) schedulesEmpty(_ *environment, sh string) bool { return sh == "pending/1" }
func (s *script) fault(_ *world, c *call) fault {
	if f, ok := s.faults[c.n]; ok {
		return f
	}
	if s.always != nil {
		return s.always(c)
	}
	return fault{}
}

// path is a way that events can take. Faults are injected into it.
type path struct {
	name   string
	every  int // go test tries one of so many pairs of faults; 0 means 97
	setup  setup
	always func() func(c *call) fault
	begin  func(w *world, retries int)
}

// crashAt makes the caller of the first call of a kind crash before it.
func crashAt(o op) func() func(*call) fault {
	return func() func(*call) fault {
		done := false
		return func(c *call) fault {
			if done || c.op != o {
				return fault{}
			}
			done = true
			return fault{kind: crashBefore}
		}
	}
}

// each gives the calls that meet a condition a fault.
func each(meets func(*call) bool, f fault) func() func(*call) fault {
	return func() func(*call) fault {
		return func(c *call) fault {
			if meets(c) {
				return f
			}
			return fault{}
		}
	}
}

// send delivers d, with so many retries if the answer is not a 2xx or is missing.
func (w *world) send(d *delivery, begin time.Duration, retries int) {
	w.sender(&randomDecider{Rand: rand.New(rand.NewPCG(1, 1))}, d, begin, retries, false)
}

func (w *world) redriveAt(times ...time.Duration) {
	for _, at := range times {
		w.after(at, w.redrive)
	}
}

// parkedAt makes decisions about what is parked then.
func (w *world) parkedAt(decide func(name string), times ...time.Duration) {
	for _, at := range times {
		w.after(at, func() { w.eachParked(decide) })
	}
}

// replayAt replays what is parked then, conflicts with a content.
func (w *world) replayAt(content wire.Content, times ...time.Duration) {
	w.parkedAt(func(name string) { w.replay(name, content) }, times...)
}

// deliver sends deliveries, each some time after the one before, then redrive runs twice. A delivery at the same time
// as the one before has no retries.
func deliver(after time.Duration, all ...*delivery) func(*world, int) {
	return func(w *world, retries int) {
		for n, d := range all {
			if n > 0 && after == 0 {
				retries = 0
			}
			w.send(d, time.Duration(n)*after, retries)
		}
		w.redriveAt(65*time.Second+1, 130*time.Second+2)
	}
}

// paths returns the paths. Their events are not in groups.
var paths = sync.OnceValue(func() []path {
	const base = 10_000
	events := func(from, n int) (all []*event) {
		for i := range n {
			all = append(all, newEvent(base+from+i, 0))
		}
		return all
	}
	large := func(n int) *event { return newEvent((base/7+n)*7+6, 0) }
	number := base
	of := func(label string, e ...*event) *delivery {
		number++
		return newDelivery(label, number, e...)
	}
	plain := func(from, n int) (all []*event) {
		for i := from; len(all) < n; i++ {
			if e := newEvent(base+from+i, 0); !e.isLarge() {
				all = append(all, e)
			}
		}
		return all
	}
	one := of("one", plain(0, 1)...)
	three := of("three", plain(10, 3)...)
	many := of("many", events(100, 25)...)
	two := of("two", plain(30, 2)...)
	four := of("half new", append(append([]*event{}, two.events...), plain(40, 2)...)...)
	five := of("five", plain(110, 5)...)
	big := of("large", large(1), plain(50, 1)[0])
	alone := of("large", large(2))
	rejected := of("rejected", newEvent(base+90, outside), newEvent(base+91, 0))
	conflicted := of("conflicting", newEvent(base, 7), plain(60, 1)[0])
	conflicted.conflicting = true
	first := *one
	first.conflicting = true
	spaced := of("other white space", newEvent(base, 1))
	spaced.conflicting = true
	anew := of("spelled otherwise", newEvent(base, respelled))
	anew.conflicting = true
	twice := of("twice", one.events[0], three.events[0], one.events[0])
	contents := of("two contents", newEvent(base+80, 0), newEvent(base+80, 5))
	contents.conflicting, contents.twice = true, true
	broken := *of("not valid", plain(70, 1)...)
	broken.invalid = true
	broken.payload = []byte(strings.Replace(string(broken.payload), "eventId", "eventID", 1))

	partly := of("partly valid", plain(90, 2)...)
	partly.partly = true
	partly.payload = []byte(strings.Replace(string(partly.payload), `"events":[`, `"events":[{"eventId":null},`, 1))

	const later, m = 7 * time.Second, time.Minute
	// rejectedFor makes the bus reject the first event of each request for some time. Then requests have a fault.
	rejectedFor := func(d time.Duration, then kind) func() func(*call) fault {
		return func() func(*call) fault {
			return func(c *call) fault {
				switch {
				case c.op != put:
					return fault{}
				case time.Since(c.w.start) < d:
					return fault{kind: partial, mask: 1, code: malformed}
				}
				return fault{kind: then}
			}
		}
	}
	// parked returns a path on which redrive parks an event that is rejected for some time.
	parked := func(name string, d *delivery, until time.Duration, then func(w *world, retries int)) path {
		return path{name: name, setup: setup{maxAttempts: 1, again: true}, always: rejectedFor(until, none),
			begin: func(w *world, retries int) {
				deliver(0, d)(w, retries)
				then(w, retries)
			}}
	}
	return []path{
		{name: "one event", every: 1, begin: deliver(0, one)},
		{name: "three events", begin: deliver(0, three)},
		{name: "three events, one at a time", setup: setup{parallel: 1, batch: 1}, begin: deliver(0, three)},
		{name: "five events, two in a batch", setup: setup{parallel: 1, batch: 2}, begin: deliver(0, five)},
		{name: "two batches at once", setup: setup{batch: 2}, begin: deliver(0, four)},
		{name: "started shortly before the deadline", begin: func(w *world, retries int) {
			w.newInstance("webhook", 0).idle = webhookTime - 700*time.Millisecond
			deliver(0, three)(w, retries)
		}},
		{name: "started after the deadline", begin: func(w *world, retries int) {
			i := w.newInstance("webhook", 0)
			i.idle, i.zombie = webhookTime+time.Second, true
			deliver(0, three)(w, retries)
		}},
		{name: "a large event and a small one", begin: deliver(0, big)},
		{name: "not a delivery", every: 1, begin: deliver(0, &broken)},
		{name: "an event without identity beside two others", begin: deliver(0, partly)},
		{name: "not authentic", every: 1, begin: deliver(0, one.forged(wrongSignature))},
		{name: "with the key cache", setup: setup{keyCache: true}, begin: deliver(0, one)},
		{name: "repeated later", every: 1, begin: deliver(later, one, one)},
		{name: "repeated at once", begin: deliver(0, three, three)},
		{name: "half new", begin: deliver(later, two, four)},
		{name: "half new at once", begin: deliver(0, two, four)},
		{name: "conflict", begin: deliver(later, &first, conflicted)},
		{name: "spelled otherwise", begin: deliver(later, &first, anew)},
		{name: "an event twice in a delivery", begin: deliver(0, twice)},
		{name: "an id with two contents in a delivery", begin: deliver(0, contents)},
		{name: "signed too long ago", every: 1, begin: deliver(0, one.forged(tooOld))},
		{name: "changed in transit", every: 1, begin: deliver(0, one.forged(payloadChanged))},
		{name: "repeated before and after the window", setup: setup{window: 20 * time.Minute},
			begin: func(w *world, retries int) {
				deliver(0, one)(w, retries)
				w.send(one, 19*time.Minute, retries)
				w.send(one, 21*time.Minute, retries)
				w.redriveAt(23 * time.Minute)
			}},
		{name: "pending for longer than the window", setup: setup{window: 20 * time.Minute},
			begin: func(w *world, retries int) {
				w.send(one, 0, retries)
				w.after(22*time.Minute, func() { w.ledger.Expire(time.Now()) })
				w.send(one, 23*time.Minute, retries)
				w.redriveAt(30 * time.Minute)
			}, always: crashAt(put)},
		{name: "redrive", every: 1, always: crashAt(put), begin: deliver(0, one)},
		{name: "redrive of several", always: crashAt(put), begin: deliver(0, three)},
		{name: "redrive of several, two in a batch", setup: setup{parallel: 1, batch: 2}, always: crashAt(put),
			begin: deliver(0, five)},
		{name: "redrive of a large one", always: crashAt(put), begin: deliver(0, big)},
		{name: "redrive parks an event", setup: setup{maxAttempts: 1}, every: 5, begin: deliver(0, one),
			always: each(func(c *call) bool { return c.op == put },
				fault{kind: rejecting, mask: 1, code: malformed})},
		{name: "redrive postpones an event", begin: func(w *world, retries int) {
			deliver(0, one)(w, retries)
			w.redriveAt(4*time.Minute, 8*time.Minute) // the second attempt is postponed past its lease
		}, always: each(func(c *call) bool { return c.op == put && time.Since(c.w.start) < 5*time.Minute },
			fault{kind: rejecting, mask: 1, code: "InternalFailure"})},
		{name: "redrive and receiver at once", begin: func(w *world, retries int) {
			w.newInstance("webhook", -maxSkew)
			w.newInstance("redrive", maxSkew)
			w.newInstance("redrive", maxSkew)
			w.send(two, 0, retries)
			w.redriveAt(20*time.Second+1, 22*time.Second+3, 29*time.Second+5, 29*time.Second+5, 50*time.Second+7)
		}, always: each(func(c *call) bool { return c.op == put && c.redriver == nil }, fault{kind: slowest})},
		{name: "an event that EventBridge rejects", begin: deliver(0, rejected)},
		{name: "two redrive runs at once", always: crashAt(put), begin: func(w *world, retries int) {
			w.newInstance("webhook", 0)
			w.newInstance("redrive", maxSkew)
			w.newInstance("redrive", -maxSkew)
			w.send(two, 0, retries)
			w.redriveAt(70*time.Second+1, 70*time.Second+1, 140*time.Second+3, 140*time.Second+3)
		}},
		parked("a parked event replayed", one, 3*m, func(w *world, _ int) {
			w.replayAt(wire.NoContent, 4*m, 6*m)
			w.redriveAt(5*m, 7*m)
		}),
		parked("a parked event dismissed, or replayed and parked again", one, 8*m, func(w *world, retries int) {
			w.parkedAt(w.dismiss, 4*m)
			w.replayAt(wire.NoContent, 4*m+10*time.Second)
			w.redriveAt(4*m+30*time.Second, 7*m)
			w.send(one, 9*m, retries)
		}),
		parked("a parked event replayed and dismissed at once", one, 3*m, func(w *world, retries int) {
			w.parkedAt(func(name string) { w.replay(name, wire.NoContent); w.dismiss(name) }, 4*m)
			w.send(spaced, 5*m, retries)
			w.redriveAt(6 * m)
		}),
		parked("a parked event sent again", one, 3*m, func(w *world, retries int) {
			w.send(spaced, 4*m, retries)
			w.send(one, 5*m, retries)
			w.redriveAt(6 * m)
		}),
		parked("a parked event sent again and replayed at once", one, 3*m, func(w *world, retries int) {
			w.send(one, 4*m+37, retries)
			w.replayAt(wire.NoContent, 4*m)
			w.redriveAt(6 * m)
		}),
		parked("a large parked event sent again, whose object is gone", alone, 3*m, func(w *world, retries int) {
			w.after(4*m+30*time.Second, w.endLargeEvents)
			w.replayAt(wire.NoContent, 4*m+31*time.Second)
			w.send(alone, 5*m, retries)
			w.redriveAt(6*m, 7*m)
		}),
		parked("a conflict whose first content is parked", &first, 3*m, func(w *world, retries int) {
			w.send(conflicted, 200*time.Second, retries)
			w.replayAt(wire.ParkedContent, 4*m, 4*m+20*time.Second, 6*m) // the conflict before the event
			w.replayAt(wire.FirstContent, 4*m+30*time.Second)
			w.redriveAt(5*m, 7*m)
		}),
		parked("a conflict whose first content is dismissed", &first, 3*m, func(w *world, retries int) {
			w.send(conflicted, 200*time.Second, retries)
			w.parkedAt(w.dismiss, 4*m)
			w.replayAt(wire.ParkedContent, 5*m, 7*m)
			w.redriveAt(6*m, 8*m)
		}),
		{name: "redrive parks an event while the next run publishes it", setup: setup{maxAttempts: 1},
			begin: func(w *world, retries int) {
				deliver(0, one)(w, retries)
				w.redriveAt(162 * time.Second)
			}, always: rejectedFor(2*m, slowest)},
		{name: "receiver and redrive park an event", begin: deliver(0, rejected),
			always: each(func(c *call) bool { return c.op == parkEvent && c.redriver != nil }, fault{kind: slowest})},
		{name: "a conflict replayed with the parked content", setup: setup{again: true},
			begin: func(w *world, retries int) {
				deliver(later, &first, conflicted)(w, retries)
				w.replayAt(wire.ParkedContent, 4*m, 6*m)
				w.redriveAt(5*m, 7*m)
			}},
		{name: "a conflict replayed with the first content", begin: func(w *world, retries int) {
			w.send(&first, 0, retries)
			w.send(conflicted, later, retries)
			w.replayAt(wire.FirstContent, 4*m)
			w.redriveAt(5 * m)
		}},
		{name: "25 events", every: 997, begin: deliver(0, many)},
	}
})

// injection is a fault and the number of its call.
type injection struct {
	n int
	fault
}

// seen is a call that can have a fault.
type seen struct {
	n, entries int
	op         op
}

// injections returns every fault that a call can have.
func (s seen) injections() (all []injection) {
	for k := none + 1; k < kinds; k++ {
		if !k.applies(s.op) {
			continue
		}
		if !k.ofEntries() {
			all = append(all, injection{s.n, fault{kind: k}})
			continue
		}
		every := uint32(1)<<s.entries - 1
		masks := []uint32{1, 1 << (s.entries - 1), every, every &^ 1, every & 0x555}
		if s.entries <= 3 {
			masks = nil
			for m := uint32(1); m <= every; m++ {
				masks = append(masks, m)
			}
		}
		for _, m := range masks {
			for _, code := range k.codesOf(s.op) {
				all = append(all, injection{s.n, fault{kind: k, mask: m, code: code}})
			}
		}
	}
	return all
}

// follow plays a path with faults and returns the calls that can have one.
func (p path) follow(attempts, retries int, injections ...injection) (*world, counts, []seen) {
	s := &script{faults: map[int]fault{}}
	for _, x := range injections {
		s.faults[x.n] = x.fault
	}
	if p.always != nil {
		s.always = p.always()
	}
	set := p.setup
	set.attempts, set.proofs = attempts, true
	set.name = fmt.Sprintf("path %q, %d attempts, %d retries, faults %v", p.name, attempts, retries, injections)
	w := newWorld(set, s)
	var calls []seen
	w.onCall = func(c *call) { calls = append(calls, seen{c.n, len(c.ids), c.op}) }
	p.begin(w, retries)
	w.drain()
	return w, w.facts.check(), calls
}

// pool plays histories on two goroutines.
type pool struct {
	mu     sync.Mutex
	total  counts
	failed int
}

// job plays a history.
type job func(*testing.T) (*world, counts)

// all plays the histories that work passes to hand, until too many have failed.
func (c *pool) all(t *testing.T, work func(hand func(job))) {
	queue := make(chan job, 64)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for play := range queue {
				if c.enough() {
					continue
				}
				w, counted := play(t)
				c.mu.Lock()
				c.total.add(counted)
				if len(w.facts.violations) > 0 {
					if c.failed++; c.failed <= 3 {
						t.Error(w.report())
					}
				}
				c.mu.Unlock()
			}
		})
	}
	func() {
		defer wg.Wait() // also if the test ends
		defer close(queue)
		work(func(play job) { queue <- play })
	}()
	if c.failed > 3 {
		t.Errorf("%d histories failed; the test ends at 10", c.failed)
	}
}

// enough reports whether too many histories have failed.
func (c *pool) enough() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed >= 10
}

// bubble plays a path in its own bubble.
func (p path) bubble(t *testing.T, attempts, retries int, injections ...injection) (w *world, c counts, calls []seen) {
	w, c = play(t, func() (w *world, c counts) {
		w, c, calls = p.follow(attempts, retries, injections...)
		return w, c
	})
	return w, c, calls
}

// job plays a path with faults.
func (p path) job(attempts, retries int, injections ...injection) job {
	return func(t *testing.T) (*world, counts) {
		w, counted, _ := p.bubble(t, attempts, retries, injections...)
		return w, counted
	}
}

// short reports whether a sample of the histories is played: with -short, or the race detector.
func short() bool { return testing.Short() || slower > 1 }

// skips reports whether the n-th of many histories is left out, where a sample has one of so many.
func skips(n, every int) bool { return short() && n%(every*slower) != 0 }

// sweep plays every path once with each of these faults of each call. A set has the attempts of the client and the
// retries of the sender.
func sweep(t *testing.T, sets [][2]int, every int, faults func(seen) []injection) (sum counts) {
	prepare(t)
	total := 0
	for n, p := range paths() {
		t.Run(p.name, func(t *testing.T) {
			var c pool
			c.all(t, func(hand func(job)) {
				for i, set := range sets {
					if slower > 1 && i != n%len(sets) {
						continue
					}
					w, counted, calls := p.bubble(t, set[0], set[1])
					if len(w.facts.violations) > 0 {
						t.Fatalf("without a fault: %v\n%s", counted, w)
					}
					for _, call := range calls {
						for _, x := range faults(call) {
							if total++; !skips(total, every) {
								hand(p.job(set[0], set[1], x))
							}
						}
					}
				}
			})
			sum.add(c.total)
		})
	}
	t.Logf("%d faults: %v", total, sum)
	return sum
}

func TestNoSingleFaultLosesAnEvent(t *testing.T) {
	sweep(t, [][2]int{{1, 0}, {1, 2}, {3, 0}, {3, 2}}, 31, seen.injections)
}

// A request can arrive after the grace period of its sender: after the deadline, the lease and the next publisher.
func TestNothingIsLostIfRequestsArriveLate(t *testing.T) {
	sum := sweep(t, [][2]int{{1, 0}, {1, 2}}, 4, func(s seen) (all []injection) {
		for _, seconds := range []time.Duration{70, 100, 250, 600} {
			if s.op.writes() {
				all = append(all, injection{s.n, fault{kind: late, by: seconds*time.Second + 37}})
			}
		}
		return all
	})
	if sum.Overtaken == 0 {
		t.Error("no request was overtaken")
	}
}

func TestNoPairOfFaultsLosesAnEvent(t *testing.T) {
	prepare(t)
	firsts, reachable, played := 0, 0, 0
	var sum counts
	for _, p := range paths() {
		t.Run(p.name, func(t *testing.T) {
			var c pool
			before, beforePlayed := reachable, played
			every := cmp.Or(p.every, 97)
			if *allPairs {
				every = 1
			} else if short() {
				every *= 4
			}
			// pairs plays pairs with one first fault.
			pairs := func(x injection, hand func(job)) {
				_, _, after := p.bubble(t, 1, 1, x)
				for _, second := range after {
					if second.n <= x.n {
						continue
					}
					for _, y := range second.injections() {
						if reachable++; reachable%every == 0 {
							played++
							hand(p.job(1, 1, x, y))
						}
					}
				}
			}
			c.all(t, func(hand func(job)) {
				_, _, calls := p.bubble(t, 1, 1)
				for _, call := range calls {
					for _, x := range call.injections() {
						if firsts++; !skips(firsts, 31) {
							pairs(x, hand)
						}
					}
				}
			})
			sum.add(c.total)
			t.Logf("%d of %d pairs", played-beforePlayed, reachable-before)
		})
	}
	t.Logf("%d of %d pairs of faults: %v", played, reachable, sum)
}
