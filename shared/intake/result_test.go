package intake_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
)

// onTheirOwn are the fields of a result that are compared on their own.
var onTheirOwn = cmpopts.IgnoreFields(intake.Result{}, "Steps", "Err", "PublishErr", "By")

// A result says what became of every event.
func TestTheResultOfADelivery(t *testing.T) {
	id := uuid.New().String()
	event := paymenttest.Event()
	known := paymenttest.Encode(event)
	event.EventData.Amount = "0.01"
	other := paymenttest.Encode(event)
	one, two := paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event())
	large := largeEvent()
	wrong := amount(0, "99999999999999999999")(0, paymenttest.Encode(paymenttest.Event()))
	for name, test := range map[string]struct {
		events                           [][]byte
		table, bus, largeEvents, parking hook
		want                             intake.Result
		err                              string
	}{
		"new": {events: [][]byte{one, two}, want: intake.Result{Outcome: intake.Accepted,
			Counts:   intake.Counts{Events: 2, Recorded: 2, Published: 2},
			EventIDs: intake.EventIDs{intake.Published: idsOf(t, one, two)}}},
		"one of each": {events: [][]byte{one, one, known, large, wrong}, want: intake.Result{Outcome: intake.Accepted,
			Counts: intake.Counts{Events: 5, Recorded: 3, Duplicates: 2, Large: 1, Published: 2, Unpublishable: 1},
			EventIDs: intake.EventIDs{intake.Published: idsOf(t, one, large), intake.Duplicate: idsOf(t, one, known),
				intake.Unpublishable: idsOf(t, wrong)}}},
		"a conflict": {events: [][]byte{one, other}, want: intake.Result{Outcome: intake.Conflict,
			Counts:   intake.Counts{Events: 2, Recorded: 1, Conflicts: 1, Published: 1},
			EventIDs: intake.EventIDs{intake.Published: idsOf(t, one), intake.Conflicting: idsOf(t, other)},
			ParkedAs: intake.ParkedAs{Name: "conflict/"}},
			err: "intake: an eventId was seen before with other content"},
		"a conflict that can't be parked": {events: [][]byte{one, other}, parking: broken,
			want: intake.Result{Outcome: intake.ParkingFailed,
				Counts:   intake.Counts{Events: 2, Recorded: 1, Conflicts: 1, Published: 1},
				EventIDs: intake.EventIDs{intake.Published: idsOf(t, one), intake.Conflicting: idsOf(t, other)}},
			err: "intake: not parked: proof: put: it is down"},
		"a rejected event that can't be parked": {events: [][]byte{one, wrong}, table: fails("parked"),
			want: intake.Result{Outcome: intake.Accepted,
				Counts:   intake.Counts{Events: 2, Recorded: 2, Published: 1, Pending: 1},
				EventIDs: intake.EventIDs{intake.Published: idsOf(t, one), intake.Pending: idsOf(t, wrong)}}},
		"the bus is down": {events: [][]byte{one, two}, bus: broken, want: intake.Result{Outcome: intake.Accepted,
			Counts:   intake.Counts{Events: 2, Recorded: 2, Pending: 2},
			EventIDs: intake.EventIDs{intake.Pending: idsOf(t, one, two)}}},
		"no mark": {events: [][]byte{one, two}, table: fails("published"), want: intake.Result{
			Outcome:  intake.Accepted,
			Counts:   intake.Counts{Events: 2, Recorded: 2, Unmarked: 2},
			EventIDs: intake.EventIDs{intake.Published: idsOf(t, one, two)}}},
		"one is not recorded": {events: [][]byte{one, two}, table: fails("insert " + idOf(t, two)),
			want: intake.Result{Outcome: intake.LedgerUnavailable,
				Counts:   intake.Counts{Events: 2, Recorded: 1, Unrecorded: 1, Published: 1},
				EventIDs: intake.EventIDs{intake.Published: idsOf(t, one), intake.Unrecorded: idsOf(t, two)}},
			err: "intake: not every event could be recorded: ledger: record " + idOf(t, two) + ": it is down"},
		"one is not recorded, another in conflict": {events: [][]byte{other, two},
			table: fails("insert " + idOf(t, two)), want: intake.Result{Outcome: intake.LedgerUnavailable,
				Counts:   intake.Counts{Events: 2, Unrecorded: 1, Conflicts: 1},
				EventIDs: intake.EventIDs{intake.Conflicting: idsOf(t, other), intake.Unrecorded: idsOf(t, two)},
				ParkedAs: intake.ParkedAs{Name: "conflict/"}},
			err: "intake: not every event could be recorded: ledger: record " + idOf(t, two) + ": it is down"},
		"a large one is not stored": {events: [][]byte{one, large}, largeEvents: broken,
			want: intake.Result{Outcome: intake.LedgerUnavailable,
				Counts:   intake.Counts{Events: 2, Recorded: 1, Unrecorded: 1, Published: 1},
				EventIDs: intake.EventIDs{intake.Published: idsOf(t, one), intake.Unrecorded: idsOf(t, large)}},
			err: "intake: not every event could be recorded: claim check: put "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if _, r := w.send(known); r.Published != 1 {
				t.Fatalf("%+v", r)
			}
			w.table.Fails, w.bus.Fails = test.table, test.bus
			w.largeEvents.Fails, w.parking.Fails = test.largeEvents, test.parking
			got := w.deliver(paymenttest.RawDelivery(id, test.events...))
			if (got.Err == nil) != (test.err == "") || got.Err != nil && !strings.HasPrefix(got.Err.Error(), test.err) {
				t.Errorf("the error is %v", got.Err)
			}
			if got.By.KeyID != serviceKey().ID || got.By.Key.Key == nil {
				t.Errorf("authenticated by %+v", got.By)
			}
			_, ok := errors.AsType[*bus.DetailError](got.PublishErr)
			if ok != bytes.Contains(bytes.Join(test.events, nil), wrong) {
				t.Errorf("not published because of %v", got.PublishErr)
			}
			test.want.DeliveryID = id
			if strings.Contains(got.ParkedAs.Name, test.want.ParkedAs.Name) == (got.ParkedAs.Name != "") {
				got.ParkedAs.Name = test.want.ParkedAs.Name
			}
			if diff := cmp.Diff(test.want, got, onTheirOwn); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A log line has ten eventIds of each result.
func TestAResultHasSomeOfManyEventIDs(t *testing.T) {
	for n, want := range map[int]int{10: 10, 11: 10} {
		var events [][]byte
		for range n {
			events = append(events, paymenttest.Encode(paymenttest.Event()))
		}
		w := newWorld(t)
		for _, result := range []intake.EventResult{intake.Published, intake.Duplicate} {
			_, r := w.send(events...)
			if diff := cmp.Diff(intake.EventIDs{result: idsOf(t, events[:want]...)}, r.EventIDs); diff != "" ||
				r.EventIDs.Len() != want {
				t.Errorf("%d %s: %d eventIds: %s", n, result, r.EventIDs.Len(), diff)
			}
		}
	}
}

// An invalid delivery is parked with what could be read of it, once.
func TestTheResultOfAnInvalidDelivery(t *testing.T) {
	w := newWorld(t)
	id, eventID := uuid.New().String(), uuid.New().String()
	payload := []byte(`{"deliveryId":"` + id + `","events":[{"eventId":"` + eventID + `"}]}`)
	for _, before := range []bool{false, true} {
		got := w.deliver(payload)
		p := w.parked(got.ParkedAs.Name)
		if got.Outcome != intake.Invalid || got.DeliveryID != id || got.ParkedAs.Before != before ||
			p.DeliveryID != id ||
			p.Cause != got.Err.Error() || !slices.Equal(p.EventIDs, []string{eventID}) {
			t.Errorf("%+v, parked %+v", got, p)
		}
	}
	w.parking.Fails = broken
	if got := w.deliver(payload); got.Outcome != intake.ParkingFailed || !errors.Is(got.Err, errDown) {
		t.Errorf("%+v", got)
	}
}

func TestAnEventThatEventBridgeRejectsIsParkedWithItsDelivery(t *testing.T) {
	w := newWorld(t)
	longest := strings.Repeat("n", 256-len("/eventData/"))
	for name, pointer := range map[string]string{"n": ", at /eventData/n", longest: ", at /eventData/" + longest,
		longest + "n": ""} {
		raw := []byte(strings.Replace(string(paymenttest.Encode(paymenttest.Event())), `"eventData":{`,
			`"eventData":{"`+name+`":99999999999999999999,`, 1))
		id, r := w.send(raw)
		if r.Unpublishable != 1 {
			t.Fatalf("%+v", r)
		}
		want := "event.eventData.*: is an integer outside 64 bits" + pointer
		if i := w.item(raw); i.State != ledger.Parked || i.Cause != "detail" || i.Problem != want ||
			i.DeliveryID != id || string(i.Detail) != string(raw) || !i.RecordedAt.Equal(w.now) {
			t.Errorf("parked %+v, want %s", i, want)
		}
	}
}

func TestTheTimeOfEachStep(t *testing.T) {
	w := newWorld(t)
	const µs = time.Microsecond
	took := map[string]time.Duration{"insert": 2499 * µs, "bus": 2500 * µs, "published": 4 * time.Second}
	takes := func(_ context.Context, call, key string) error {
		if key == "" {
			w.now = w.now.Add(took[call])
		}
		return nil
	}
	w.table.Fails, w.bus.Fails = takes, takes
	w.mechanisms.Signature.Keys = &keyCache{key: serviceKey,
		before: func(context.Context) { w.now = w.now.Add(time.Second) }}
	payload := paymenttest.Delivery(paymenttest.Event())
	want := intake.Steps{Authenticate: 1000, Record: 2, Publish: 3, Mark: 4000}
	if diff := cmp.Diff(want, w.deliver(payload).Steps); diff != "" {
		t.Error(diff)
	}
	stranger := serviceKey()
	stranger.ID = uuid.New().String()
	r := w.receive(w.ctx(), signedAt(t, stranger, payload, w.now))
	if diff := cmp.Diff(intake.Steps{Authenticate: 1000}, r.Steps); diff != "" || r.Err == nil {
		t.Errorf("%v %s", r.Err, diff)
	}
}

// The options of a pipeline have the documented effects.
func TestTheTimesOfAnInvocation(t *testing.T) {
	serviceKey()
	const ms, s = time.Millisecond, time.Second
	for name, test := range map[string]struct {
		grace    time.Duration // 0: that of a stack
		deadline time.Duration // of the invocation; 0 for none
		ledger   time.Duration // what is left for the key, and for a call of the ledger
		bus      time.Duration // for all calls of the bus
		held     time.Duration // until another invocation may publish the event
		lease    time.Duration // that the lease of redrive takes
		redrive  time.Duration // for the calls of the bus of a run of redrive
	}{
		"no deadline":     {ledger: 29 * s, bus: 5 * s, held: time.Minute, redrive: 3750 * ms},
		"another grace":   {grace: 60 * s, ledger: 29 * s, bus: 5 * s, held: 90 * s, redrive: 3750 * ms},
		"a deadline":      {deadline: 10 * s, ledger: 9 * s, bus: 5 * s, held: 40 * s, redrive: 2250 * ms},
		"a near deadline": {deadline: 2 * s, ledger: 1500 * ms, bus: 1125 * ms, held: 32 * s, redrive: 375 * ms},
		"a slow lease":    {deadline: 10 * s, ledger: 9 * s, bus: 5 * s, held: 40 * s, lease: 8 * s, redrive: 750 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newVirtualWorld(t)
			w.opts.Grace = max(grace, test.grace)
			var forKey, forLedger, forBus time.Duration
			left := func(ctx context.Context) time.Duration {
				end, _ := ctx.Deadline()
				return time.Until(end)
			}
			w.mechanisms.Signature.Keys = &keyCache{key: serviceKey,
				before: func(ctx context.Context) { forKey = left(ctx) }}
			w.table.Fails = func(ctx context.Context, call, _ string) error {
				switch call {
				case "insert":
					forLedger = left(ctx)
				case "lease":
					time.Sleep(test.lease / 2) // once for the call, and once for the item
				}
				return nil
			}
			w.bus.Fails = func(ctx context.Context, _, _ string) error {
				forBus = left(ctx)
				return errDown
			}
			within := func() context.Context {
				if test.deadline == 0 {
					return t.Context()
				}
				return w.within(test.deadline)
			}
			raw := paymenttest.Encode(paymenttest.Event())
			start := time.Now().Truncate(ms)
			w.receive(within(), w.signed(paymenttest.RawDelivery(uuid.New().String(), raw)))
			if held := w.item(raw).LeasedUntil.Sub(start); forKey != test.ledger || forLedger != test.ledger ||
				forBus != test.bus || held != test.held {
				t.Errorf("%s: %s for the key, %s for the ledger, %s for the bus, held for %s", name, forKey, forLedger,
					forBus, held)
			}
			time.Sleep(time.Hour)
			if r := intake.NewRedriver(w.pipeline(), 20).Run(within()); r.Failed != 1 || forBus != test.redrive {
				t.Errorf("%s: %s for the bus of redrive: %+v", name, forBus, r)
			}
		})
	}
}

// An event becomes a claim check if it has more bytes than the limit, or does not fit on the bus.
func TestEventsAboveTheLimitAreClaimChecks(t *testing.T) {
	for name, test := range map[string]struct {
		more, maxBytes int
		large          int
	}{
		"at the limit": {0, 1 << 20, 0}, "above it": {1, 1 << 20, 1}, "not for the bus": {0, 1500, 1},
	} {
		w := newWorld(t)
		raw := string(paymenttest.Encode(paymenttest.Event()))
		raw = raw[:len(raw)-1] + strings.Repeat(" ", w.opts.LargeEventBytes-len(raw)+test.more) + "}"
		w.maxEntry = test.maxBytes
		if _, r := w.send([]byte(raw)); r.Recorded != 1 || r.Large != test.large {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestAReceiverNeedsAMechanism(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a receiver without authentication")
		}
	}()
	intake.NewReceiver(nil, intake.Mechanisms{})
}
