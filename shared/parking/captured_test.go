package parking_test

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
	"payhook.example/shared/parking"
)

// budget is a store that counts the calls of its counters.
type budget struct {
	keys.Memory
	calls int
	err   error // of each call
}

func (b *budget) Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error) {
	b.calls++
	left, _ := b.Memory.Take(ctx, name, limit, expires)
	return left && b.err == nil, b.err
}

func captured(payload string) parking.Captured {
	return parking.Captured{ReceivedAt: noon, Outcome: "signature-missing", Method: "POST", Path: "/", RawQuery: "a=b",
		Headers: map[string]string{"a": "b"}, Payload: []byte(payload),
		Settings: map[string]string{"keysAuth": "none"}}
}

func TestAWebhookIsCapturedByteForByte(t *testing.T) {
	store, _ := newStore()
	for _, test := range []struct {
		payload string
		stored  bool
	}{
		{"{\"a\":\r\n \"\xff\x00\"}", true},
		{strings.Repeat("x", parking.MaxCapturedPayload), true},
		{strings.Repeat("x", parking.MaxCapturedPayload+1), false},
	} {
		want := captured(test.payload)
		name, err := store.Capture(t.Context(), want)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := parking.TimeOf(name); err != nil || !at.Equal(noon) ||
			parking.OutcomeOf(name) != "signature-missing" {
			t.Errorf("%s: %s, %v", name, at, err)
		}
		if all, err := store.ListCaptured(t.Context()); err != nil || !strings.Contains(strings.Join(all, " "), name) {
			t.Errorf("%q, %v", all, err)
		}
		got, err := store.Captured(t.Context(), name)
		want.PayloadBytes, want.PayloadSHA256 = len(test.payload), got.PayloadSHA256
		if !test.stored {
			want.Payload = nil
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got.PayloadSHA256) != 64 || err != nil {
			t.Error(diff, err)
		}
	}
	if _, err := store.Captured(t.Context(), "none"); !errors.Is(err, parking.ErrNotCaptured) {
		t.Error(err)
	}
	if got := parking.OutcomeOf("none"); got != "" {
		t.Errorf("the outcome %q", got)
	}
}

func TestCredentialsAreNotCaptured(t *testing.T) {
	headers := map[string]string{"Authorization": "Bearer a", "cookie": "b", "Proxy-Authorization": "c",
		"x-api-key": "d", "x-svc-signature": "e"}
	got := parking.WithoutCredentials(headers)
	want := map[string]string{"Authorization": parking.Redacted, "cookie": parking.Redacted,
		"Proxy-Authorization": parking.Redacted, "x-api-key": parking.Redacted, "x-svc-signature": "e"}
	if diff := cmp.Diff(want, got); diff != "" || headers["cookie"] != "b" {
		t.Error(diff, headers)
	}
}

func TestAllFunctionsShareTheLimitOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // starts at the beginning of an hour
		store, bucket := newStore()
		shared := &budget{}
		var functions []*parking.Capturer
		for range 3 {
			functions = append(functions, parking.NewCapturer(store, shared, time.Now().Add(2*time.Hour)))
		}
		for _, test := range []struct {
			after        time.Duration
			times, total int
		}{
			{0, 200, parking.CapturedPerHour},
			{time.Hour - 1, 10, parking.CapturedPerHour},
			{1, 10, parking.CapturedPerHour + 10},
			{time.Hour - 1, 1, parking.CapturedPerHour + 11},
			{1, 10, parking.CapturedPerHour + 11}, // the end
			{time.Hour, 10, parking.CapturedPerHour + 11},
		} {
			time.Sleep(test.after)
			for i := range test.times {
				if _, err := functions[i%3].Capture(t.Context(), captured("x")); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(bucket.Objects("parking")); n != test.total {
				t.Errorf("at %s, %d are stored, want %d", time.Now(), n, test.total)
			}
		}
		// A function that knows that the limit is reached does not ask again.
		if n := shared.calls; n != parking.CapturedPerHour+3+11 {
			t.Errorf("%d calls of the table", n)
		}
	})
}

func TestNothingIsCapturedWithoutTheBudget(t *testing.T) {
	store, bucket := newStore()
	missing := &budget{err: errors.New("no answer")}
	name, err := parking.NewCapturer(store, missing, time.Now().Add(time.Hour)).Capture(t.Context(), captured("x"))
	if err == nil || name != "" || len(bucket.Objects("parking")) != 0 {
		t.Errorf("%q, %v", name, err)
	}
}

// gate is an S3 that writes nothing before it is open.
type gate struct {
	*awstest.S3
	open chan struct{}
}

func (g *gate) PutObject(ctx context.Context, in *s3.PutObjectInput,
	opts ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	select {
	case <-g.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return g.S3.PutObject(ctx, in, opts...)
}

func TestACaptureTakesALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, bucket := newStore()
		shared := &budget{}
		slow := &gate{S3: bucket, open: make(chan struct{})}
		c := parking.NewCapturer(parking.NewStore(slow, "parking"), shared, time.Now().Add(time.Hour))
		start := time.Now()
		if name, err := c.Capture(t.Context(), captured("x")); !errors.Is(err, context.DeadlineExceeded) ||
			name != "" ||
			time.Since(start) != parking.CaptureTimeout {
			t.Errorf("%q after %s: %v", name, time.Since(start), err)
		}
		close(slow.open)
		for left, stored := range map[time.Duration]bool{
			2*parking.CaptureTimeout - 1: false, 2 * parking.CaptureTimeout: true} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			name, err := c.Capture(ctx, captured("x"))
			cancel()
			if (name != "") != stored || errors.Is(err, context.DeadlineExceeded) == stored {
				t.Errorf("with %s left: %q, %v", left, name, err)
			}
		}
		if n := len(bucket.Objects("parking")); n != 1 {
			t.Errorf("%d are stored", n)
		}
	})
}

func TestTheCapturedFormatIsTheDocumentedOne(t *testing.T) {
	store, bucket := newStore()
	if _, err := store.Capture(t.Context(), captured(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	for key, text := range bucket.Objects("parking") {
		const want = `{"receivedAt":"2026-01-31T12:00:00.123Z","outcome":"signature-missing","method":"POST",` +
			`"path":"/","rawQuery":"a=b","headers":{"a":"b"},"payload":"eyJhIjoxfQ==","payloadBytes":7,` +
			`"payloadSha256":"015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862",` +
			`"settings":{"keysAuth":"none"}}`
		if !bytes.Equal(text, []byte(want)) ||
			!strings.HasPrefix(key, "captured/20260131T120000.123Z-signature-missing-") {
			t.Errorf("got  %s: %s\nwant %s", key, text, want)
		}
	}
}
