package intake_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	adapter "payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/revocation"
	"payhook.example/shared/signature"
)

// serviceKey signs what is parked here.
var serviceKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

// parkedWorld is a stack with a parking bucket, a receiver that parks, and one
// that replays.
type parkedWorld struct {
	*stack
	t          *testing.T
	opts       intake.Options
	mechanisms intake.Mechanisms
	truststore *clientcert.Truststore
	revoked    revocation.List
}

// oneKey knows the service's key. It calls before, if it is set, for every look-up.
type oneKey struct{ before func(ctx context.Context) }

func (k oneKey) Lookup(ctx context.Context, id string, _ netip.Addr) (keys.Found, error) {
	if k.before != nil {
		k.before(ctx)
	}
	if id != serviceKey().ID {
		return keys.Found{}, keys.ErrUnknown
	}
	return keys.Found{Key: &serviceKey().Private.PublicKey, Source: keys.InMemory}, nil
}

func (oneKey) Refetch(context.Context, string, keys.Found, netip.Addr) (keys.Found, error) {
	return keys.Found{}, nil
}

func (oneKey) SourceRecorded(netip.Addr) bool           { return true }
func (oneKey) RecordSource(context.Context, netip.Addr) {}

func newParkedWorld(t *testing.T) *parkedWorld {
	w := &parkedWorld{stack: newStack(), t: t}
	w.opts = intake.Options{Now: w.clock, ClaimBytes: 2000}
	w.mechanisms.Signature = &intake.Signature{Scheme: paymenttest.DefaultScheme(), Keys: oneKey{}}
	return w
}

// deliver receives a delivery and returns what became of it.
func (w *parkedWorld) deliver(payload []byte) intake.Result {
	w.t.Helper()
	return intake.NewReceiver(w.pipeline(w.db, w.opts), w.mechanisms).Receive(w.ctx(), w.signed(payload))
}

// signed returns a delivery that is signed now.
func (w *parkedWorld) signed(payload []byte) intake.Delivery {
	w.t.Helper()
	return signedAt(w.t, serviceKey(), payload, w.now)
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

// signAgain signs what is parked after a change.
func (w *parkedWorld) signAgain(p *parking.Parked) {
	w.t.Helper()
	text, err := signature.Sign(serviceKey().Private, p.Payload, p.Timestamp, p.KeyID)
	if err != nil {
		w.t.Fatal(err)
	}
	p.Signature = text
}

// ctx ends a minute from now in the time of this world, which may be another than
// that of contexts.
func (w *parkedWorld) ctx() context.Context {
	return deadlined{w.t.Context(), w.now.Add(time.Minute)}
}

type deadlined struct {
	context.Context
	deadline time.Time
}

func (d deadlined) Deadline() (time.Time, bool) { return d.deadline, true }

// parked returns what is parked under a name.
func (w *parkedWorld) parked(name string) parking.Parked {
	w.t.Helper()
	p, err := w.parking.Get(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *parkedWorld) replay(p parking.Parked, version intake.Version) intake.Result {
	w.t.Helper()
	return w.replayIn(w.ctx(), p, version)
}

func (w *parkedWorld) replayIn(ctx context.Context, p parking.Parked, version intake.Version) intake.Result {
	r := intake.NewReplayer(w.pipeline(w.db, w.opts), w.truststore, w.revoked)
	return r.Replay(ctx, p, version)
}

// redrive makes one run of redrive.
func (w *parkedWorld) redrive() intake.Redriven {
	w.t.Helper()
	r := intake.NewRedriver(w.pipeline(w.db, w.opts), 1).Run(w.ctx())
	if r.Err != nil {
		w.t.Fatal(r.Err)
	}
	return r
}

// details returns what is on the bus, in order.
func (w *parkedWorld) details() (details []string) {
	for _, entry := range w.bus.Entries() {
		detail, err := s3.Resolve(w.t.Context(), w.buckets, entry.Detail)
		if err != nil {
			w.t.Fatal(err)
		}
		details = append(details, string(detail))
	}
	return details
}

func (w *parkedWorld) onBus(want ...[]byte) {
	w.t.Helper()
	var texts []string
	for _, event := range want {
		texts = append(texts, string(event))
	}
	if diff := cmp.Diff(texts, w.details()); diff != "" {
		w.t.Errorf("on the bus: %s", diff)
	}
}

// conflict delivers the first content of an event, and then a delivery with other
// content of it and a second event. It returns the three, and what is parked.
func (w *parkedWorld) conflict() (first, other, beside []byte, p parking.Parked) {
	w.t.Helper()
	event := paymenttest.Event()
	first = paymenttest.Encode(event)
	event.EventData.Amount = "0.01"
	other, beside = paymenttest.Encode(event), paymenttest.Encode(paymenttest.Event())
	if r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), first)); r.Outcome != intake.Accepted {
		w.t.Fatalf("%+v", r)
	}
	r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), other, beside))
	if r.Outcome != intake.Conflict || r.Parked == "" {
		w.t.Fatalf("%+v", r)
	}
	w.onBus(first, beside)
	return first, other, beside, w.parked(r.Parked)
}

// unpublishable lets redrive park an event that the bus does not take.
func (w *parkedWorld) unpublishable(raw []byte) parking.Parked {
	w.t.Helper()
	w.bus.Reject = func(bus.Entry) error { return &bus.EntryError{Code: "InternalFailure"} }
	if r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), raw)); r.Outcome != intake.Accepted ||
		r.Pending != 1 {
		w.t.Fatalf("%+v", r)
	}
	w.now = w.now.Add(2 * time.Minute)
	if r := w.redrive(); r.Parked != 1 {
		w.t.Fatalf("%+v", r)
	}
	w.bus.Reject = nil
	event, err := payment.DecodeRawEvent(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	names, err := w.parking.FindEvent(w.t.Context(), event.EventID)
	if err != nil || len(names) == 0 {
		w.t.Fatal(names, err)
	}
	return w.parked(names[len(names)-1])
}

func (w *parkedWorld) known(raw []byte) (ledger.Item, bool) {
	w.t.Helper()
	event, err := payment.DecodeRawEvent(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	item, ok, err := ledger.Find(w.t.Context(), adapter.NewLedgerReader(w.db, "ledger"), event.EventID, false)
	if err != nil {
		w.t.Fatal(err)
	}
	return item, ok
}

// An object in the bucket is not authentic because it is there.
func TestAForgedParkedDeliveryIsNotReplayed(t *testing.T) {
	stranger := paymenttest.NewKey(2048)
	small := paymenttest.NewKey(1024)
	for name, change := range map[string]func(p *parking.Parked){
		"the payload is changed": func(p *parking.Parked) {
			p.Payload = bytes.Replace(p.Payload, []byte("0.01"), []byte("9.99"), 1)
		},
		"the timestamp is changed": func(p *parking.Parked) { p.Timestamp += "0" },
		"the key id is changed":    func(p *parking.Parked) { p.KeyID = uuid.New().String() },
		"the signature is changed": func(p *parking.Parked) {
			p.Signature = p.Signature[4:] + p.Signature[:4]
		},
		"there is no signature": func(p *parking.Parked) { p.Signature = "" },
		"there is no key":       func(p *parking.Parked) { p.JWK = nil },
		"the key is that of a stranger": func(p *parking.Parked) {
			stranger.ID = p.KeyID
			p.JWK = stranger.JWK()
		},
		"the key has another exponent": func(p *parking.Parked) {
			p.JWK = bytes.Replace(p.JWK, []byte(`"AQAB"`), []byte(`"Aw"`), 1)
		},
		"a stranger signed it with a weak key": func(p *parking.Parked) {
			small.ID = p.KeyID
			p.JWK = small.JWK()
			p.Signature, _ = signature.Sign(small.Private, p.Payload, p.Timestamp, p.KeyID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newParkedWorld(t)
			_, _, _, p := w.conflict()
			items, entries, objects := w.db.Items("ledger"), len(w.bus.Entries()), w.buckets.Objects("parking")
			change(&p)
			for _, reason := range []parking.Reason{parking.Conflict, parking.Invalid} {
				for _, version := range []intake.Version{intake.NoVersion, intake.FirstVersion, intake.ParkedVersion} {
					p.Reason = reason
					if r := w.replay(p, version); r.Outcome == intake.Accepted || r.Outcome == intake.Conflict {
						t.Errorf("%s, version %q: %+v", reason, version, r)
					}
				}
			}
			w.now = w.now.Add(time.Hour)
			w.redrive()
			if !reflect.DeepEqual(w.db.Items("ledger"), items) {
				t.Error("the ledger changed")
			}
			if n := len(w.bus.Entries()); n != entries {
				t.Errorf("%d more are on the bus", n-entries)
			}
			if diff := cmp.Diff(objects, w.buckets.Objects("parking")); diff != "" {
				t.Errorf("the bucket changed: %s", diff)
			}
		})
	}
}

func TestTheParkedVersionOfAConflictIsPublishedAlone(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"the first is known": 0, "its window has passed": ledger.DefaultWindow + time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			w := newParkedWorld(t)
			first, other, beside, p := w.conflict()
			w.now = w.now.Add(after)
			for i, want := range []intake.Outcome{intake.Accepted, intake.StillPending} {
				if r := w.replay(p, intake.ParkedVersion); r.Outcome != want || r.Done() == (i == 1) ||
					r.Recorded != 1-i || r.Duplicates != i || r.Pending != 1-i || r.Events != 1 {
					t.Errorf("replay %d: %+v", i, r)
				}
			}
			w.now = w.now.Add(time.Second)
			w.redrive()
			w.onBus(first, beside, other)
			if r := w.replay(p, intake.ParkedVersion); r.Outcome != intake.Accepted || r.Duplicates != 1 {
				t.Errorf("once it is published: %+v", r)
			}
			// Its window begins now.
			item, ok := w.known(other)
			if !ok || item.Digest != ledger.DigestOf(other) || item.PublishedAt.IsZero() ||
				item.ExpiresAt.Before(w.now.Add(ledger.DefaultWindow-time.Second)) {
				t.Errorf("the ledger has %+v", item)
			}
			w.now = w.now.Add(ledger.DefaultWindow - time.Minute)
			if r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), other)); r.Duplicates != 1 {
				t.Errorf("the parked version comes again: %+v", r)
			}
			// From now on the first is the one in conflict, and never silent.
			if r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), first)); r.Outcome != intake.Conflict ||
				r.Parked == "" {
				t.Errorf("the first version comes again: %+v", r)
			}
			w.redrive()
			w.onBus(first, beside, other)
		})
	}
}

func TestTheFirstVersionCannotStayIfItIsNotThere(t *testing.T) {
	w := newParkedWorld(t)
	event := paymenttest.Event()
	w.unpublishable(paymenttest.Encode(event))
	event.EventData.Amount = "0.01"
	r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), paymenttest.Encode(event)))
	if r := w.replay(w.parked(r.Parked), intake.FirstVersion); r.Outcome != intake.VersionUnfit {
		t.Errorf("it is parked as well: %+v", r)
	}
}

func TestAParkedVersionWaitsForAFirstThatIsPending(t *testing.T) {
	w := newParkedWorld(t)
	event := paymenttest.Event()
	first := paymenttest.Encode(event)
	event.EventData.Amount = "0.01"
	other := paymenttest.Encode(event)
	w.bus.Reject = func(bus.Entry) error { return errors.New("down") }
	w.deliver(paymenttest.RawDelivery(uuid.New().String(), first))
	p := w.parked(w.deliver(paymenttest.RawDelivery(uuid.New().String(), other)).Parked)
	w.bus.Reject = nil
	if r := w.replay(p, intake.ParkedVersion); r.Outcome != intake.Conflict || r.Err == nil || r.Recorded != 0 {
		t.Errorf("%+v", r)
	}
	if r := w.replay(p, intake.FirstVersion); r.Outcome != intake.StillPending || r.Err == nil {
		t.Errorf("redrive could still park it: %+v", r)
	}
	w.now = w.now.Add(2 * time.Minute)
	w.redrive()
	if r := w.replay(p, intake.FirstVersion); r.Outcome != intake.Accepted {
		t.Errorf("once it is published: %+v", r)
	}
	if r := w.replay(p, intake.ParkedVersion); r.Outcome != intake.Accepted || r.Recorded != 1 {
		t.Errorf("%+v", r)
	}
	w.redrive()
	w.onBus(first, other)
}

func TestOfTwoContentsInOneDeliveryTheFirstIsPublished(t *testing.T) {
	for _, large := range []bool{false, true} {
		w := newParkedWorld(t)
		event := paymenttest.Event()
		if large {
			// A large event is recorded apart from the small ones.
			event.EventData.AmountType = strings.Repeat("x", 3000)
		}
		first := paymenttest.Encode(event)
		event.EventData.Amount, event.EventData.AmountType = "0.01", ""
		second := paymenttest.Encode(event)
		r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), first, second, first, second))
		if r.Outcome != intake.Conflict || r.Conflicts != 1 || r.Recorded != 1 || r.Duplicates != 2 {
			t.Fatalf("%+v", r)
		}
		w.onBus(first)
		if r := w.replay(w.parked(r.Parked), intake.ParkedVersion); r.Outcome != intake.Accepted || r.Recorded != 1 {
			t.Fatalf("%+v", r)
		}
		w.redrive()
		w.onBus(first, second)
	}
}

func TestWhichOfSeveralParkedContentsIsMeantIsNotGuessed(t *testing.T) {
	w := newParkedWorld(t)
	event := paymenttest.Event()
	var contents [][]byte
	for _, amount := range []string{"1.00", "2.00", "3.00"} {
		event.EventData.Amount = payment.Amount(amount)
		contents = append(contents, paymenttest.Encode(event))
	}
	w.deliver(paymenttest.RawDelivery(uuid.New().String(), contents[0]))
	p := w.parked(w.deliver(paymenttest.RawDelivery(uuid.New().String(), contents[1], contents[2])).Parked)
	if len(p.EventIDs) != 2 {
		t.Errorf("parked for %v", p.EventIDs)
	}
	if r := w.replay(p, intake.ParkedVersion); r.Outcome != intake.VersionUnfit {
		t.Errorf("%+v", r)
	}
	if r := w.replay(p, intake.FirstVersion); r.Outcome != intake.Accepted {
		t.Errorf("%+v", r)
	}
	w.redrive()
	w.onBus(contents[0])
}

// What says which events are in conflict is not signed.
func TestOnlyEventsOfThePayloadAreReplayed(t *testing.T) {
	w := newParkedWorld(t)
	first, _, beside, p := w.conflict()
	for name, change := range map[string]func(p *parking.Parked){
		"no events":      func(p *parking.Parked) { p.EventIDs, p.EventDigests = nil, nil },
		"no digests":     func(p *parking.Parked) { p.EventDigests = nil },
		"another digest": func(p *parking.Parked) { p.EventDigests = [][]byte{make([]byte, 32)} },
		"another id":     func(p *parking.Parked) { p.EventIDs = []string{uuid.New().String()} },
	} {
		q := p
		change(&q)
		if r := w.replay(q, intake.ParkedVersion); r.Outcome != intake.Altered {
			t.Errorf("%s: %+v", name, r)
		}
	}
	w.redrive()
	w.onBus(first, beside)
}

func TestAnInvalidDeliveryIsReplayedWhole(t *testing.T) {
	w := newParkedWorld(t)
	first, other, _, p := w.conflict()
	entries := len(w.bus.Entries())
	// Today it is one that an earlier version of the code did not understand.
	one, two := paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event())
	p.Reason, p.EventIDs, p.EventDigests = parking.Invalid, nil, nil
	p.Payload = paymenttest.RawDelivery(uuid.New().String(), one, other, two)
	w.signAgain(&p)
	r := w.replay(p, intake.NoVersion)
	if r.Outcome != intake.Conflict || !r.Done() || r.Recorded != 2 || r.Published != 2 || r.Parked == "" {
		t.Errorf("%+v", r)
	}
	if got := w.details()[entries:]; len(got) != 2 {
		t.Errorf("%d are on the bus", len(got))
	}
	// What is in conflict needs a decision of its own.
	q := w.parked(r.Parked)
	if q.Reason != parking.Conflict || len(q.EventIDs) != 1 || !bytes.Equal(q.Payload, p.Payload) {
		t.Errorf("parked: %s of %v", q.Reason, q.EventIDs)
	}
	if r := w.replay(q, intake.FirstVersion); r.Outcome != intake.Accepted {
		t.Errorf("%+v", r)
	}
	if r := w.replay(p, intake.NoVersion); r.Duplicates != 2 || r.Recorded != 0 {
		t.Errorf("again: %+v", r)
	}
	if w.details()[0] != string(first) || len(w.details()) != entries+2 {
		t.Error("something is on the bus twice")
	}

	objects := len(w.buckets.Objects("parking"))
	p.Payload = []byte("{}")
	w.signAgain(&p)
	if r := w.replay(p, intake.NoVersion); r.Outcome != intake.Invalid || r.Err == nil ||
		len(w.buckets.Objects("parking")) != objects {
		t.Errorf("still invalid: %+v", r)
	}
	if r := w.replay(p, intake.ParkedVersion); r.Outcome != intake.VersionUnfit {
		t.Errorf("there is nothing to decide: %+v", r)
	}
}

// Otherwise the mark of the upload, or of a later run, would hide an event that is marked as
// replayed and on no bus.
func TestAReplayBeforeTheMarkLeavesTheEventOpen(t *testing.T) {
	w := newParkedWorld(t)
	w.now = w.now.Add(123456 * time.Nanosecond) // the ledger has milliseconds
	raw := amount(0, "1000000000000000000000")(0, paymenttest.Encode(paymenttest.Event()))
	marks := errDown
	w.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		update, ok := in.(*dynamodb.ExecuteStatementInput)
		if ok && strings.Contains(*update.Statement, `SET "cause"`) && marks != nil {
			return nil, marks
		}
		return next(ctx, in)
	}
	event, err := payment.DecodeRawEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	name := func() string {
		names, err := w.parking.FindEvent(t.Context(), event.EventID)
		if err != nil || len(names) != 1 {
			t.Fatalf("parked as %q, %v", names, err)
		}
		return names[0]
	}
	if r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), raw)); r.Pending != 1 {
		t.Fatalf("%+v", r)
	}
	first := name()
	if r := w.replay(w.parked(first), intake.NoVersion); r.Outcome != intake.StillPending || r.Done() {
		t.Errorf("before the mark: %+v", r)
	}
	marks = nil
	w.now = w.now.Add(2 * time.Minute)
	if r := w.redrive(); r.Parked != 1 || name() != first {
		t.Errorf("%+v, as %s", r, name())
	}
	if r := w.replay(w.parked(first), intake.NoVersion); r.Outcome != intake.Accepted || r.Recorded != 1 {
		t.Errorf("after it: %+v", r)
	}
	// A mark that comes late, or is tried again, is about the recording that was uploaded.
	p := w.parked(first)
	late := ledger.NewItem(event, p.DeliveryID, p.RecordedAt)
	if err := w.ledger(w.db).MarkParked(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if item, _ := w.known(raw); item.State != ledger.Pending {
		t.Errorf("the replayed event is %+v", item)
	}
}

// A delivery that was not understood can have events that came again and are pending.
func TestAReplayedDeliveryWaitsForItsPendingEvents(t *testing.T) {
	large := paymenttest.Event()
	large.EventData.AmountType = strings.Repeat("x", 3000)
	for name, again := range map[string]payment.Event{"small": paymenttest.Event(), "by claim check": large} {
		w := newParkedWorld(t)
		raw, beside := paymenttest.Encode(again), paymenttest.Encode(paymenttest.Event())
		_, _, _, p := w.conflict()
		p.Reason, p.EventIDs, p.EventDigests = parking.Invalid, nil, nil
		p.Payload = paymenttest.RawDelivery(uuid.New().String(), beside, raw)
		w.signAgain(&p)
		w.bus.Reject = func(bus.Entry) error { return errors.New("down") }
		if r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), raw)); r.Outcome != intake.Accepted {
			t.Fatalf("%+v", r)
		}
		if r := w.deliver(p.Payload); r.Outcome != intake.Accepted || r.PendingDuplicates != 1 {
			t.Errorf("%s: a webhook with a pending event: %+v", name, r)
		}
		w.bus.Reject = nil
		if r := w.replay(p, intake.NoVersion); r.Outcome != intake.StillPending || r.Done() || r.Err == nil {
			t.Errorf("%s: %+v", name, r)
		}
		w.now = w.now.Add(2 * time.Minute)
		w.redrive()
		if r := w.replay(p, intake.NoVersion); r.Outcome != intake.Accepted || !r.Done() || r.Duplicates != 2 {
			t.Errorf("%s: once all are published: %+v", name, r)
		}
	}
}

func TestAnEventWithOtherContentInTheLedgerIsNotReplayedSilently(t *testing.T) {
	w := newParkedWorld(t)
	event := paymenttest.Event()
	raw := paymenttest.Encode(event)
	p := w.unpublishable(raw)
	w.now = w.now.Add(ledger.DefaultWindow + time.Hour)
	event.EventData.Amount = "0.01"
	other := paymenttest.Encode(event)
	if r := w.deliver(paymenttest.RawDelivery(uuid.New().String(), other)); r.Recorded != 1 {
		t.Fatalf("%+v", r)
	}
	if r := w.replay(p, intake.NoVersion); r.Outcome != intake.Conflict || r.Done() || r.Conflicts != 1 ||
		r.Recorded+r.Duplicates != 0 {
		t.Errorf("%+v", r)
	}
	w.redrive()
	w.onBus(other)
	if r := w.replay(p, intake.ParkedVersion); r.Outcome != intake.Accepted || r.Recorded != 1 {
		t.Errorf("%+v", r)
	}
	w.redrive()
	w.onBus(other, raw)
}
