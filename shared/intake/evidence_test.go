package intake_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
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
		receive := func(payload []byte, outcome intake.Outcome, took time.Duration) {
			t.Helper()
			start := time.Now()
			r := w.receive(w.within(30*time.Second), w.signed(payload))
			if r.Outcome != outcome || r.Steps.Evidence != took.Milliseconds() || time.Since(start) != took ||
				errors.Is(r.Err, context.DeadlineExceeded) != (took > time.Second) {
				t.Errorf("%+v after %s", r, time.Since(start))
			}
		}
		receive(paymenttest.Delivery(paymenttest.Event()), intake.Accepted, time.Second)
		takes = time.Hour
		payload := paymenttest.Delivery(paymenttest.Event())
		receive(payload, intake.EvidenceUnavailable, 5*time.Second)
		receive(payload, intake.EvidenceUnavailable, 5*time.Second) // a duplicate
	})
}

func TestTheRecordHasWhatTheDeliveryWasAuthenticatedBy(t *testing.T) {
	for _, alone := range []bool{false, true} {
		w, _ := certified(t, alone)
		w.opts.Evidence = &w.evidence
		ca := paymenttest.NewCA("CA")
		client := ca.Client(nil)
		w.mechanisms.MTLS = clientcert.NewVerifier(clientcert.Truststore{ca.Certificate}, clientcert.Policy{})
		id, raw := uuid.New().String(), paymenttest.Encode(paymenttest.Event())
		payload := paymenttest.RawDelivery(id, raw)
		begin := w.now.UTC().Truncate(time.Millisecond)
		for range 2 {
			if r := w.deliverWith(client, payload); r.Outcome != intake.Accepted {
				t.Fatalf("%+v", r)
			}
			if alone { // the second at another time
				w.now = w.now.Add(time.Minute)
			}
		}
		records := w.stored()
		if len(records) != 1 || records[0].HasSignature() == alone || !bytes.Equal(records[0].Payload, payload) ||
			records[0].DeliveryID != id || !slices.Equal(records[0].EventIDs, idsOf(t, raw)) ||
			!records[0].Certificate.AcceptedAt.Equal(begin) {
			t.Errorf("%+v", records)
		}
	}
}
