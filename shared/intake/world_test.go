package intake_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/bus"
	"payhook.example/shared/calls"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

// The options of a stack.
const (
	window = 30 * 24 * time.Hour
	grace  = 30 * time.Second
)

func init() { calls.PauseOf = func(time.Duration) time.Duration { return 0 } }

var errDown = errors.New("it is down")

// hook is called before each call of a store, with the key of an object or item. Its error is that of the call.
type hook = func(ctx context.Context, call, key string) error

// broken fails every call.
func broken(context.Context, string, string) error { return errDown }

// fails returns a hook that fails these calls: CALL, or CALL KEY.
func fails(these ...string) hook {
	return func(_ context.Context, call, key string) error {
		if slices.Contains(these, call) || slices.Contains(these, call+" "+key) {
			return errDown
		}
		return nil
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// table is a ledger in memory. Of a write, Fails is called first for the call, without a key, and then for each item.
type table struct {
	ledger.Memory
	Fails hook
	read  func(*ledger.Item) // changes what is read
}

func (t *table) fails(ctx context.Context, call, key string) error {
	if t.Fails == nil {
		return nil
	}
	return t.Fails(ctx, call, key)
}

func (t *table) Write(ctx context.Context, writes []ledger.Write) []ledger.WriteResult {
	call := string(writes[0].Item.State)
	switch w := writes[0]; {
	case w.If == nil:
		call = "insert"
	case w.Lease:
		call = "lease"
	case w.Item.State == "":
		call = "postpone"
	case w.Item.State == ledger.Pending && w.Kept != ledger.Nothing:
		call = "replay"
	}
	if err := t.fails(ctx, call, ""); err != nil {
		return slices.Repeat([]ledger.WriteResult{{Err: err}}, len(writes))
	}
	results := make([]ledger.WriteResult, len(writes))
	for n, w := range writes {
		if results[n].Err = t.fails(ctx, call, w.Item.EventID); results[n].Err == nil {
			results[n] = t.Memory.Write(ctx, writes[n:n+1])[0]
			if found := results[n].Found; found != nil {
				*found = t.seen(*found)
			}
		}
	}
	return results
}

func (t *table) seen(i ledger.Item) ledger.Item {
	if t.read != nil {
		t.read(&i)
	}
	return i
}

func (t *table) Get(ctx context.Context, ids []string, content bool) (map[string]ledger.Item, error) {
	if err := t.fails(ctx, "get", ""); err != nil {
		return nil, err
	}
	found, err := t.Memory.Get(ctx, ids, content)
	for id, i := range found {
		found[id] = t.seen(i)
	}
	return found, err
}

func (t *table) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	call := "due"
	if q.Later {
		call = "waiting"
	}
	if err := t.fails(ctx, call, ""); err != nil {
		return nil, nil, err
	}
	page, next, err := t.Memory.Query(ctx, q)
	for n, i := range page {
		page[n] = t.seen(i)
	}
	return page, next, err
}

// road is a bus in memory.
type road struct {
	bus.Memory
	Fails hook
}

func (r *road) Put(ctx context.Context, entries []bus.Entry) ([]error, error) {
	if r.Fails != nil {
		if err := r.Fails(ctx, "bus", ""); err != nil {
			return nil, err
		}
	}
	return r.Memory.Put(ctx, entries)
}

// serviceKey signs webhooks.
var serviceKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

// world has stores in memory, a clock, and what works with them. Its events have claim checks from 2,001 bytes on.
type world struct {
	t                              *testing.T
	table                          table
	bus                            road
	parking, largeEvents, evidence objects.Memory
	now                            time.Time
	clock                          func() time.Time // now
	opts                           intake.Options
	parallel                       int // calls of the ledger; 0: the default
	maxEntry                       int // bytes of an entry of the bus
	mechanisms                     intake.Mechanisms
	truststore                     clientcert.Truststore
	revoked                        clientcert.Revocations
	// change, if set, makes another event of the one at a position of pend.
	change func(i int, raw []byte) []byte
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Now().Truncate(time.Millisecond), maxEntry: 1 << 20}
	w.clock = func() time.Time { return w.now }
	w.opts = intake.Options{Grace: grace, Now: w.clock, LargeEventBytes: 2000, EvidenceDays: 30}
	w.largeEvents.Now = w.clock
	w.mechanisms.Signature = &intake.Signature{Scheme: paymenttest.DefaultScheme(), Keys: &keyCache{key: serviceKey}}
	return w
}

// newEvidenceWorld returns a world that stores evidence.
func newEvidenceWorld(t *testing.T) *world {
	w := newWorld(t)
	w.opts.Evidence = &w.evidence
	return w
}

// newVirtualWorld returns a world whose clock is that of a bubble of synctest. Its options have the defaults.
func newVirtualWorld(t *testing.T) *world {
	w := newWorld(t)
	w.clock, w.opts = time.Now, intake.Options{Grace: grace, EvidenceDays: 30}
	return w
}

func (w *world) ledger() *ledger.Ledger {
	return ledger.New(&w.table, ledger.Options{Window: window, Now: w.clock, Parallel: w.parallel})
}

func (w *world) pipeline() *intake.Pipeline {
	return intake.NewPipeline(w.ledger(), bus.New(&w.bus, "source", w.maxEntry),
		bus.NewLargeEvents(&w.largeEvents, "large-events"), &w.parking, w.opts)
}

// ctx ends a minute from now in the time of this world, which may be another than that of contexts.
func (w *world) ctx() context.Context { return w.within(time.Minute) }

func (w *world) within(d time.Duration) context.Context {
	return deadlined{w.t.Context(), w.clock().Add(d)}
}

type deadlined struct {
	context.Context
	deadline time.Time
}

func (d deadlined) Deadline() (time.Time, bool) { return d.deadline, true }

// receive receives a delivery.
func (w *world) receive(ctx context.Context, d intake.Delivery) intake.Result {
	return intake.NewReceiver(w.pipeline(), w.mechanisms).Receive(ctx, d)
}

// deliver receives a payload that is signed now.
func (w *world) deliver(payload []byte) intake.Result {
	w.t.Helper()
	return w.receive(w.ctx(), w.signed(payload))
}

// send delivers events, and returns the deliveryId as well.
func (w *world) send(events ...[]byte) (id string, r intake.Result) {
	w.t.Helper()
	id = uuid.New().String()
	return id, w.deliver(paymenttest.RawDelivery(id, events...))
}

// signed returns a delivery that is signed now.
func (w *world) signed(payload []byte) intake.Delivery {
	w.t.Helper()
	return signedAt(w.t, serviceKey(), payload, w.clock())
}

// signedAt returns a delivery that is signed with a key.
func signedAt(t *testing.T, key paymenttest.Key, payload []byte, at time.Time) intake.Delivery {
	t.Helper()
	timestamp := signature.FormatTime(at)
	text, err := signature.Sign(key.Private, payload, timestamp, key.ID)
	if err != nil {
		t.Fatal(err)
	}
	return intake.Delivery{Payload: payload, Headers: map[string]string{
		"x-svc-signature": text, "x-svc-timestamp": timestamp, "x-svc-key-id": key.ID,
	}}
}

// invalid returns what is stored of a signed payload that could not be decoded when it arrived.
func (w *world) invalid(payload []byte) proof.Proof {
	w.t.Helper()
	sent := w.signed(payload).Headers
	id, _ := payment.PeekIDs(payload, 0)
	return proof.Proof{Reason: proof.Invalid, DeliveryID: id, Payload: payload, Signature: sent["x-svc-signature"],
		Timestamp: sent["x-svc-timestamp"], KeyID: serviceKey().ID,
		JWK: keys.FormatJWK(serviceKey().ID, &serviceKey().Private.PublicKey)}
}

// parked returns what is parked under a name.
func (w *world) parked(name string) proof.Proof {
	w.t.Helper()
	p, err := proof.Get(w.t.Context(), &w.parking, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// stored returns the evidence, which all verifies.
func (w *world) stored() (all []proof.Proof) {
	w.t.Helper()
	for _, name := range w.evidence.Keys() {
		p, err := proof.Get(w.t.Context(), &w.evidence, name)
		if err == nil {
			_, err = p.Verify()
		}
		if err != nil || p.Reason != proof.Accepted {
			w.t.Fatal(p.Reason, err)
		}
		all = append(all, p)
	}
	return all
}

func (w *world) replayer() *intake.Replayer {
	return intake.NewReplayer(w.pipeline(), w.truststore, w.revoked)
}

func (w *world) replay(p proof.Proof, content wire.Content) intake.Result {
	return w.replayer().Replay(w.ctx(), p, content)
}

// decided is what a person decides here.
func (w *world) decided() ledger.Note {
	return ledger.Note{By: "jane", At: w.now.UTC(), Reason: "asked the service"}
}

func (w *world) replayEvent(id string) intake.Result {
	return w.replayer().ReplayEvent(w.ctx(), id, w.decided())
}

func (w *world) dismissEvent(id string) error {
	return w.replayer().DismissEvent(w.ctx(), id, w.decided())
}

// run makes one run of redrive that has so much time. It parks an event after so many attempts.
func (w *world) run(attempts int, limit time.Duration) intake.Redriven {
	return intake.NewRedriver(w.pipeline(), attempts).Run(w.within(limit))
}

// redrive makes one run of redrive.
func (w *world) redrive() intake.Redriven {
	w.t.Helper()
	r := w.run(20, time.Minute)
	if r.Err != nil {
		w.t.Fatal(r.Err)
	}
	return r
}

// pend records n events without publishing them, each due a millisecond after the one before, the last one now.
func (w *world) pend(n int) (ids []string) {
	w.t.Helper()
	for i := range n {
		raw := paymenttest.Encode(paymenttest.Event())
		if w.change != nil {
			raw = w.change(i, raw)
		}
		due := w.now.Add(time.Duration(i-n+1) * time.Millisecond)
		item := ledger.NewItem(decoded(w.t, raw), uuid.New().String(), due.Add(-time.Minute))
		if r := w.ledger().Record(w.t.Context(), []ledger.Item{item}, ledger.NewLeaseOwner(), due); r[0].Err != nil {
			w.t.Fatal(r[0].Err)
		}
		ids = append(ids, item.EventID)
	}
	return ids
}

func (w *world) pending() (n int) {
	for _, i := range w.table.Items() {
		if i.State == ledger.Pending {
			n++
		}
	}
	return n
}

// park lets redrive park an event that the bus does not take.
func (w *world) park(raw []byte) ledger.Item {
	w.t.Helper()
	w.bus.Fails = broken
	if _, r := w.send(raw); r.Outcome != intake.Accepted || r.Pending != 1 {
		w.t.Fatalf("%+v", r)
	}
	w.now = w.now.Add(2 * time.Minute)
	if r := w.run(1, time.Minute); r.Parked != 1 {
		w.t.Fatalf("%+v", r)
	}
	w.bus.Fails = nil
	return w.item(raw)
}

// item returns what the ledger has of an event.
func (w *world) item(raw []byte) ledger.Item {
	w.t.Helper()
	return w.table.Items()[idOf(w.t, raw)]
}

// published returns how often each event is on the bus.
func (w *world) published() map[string]int {
	count := map[string]int{}
	for _, entry := range w.bus.Entries() {
		count[decoded(w.t, entry.Detail).EventID]++
	}
	return count
}

// onBus compares what is on the bus, in order.
func (w *world) onBus(want ...[]byte) {
	w.t.Helper()
	var texts, got []string
	for _, event := range want {
		texts = append(texts, string(event))
	}
	for _, entry := range w.bus.Entries() {
		detail, err := bus.Resolve(w.t.Context(), func(string) objects.Getter { return &w.largeEvents }, entry.Detail)
		if err != nil {
			w.t.Fatal(err)
		}
		got = append(got, string(detail))
	}
	if diff := cmp.Diff(texts, got); diff != "" {
		w.t.Errorf("on the bus: %s", diff)
	}
}

// conflict delivers the first content of an event, and then a delivery with other content of it and a second event.
// It returns the three, and what is parked.
func (w *world) conflict() (first, other, beside []byte, p proof.Proof) {
	w.t.Helper()
	first, other = twoContents()
	beside = paymenttest.Encode(paymenttest.Event())
	if _, r := w.send(first); r.Outcome != intake.Accepted {
		w.t.Fatalf("%+v", r)
	}
	_, r := w.send(other, beside)
	if r.Outcome != intake.Conflict || r.ParkedAs.Name == "" {
		w.t.Fatalf("%+v", r)
	}
	w.onBus(first, beside)
	return first, other, beside, w.parked(r.ParkedAs.Name)
}

// twoContents returns two contents of one event: 1250.00 USD and 0.01 EUR.
func twoContents() (first, other []byte) {
	event := paymenttest.Event()
	first = paymenttest.Encode(event)
	event.EventData.Amount, event.EventData.PaymentCurrency = "0.01", "EUR"
	return first, paymenttest.Encode(event)
}

func decoded(t *testing.T, raw []byte) payment.RawEvent {
	t.Helper()
	event, err := payment.DecodeRawEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func idOf(t *testing.T, raw []byte) string {
	t.Helper()
	return ledger.Key(decoded(t, raw).EventID)
}

func idsOf(t *testing.T, events ...[]byte) (ids []string) {
	t.Helper()
	for _, raw := range events {
		ids = append(ids, idOf(t, raw))
	}
	return ids
}
