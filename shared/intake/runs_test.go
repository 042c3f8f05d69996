package intake_test

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	adapter "payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// runWith makes one run of redrive that has a time.
func (s *stack) runWith(t *testing.T, api adapter.LedgerAPI, timeout time.Duration) intake.Redriven {
	t.Helper()
	return s.redriver(api).Run(deadlined{t.Context(), s.now.Add(timeout)})
}

// itemOf returns the item of an event.
func (s *stack) itemOf(t *testing.T, id string) ledger.Item {
	t.Helper()
	item, ok, err := ledger.Find(t.Context(), adapter.NewLedgerReader(s.db, "ledger"), id, false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return item
}

// An event that fails waits for a minute, and twice as long each time, up to an hour. It is
// not due before its lease ends. After the last attempt it is parked.
func TestPausesOfAnEventThatFails(t *testing.T) {
	down := func(bus.Entry) error { return errDown }
	s := newStack()
	id := s.pend(t, 1)[0]
	s.bus.Reject = down
	minutes := []int{1, 2, 4, 8, 16, 32, 60, 60, 60}
	run := func() intake.Redriven {
		r := intake.NewRedriver(s.pipeline(s.db, intake.Options{Now: s.clock}), len(minutes)+1).Run(
			deadlined{t.Context(), s.now.Add(10 * time.Second)})
		if r.Failed != 1 || r.Err != nil {
			t.Fatalf("%+v", r)
		}
		return r
	}
	for attempt, minutes := range minutes {
		if r := run(); r.Parked != 0 {
			t.Errorf("parked after %d attempts", attempt+1)
		}
		item := s.itemOf(t, id)
		if got := item.Due.Sub(s.now); got != time.Duration(minutes)*time.Minute || item.Attempts != attempt+1 {
			t.Errorf("after %d attempts (%d): %s, want %d minutes", attempt+1, item.Attempts, got, minutes)
		}
		s.now = item.Due
	}
	if r := run(); r.Parked != 1 || s.pending() != 0 {
		t.Errorf("it is not parked: %+v", r)
	}
	list, err := s.parking.FindEvent(t.Context(), id)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if p, err := s.parking.Get(t.Context(), list[0]); err != nil || p.Reason != parking.Unpublishable ||
		p.Attempts != len(minutes)+1 {
		t.Errorf("%+v, %v", p, err)
	}
	s = newStack()
	id = s.pend(t, 1)[0]
	s.bus.Reject = down
	if r := s.runWith(t, s.db, 10*time.Minute); r.Failed != 1 || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	if got := s.itemOf(t, id).Due.Sub(s.now); got != 10*time.Minute+30*time.Second {
		t.Errorf("within the lease: %s", got)
	}
}

// Each error counts, and the first one is reported.
func TestTheErrorsOfARun(t *testing.T) {
	for name, test := range map[string]struct {
		fail   failing
		leased int
		errors int
		err    string
	}{
		"what waits can't be read":  {failing{query: "#due > :at"}, 1, ledger.Shards, "ledger: shard "},
		"what is due can't be read": {failing{query: "#due <= :at"}, 0, ledger.Shards, "ledger: shard "},
		"neither can be read":       {failing{query: "#due"}, 0, 2 * ledger.Shards, "ledger: shard "},
		"nothing can be leased":     {failing{leases: true}, 0, 1, "ledger: lease "},
	} {
		s := newStack()
		s.pend(t, 1)
		s.db.Hook = test.fail.hook
		r := s.runWith(t, s.db, time.Minute)
		if r.Errors != test.errors || r.Leased != test.leased || r.Published != test.leased || r.Failed != 0 ||
			r.Unread != (test.fail.query != "") || !errors.Is(r.Err, errDown) ||
			!strings.Contains(r.Err.Error(), test.err) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// What is on the bus without a mark is published again.
	s := newStack()
	id := s.pend(t, 1)[0]
	s.db.Hook = failing{marks: true}.hook
	if r := s.runWith(t, s.db, time.Minute); r.Unmarked != 1 || r.Published+r.Failed+r.Errors != 0 || r.Err != nil {
		t.Errorf("not marked: %+v", r)
	}
	s.db.Hook, s.now = nil, s.now.Add(3*time.Minute)
	if r := s.run(t); r.Published != 1 || s.published()[id] != 2 {
		t.Errorf("published %d times: %+v", s.published()[id], r)
	}
}

// A run without time reads what waits, for the metric, and no more.
func TestARunWithoutTimeReadsNothingThatIsDue(t *testing.T) {
	s := newStack()
	s.pend(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := s.redriver(s.db).Run(ctx)
	if !r.Left || r.Errors != ledger.Shards || r.Found+r.Leased != 0 {
		t.Errorf("%+v", r)
	}
}

// replaced writes the item of an event with other attributes; nil removes one.
func (s *stack) replaced(t *testing.T, id string, change awstest.Item) {
	t.Helper()
	item := maps.Clone(s.db.Items("ledger")[id])
	for name, value := range change {
		if item[name] = value; value == nil {
			delete(item, name)
		}
	}
	if _, err := s.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("ledger"),
		Item: item}); err != nil {
		t.Fatal(err)
	}
}

// An item that is not what was recorded never reaches the bus, and takes no other with it.
func TestACorruptItemIsNotPublished(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 3)
	other := paymenttest.Encode(paymenttest.Event())
	s.replaced(t, ids[1], awstest.Item{"event": &types.AttributeValueMemberB{Value: other}})
	s.bus.Reject = func(e bus.Entry) error {
		if string(e.Detail) == string(other) {
			t.Error("the corrupt item is sent")
		}
		return nil
	}
	r := s.runWith(t, s.db, time.Minute)
	if r.Found != 3 || r.Leased != 3 || r.Published != 2 || r.Failed != 1 || r.Errors != 1 ||
		!errors.Is(r.Err, ledger.ErrCorrupt) {
		t.Errorf("%+v", r)
	}
	if diff := cmp.Diff(map[string]int{ids[0]: 1, ids[2]: 1}, s.published()); diff != "" {
		t.Error(diff)
	}
	// It is parked like one that fails again and again.
	s.now = s.now.Add(time.Hour)
	r = intake.NewRedriver(s.pipeline(s.db, intake.Options{Now: s.clock}), 2).Run(deadlined{t.Context(),
		s.now.Add(time.Minute)})
	if r.Parked != 1 || r.Failed != 1 || len(s.bus.Entries()) != 2 {
		t.Errorf("%+v", r)
	}
}

// An item that cannot be decoded is reported. It is parked like a corrupt one, unless its
// event can be published.
func TestAnItemThatCannotBeDecodedStopsNoOther(t *testing.T) {
	for attribute, failed := range map[string]int{names.LedgerSize: 0, names.LedgerRecordedAt: 1, "deliveryId": 1} {
		s := newStack()
		var ids []string
		for s.db.Indexed("ledger", "pending/1") < 2 {
			ids = append(ids, s.pend(t, 1)...)
		}
		bad := ids[len(ids)-1]
		s.replaced(t, bad, awstest.Item{attribute: &types.AttributeValueMemberBOOL{Value: true}})
		s.now = s.now.Add(time.Minute)
		if r := s.runWith(t, s.db, time.Minute); r.Found != len(ids) || r.Published != len(ids)-failed ||
			r.Failed != failed || r.Unread || r.Err == nil || r.Oldest > time.Hour ||
			attribute != "deliveryId" && r.Err.Error() != "intake: pending event "+bad+": can't decode "+attribute {
			t.Errorf("%s: %+v", attribute, r)
		}
		s.now = s.now.Add(time.Hour)
		r := intake.NewRedriver(s.pipeline(s.db, intake.Options{Now: s.clock}), 2).Run(deadlined{t.Context(),
			s.now.Add(time.Minute)})
		if r.Parked != failed || s.pending() != 0 {
			t.Errorf("%s: %+v, %d are pending", attribute, r, s.pending())
		}
	}
}

// A shard that has more pages than the others is read to its end.
func TestAFullShardIsReadToItsEnd(t *testing.T) {
	s := newStack()
	s.change = func(_ int, raw []byte) []byte {
		event, err := payment.DecodeRawEvent(raw)
		if err != nil {
			t.Fatal(err)
		}
		for {
			id := uuid.New().String()
			h := fnv.New32a()
			_, _ = h.Write([]byte(id))
			if h.Sum32()%ledger.Shards == 7 {
				return []byte(strings.Replace(string(raw), event.EventID, id, 1))
			}
		}
	}
	s.pend(t, 80)
	if r := s.runWith(t, s.db, time.Minute); r.Found != 80 || r.Published != 80 || r.Left {
		t.Errorf("%+v", r)
	}
}

// A replay says what became of every event.
func TestTheResultOfAReplay(t *testing.T) {
	w := newParkedWorld(t)
	_, other, _, conflict := w.conflict()
	w.redrive()
	event := w.unpublishable(paymenttest.Encode(paymenttest.Event()))
	large := paymenttest.Event()
	large.EventData.AmountType = strings.Repeat("x", 3000)
	claimed := w.unpublishable(paymenttest.Encode(large))
	expect := func(name string, got, want intake.Result, err string) {
		t.Helper()
		if (got.Err == nil) != (err == "") || got.Err != nil && !strings.HasPrefix(got.Err.Error(), err) {
			t.Errorf("%s: the error is %v", name, got.Err)
		}
		if diff := cmp.Diff(want, got, onTheirOwn); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	id := conflict.DeliveryID
	for _, version := range []intake.Version{intake.NoVersion, "second", "PARKED"} {
		expect("no version", w.replay(conflict, version), intake.Result{Outcome: intake.VersionMissing}, "")
	}
	expect("the first stays", w.replay(conflict, intake.FirstVersion), intake.Result{Outcome: intake.Accepted,
		DeliveryID: id, Events: 1}, "")
	w.db.Hook = failing{known: true, put: idsOf(t, other)[0]}.hook
	expect("the first can't be read", w.replay(conflict, intake.FirstVersion), intake.Result{
		Outcome: intake.LedgerUnavailable, DeliveryID: id, Events: 1, Unrecorded: 1},
		"intake: not every event could be recorded: DynamoDB BatchGetItem")
	expect("the parked one can't be written", w.replay(conflict, intake.ParkedVersion), intake.Result{
		Outcome: intake.LedgerUnavailable, DeliveryID: id, Events: 1, Unrecorded: 1},
		"intake: not every event could be recorded: ledger: ")
	w.db.Hook = nil
	expect("the parked one", w.replay(conflict, intake.ParkedVersion), intake.Result{Outcome: intake.Accepted,
		DeliveryID: id, Events: 1, Recorded: 1, Pending: 1}, "")
	if item := w.itemOf(t, idsOf(t, other)[0]); item.Claimed {
		t.Errorf("a small event is a claim check: %+v", item)
	}
	expect("the first is replaced", w.replay(conflict, intake.FirstVersion), intake.Result{
		Outcome: intake.VersionUnfit, DeliveryID: id, Events: 1},
		"intake: that version is not available: the parked version of "+idsOf(t, other)[0])

	altered := conflict
	altered.EventDigests = nil
	expect("altered", w.replay(altered, intake.FirstVersion), intake.Result{Outcome: intake.Altered, DeliveryID: id},
		"evidence: what is stored is not what was accepted: it is not stored which events are in conflict")
	altered = conflict
	altered.JWK = []byte("{}")
	expect("no key", w.replay(altered, intake.FirstVersion), intake.Result{Outcome: intake.Altered},
		"evidence: what is stored is not what was accepted: keys: ")

	for name, p := range map[string]parking.Parked{"an event": event, "a claim check": claimed} {
		want := intake.Result{Outcome: intake.Altered, DeliveryID: p.DeliveryID, Events: 1}
		altered := p
		altered.Event = []byte("x")
		expect(name+" that is altered", w.replay(altered, intake.NoVersion), want,
			"evidence: what is stored is not what was accepted: the stored event is not")
		if !p.Claimed {
			altered.Event = bytes.Replace(p.Event, []byte("PAYMENT"), []byte("PAYMENt"), 1)
			expect(name+" with other content", w.replay(altered, intake.NoVersion), want,
				"evidence: what is stored is not what was accepted: the stored event is not")
		}
		if p.Claimed {
			w.buckets.Fails = func(string, string) error { return errors.New("S3 is down") }
			expect(name+" that can't be looked up", w.replay(p, intake.NoVersion), intake.Result{
				Outcome: intake.LedgerUnavailable, DeliveryID: p.DeliveryID, Events: 1},
				"intake: not every event could be recorded: claimcheck: list: S3 ListObjectsV2: no answer")
			w.buckets.Fails = nil
			expired := p
			expired.Event = bytes.Replace(p.Event, []byte(`"key":"events/`), []byte(`"key":"event`), 1)
			expect(name+" that is gone", w.replay(expired, intake.NoVersion), intake.Result{Outcome: intake.Gone,
				DeliveryID: p.DeliveryID, Events: 1}, "claimcheck: the event is not in the bucket")
		}
		altered = p
		altered.Digest = nil
		expect(name+" without its digest", w.replay(altered, intake.NoVersion), want,
			"evidence: what is stored is not what was accepted: the stored event is not")
		want = intake.Result{Outcome: intake.Accepted, DeliveryID: p.DeliveryID,
			Events: 1, Recorded: 1, Pending: 1}
		expect(name, w.replay(p, intake.NoVersion), want, "")
		if item := w.itemOf(t, p.EventIDs[0]); item.State != ledger.Pending || item.Claimed != p.Claimed {
			t.Errorf("%s: %+v", name, item)
		}
	}
}

// What the ledger has of large events is read for at most half of the time that is left.
func TestReadingTheLedgerTakesHalfOfTheTime(t *testing.T) {
	serviceKey()
	synctest.Test(t, func(t *testing.T) {
		w := newParkedWorld(t)
		w.now = time.Now()
		w.opts.Now = time.Now
		w.db.Unprocessed = func(string) bool { return true }
		delivery := w.signed(paymenttest.RawDelivery(uuid.New().String(), large(2)...))
		start := time.Now()
		r := intake.NewReceiver(w.pipeline(w.db, w.opts), w.mechanisms).Receive(t.Context(), delivery)
		if took := time.Since(start); took != 14500*time.Millisecond || r.Recorded != 2 {
			t.Errorf("after %s: %+v", took, r)
		}
	})
}

// A large event in conflict is stored before it is written, and its claim check is published.
func TestALargeEventIsReplayedByItsClaimCheck(t *testing.T) {
	w := newParkedWorld(t)
	event := paymenttest.Event()
	w.deliver(paymenttest.RawDelivery(uuid.New().String(), paymenttest.Encode(event)))
	event.EventData.AmountType = strings.Repeat("x", 3000)
	p := w.parked(w.deliver(paymenttest.RawDelivery(uuid.New().String(), paymenttest.Encode(event))).Parked)
	w.buckets.Fails = func(string, string) error { return errDown }
	got := w.replay(p, intake.ParkedVersion)
	if diff := cmp.Diff(intake.Result{Outcome: intake.LedgerUnavailable, DeliveryID: p.DeliveryID,
		Events: 1, Unrecorded: 1}, got, onTheirOwn); diff != "" || !errors.Is(got.Err, errDown) ||
		!strings.HasPrefix(got.Err.Error(), "intake: not every event could be recorded: ") {
		t.Errorf("%v %s", got.Err, diff)
	}
	w.buckets.Fails = nil
	before := len(w.buckets.Objects("claims"))
	if got := w.replay(p, intake.ParkedVersion); got.Recorded != 1 || len(w.buckets.Objects("claims")) != before+1 {
		t.Errorf("%+v, %d objects", got, len(w.buckets.Objects("claims")))
	}
	if item := w.itemOf(t, p.EventIDs[0]); !item.Claimed {
		t.Errorf("%+v", item)
	}
}
