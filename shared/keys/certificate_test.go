package keys_test

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
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
		after    time.Duration
		accepted *x509.Certificate
		writes   int
		last     *x509.Certificate
	}{{0, old, 1, old}, {time.Hour, old, 1, old}, {2 * time.Hour, next, 2, next}, {3 * time.Hour, next, 2, next},
		{24*time.Hour - 1, old, 2, next}, {24 * time.Hour, old, 3, old}} {
		if err := certificates.Record(t.Context(), step.accepted, start.Add(step.after)); err != nil {
			t.Fatal(err)
		}
		if n := db.Calls("PutItem"); n != step.writes {
			t.Errorf("step %d: %d writes, want %d", i, n, step.writes)
		}
		want := step.last
		last, err := keys.LastCertificate(t.Context(), db, "keys")
		if err != nil || last.Fingerprint != clientcert.Fingerprint(want) || !last.NotAfter.Equal(want.NotAfter) ||
			last.Subject != clientcert.Subject(want) || last.Pin != clientcert.PinOf(want).String() ||
			last.Issuer != clientcert.Issuer(want) || last.SerialNumber != want.SerialNumber.Text(16) {
			t.Errorf("step %d: %+v, %v", i, last, err)
		}
	}
	// Another instance writes an older certificate late.
	if err := keys.NewCertificates(db, "keys").Record(t.Context(), next, start); err != nil {
		t.Fatal(err)
	}
	if last, err := keys.LastCertificate(t.Context(), db, "keys"); err != nil ||
		last.Fingerprint != clientcert.Fingerprint(old) || !last.AcceptedAt.Equal(start.Add(24*time.Hour)) {
		t.Errorf("%+v, %v", last, err)
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
	for id, item := range db.Items("keys") {
		for attribute, value := range map[string]types.AttributeValue{
			"notAfter":   &types.AttributeValueMemberS{Value: "1"},
			"acceptedAt": &types.AttributeValueMemberN{Value: "0.5"},
		} {
			item := maps.Clone(item)
			item[attribute] = value
			if _, err := db.PutItem(t.Context(),
				&dynamodb.PutItemInput{TableName: aws.String("keys"), Item: item}); err != nil {
				t.Fatal(err)
			}
			if last, err := keys.LastCertificate(t.Context(), db, "keys"); err == nil || last != nil {
				t.Errorf("%s with a wrong %s: %+v", id, attribute, last)
			}
		}
	}
}

// The answer to the webhook waits for the write.
func TestRecordDoesNotWaitForATableThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := awstest.NewDynamoDB()
		db.CreateTable("keys", names.KeysKey)
		db.Hook = func(ctx context.Context, _ any, _ awstest.Next) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		start := time.Now()
		err := keys.NewCertificates(db, "keys").Record(t.Context(), paymenttest.NewCA("Operator CA").Certificate, start)
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
