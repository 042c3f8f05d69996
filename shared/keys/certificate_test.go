package keys_test

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
)

// recorder is a store that counts the certificates.
type recorder struct {
	keys.Memory
	calls int
	fail  func(context.Context) error // nil: no call fails
}

func (r *recorder) RecordCertificate(ctx context.Context, c keys.AcceptedCertificate) error {
	if r.fail != nil {
		return r.fail(ctx)
	}
	r.calls++
	return r.Memory.RecordCertificate(ctx, c)
}

func TestRecordWritesACertificateOnceADay(t *testing.T) {
	db := &recorder{}
	if last, err := db.LastCertificate(t.Context()); last != nil || err != nil {
		t.Fatalf("before the first: %+v, %v", last, err)
	}
	ca := paymenttest.NewCA("Operator CA")
	old, next := ca.Client(nil).Leaf, ca.Client(nil).Leaf
	certificates := keys.NewCertificates(db)
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		after    time.Duration
		accepted *x509.Certificate
		writes   int
		last     *x509.Certificate
	}{{0, old, 1, old}, {time.Hour, old, 1, old}, {2 * time.Hour, next, 2, next}, {3 * time.Hour, next, 2, next},
		{24*time.Hour - 1, old, 2, next}, {24 * time.Hour, old, 3, old}} {
		if err := certificates.Record(t.Context(), step.accepted, start.Add(step.after)); err != nil {
			t.Fatal(err)
		}
		if n := db.calls; n != step.writes {
			t.Errorf("step %d: %d writes, want %d", i, n, step.writes)
		}
		want := step.last
		last, err := db.LastCertificate(t.Context())
		if err != nil || last.Fingerprint != clientcert.Fingerprint(want) || !last.NotAfter.Equal(want.NotAfter) ||
			last.Subject != clientcert.Subject(want) || last.Pin != clientcert.PinOf(want).String() ||
			last.Issuer != clientcert.Issuer(want) || last.SerialNumber != want.SerialNumber.Text(16) {
			t.Errorf("step %d: %+v, %v", i, last, err)
		}
	}
	// Another instance writes an older certificate late.
	if err := keys.NewCertificates(db).Record(t.Context(), next, start); err != nil {
		t.Fatal(err)
	}
	if last, err := db.LastCertificate(t.Context()); err != nil ||
		last.Fingerprint != clientcert.Fingerprint(old) || !last.AcceptedAt.Equal(start.Add(24*time.Hour)) {
		t.Errorf("%+v, %v", last, err)
	}
}

func TestRecordRetriesWithTheNextWebhook(t *testing.T) {
	db := &recorder{}
	certificates := keys.NewCertificates(db)
	c := paymenttest.NewCA("Operator CA").Certificate
	db.fail = func(context.Context) error { return errors.New("no answer") }
	if err := certificates.Record(t.Context(), c, time.Now()); err == nil {
		t.Error("a write that failed is not reported")
	}
	db.fail = nil
	if err := certificates.Record(t.Context(), c, time.Now()); err != nil {
		t.Error(err)
	}
	if last, err := db.LastCertificate(t.Context()); err != nil || last == nil {
		t.Errorf("%+v, %v", last, err)
	}
}

// The answer to the webhook waits for the write.
func TestRecordDoesNotWaitForATableThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &recorder{fail: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		start := time.Now()
		err := keys.NewCertificates(db).Record(t.Context(), paymenttest.NewCA("Operator CA").Certificate, start)
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 500*time.Millisecond {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestTrustDaysLeft(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA").Certificate
	truststore := clientcert.TruststoreOf(ca)
	before := func(days float64) time.Time { return ca.NotAfter.Add(-time.Duration(days * 24 * float64(time.Hour))) }
	for _, c := range []struct {
		now  time.Time
		last *keys.AcceptedCertificate
		want float64
	}{
		{before(45.5), nil, 45.5},
		{before(-1), nil, 0},
		{before(45), &keys.AcceptedCertificate{NotAfter: before(30)}, 15},
		{before(45), &keys.AcceptedCertificate{NotAfter: before(46)}, 0},
		{before(45), &keys.AcceptedCertificate{NotAfter: before(-100)}, 45},
	} {
		if got := keys.TrustDaysLeft(truststore, c.last, c.now); got != c.want {
			t.Errorf("%+v: %v days, want %v", c, got, c.want)
		}
	}
}
