package refused_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/awstest"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/refused"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC)

func bucket() (*awstest.S3, *refused.Store) {
	buckets := awstest.NewS3()
	buckets.MakeBucket("parking")
	return buckets, refused.NewStore(buckets, "parking")
}

func table() *keys.Table {
	db := awstest.NewDynamoDB()
	db.CreateTable("keys", names.KeysKey)
	return keys.NewTable(db, "keys")
}

func request(payload string) refused.Request {
	return refused.Request{ReceivedAt: noon, Outcome: "signature-missing", Method: "POST", Path: "/", RawQuery: "a=b",
		Headers: map[string]string{"a": "b"}, Payload: []byte(payload),
		Settings: map[string]string{"httpMethod": "POST"}}
}

func TestARequestIsStoredByteForByte(t *testing.T) {
	_, store := bucket()
	want := request("{\"a\":\r\n \"\xff\x00\"}")
	name, err := store.Put(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	if at, outcome, ok := refused.Parse(name); !ok || !at.Equal(noon) || outcome != "signature-missing" {
		t.Errorf("%s: %s, %s, %t", name, at, outcome, ok)
	}
	all, err := store.List(t.Context())
	if err != nil || !cmp.Equal(all, []string{name}) {
		t.Errorf("%q, %v", all, err)
	}
	got, err := store.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	want.PayloadBytes, want.PayloadSHA256 = len(want.Payload), got.PayloadSHA256
	if diff := cmp.Diff(want, got); diff != "" || len(got.PayloadSHA256) != 64 {
		t.Error(diff)
	}
	if _, err := store.Get(t.Context(), "20260131T120000.123Z-x-0.json"); !errors.Is(err, refused.ErrNotStored) {
		t.Errorf("%v", err)
	}
}

// The size and the digest of a large body are stored, and not the body.
func TestALargeBodyIsNotStored(t *testing.T) {
	_, store := bucket()
	for size, kept := range map[int]bool{refused.MaxPayload: true, refused.MaxPayload + 1: false} {
		name, err := store.Put(t.Context(), request(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := store.Get(t.Context(), name)
		if err != nil || (got.Payload != nil) != kept || got.PayloadBytes != size {
			t.Errorf("%d bytes: %d of %d are stored, %v", size, len(got.Payload), got.PayloadBytes, err)
		}
	}
}

func TestCredentialsAreNotStored(t *testing.T) {
	headers := map[string]string{"Authorization": "Bearer a", "cookie": "b", "Proxy-Authorization": "c",
		"x-api-key": "d", "x-svc-signature": "e"}
	got := refused.WithoutCredentials(headers)
	want := map[string]string{"Authorization": refused.Redacted, "cookie": refused.Redacted,
		"Proxy-Authorization": refused.Redacted, "x-api-key": refused.Redacted, "x-svc-signature": "e"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if headers["cookie"] != "b" {
		t.Error("the headers of the request were changed")
	}
}

// The limit of an hour holds for all functions together.
func TestTheLimitOfAnHourHoldsForAllFunctions(t *testing.T) {
	buckets, store := bucket()
	shared := table()
	now := noon
	clock := func() time.Time { return now }
	var functions []*refused.Capturer
	for range 3 {
		functions = append(functions, refused.NewCapturer(store, shared, noon.Add(24*time.Hour), clock))
	}
	capture := func(times int) (stored int) {
		for i := range times {
			name, err := functions[i%len(functions)].Capture(t.Context(), request("x"))
			if err != nil {
				t.Fatal(err)
			}
			if name != "" {
				stored++
			}
		}
		return stored
	}
	if n := capture(200); n != refused.PerHour || len(buckets.Objects("parking")) != refused.PerHour {
		t.Errorf("%d are stored, want %d", n, refused.PerHour)
	}
	now = noon.Add(59 * time.Minute)
	if n := capture(10); n != 0 {
		t.Errorf("%d more in the same hour", n)
	}
	now = noon.Add(time.Hour)
	if n := capture(10); n != 10 {
		t.Errorf("%d in the next hour", n)
	}
}

func TestTheCaptureEndsByItself(t *testing.T) {
	buckets, store := bucket()
	now := noon
	c := refused.NewCapturer(store, table(), noon.Add(time.Hour), func() time.Time { return now })
	for after, stored := range map[time.Duration]bool{time.Hour - 1: true, time.Hour: false, 2 * time.Hour: false} {
		now = noon.Add(after)
		if name, err := c.Capture(t.Context(), request("x")); err != nil || (name != "") != stored {
			t.Errorf("after %s: %q, %v", after, name, err)
		}
	}
	if n := len(buckets.Objects("parking")); n != 1 {
		t.Errorf("%d are stored", n)
	}
}

// failing is a budget that cannot be read.
type failing struct{}

func (failing) SpendHourly(context.Context, string, time.Time, int) (bool, error) {
	return true, errors.New("no budget")
}

// Without the budget, nothing is stored: the limit is more important.
func TestNothingIsStoredWithoutTheBudget(t *testing.T) {
	buckets, store := bucket()
	c := refused.NewCapturer(store, failing{}, time.Now().Add(time.Hour), nil)
	if name, err := c.Capture(t.Context(), request("x")); err == nil || name != "" {
		t.Errorf("%q, %v", name, err)
	}
	if n := len(buckets.Objects("parking")); n != 0 {
		t.Errorf("%d are stored", n)
	}
}

// slow is a bucket that does not answer.
type slow struct{ *awstest.S3 }

func (slow) PutObject(ctx context.Context, _ *s3.PutObjectInput, _ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestACaptureTakesALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := refused.NewCapturer(refused.NewStore(slow{}, "parking"), table(), time.Now().Add(time.Hour), nil)
		start := time.Now()
		if _, err := c.Capture(t.Context(), request("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took != refused.Timeout {
			t.Errorf("took %s", took)
		}
		buckets, store := bucket()
		c = refused.NewCapturer(store, table(), time.Now().Add(time.Hour), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*refused.Timeout-1)
		defer cancel()
		if _, err := c.Capture(ctx, request("x")); !errors.Is(err, context.DeadlineExceeded) ||
			len(buckets.Objects("parking")) != 0 {
			t.Errorf("with little time left: %v", err)
		}
	})
}

func TestTheStoredFormatIsTheDocumentedOne(t *testing.T) {
	buckets, store := bucket()
	r := request(`{"a":1}`)
	if _, err := store.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for key, text := range buckets.Objects("parking") {
		if !strings.HasPrefix(key, "refused/20260131T120000.123Z-signature-missing-") {
			t.Errorf("stored as %s", key)
		}
		const want = `{"receivedAt":"2026-01-31T12:00:00.123Z","outcome":"signature-missing","method":"POST",` +
			`"path":"/","rawQuery":"a=b","headers":{"a":"b"},"payload":"eyJhIjoxfQ==","payloadBytes":7,` +
			`"payloadSha256":"015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862",` +
			`"settings":{"httpMethod":"POST"}}`
		if !bytes.Equal(text, []byte(want)) {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
}
