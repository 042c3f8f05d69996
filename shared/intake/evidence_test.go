package intake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/shared/awstest"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/evidence"
	"payhook.example/shared/intake"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// newEvidenceWorld returns a world that stores evidence in a stream.
func newEvidenceWorld(t *testing.T) (*parkedWorld, *awstest.Firehose) {
	w, f := newParkedWorld(t), &awstest.Firehose{Stream: "evidence"}
	w.opts.Evidence = evidence.NewStream(f, "evidence", "v1")
	return w, f
}

// stored returns the complete records that a stream has, which all verify.
func stored(t *testing.T, f *awstest.Firehose) (all []evidence.Record) {
	t.Helper()
	var j evidence.Joiner
	for _, data := range f.Records() {
		for line := range bytes.Lines(data) {
			joined, err := j.Join(line)
			if err != nil {
				t.Fatal(err)
			}
			if joined == nil {
				continue
			}
			r, err := evidence.Decode(joined)
			if err == nil {
				err = r.Verify()
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	return all
}

// A delivery is delivered, something fails, and it is repeated until it is accepted.
func TestARepeatedDeliveryIsRecordedAgainOnlyIfTheRecordMayBeMissing(t *testing.T) {
	mark := func(ctx context.Context, in any, next awstest.Next) (any, error) {
		batch, ok := in.(*dynamodb.BatchExecuteStatementInput)
		if _, one := in.(*dynamodb.UpdateItemInput); one ||
			ok && strings.HasPrefix(*batch.Statements[0].Statement, "UPDATE") {
			return nil, errDown
		}
		return next(ctx, in)
	}
	for name, test := range map[string]struct {
		fail    func(w *parkedWorld, f *awstest.Firehose)
		between func(w *parkedWorld)
		first   intake.Outcome
		records []int // after the first delivery and after each repeated one
	}{
		"nothing fails": {first: intake.Accepted, records: []int{1, 1, 1}},
		"Firehose is down": {first: intake.EvidenceUnavailable, records: []int{0, 1, 1},
			fail: func(_ *parkedWorld, f *awstest.Firehose) {
				f.Hook = func(context.Context, any, awstest.Next) (any, error) { return nil, errDown }
			}},
		"its answer is lost": {first: intake.EvidenceUnavailable, records: []int{8, 9, 9},
			fail: func(_ *parkedWorld, f *awstest.Firehose) {
				f.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
					_, _ = next(ctx, in)
					return nil, errDown
				}
			}},
		"it does not take the record": {first: intake.EvidenceUnavailable, records: []int{0, 1, 1},
			fail: func(_ *parkedWorld, f *awstest.Firehose) {
				f.Fails = func([]byte) bool { return true }
			}},
		"the mark fails": {first: intake.Accepted, records: []int{1, 2, 2},
			fail: func(w *parkedWorld, _ *awstest.Firehose) { w.db.Hook = mark }},
		"the bus is down": {first: intake.Accepted, records: []int{1, 2, 2},
			fail: func(w *parkedWorld, _ *awstest.Firehose) {
				w.bus.Answer = func([]eventbridgetypes.PutEventsRequestEntry) (map[int]string, error) {
					return nil, errDown
				}
			}},
		"redrive publishes it": {first: intake.Accepted, records: []int{1, 2, 2},
			fail: func(w *parkedWorld, _ *awstest.Firehose) { w.db.Hook = mark },
			between: func(w *parkedWorld) {
				w.now = w.now.Add(5 * time.Minute)
				if r := w.run(w.t); r.Published == 0 {
					w.t.Errorf("%+v", r)
				}
			}},
		"the window passes": {first: intake.Accepted, records: []int{1, 2, 2},
			between: func(w *parkedWorld) { w.now = w.now.Add(31 * 24 * time.Hour) }},
	} {
		for _, events := range [][][]byte{small(1), small(2), large(1), slices.Concat(small(1), large(1), small(1))} {
			t.Run(fmt.Sprintf("%s, %d events", name, len(events)), func(t *testing.T) {
				w, f := newEvidenceWorld(t)
				payload := paymenttest.RawDelivery("0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", events...)
				if test.fail != nil {
					test.fail(w, f)
				}
				want := test.first
				for i, n := range test.records {
					if r := w.deliver(payload); r.Outcome != want {
						t.Fatalf("delivery %d: %+v", i, r)
					}
					got := stored(t, f)
					if len(got) != n {
						t.Errorf("after delivery %d: %d records", i, len(got))
					}
					w.db.Hook, f.Hook, f.Fails, w.bus.Answer, want = nil, nil, nil, nil, intake.Accepted
					if i == 0 && test.between != nil {
						test.between(w)
					}
				}
				for _, r := range stored(t, f) {
					if !bytes.Equal(r.Payload, payload) || r.FunctionVersion != "v1" {
						t.Errorf("%+v", r)
					}
				}
			})
		}
	}
}

// The note in the ledger is about one delivery.
func TestEachDeliveryOfAnEventIsRecorded(t *testing.T) {
	w, f := newEvidenceWorld(t)
	event := paymenttest.Event()
	w.deliver(paymenttest.Delivery(event))
	w.deliver(paymenttest.Delivery(event)) // has another deliveryId
	if n := len(stored(t, f)); n != 2 {
		t.Errorf("%d records", n)
	}
}

func TestWhatIsNotAcceptedIsNotRecorded(t *testing.T) {
	w, f := newEvidenceWorld(t)
	if r := w.deliver([]byte(`{}`)); r.Outcome != intake.Invalid {
		t.Errorf("%+v", r)
	}
	event := paymenttest.Event()
	w.db.Hook = func(context.Context, any, awstest.Next) (any, error) { return nil, errDown }
	if r := w.deliver(paymenttest.Delivery(event)); r.Outcome != intake.LedgerUnavailable {
		t.Errorf("%+v", r)
	}
	w.db.Hook = nil
	d := w.signed(paymenttest.Delivery(event))
	d.Payload = paymenttest.Delivery(event)
	r := intake.NewReceiver(w.pipeline(w.db, w.opts), w.mechanisms).Receive(w.ctx(), d)
	if r.Outcome != intake.SignatureMismatch || f.Calls() != 0 {
		t.Errorf("%+v, %d calls", r, f.Calls())
	}
}

// A delivery with a conflict is accepted, so it is recorded, each time.
func TestADeliveryWithAConflictIsRecorded(t *testing.T) {
	w, f := newEvidenceWorld(t)
	event := paymenttest.Event()
	w.deliver(paymenttest.Delivery(event))
	event.EventData.Amount = "0.01"
	payload := paymenttest.Delivery(event)
	f.Fails = func([]byte) bool { return true }
	if r := w.deliver(payload); r.Outcome != intake.EvidenceUnavailable {
		t.Errorf("%+v", r)
	}
	f.Fails = nil
	if r := w.deliver(payload); r.Outcome != intake.Conflict || len(stored(t, f)) != 2 {
		t.Errorf("%+v", r)
	}
	w.buckets.Fails = func(string, string) error { return errDown }
	if r := w.deliver(payload); r.Outcome != intake.ParkingFailed || len(stored(t, f)) != 2 {
		t.Errorf("%+v", r)
	}
}

// The record is sent while the events are, and within the time of publishing.
func TestTheRecordTakesNoFurtherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newEvidenceWorld(t)
		w.opts.Now = time.Now
		takes := time.Second
		f.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
			select {
			case <-time.After(takes):
				return next(ctx, in)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		w.bus.Answer = func([]eventbridgetypes.PutEventsRequestEntry) (map[int]string, error) {
			time.Sleep(time.Second)
			return nil, nil
		}
		receive := func(payload []byte) (r intake.Result, took time.Duration) {
			w.now = time.Now()
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r = intake.NewReceiver(w.pipeline(w.db, w.opts), w.mechanisms).Receive(ctx, w.signed(payload))
			return r, time.Since(start)
		}
		if r, took := receive(paymenttest.Delivery(paymenttest.Event())); r.Outcome != intake.Accepted ||
			took != time.Second {
			t.Errorf("%+v after %s", r, took)
		}
		takes = time.Hour
		payload := paymenttest.Delivery(paymenttest.Event())
		for range 2 { // new, and a duplicate
			if r, took := receive(payload); r.Outcome != intake.EvidenceUnavailable || took != 5*time.Second ||
				!errors.Is(r.Err, context.DeadlineExceeded) {
				t.Errorf("%+v after %s", r, took)
			}
		}
	})
}

func TestTheRecordHasWhatTheDeliveryWasAuthenticatedBy(t *testing.T) {
	for _, alone := range []bool{false, true} {
		w, _ := certified(t, alone)
		f := &awstest.Firehose{Stream: "evidence"}
		w.opts.Evidence = evidence.NewStream(f, "evidence", "v1")
		ca := paymenttest.NewCA("CA")
		client := ca.Client(nil)
		w.mechanisms.MTLS.Verifier = clientcert.NewVerifier(clientcert.TruststoreOf(ca.Certificate),
			clientcert.Policy{})
		payload := paymenttest.Delivery(paymenttest.Event())
		if r := w.deliverWith(client, payload); r.Outcome != intake.Accepted {
			t.Fatalf("%+v", r)
		}
		records := stored(t, f)
		if len(records) != 1 || records[0].HasSignature() == alone || records[0].Certificate == nil ||
			!records[0].AcceptedAt.Equal(w.now.Truncate(time.Millisecond)) {
			t.Errorf("%+v", records)
		}
		delivery, err := payment.DecodeDelivery(payload)
		if err != nil || records[0].DeliveryID != delivery.DeliveryID ||
			!slices.Equal(records[0].EventIDs, []string{delivery.Events[0].EventID}) {
			t.Errorf("%+v", records)
		}
	}
}
