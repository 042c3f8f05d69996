package proof

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/keys"
	"payhook.example/shared/objects"
	"payhook.example/shared/signature"
)

// budget is a store that counts the calls of its counters.
type budget struct {
	keys.Memory
	calls int
	kept  time.Duration // how long the counter of the last call is kept
	err   error         // of each call
}

func (b *budget) Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error) {
	b.calls++
	b.kept = time.Until(expires)
	left, _ := b.Memory.Take(ctx, name, limit, expires)
	return left && b.err == nil, b.err
}

var scheme = signature.Scheme{SignatureHeader: "X-Svc-Signature", Timestamp: "query:at", KeyID: "query:at"}

// rejectedStore returns a RejectedStore that ends in two hours.
func rejectedStore(bucket objects.Creator, shared keys.Store) *RejectedStore {
	return NewRejectedStore(bucket, shared, scheme, time.Now().Add(2*time.Hour))
}

func TestARejectedWebhookIsStoredByteForByte(t *testing.T) {
	var bucket objects.Memory
	for _, test := range []struct {
		payload string
		stored  bool
	}{
		{"{\"a\":\r\n \"\xff\x00\"}", true},
		{strings.Repeat("x", 256<<10), true},
		{strings.Repeat("x", 256<<10+1), false},
	} {
		want := rejected(test.payload)
		sent := *want.Request
		sent.RawQuery = "at=%31&token=a"
		sent.Headers = map[string]string{"x-svc-signature": "b", "x-auth-token": "c", "content-TYPE": "d",
			"content-length": "e", "user-agent": "f", "host": "g", "date": "h"}
		*want.Request = sent
		want.Request.RawQuery = "at=%31&token=(redacted)"
		want.Request.Headers = map[string]string{"x-svc-signature": "b", "x-auth-token": "(redacted)",
			"content-TYPE": "d", "content-length": "e", "user-agent": "f", "host": "g", "date": "(redacted)"}
		name, err := rejectedStore(&bucket, &budget{}).Put(t.Context(), sent, []byte(test.payload), want.Cause)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Get(t.Context(), &bucket, name)
		if err != nil {
			t.Fatal(err)
		}
		want.Request.PayloadBytes, want.Request.PayloadSHA256 = len(test.payload), got.Request.PayloadSHA256
		if !test.stored {
			want.Payload = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAllFunctionsShareTheLimitOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // starts at the beginning of an hour
		var bucket objects.Memory
		shared := &budget{}
		var functions []*RejectedStore
		for range 3 {
			functions = append(functions, rejectedStore(&bucket, shared))
		}
		for _, test := range []struct {
			after        time.Duration
			times, total int
		}{
			{0, 200, RejectedPerHour},
			{time.Hour - 1, 10, RejectedPerHour},
			{1, 10, RejectedPerHour + 10},
			{time.Hour - 1, 1, RejectedPerHour + 11},
			{1, 10, RejectedPerHour + 11}, // the end
			{time.Hour, 10, RejectedPerHour + 11},
		} {
			time.Sleep(test.after)
			for i := range test.times {
				if _, err := functions[i%3].Put(t.Context(), *rejected("").Request, []byte("x"), ""); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(bucket.Keys()); n != test.total {
				t.Errorf("at %s, %d are stored, want %d", time.Now(), n, test.total)
			}
			if shared.kept <= time.Hour || shared.kept > 2*time.Hour { // an hour after its own
				t.Errorf("at %s, the counter is kept for %s", time.Now(), shared.kept)
			}
		}
		// A function that knows that the limit is reached does not ask again.
		if n := shared.calls; n != RejectedPerHour+3+11 {
			t.Errorf("%d calls of the table", n)
		}
	})
}

func TestNothingIsStoredWithoutTheBudget(t *testing.T) {
	var bucket objects.Memory
	missing := &budget{err: errors.New("no answer")}
	name, err := rejectedStore(&bucket, missing).Put(t.Context(), *rejected("").Request, []byte("x"), "")
	if err == nil || name != "" || len(bucket.Keys()) != 0 {
		t.Errorf("%q, %v", name, err)
	}
}

func TestStoringTakesALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		slow := &objects.Memory{Fails: func(ctx context.Context, _, _ string) error {
			select {
			case <-open:
			case <-ctx.Done():
			}
			return ctx.Err()
		}}
		c := rejectedStore(slow, &budget{})
		put := func(ctx context.Context) (string, error) {
			return c.Put(ctx, *rejected("").Request, []byte("x"), "")
		}
		start := time.Now()
		if name, err := put(t.Context()); !errors.Is(err, context.DeadlineExceeded) || name != "" ||
			time.Since(start) != RejectedTimeout {
			t.Errorf("%q after %s: %v", name, time.Since(start), err)
		}
		close(open)
		for left, stored := range map[time.Duration]bool{2*RejectedTimeout - 1: false, 2 * RejectedTimeout: true} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			name, err := put(ctx)
			cancel()
			if (name != "") != stored || errors.Is(err, context.DeadlineExceeded) == stored {
				t.Errorf("with %s left: %q, %v", left, name, err)
			}
		}
		if n := len(slow.Keys()); n != 1 {
			t.Errorf("%d are stored", n)
		}
	})
}

func TestTheStoredFormatIsTheDocumentedOne(t *testing.T) {
	var bucket objects.Memory
	if _, err := rejectedStore(&bucket, &budget{}).Put(t.Context(), *rejected("").Request, []byte(`{"a":1}`),
		"why"); err != nil {
		t.Fatal(err)
	}
	for _, text := range bucket.Objects() {
		const want = `{"reason":"rejected","cause":"why","payload":"eyJhIjoxfQ==","request":{` +
			`"receivedAt":"2026-01-31T12:00:00.005Z","outcome":"signature-missing","method":"POST",` +
			`"path":"/","rawQuery":"a=(redacted)","headers":{"a":"(redacted)"},"payloadBytes":7,` +
			`"payloadSha256":"015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862",` +
			`"settings":{"keyEndpointAuth":"none"}}}`
		if !bytes.Equal(text, []byte(want)) {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
}
