package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/wire"
)

var (
	seeds = flag.Int("seeds", 0, "number of random histories; 0 means 10000, with -short 500")
	from  = flag.Uint64("from", 1, "the first seed")
	seed  = flag.Uint64("seed", 0, "replay and print the history of this seed")
)

// longRun is the number of random histories in which every rare path must occur.
const longRun = 100_000

// randomDecider is a decider that draws a history from a seed.
type randomDecider struct {
	*rand.Rand
	seed    uint64
	rate    float64 // of faults
	enabled []kind  // the kinds of faults in this history

	// rejects makes the bus reject many events, and many calls that postpone, park, replay or dismiss events fail:
	// redrive gives up only then.
	rejects bool

	outage outage // zero: none
}

// outage is a period in which calls of one kind fail for every caller.
type outage struct {
	op       op
	from, to time.Duration
	fault    kind
}

func (r *randomDecider) pick(n int) int {
	// Mostly in order, so that calls of different environments overlap.
	if r.IntN(4) > 0 {
		return 0
	}
	return r.IntN(n)
}

func (r *randomDecider) schedulesEmpty(i *environment, shard string) bool {
	n, _ := strconv.Atoi(strings.TrimPrefix(shard, "pending/"))
	return (r.seed*31+uint64(i.n)*7+uint64(n))%97 == 0
}

func (r *randomDecider) fault(w *world, c *call) fault {
	now := time.Since(w.start)
	if o := r.outage; o.op == c.op && o.from <= now && now < o.to {
		return fault{kind: o.fault}
	}
	f := fault{kind: r.kindFor(c.op)}
	switch {
	case !f.kind.applies(c.op):
		return fault{}
	case f.kind.ofEntries():
		f.mask = uint32(1 + r.IntN(1<<len(c.ids)-1))
		codes := []string{"AccessDenied", afterEffect}
		if c.op == put {
			codes = []string{"ThrottlingException", "InternalFailure", malformed, ""}
		}
		f.code = codes[r.IntN(len(codes))]
	case f.kind == late:
		longest := kindLate
		if (c.op == put || c.op.parksOrDecides()) && r.IntN(2) == 0 {
			longest = 4 * time.Minute // meanwhile other environments publish and mark the event
		}
		f.by = r.upTo(longest)
	}
	return f
}

// kindFor draws the kind of fault of a call. It need not apply to the call.
func (r *randomDecider) kindFor(o op) (k kind) {
	switch {
	case r.rejects && o == put && r.IntN(2) == 0:
		return rejecting
	case r.rejects && (o == postpone && r.IntN(4) > 0 || (o.parksOrDecides() || o == findLarge) && r.IntN(2) == 0):
		for k == none || !k.applies(o) { // there are few such calls
			k = 1 + kind(r.IntN(int(kinds)-1))
		}
		return k
	case r.Float64() >= r.rate:
		return none
	}
	return r.enabled[r.IntN(len(r.enabled))]
}

// upTo draws a duration.
func (r *randomDecider) upTo(longest time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(longest)))
}

// history plays the history of a seed and counts its events.
func history(seed uint64) (*world, counts) {
	r := newRandomDecider(seed)
	w := newWorld(setup{name: fmt.Sprintf("seed %d", seed), seed: seed, attempts: 1 + 2*r.IntN(2),
		keyCache: r.IntN(4) == 0, proofs: seed%4 != 0,
		mechanism: map[uint64]mechanism{3: byMTLS, 5: byBoth}[seed%8]}, r) // the others: bySignature
	busy := 4 * time.Minute // how long redrive runs on a schedule
	if r.rejects = r.IntN(8) == 0; r.rejects {
		busy, w.maxAttempts = 14*time.Minute, 1+r.IntN(2)
	} else if r.IntN(8) == 0 {
		w.maxAttempts = 2
	}
	if r.IntN(4) == 0 {
		w.parallel = 1 + r.IntN(3)
	}
	if r.IntN(2) == 0 {
		w.batch = 1 + r.IntN(3)
	}
	if r.IntN(8) == 0 {
		w.window = 20 * time.Minute
	}
	for range 1 + r.IntN(3) {
		i := w.newInstance("webhook", r.skew())
		if r.IntN(20) == 0 {
			i.idle, i.zombie = r.upTo(40*time.Second), true
		}
	}
	for range 1 + r.IntN(2) {
		w.newInstance("redrive", r.skew())
	}
	r.traffic(w, busy)
	w.drain()
	if seed%2 == 0 { // what is parked can be published
		w.eachParked(func(name string) { w.replay(name, wire.NoContent) })
		w.drain()
		for _, g := range w.facts.latest {
			if g.state == ledger.Parked {
				w.facts.violated("%s stays parked after a replay without faults", g)
			}
		}
	}
	return w, w.facts.check()
}

// newRandomDecider draws how often which faults occur.
func newRandomDecider(seed uint64) *randomDecider {
	r := &randomDecider{Rand: rand.New(rand.NewPCG(seed, 20260131)), seed: seed}
	r.rate = []float64{0, 0.02, 0.05, 0.1, 0.3}[r.IntN(5)]
	for k := none + 1; k < kinds; k++ {
		if r.IntN(3) > 0 {
			r.enabled = append(r.enabled, k)
		}
	}
	if len(r.enabled) == 0 {
		r.enabled = []kind{crashAfter}
	}
	if r.IntN(3) == 0 {
		from := r.upTo(2 * time.Minute)
		ops := []op{put, mark, record, lease, query, storeLarge, park, fetchKey, readKey, keep, parkEvent, replayEvent}
		faults := []kind{errorBefore, throttled, timeoutBefore, errorAfter, timeoutAfter, refused}
		r.outage = outage{op: ops[r.IntN(len(ops))], from: from, to: from + r.upTo(3*time.Minute),
			fault: faults[r.IntN(len(faults))]}
		if !r.outage.fault.applies(r.outage.op) {
			r.outage.fault = errorBefore
		}
	}
	return r
}

// skew draws how much the clock of an environment is off.
func (r *randomDecider) skew() time.Duration {
	if r.IntN(3) > 0 {
		return 0
	}
	return r.upTo(2*maxSkew) - maxSkew
}

// traffic draws deliveries, runs of redrive for some time, decisions and a deployment.
func (r *randomDecider) traffic(w *world, busy time.Duration) {
	short := w.window < time.Hour
	all := groups()
	in := all[r.IntN(len(all))]
	for range 1 + r.IntN(5) {
		d := in[min(r.IntN(len(in)), r.IntN(len(in)))]
		begin := r.upTo(time.Minute)
		if short && r.IntN(2) == 0 {
			begin += 21*time.Minute + r.upTo(4*time.Minute)
		}
		w.sender(r, d, begin, r.IntN(4), r.IntN(6) == 0)
	}
	// Sometimes two runs at once.
	for at := r.upTo(time.Minute) + 43; at < busy; at += 30*time.Second + r.upTo(2*time.Minute) {
		for range 1 + r.IntN(5)/4 {
			w.after(at, w.redrive)
		}
	}
	if r.IntN(6) == 0 {
		w.after(r.upTo(3*time.Minute), w.redeploy)
	}
	if r.rejects || r.IntN(3) == 0 {
		// Somebody decides about what is parked, during the deliveries or after them.
		w.again = r.IntN(2) == 0
		for range int(busy/time.Minute) - r.IntN(4) {
			w.after(r.upTo(2*busy), func() { w.eachParked(r.decide(w)) })
		}
	}
	if r.rejects {
		w.after(r.upTo(busy), func() { clear(w.rejected) })
	}
	if short {
		// TTL may delete expired items.
		w.after(20*time.Minute+30*time.Second, func() { w.ledger.Expire(time.Now()) })
	}
}

// decide draws decisions about what is parked: it is replayed, dismissed or sent again, or two of these at once.
func (r *randomDecider) decide(w *world) func(name string) {
	return func(name string) {
		for range 1 + r.IntN(4)/3 {
			g := w.facts.latest[name]
			switch n := r.IntN(8); {
			case n < 2:
				w.dismiss(name)
			case n < 5 && g != nil && g.sent != nil:
				w.sender(r, g.sent.delivery, 0, r.IntN(3), r.IntN(4) == 0)
			default:
				w.replay(name, []wire.Content{wire.NoContent, wire.FirstContent, wire.ParkedContent,
					wire.ParkedContent}[r.IntN(4)])
			}
		}
	}
}

// sender delivers d, with so many retries until it is accepted.
func (w *world) sender(r *randomDecider, d *delivery, begin time.Duration, retries int, twice bool) {
	deliver := func() {}
	deliver = func() {
		s := w.sign(d)
		dismissed := false
		s.answered = func(result intake.Result) {
			dismissed = true
			if !result.Done() && retries > 0 {
				retries--
				w.after(r.upTo(20*time.Second)+29, deliver)
			}
		}
		w.deliver(s)
		if retries > 0 {
			w.after(webhookTime+5*time.Second, func() {
				if !dismissed && retries > 0 { // no answer
					retries--
					deliver()
				}
			})
		}
		if twice {
			twice = false
			again := *s
			again.answered = nil
			w.after(r.upTo(2*time.Second)*time.Duration(r.IntN(2)), func() { w.deliver(&again) })
		}
	}
	w.after(begin, deliver)
}

// play plays a history in a bubble of its own.
func play(t *testing.T, history func() (*world, counts)) (w *world, c counts) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w, c = history()
		// A lookup of a key continues until its timeouts after its callers are gone.
		time.Sleep(time.Minute)
	})
	return w, c
}

// report describes a failed history.
func (w *world) report() string {
	if w.seed == 0 {
		return w.name + "\n" + w.String()
	}
	return fmt.Sprintf("seed %d fails; replay it with\n\tgo test ./shared/simulation -run TestRandomHistories -v "+
		"-seed=%d\n%s", w.seed, w.seed, w)
}

func TestRandomHistoriesLoseNothing(t *testing.T) {
	prepare(t)
	if *seed != 0 {
		w, c := play(t, func() (*world, counts) { return history(*seed) })
		t.Logf("seed %d:\n%s%s", *seed, w, c)
		if len(w.facts.violations) > 0 {
			t.Error(w.report())
		}
		return
	}
	n := *seeds
	if n == 0 {
		if n = 10_000; short() {
			n = 500 / slower
		}
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	var c pool
	start, printed := time.Now(), time.Now()
	c.all(t, func(hand func(job)) {
		for s := *from; s < *from+uint64(n) && len(interrupted) == 0 && !c.enough(); s++ {
			hand(func(t *testing.T) (*world, counts) { return play(t, func() (*world, counts) { return history(s) }) })
			if *seeds > 0 && time.Since(printed) > 10*time.Second {
				printed = time.Now()
				c.mu.Lock()
				fmt.Fprintf(os.Stderr, "%3.0f%%, %.0f per second, %d failed; %v\n", 100*float64(s-*from)/float64(n),
					float64(c.total.Histories)/time.Since(start).Seconds(), c.failed, c.total)
				c.mu.Unlock()
			}
		}
	})
	t.Logf("%v; %d failed; %.0f histories per second", c.total, c.failed,
		float64(c.total.Histories)/time.Since(start).Seconds())
	if c.total.Histories < n {
		t.Errorf("ended after %d of %d histories", c.total.Histories, n)
		return
	}
	if never := c.total.never(); n >= longRun {
		for _, what := range never {
			t.Errorf("no history has: %s", what)
		}
	} else if len(never) > 0 {
		t.Logf("not in these histories: %s", strings.Join(never, "; "))
	}
}

func TestTheSameSeedGivesTheSameHistoryInEveryProcess(t *testing.T) {
	prepare(t)
	s, here := uint64(300-200/slower), "" // 303 has both decisions
	for s < 300 || !strings.Contains(here, "  dismiss event  ") || !strings.Contains(here, "  replay event  ") {
		s++
		first, _ := play(t, func() (*world, counts) { return history(s) })
		second, _ := play(t, func() (*world, counts) { return history(s) })
		if here = first.String(); here != second.String() {
			t.Fatalf("seed %d:\n%s\nand again:\n%s", s, here, second)
		}
	}
	output, err := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRandomHistoriesLoseNothing$",
		"-test.v", fmt.Sprint("-seed=", s)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	_, there, _ := strings.Cut(string(output), fmt.Sprintf("seed %d:\n", s))
	there, _, _ = strings.Cut(there, "Histories 1,")
	if diff := cmp.Diff(strings.Fields(here), strings.Fields(there)); diff != "" {
		t.Error(diff)
	}
}

func TestMain(m *testing.M) {
	// Histories create much garbage: collecting it less often makes them a third faster.
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
