package keys_test

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"payhook.example/shared/awstest"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
)

func TestRecordWritesACertificateOnceADay(t *testing.T) {
	db := awstest.NewDynamoDB()
	db.CreateTable("keys", names.KeysKey)
	if last, err := keys.LastCertificate(t.Context(), db, "keys"); last != nil || err != nil {
		t.Fatalf("before the first: %+v, %v", last, err)
	}
	ca := paymenttest.NewCA("Operator CA")
	old, next := ca.Client(nil).Leaf, ca.Client(nil).Leaf
	certificates := keys.NewCertificates(db, "keys")
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		after  time.Duration
		writes int
		last   string
	}{{0, 1, "old"}, {time.Hour, 1, "old"}, {2 * time.Hour, 2, "next"}, {3 * time.Hour, 2, "next"},
		{25 * time.Hour, 3, "old"}} {
		c := old
		if step.after == 2*time.Hour {
			c = next
		}
		if err := certificates.Record(t.Context(), c, start.Add(step.after)); err != nil {
			t.Fatal(err)
		}
		if n := db.Calls("PutItem"); n != step.writes {
			t.Errorf("step %d: %d writes, want %d", i, n, step.writes)
		}
		want := old
		if step.last == "next" {
			want = next
		}
		last, err := keys.LastCertificate(t.Context(), db, "keys")
		if err != nil || last.Fingerprint != clientcert.Fingerprint(want) || !last.NotAfter.Equal(want.NotAfter) ||
			last.Subject != clientcert.Subject(want) ||
			last.Pin != pinOf(want) ||
			last.Issuer != clientcert.Issuer(want) || last.SerialNumber != clientcert.SerialOf(want).Number {
			t.Errorf("step %d: %+v, %v", i, last, err)
		}
	}
	// Another instance writes an older certificate late.
	if err := keys.NewCertificates(db, "keys").Record(t.Context(), next, start); err != nil {
		t.Fatal(err)
	}
	if last, err := keys.LastCertificate(t.Context(), db, "keys"); err != nil ||
		last.Fingerprint != clientcert.Fingerprint(old) || !last.AcceptedAt.Equal(start.Add(25*time.Hour)) {
		t.Errorf("%+v, %v", last, err)
	}
}

func pinOf(c *x509.Certificate) string {
	pin := clientcert.PinOf(c)
	return hex.EncodeToString(pin[:])
}

func TestRecordWritesAgainAfterExactlyADay(t *testing.T) {
	db := awstest.NewDynamoDB()
	db.CreateTable("keys", names.KeysKey)
	c := paymenttest.NewCA("Operator CA").Certificate
	certificates := keys.NewCertificates(db, "keys")
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for after, writes := range []int{1, 1, 2} {
		at := start.Add([]time.Duration{0, 24*time.Hour - 1, 24 * time.Hour}[after])
		if err := certificates.Record(t.Context(), c, at); err != nil || db.Calls("PutItem") != writes {
			t.Errorf("at %s: %d writes, %v", at, db.Calls("PutItem"), err)
		}
	}
}

func TestRecordRetriesWithTheNextWebhook(t *testing.T) {
	db := awstest.NewDynamoDB()
	db.CreateTable("keys", names.KeysKey)
	certificates := keys.NewCertificates(db, "keys")
	c := paymenttest.NewCA("Operator CA").Certificate
	db.Hook = func(context.Context, any, awstest.Next) (any, error) { return nil, errors.New("no answer") }
	if err := certificates.Record(t.Context(), c, time.Now()); err == nil {
		t.Error("a write that failed is not reported")
	}
	db.Hook = nil
	if err := certificates.Record(t.Context(), c, time.Now()); err != nil {
		t.Error(err)
	}
	if last, err := keys.LastCertificate(t.Context(), db, "keys"); err != nil || last == nil {
		t.Errorf("%+v, %v", last, err)
	}
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
