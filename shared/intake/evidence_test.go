package intake_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/evidence"
	"payhook.example/shared/intake"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// newEvidenceWorld returns a world that stores evidence, and the S3 that has it.
func newEvidenceWorld(t *testing.T) (*parkedWorld, *awstest.S3) {
	w, objects := newParkedWorld(t), awstest.NewS3()
	objects.MakeBucket("evidence")
	w.opts.Evidence = parking.NewStore(objects, "evidence")
	return w, objects
}

// stored returns the records that a bucket has, which all verify.
func stored(t *testing.T, objects *awstest.S3) (all []evidence.Record) {
	t.Helper()
	for key, object := range objects.Objects("evidence") {
		r, err := evidence.Decode(object)
		if err == nil {
			err = r.Verify()
		}
		if err != nil || r.Key() != key {
			t.Fatalf("%s: %v", key, err)
		}
		all = append(all, r)
	}
	return all
}

// Two stacks have one ledger, so for the second stack the events are duplicates.
func TestEachStackThatAcceptsARequestHasARecord(t *testing.T) {
	w, first := newEvidenceWorld(t)
	request := w.signed(paymenttest.Delivery(paymenttest.Event()))
	second := awstest.NewS3()
	second.MakeBucket("evidence")
	for _, objects := range []*awstest.S3{first, second} {
		w.opts.Evidence = parking.NewStore(objects, "evidence")
		r := intake.NewReceiver(w.pipeline(w.db, w.opts), w.mechanisms).Receive(w.ctx(), request)
		if r.Outcome != intake.Accepted || len(stored(t, objects)) != 1 {
			t.Errorf("%+v", r)
		}
	}
}

// While the evidence can't be stored, the service signs and sends again. The conflict must not be parked each time.
func TestADeliveryWithAConflictIsParkedOnceItsRecordIsStored(t *testing.T) {
	w, objects := newEvidenceWorld(t)
	event := paymenttest.Event()
	w.deliver(paymenttest.Delivery(event))
	event.EventData.Amount = "0.01"
	payload := paymenttest.Delivery(event)
	objects.Fails = func(string, string) error { return errDown }
	for range 2 {
		if r := w.deliver(payload); r.Outcome != intake.EvidenceUnavailable || r.Parked != "" {
			t.Errorf("%+v", r)
		}
		w.now = w.now.Add(time.Minute)
	}
	objects.Fails = nil
	if r := w.deliver(payload); r.Outcome != intake.Conflict || r.Parked == "" || len(stored(t, objects)) != 2 {
		t.Errorf("%+v", r)
	}
	w.buckets.Fails = func(string, string) error { return errDown }
	if r := w.deliver(payload); r.Outcome != intake.ParkingFailed {
		t.Errorf("%+v", r)
	}
}

// The record is stored while the events are published, and within the time for publishing.
func TestTheRecordTakesNoFurtherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, objects := newEvidenceWorld(t)
		takes := time.Second
		slow := waitingS3{objects, func(ctx context.Context) error { return smithytime.SleepWithContext(ctx, takes) }}
		w.opts.Now, w.opts.Evidence = time.Now, parking.NewStore(slow, "evidence")
		w.bus.Reject = func(bus.Entry) error {
			time.Sleep(time.Second)
			return nil
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
			took != time.Second || r.Steps.Evidence != time.Second {
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
		objects := awstest.NewS3()
		objects.MakeBucket("evidence")
		w.opts.Evidence = parking.NewStore(objects, "evidence")
		ca := paymenttest.NewCA("CA")
		client := ca.Client(nil)
		w.mechanisms.MTLS.Verifier = clientcert.NewVerifier(clientcert.TruststoreOf(ca.Certificate),
			clientcert.Policy{})
		payload := paymenttest.Delivery(paymenttest.Event())
		begin := w.now.UTC().Truncate(time.Millisecond)
		for range 2 { // the second at another time
			if r := w.deliverWith(client, payload); r.Outcome != intake.Accepted {
				t.Fatalf("%+v", r)
			}
			if alone {
				w.now = w.now.Add(time.Minute)
			}
		}
		records := stored(t, objects)
		if len(records) != 1 || records[0].HasSignature() == alone || !bytes.Equal(records[0].Payload, payload) {
			t.Fatalf("%+v", records)
		}
		if at := records[0].Certificate.AcceptedAt; !at.Equal(begin) {
			t.Errorf("accepted at %s, want %s", at, begin)
		}
		delivery, err := payment.DecodeDelivery(payload)
		if err != nil || records[0].DeliveryID != delivery.DeliveryID ||
			!slices.Equal(records[0].EventIDs, []string{delivery.Events[0].EventID}) {
			t.Errorf("%+v", records)
		}
	}
}
