package intake_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// The record is stored while the events are published, and within the time for publishing.
func TestTheRecordTakesNoFurtherTime(t *testing.T) {
	serviceKey()
	synctest.Test(t, func(t *testing.T) {
		w := newVirtualWorld(t)
		w.opts.Evidence = &w.evidence
		takes := time.Second
		w.evidence.Fails = func(ctx context.Context, _, _ string) error { return sleep(ctx, takes) }
		w.bus.Fails = func(ctx context.Context, _, _ string) error { return sleep(ctx, time.Second) }
		receive := func(payload []byte) (r intake.Result, took time.Duration) {
			start := time.Now()
			r = w.receive(w.within(30*time.Second), w.signed(payload))
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
		w.opts.Evidence = &w.evidence
		ca := paymenttest.NewCA("CA")
		client := ca.Client(nil)
		w.mechanisms.MTLS = clientcert.NewVerifier(clientcert.TruststoreOf(ca.Certificate),
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
		records := w.stored()
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
