package objects_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/objects"
)

func TestAllReadsEveryPageUntilItIsStopped(t *testing.T) {
	var bucket objects.Memory
	const n = 2*objects.MaxPage + 1
	var want []string
	for i := range n {
		key := fmt.Sprintf("a/%05d", i)
		want = append(want, key)
		for _, key := range []string{key, "b" + key} {
			if err := bucket.Put(t.Context(), key, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	calls, down := 0, errors.New("down")
	bucket.Fails = func(_ context.Context, _, prefix string) error {
		if calls++; prefix == "down" {
			return down
		}
		return nil
	}
	var got []string
	for o, err := range objects.All(t.Context(), &bucket, "a/", want[0]) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, o.Key)
	}
	for range objects.All(t.Context(), &bucket, "", "") {
		break
	}
	if !slices.Equal(got, want[1:]) || calls != 3 {
		t.Errorf("%d of %d objects, and the first one, with %d calls", len(got), n-1, calls)
	}
	var errs []error
	for o, err := range objects.All(t.Context(), &bucket, "down", "") {
		if errs = append(errs, err); o != (objects.Object{}) {
			t.Error(o)
		}
	}
	if !slices.Equal(errs, []error{down}) {
		t.Error(errs)
	}
}

// The end-to-end test compares it with S3.
func TestTheMemoryIsABucket(t *testing.T) {
	now, ctx := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), t.Context()
	bucket := objects.Memory{Now: func() time.Time { return now }}
	body := []byte("body")
	first, err := bucket.Create(ctx, "key", body)
	clear(body)
	now = now.Add(time.Hour)
	second, again := bucket.Create(ctx, "key", nil)
	if first || !second || errors.Join(err, again) != nil {
		t.Errorf("created: %v, %v; %v, %v", first, err, second, again)
	}
	for limit, want := range map[int]string{0: "b", 2: "bod", 3: "body", 4: "body", math.MaxInt: "body"} {
		if got, err := bucket.Get(ctx, "key", limit); err != nil || string(got) != want {
			t.Errorf("%d: %s, %v", limit, got, err)
		}
	}
	if got, err := bucket.Get(ctx, "other", 9); got != nil || err != objects.ErrNotFound {
		t.Errorf("%s, %v", got, err)
	}
	if err := bucket.Put(ctx, "new", nil); err != nil {
		t.Error(err)
	}
	page, more, err := bucket.List(ctx, "", "", 2)
	want := []objects.Object{{Key: "key", Size: 4, StoredAt: now.Add(-time.Hour)}, {Key: "new", StoredAt: now}}
	if diff := cmp.Diff(want, page); diff != "" || more || err != nil {
		t.Error(diff, more, err)
	}
	down := errors.New("down")
	bucket.Fails = func(context.Context, string, string) error { return down }
	_, created := bucket.Create(ctx, "other", nil)
	_, got := bucket.Get(ctx, "key", 9)
	_, _, listed := bucket.List(ctx, "", "", 9)
	for _, err := range []error{created, got, listed, bucket.Put(ctx, "other", nil)} {
		if err != down {
			t.Error(err)
		}
	}
	bucket.Delete("new")
	clear(bucket.Objects()["key"])
	if keys := bucket.Keys(); !slices.Equal(keys, []string{"key"}) || string(bucket.Objects()["key"]) != "body" {
		t.Errorf("%q: %s", keys, bucket.Objects())
	}
}
