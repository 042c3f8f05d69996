package simulation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/calls"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

const (
	webhookTime = 30 * time.Second
	redriveTime = 55 * time.Second
	grace       = 30 * time.Second
	maxSkew     = 10 * time.Second

	// largeEventBytes is small, so that a history has events above it.
	largeEventBytes = 600
)

// A history depends only on its seed.
func init() {
	calls.PauseOf = func(longest time.Duration) time.Duration { return longest*5/8 + 3 }
}

// decider makes the random decisions of a history.
type decider interface {
	fault(w *world, c *call) fault                    // of a call
	pick(n int) int                                   // which of n calls continues; the first has waited longest
	schedulesEmpty(i *environment, shard string) bool // whether the scheduler handles the query of an empty shard
}

// setup has the options of a world.
type setup struct {
	name        string        // how to play it again
	seed        uint64        // of a random history; otherwise 0
	attempts    int           // of the SDK for each call except those of the bus
	window      time.Duration // de-duplication window; zero: 30 days
	maxAttempts int           // of redrive; zero: the default
	parallel    int           // concurrent calls of the ledger; zero: the default
	batch       int           // entries in one call of the ledger; zero: the default
	keyCache    bool          // look keys up with package keys; otherwise fixedKeys
	keyEndpoint *keyEndpoint  // nil: it always knows the one key
	mechanism   mechanism     // zero: signature
	proofs      bool          // of each accepted delivery are stored
	again       bool          // deliveries that were replayed or dismissed before are replayed as well
}

// world is what surrounds the code under test: time, the services, and the scheduler. Fields that mu does not guard
// belong to the goroutine of the world, which continues only when every other goroutine is blocked.
type world struct {
	setup
	decide decider
	start  time.Time
	ledger *ledger.Memory
	keys   *keys.Memory
	taken  map[string]int // of the budgets of keys, by name
	bus    *bus.Memory
	// The buckets.
	largeEvents, parking, evidence objects.Memory

	mu    sync.Mutex
	inbox []*call       // calls made since the last admit
	ended []*invocation // likewise
	wake  chan struct{}

	pending       []*call
	plan          []planned
	environments  []*environment
	underway      int
	begun         bool // an invocation began since the world last waited
	moment        int  // a logical clock that orders effects
	calls         int  // that can have a fault
	withoutFaults bool
	failing       map[string]error // calls that fail permanently, by environment and op
	rejected      map[string]string
	poison        map[string]bool // events that make every request with them fail
	interfered    int
	// senderKnown is when the table first had the sender's address.
	senderKnown      time.Time
	largeEventsEnded int // the moment at which large events that were parked were deleted; 0: never

	// onCall is called for every call that can have a fault.
	onCall func(c *call)
	facts  facts
	lines  []line
}

type planned struct {
	at time.Time
	do func()
}

func newWorld(s setup, d decider) *world {
	s.window = cmp.Or(s.window, 30*24*time.Hour)
	w := &world{
		setup: s, decide: d, start: time.Now(), wake: make(chan struct{}, 1),
		ledger: &ledger.Memory{}, keys: &keys.Memory{}, taken: map[string]int{}, bus: &bus.Memory{},
		failing: map[string]error{}, rejected: map[string]string{}, poison: map[string]bool{},
	}
	w.facts = facts{w: w, latest: map[string]*generation{}, authentic: map[string]bool{}, bases: map[string]bool{},
		notes: map[string]bool{}, proofs: map[string]int{}}
	return w
}

// environment is an execution environment of a function: its code, its clock and its clients. It handles one invocation
// at a time.
type environment struct {
	w    *world
	n    int
	name string
	skew time.Duration

	receiver *intake.Receiver // of a webhook environment
	redriver *intake.Redriver // of a redrive environment
	replayer *intake.Replayer // of a replay environment
	parking  bucket           // likewise

	current *invocation
	zombie  bool // continues after its deadline
	// replaced: a deployment replaced it, so it gets no further invocation
	replaced bool
	idle     time.Duration // between the invocation and the start of the code
	noTable  time.Time     // when its last call of the table of keys was abandoned; guarded by mu

	// Guarded by the world's mu.
	dead   bool
	frozen chan struct{} // closed when it continues; nil if it is not frozen
}

// invocation is one call of a function.
type invocation struct {
	*environment
	sent     *sent
	decision *decision
	deadline time.Time
	cancel   context.CancelFunc
	done     bool
	result   intake.Result

	begun  int      // the moment
	died   int      // the moment; 0: never
	frozen [][2]int // from and to which moment; 0: never ended
}

// sent is a delivery that a sender sends.
type sent struct {
	*delivery
	at       time.Time // time of the signature
	answered func(intake.Result)
}

func (w *world) newInstance(kind string, skew time.Duration) *environment {
	i := &environment{w: w, n: len(w.environments), skew: skew}
	i.name = kind + " " + strconv.Itoa(i.n)
	w.environments = append(w.environments, i)
	now := func() time.Time { return time.Now().Add(i.skew) }
	table := ledger.New(store{i}, ledger.Options{Window: w.window, Parallel: w.parallel, Batch: w.batch, Now: now})
	events := bus.New(eventBus{i}, "payhook", 1<<20)
	i.parking = bucket{&w.parking, i, park}
	opts := intake.Options{Grace: grace, LargeEventBytes: largeEventBytes, Now: now}
	if kind == "webhook" && w.proofs {
		opts.Evidence, opts.EvidenceDays = bucket{&w.evidence, i, keep}, 30
	}
	pipeline := intake.NewPipeline(table, events,

		bus.NewLargeEvents(bucket{&w.largeEvents, i, storeLarge}, "large-events"),
		i.parking, opts)
	switch kind {
	case "redrive":
		i.redriver = intake.NewRedriver(pipeline, cmp.Or(w.maxAttempts, 20))
	case "replay":
		var truststore clientcert.Truststore
		if w.mechanism != bySignature {
			truststore = pki().truststore
		}
		i.replayer = intake.NewReplayer(pipeline, truststore, nil)
	default:
		i.receiver = intake.NewReceiver(pipeline, w.mechanisms(i, now))
	}
	return i
}

// mechanisms returns how the deliveries of a world are authenticated.
func (w *world) mechanisms(i *environment, now func() time.Time) (m intake.Mechanisms) {
	if w.mechanism != byMTLS {
		m.Signature = &intake.Signature{Scheme: scheme, Tolerance: 5 * time.Minute,
			Keys: fixedKeys{}}
		if w.keyCache {
			base := url.URL{Scheme: "https", Host: "service.example"}
			m.Signature.Keys = keys.New(keys.NewEndpoint(&http.Client{Transport: i}, &base, 3*time.Second),
				keyStore{Memory: w.keys, environment: i}, w.keyEndpoint.options(now))
		}
	}
	if w.mechanism != bySignature {
		m.MTLS = clientcert.NewVerifier(pki().truststore, clientcert.Policy{})
	}
	return m
}

// free returns an environment of a kind that can handle an invocation.
func (w *world) free(kind string) *environment {
	for _, i := range w.environments {
		if i.current == nil && !i.dead && !i.replaced && i.frozen == nil && strings.HasPrefix(i.name, kind) {
			return i
		}
	}
	return w.newInstance(kind, 0)
}

// deliver invokes an environment with a delivery.
func (w *world) deliver(s *sent) {
	i := w.free("webhook")
	w.facts.delivered(s)
	inv, d := &invocation{environment: i, sent: s}, s.proved(s.at, w.mechanism)
	w.invoke(inv, webhookTime, s.name, "is delivered", func(ctx context.Context) {
		inv.result = i.receiver.Receive(ctx, d)
	})
}

// redrive invokes an environment for a run of redrive.
func (w *world) redrive() {
	i := w.free("redrive")
	w.invoke(&invocation{environment: i}, redriveTime, "", "starts a run", func(ctx context.Context) {
		i.redriver.Run(ctx)
	})
}

// decision is a request to replay or dismiss what is parked, and its result.
type decision struct {
	name    string // of a delivery, or an eventId
	dismiss bool
	content wire.Content // of a conflict that is replayed
	parked  proof.Proof  // the delivery
	done    bool         // it changed the event
	err     error        // of a dismissal, or of the note of a replay
}

// event reports whether a decision is about an event.
func (d *decision) event() bool { return payment.IsUUID(d.name) }

// stored returns the decision that is stored about a delivery, and note the key of its object.
func (d *decision) stored() proof.Decision {
	if d.dismiss || d.content == wire.FirstContent {
		return proof.Dismissed
	}
	return proof.Replayed
}

func (d *decision) note() string { return string(d.stored()) + "/" + d.name }

// may reports whether a decision may make a kind of call.
func (d *decision) may(o op) bool {
	switch {
	case !o.writes() || o == park && !d.event():
		return true
	case d.dismiss:
		return o == dismissEvent && d.event()
	case d.event():
		return o == replayEvent
	}
	return d.parked.Reason == proof.Invalid || d.content == wire.ParkedContent
}

// makeDecision invokes an environment for a decision, as the redrive function does.
func (w *world) makeDecision(d *decision) {
	i := w.free("replay")
	inv := &invocation{environment: i, decision: d}
	by := ledger.Note{By: i.name, At: time.Now(), Reason: "a person decided"}
	what := "is replayed"
	if d.dismiss {
		what = "is to be dismissed"
	}
	do := func(ctx context.Context) {
		if !d.dismiss {
			inv.result = i.replayer.Replay(ctx, d.parked, d.content)
		}
		if d.dismiss || inv.result.Done() {
			d.err = proof.Decide(ctx, i.parking, d.stored(), d.name, proof.Note{By: by.By, At: by.At})
		}
	}
	switch {
	case d.event() && d.dismiss:
		do = func(ctx context.Context) { d.err = i.replayer.DismissEvent(ctx, d.name, by) }
	case d.event():
		do = func(ctx context.Context) { inv.result = i.replayer.ReplayEvent(ctx, d.name, by) }
	default:
		var failed error
		d.parked, failed = proof.Get(context.Background(), &w.parking, d.name)
		before, _, err := proof.DecisionOn(context.Background(), &w.parking, d.name)
		if err = cmp.Or(failed, err); err != nil {
			w.facts.violated("%s is parked and can't be read: %v", d.name, err)
		}
		if before != proof.Open && !d.dismiss && !w.again {
			return
		}
		w.facts.decide(d)
	}
	w.invoke(inv, redriveTime, d.name, what, do)
}

// eachParked calls decide for the name of each delivery and the eventId of each event that is parked.
func (w *world) eachParked(decide func(name string)) {
	var names []string
	for _, reason := range []proof.Reason{proof.Conflict, proof.Invalid} {
		for o := range proof.List(context.Background(), &w.parking, reason, time.Time{}, time.Time{}) {
			names = append(names, o.Key)
		}
	}
	events, _ := ledger.List(context.Background(), w.ledger, ledger.Parked)
	for _, item := range events {
		names = append(names, item.EventID)
	}
	for n, name := range names {
		w.after(time.Duration(n)*100*time.Millisecond+37, func() { decide(name) })
	}
}

// replay replays what has a name, a conflict with a content.
func (w *world) replay(name string, content wire.Content) {
	if !strings.HasPrefix(name, string(proof.Conflict)) {
		content = wire.NoContent
	}
	w.makeDecision(&decision{name: name, content: content})
}

func (w *world) dismiss(name string) { w.makeDecision(&decision{name: name, dismiss: true}) }

// endLargeEvents deletes the large events that are parked, as the end of their retention does.
func (w *world) endLargeEvents() {
	w.moment++
	w.largeEventsEnded = w.moment
	for id, g := range w.facts.latest {
		for _, key := range w.largeEvents.Keys() {
			if g.state == ledger.Parked && strings.Contains(key, id) {
				w.largeEvents.Delete(key)
			}
		}
	}
}

// redeploy replaces all environments. Invocations that have started end on the old ones.
func (w *world) redeploy() {
	for _, i := range w.environments {
		if !i.dead {
			w.log(i, "", "", fault{}, "is replaced")
			i.replaced = true
		}
	}
}

// invoke starts an invocation. do is the code of the function.
func (w *world) invoke(inv *invocation, timeout time.Duration, name, what string, do func(context.Context)) {
	i := inv.environment
	w.moment++
	inv.begun, inv.deadline = w.moment, time.Now().Add(timeout)
	i.current = inv
	w.underway++
	w.begun = true
	w.log(i, "", name, fault{}, what)
	// Lambda ends an invocation at its deadline.
	w.after(timeout, func() {
		if !inv.done && !i.zombie {
			w.kill(i, "timeout")
		}
	})
	ctx, cancel := context.WithDeadline(context.Background(), inv.deadline)
	inv.cancel = cancel
	go func() {
		time.Sleep(i.idle)
		do(ctx)
		cancel()
		w.mu.Lock()
		w.ended = append(w.ended, inv)
		w.mu.Unlock()
		w.signal()
	}()
}

func (w *world) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *world) after(d time.Duration, do func()) {
	w.plan = append(w.plan, planned{time.Now().Add(d), do})
}

// kill ends an environment: it sends no further call, and its answer is lost.
func (w *world) kill(i *environment, why string) {
	if i.dead {
		return
	}
	w.moment++
	w.mu.Lock()
	i.dead = true
	if i.frozen != nil {
		close(i.frozen)
		i.frozen = nil
	}
	w.mu.Unlock()
	w.log(i, "", "", fault{}, "crashes: "+why)
	if inv := i.current; inv != nil {
		inv.died = w.moment
		inv.cancel()
	}
	w.pending = slices.DeleteFunc(w.pending, func(c *call) bool {
		if c.environment != i || c.fault.kind == late {
			return false
		}
		c.reply <- answer{err: errDead}
		return true
	})
}

// freeze suspends an environment.
func (w *world) freeze(i *environment, d time.Duration) {
	if i.dead || i.frozen != nil {
		return
	}
	w.moment++
	thawed := make(chan struct{})
	w.mu.Lock()
	i.frozen = thawed
	w.mu.Unlock()
	inv := i.current
	if inv != nil {
		inv.frozen = append(inv.frozen, [2]int{w.moment, 0})
	}
	w.after(d, func() {
		if i.dead || i.frozen != thawed {
			return
		}
		w.moment++
		w.mu.Lock()
		close(thawed)
		i.frozen = nil
		w.mu.Unlock()
		if inv != nil {
			inv.frozen[len(inv.frozen)-1][1] = w.moment
		}
		w.log(i, "", "", fault{}, "continues")
	})
}

// call is a call of a service.
type call struct {
	*environment
	inv       *invocation
	op        op
	key       string   // distinguishes it from concurrent calls
	ids       []string // of its events
	ctx       context.Context
	do        func() (any, error)
	reply     chan answer
	outOfTime bool // not sent by the client, since the context had ended
	abandoned bool // guarded by mu: its caller's context ended

	n     int // of all calls
	made  time.Time
	at    time.Time // the earliest time of the next step
	fault fault
	sends []*send

	begun, sent, answered, failed int // moments; 0: never
	// failedOf has the moments at which it failed for events, by their ids, though the call was answered.
	failedOf map[string]int
}

// failedFor returns the moment at which the call failed for an event; 0: never.
func (c *call) failedFor(id string) int { return cmp.Or(c.failed, c.failedOf[id]) }

type answer struct {
	out any
	err error
}

// try makes a call and waits for its answer.
func (i *environment) try(ctx context.Context, c *call) (any, error) {
	w := i.w
	c.environment, c.ctx, c.reply = i, ctx, make(chan answer, 1)
	w.mu.Lock()
	if i.dead {
		w.mu.Unlock()
		return nil, errDead
	}
	c.inv = cmp.Or(i.current, &invocation{environment: i}) // a lookup of a key continues without one
	c.outOfTime = ctx.Err() != nil && i.frozen == nil
	w.inbox = append(w.inbox, c)
	w.mu.Unlock()
	w.signal()
	if c.outOfTime {
		return nil, ctx.Err() // as the clients of the SDK do
	}
	select {
	case a := <-c.reply:
		return a.out, a.err
	case <-ctx.Done():
		w.mu.Lock()
		c.abandoned = true
		frozen := i.frozen
		w.mu.Unlock()
		w.signal()
		if frozen != nil {
			<-frozen
		}
		if c.op == readKey || c.op == writeKey || c.op == spendKey {
			w.mu.Lock()
			i.noTable = time.Now()
			w.mu.Unlock()
		}
		return nil, ctx.Err()
	}
}

// do makes a call with the retries of the client.
func do[T any](i *environment, ctx context.Context, op op, key string, ids []string,
	work func() (T, error)) (T, error) {
	attempts := i.w.attempts
	if op == put || op == fetchKey {
		attempts = 1
	}
	for attempt := 1; ; attempt++ {
		out, err := i.try(ctx, &call{op: op, key: key, ids: ids, do: func() (any, error) { return work() }})
		if err == nil {
			return out.(T), nil
		}
		if f, ok := errors.AsType[*failure](err); attempt >= attempts || ctx.Err() != nil || !ok || !f.again {
			var zero T
			return zero, err
		}
		pause := time.NewTimer(20*time.Millisecond<<attempt + 5)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// keyStore is the store of keys, as an environment calls it.
type keyStore struct {
	*keys.Memory // of the world
	*environment
}

func (s keyStore) Get(ctx context.Context, id string) (*keys.Record, error) {
	return do(s.environment, ctx, readKey, id, nil, func() (*keys.Record, error) { return s.Memory.Get(ctx, id) })
}

func (s keyStore) Sender(ctx context.Context, name string) (time.Time, error) {
	return do(s.environment, ctx, readKey, name, nil, func() (time.Time, error) { return s.Memory.Sender(ctx, name) })
}

// keyWrite is the result of a Put.
type keyWrite struct {
	stored  bool
	instead *keys.Record
}

func (s keyStore) Put(ctx context.Context, r keys.Record, version string) (bool, *keys.Record, error) {
	what := writeKey
	if r.Answer == keys.None {
		what = spendKey
	}
	w, err := do(s.environment, ctx, what, r.ID, nil, func() (w keyWrite, err error) {
		w.stored, w.instead, err = s.Memory.Put(ctx, r, version)
		return w, err
	})
	return w.stored, w.instead, err
}

func (s keyStore) RecordSender(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error) {
	return do(s.environment, ctx, writeKey, name, nil, func() (time.Time, error) {
		s.w.senderKnown = cmp.Or(s.w.senderKnown, time.Now())
		return s.Memory.RecordSender(ctx, name, now, oldest, expires)
	})
}

func (s keyStore) Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error) {
	return do(s.environment, ctx, spendKey, name, nil, func() (bool, error) {
		left, err := s.Memory.Take(ctx, name, limit, expires)
		if left {
			s.w.taken[name]++
		}
		return left, err
	})
}

// store is the store of the ledger, as an environment calls it.
type store struct{ *environment }

func (s store) Write(ctx context.Context, writes []ledger.Write) []ledger.WriteResult {
	ids, what := make([]string, len(writes)), postpone
	for n, w := range writes {
		ids[n] = w.Item.EventID
	}
	switch w := writes[0]; {
	case w.Lease:
		what = lease
	case w.Item.State == ledger.Pending && w.Kept != ledger.Nothing:
		what = replayEvent
	case w.Item.State != "":
		what = map[ledger.State]op{ledger.Pending: record, ledger.Published: mark, ledger.Parked: parkEvent,
			ledger.Dismissed: dismissEvent}[w.Item.State]
	}
	// It fails for some of the items if the fault says so.
	results, err := do(s.environment, ctx, what, ids[0], ids, func() ([]ledger.WriteResult, error) {
		results, hit := make([]ledger.WriteResult, len(ids)), s.w.facts.executing.fault
		for n := range results {
			fails := hit.kind.ofEntries() && hit.hits(n)
			if !fails || hit.kind == partial && hit.code == afterEffect {
				results[n] = s.w.ledger.Write(context.Background(), writes[n:n+1])[0]
			}
			switch {
			case !results[n].Done:
			case what == record:
				s.w.facts.recorded(s.environment, ids[n])
			default:
				s.w.facts.updated(s.environment, what, ids[n])
			}
			if fails {
				results[n] = ledger.WriteResult{Err: errors.New(hit.code)}
			}
		}
		return results, nil
	})
	if err != nil {
		results = slices.Repeat([]ledger.WriteResult{{Err: err}}, len(ids))
	}
	return results
}

func (s store) Get(ctx context.Context, ids []string, content bool) (map[string]ledger.Item, error) {
	return do(s.environment, ctx, readKnown, ids[0], nil, func() (map[string]ledger.Item, error) {
		return s.w.ledger.Get(context.Background(), ids, content)
	})
}

func (s store) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	if s.unscheduled(ctx, q) {
		return nil, nil, nil
	}
	var next *ledger.Item
	items, err := do(s.environment, ctx, query, "shard "+q.Shard, nil, func() (items []ledger.Item, err error) {
		items, next, err = s.w.ledger.Query(context.Background(), q)
		return items, err
	})
	return items, next, err
}

// unscheduled reports whether a query is of an empty shard and not handled by the scheduler. Most shards are empty, and
// a run of redrive queries all 64, so the scheduler handles only some of these queries. Another 64 queries only measure
// the age of postponed items.
func (i *environment) unscheduled(ctx context.Context, q ledger.Query) bool {
	i.w.mu.Lock()
	plain := !i.dead && i.frozen == nil && ctx.Err() == nil && (q.Later || !i.w.decide.schedulesEmpty(i, q.Shard))
	i.w.mu.Unlock()
	items, _, _ := i.w.ledger.Query(ctx, ledger.Query{Shard: q.Shard, At: time.Now().Add(1000 * time.Hour), Limit: 1})
	return plain && len(items) == 0
}

// eventBus is the bus, as an environment calls it.
type eventBus struct{ *environment }

func (b eventBus) Put(ctx context.Context, entries []bus.Entry) ([]error, error) {
	entries = slices.Clone(entries) // the caller reuses the slice
	ids := make([]string, len(entries))
	for n, e := range entries {
		ids[n] = b.w.facts.idOf(string(e.Detail))
	}
	return do(b.environment, ctx, put, ids[0], ids, func() ([]error, error) {
		return b.w.bus.Put(context.Background(), entries)
	})
}

// bucket is a bucket, as an environment calls it.
type bucket struct {
	*objects.Memory // of the world
	*environment
	op op
}

func (b bucket) Put(ctx context.Context, key string, body []byte) error {
	_, err := do(b.environment, ctx, b.op, key, nil, func() (any, error) { return key, b.Memory.Put(ctx, key, body) })
	return err
}

func (b bucket) Create(ctx context.Context, key string, body []byte) (existed bool, err error) {
	tried := false // an attempt of this call can have written it
	return do(b.environment, ctx, b.op, key, nil, func() (bool, error) {
		own := tried
		tried = true
		existed, err := b.Memory.Create(ctx, key, body)
		if b.op == keep {
			b.w.facts.kept(b.w.facts.executing.inv.sent, key, existed)
		}
		return existed && !own, err
	})
}

func (b bucket) List(ctx context.Context, prefix, after string, limit int) (page []objects.Object, more bool,
	err error) {
	page, err = do(b.environment, ctx, findLarge, prefix, nil, func() (found []objects.Object, err error) {
		found, more, err = b.Memory.List(ctx, prefix, after, limit)
		return found, err
	})
	return page, more, err
}

// RoundTrip answers for the key endpoint.
func (i *environment) RoundTrip(r *http.Request) (*http.Response, error) {
	id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	return do(i, r.Context(), fetchKey, id, nil, func() (*http.Response, error) {
		if w := i.w; w.keyEndpoint != nil {
			return w.keyEndpoint.answer(w, r, id), nil
		}
		resp := &http.Response{StatusCode: http.StatusNotFound, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody}
		if id == serviceKey().ID {
			resp.StatusCode, resp.Body = http.StatusOK, io.NopCloser(bytes.NewReader(serviceJWK()))
		}
		return resp, nil
	})
}

// run plays the history until nothing is left to do.
func (w *world) run() {
	for loops := 0; ; loops++ {
		if loops > 100_000 {
			w.lines = w.lines[max(0, len(w.lines)-100):]
			panic(fmt.Sprintf("%s\ndoes not end:\n%s", w.name, w))
		}
		synctest.Wait()
		select {
		case <-w.wake:
		default:
		}
		w.begun = false
		w.admit()
		// New invocations run until they are blocked.
		if w.begun || w.due() || w.step() {
			continue
		}
		next := w.next()
		switch {
		case !next.IsZero():
			timer := time.NewTimer(time.Until(next))
			select {
			case <-w.wake:
			case <-timer.C:
			}
			timer.Stop()
		case w.underway > 0:
			<-w.wake
		default:
			return
		}
	}
}

// admit handles the calls and ends of invocations since the last time, in an order that does not depend on that of the
// goroutines.
func (w *world) admit() {
	w.mu.Lock()
	inbox, ended := w.inbox, w.ended
	w.inbox, w.ended = nil, nil
	w.pending = slices.DeleteFunc(w.pending, func(c *call) bool {
		if !c.abandoned {
			return false
		}
		if c.failed == 0 {
			w.moment++
			c.failed = w.moment
			if c.op == put && !c.environment.dead {
				w.facts.Unpublished++
			}
		}
		return c.fault.kind != late
	})
	w.mu.Unlock()
	if len(inbox) > 1 {
		slices.SortFunc(inbox, func(a, b *call) int {
			return cmp.Or(cmp.Compare(a.environment.n, b.environment.n), cmp.Compare(a.op, b.op),
				cmp.Compare(a.key, b.key))
		})
	}
	for _, c := range inbox {
		w.admitCall(c)
	}
	slices.SortFunc(ended, func(a, b *invocation) int { return cmp.Compare(a.n, b.n) })
	for _, inv := range ended {
		w.finish(inv)
	}
}

func (w *world) admitCall(c *call) {
	w.moment++
	c.begun, c.made = w.moment, time.Now()
	c.at = c.made
	if c.op == readKnown && slices.ContainsFunc(w.pending, func(other *call) bool {
		return other.inv == c.inv && other.op == record
	}) {
		w.facts.ReadMeanwhile++
	}
	w.facts.begin(c)
	w.mu.Lock()
	abandoned := c.abandoned
	w.mu.Unlock()
	if c.outOfTime || abandoned { // its caller crashed or gave up
		w.moment++
		c.failed = w.moment
		if c.outOfTime {
			w.log(c.environment, c.op.String(), c.key, fault{}, "not sent: the context has ended")
		}
		return
	}
	if !w.withoutFaults {
		c.n = w.calls
		w.calls++
		if w.onCall != nil {
			w.onCall(c)
		}
		c.fault = w.decide.fault(w, c)
	}
	if c.fault.kind != none {
		w.facts.Faults++
		w.facts.Met[c.op][c.fault.kind]++
	}
	w.delay(c)
	w.pending = append(w.pending, c)
}

// delay applies what the fault of a call changes before its next step.
func (w *world) delay(c *call) {
	switch c.fault.kind {
	case slow, slowest, late, timeoutBefore:
		if c.environment.frozen != nil {
			c.fault = fault{}
			return
		}
		w.facts.out(c) // a delayed request has left its caller
	}
	switch c.fault.kind {
	case slow:
		c.fault.by = kindSlow
		c.at = c.at.Add(kindSlow)
	case slowest:
		if deadline, ok := c.ctx.Deadline(); ok && time.Until(deadline) > time.Second {
			c.at = deadline.Add(-29 * time.Millisecond)
		}
	case late:
		c.fault.by = cmp.Or(c.fault.by, kindLate)
		c.at = c.at.Add(c.fault.by)
		w.timeOut(c)
	case timeoutBefore:
		c.at = c.at.Add(time.Hour) // never
		w.timeOut(c)
	case redeliver, redriveFirst:
		c.at = c.at.Add(time.Second + 31)
		w.interfere(c)
	}
}

// timeOut ends a call with a timeout of the client.
func (w *world) timeOut(c *call) {
	w.after(clientTimeout, func() {
		w.pending = slices.DeleteFunc(w.pending, func(p *call) bool { return p == c && c.fault.kind != late })
		w.answer(c, nil, errTimeout)
	})
}

// interfere starts another invocation before a call takes effect.
func (w *world) interfere(c *call) {
	if w.interfered++; w.interfered > 4 {
		return // limited, so that the history ends
	}
	if c.fault.kind == redriveFirst {
		w.redrive()
		return
	}
	again := c.inv.sent
	if len(c.ids) > 0 && again == nil { // a decision or redrive: the delivery that brought the event
		if g := w.facts.latest[c.ids[0]]; g != nil && g.sent != nil {
			again = w.sign(g.sent.delivery)
		}
	}
	if again != nil {
		w.deliver(&sent{delivery: again.delivery, at: again.at})
	}
}

// sign returns a delivery whose signature is some minutes old, so that few signatures are needed.
func (w *world) sign(d *delivery) *sent {
	return &sent{delivery: d, at: w.start.Add(time.Since(w.start).Truncate(4 * time.Minute))}
}

// due does what is planned for now. It reports whether there was anything.
func (w *world) due() bool {
	first := 0
	for i := range w.plan {
		if w.plan[i].at.Before(w.plan[first].at) {
			first = i
		}
	}
	if len(w.plan) == 0 || w.plan[first].at.After(time.Now()) {
		return false
	}
	do := w.plan[first].do
	w.plan = slices.Delete(w.plan, first, first+1)
	do()
	return true
}

// next returns the time of the next planned step.
func (w *world) next() (next time.Time) {
	earlier := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, p := range w.plan {
		earlier(p.at)
	}
	for _, c := range w.pending {
		if c.at.After(time.Now()) && c.fault.kind != timeoutBefore {
			earlier(c.at)
		}
	}
	return next
}

// step continues one call. It reports false if none can continue.
func (w *world) step() bool {
	now := time.Now()
	var ready [64]int
	n := 0
	for i, c := range w.pending {
		if n < len(ready) && !c.at.After(now) && (c.environment.frozen == nil || c.fault.kind == late) {
			ready[n] = i
			n++
		}
	}
	if n == 0 {
		return false
	}
	at := ready[0]
	if n > 1 && !w.withoutFaults {
		at = ready[w.decide.pick(n)]
	}
	c := w.pending[at]
	w.pending = slices.Delete(w.pending, at, at+1)
	w.execute(c)
	return true
}

// execute applies a call and its fault.
func (w *world) execute(c *call) {
	w.moment++
	if w.failBefore(c) {
		return
	}
	w.startLasting(c)
	if err := w.lasting(c); err != nil {
		w.answer(c, nil, err)
		return
	}
	if c.op == put {
		w.rejectEntries(c)
	}
	w.facts.out(c)
	w.facts.executing = c
	out, err := c.do()
	w.facts.effect(c, out, err)
	w.answerAfter(c, out, err)
}

// failBefore applies a fault that prevents the effect of a call, or delays it. It reports whether the call has such a
// fault.
func (w *world) failBefore(c *call) bool {
	switch f := c.fault; f.kind {
	case errorBefore, throttled, refused:
		w.answer(c, nil, errorOf(f.kind, c.op))
	case noKey:
		w.answer(c, &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(`{"message":"Service Unavailable"}`))}, nil)
	case crashBefore:
		w.log(c.environment, c.op.String(), c.key, f, "")
		w.kill(c.environment, "struck")
	case freezeBriefly:
		w.suspend(c, kindBrief)
	case freezeLong:
		c.environment.zombie = true
		w.suspend(c, kindLong)
	default:
		return false
	}
	return true
}

// suspend suspends the environment of a call, which continues without a fault.
func (w *world) suspend(c *call, d time.Duration) {
	w.log(c.environment, c.op.String(), c.key, c.fault, "")
	w.freeze(c.environment, d)
	c.fault = fault{}
	w.pending = append(w.pending, c)
}

// startLasting starts a fault that also applies to later calls.
func (w *world) startLasting(c *call) {
	switch f := c.fault; f.kind {
	case failing:
		w.failing[c.environment.name+c.op.String()] = errorOf(f.kind, c.op)
	case lag:
		w.ledger.Lag(true)
		w.after(kindLag, func() { w.ledger.Lag(false) })
	case poisoned, rejecting:
		for n, id := range c.ids {
			if f.hits(n) && f.kind == poisoned {
				w.poison[id] = true
			} else if f.hits(n) {
				w.rejected[id] = f.code
			}
		}
	}
}

// lasting returns the error of a fault that lasts, of this call or an earlier one; nil for none.
func (w *world) lasting(c *call) error {
	if w.withoutFaults {
		return nil
	}
	if err := w.failing[c.environment.name+c.op.String()]; err != nil {
		return err
	}
	if c.op == put && slices.ContainsFunc(c.ids, func(id string) bool { return w.poison[id] }) {
		return errorOf(poisoned, put)
	}
	return nil
}

// rejectEntries makes the bus reject entries of a call.
func (w *world) rejectEntries(c *call) {
	n := -1
	w.bus.Reject = func(bus.Entry) error {
		n++
		code := w.rejected[c.ids[n]]
		if c.fault.kind == partial && c.fault.hits(n) {
			code = c.fault.code
		} else if code == "" || w.withoutFaults {
			return nil
		}
		if code == malformed {
			return &bus.EntryError{Fault: bus.OfEntry, Code: code}
		}
		return &bus.EntryError{Fault: bus.OfService, Code: code}
	}
}

// answerAfter answers a call that took effect, unless its fault prevents this.
func (w *world) answerAfter(c *call, out any, err error) {
	takesEffect := func() { w.log(c.environment, c.op.String(), c.key, c.fault, "takes effect") }
	switch c.fault.kind {
	case errorAfter, partialLost:
		w.answer(c, nil, errorOf(errorAfter, c.op))
	case timeoutAfter:
		takesEffect()
		w.after(clientTimeout, func() { w.answer(c, nil, errTimeout) })
	case late:
		takesEffect()
	case crashAfter:
		takesEffect()
		w.kill(c.environment, "struck")
		c.reply <- answer{err: errDead}
	default:
		w.answer(c, out, err)
	}
}

// answer returns the result of a call, unless its caller is gone.
func (w *world) answer(c *call, out any, err error) {
	w.mu.Lock()
	gone := c.abandoned || c.environment.dead
	w.mu.Unlock()
	if len(c.reply) > 0 || c.answered > 0 || c.failed > 0 {
		return
	}
	w.moment++
	if gone {
		c.failed = w.moment
	} else if frozen := c.environment.frozen; frozen != nil {
		// A suspended caller gets the answer when it continues.
		w.after(kindBrief, func() { w.answer(c, out, err) })
		return
	} else if err != nil {
		c.failed = w.moment
	} else {
		c.answered = w.moment
		results, _ := out.([]ledger.WriteResult)
		c.failedOf = map[string]int{}
		for n, r := range results {
			if r.Err != nil {
				c.failedOf[c.ids[n]] = c.answered
			}
		}
	}
	result := "done"
	if err != nil {
		result = err.Error()
	}
	w.log(c.environment, c.op.String(), c.key, c.fault, result)
	c.reply <- answer{out, err}
}

// finish handles the end of an invocation.
func (w *world) finish(inv *invocation) {
	w.underway--
	inv.done = true
	if inv.current == inv {
		inv.current = nil
	}
	if inv.dead {
		return
	}
	w.moment++
	if d := inv.decision; d != nil {
		w.log(inv.environment, "", d.name, fault{}, fmt.Sprintf("%s, error: %v", inv.result.Outcome, d.err))
		w.facts.decided(inv)
		return
	}
	if inv.sent == nil {
		w.log(inv.environment, "", "", fault{}, "ends a run")
		return
	}
	// Without other faults, only rejected events are pending.
	if r := inv.result; w.facts.Faults == 1 && len(w.poison) > 0 && r.Outcome == intake.Accepted &&
		r.Pending > len(w.poison) {
		w.facts.violated("EventBridge rejects %d events, and %d are pending", len(w.poison), r.Pending)
	}
	w.facts.answer(inv)
	w.log(inv.environment, "", inv.sent.name, fault{}, inv.result.Outcome.Name)
	if inv.sent.answered != nil {
		inv.sent.answered(inv.result)
	}
}

// drain stops all faults and lets redrive run until nothing is pending.
func (w *world) drain() {
	w.run()
	w.withoutFaults = true
	for runs := 0; w.facts.pending() && runs < 5; runs++ {
		w.after(2*time.Hour, w.redrive)
		w.run()
	}
}
