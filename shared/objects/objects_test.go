package objects_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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

func TestEachNumberOnceAndNoMoreThanTheLimitAtOnce(t *testing.T) {
	for _, test := range []struct{ n, limit, atOnce int }{{0, 4, 0}, {1, 4, 1}, {5, 1, 1}, {3, 4, 3}, {100, 4, 4}} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			running, most, calls := 0, 0, make([]int, test.n)
			proceed, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				objects.Parallel(test.n, test.limit, func(i int) {
					mu.Lock()
					running++
					most = max(most, running)
					calls[i]++
					mu.Unlock()
					<-proceed
					mu.Lock()
					running--
					mu.Unlock()
				})
			}()
			synctest.Wait() // as many calls run as ever will at once
			if running != test.atOnce {
				t.Errorf("%d calls, limit %d: %d at once, want %d", test.n, test.limit, running, test.atOnce)
			}
			close(proceed)
			<-done
			if running != 0 || most > test.limit || !slices.Equal(calls, slices.Repeat([]int{1}, test.n)) {
				t.Errorf("%d calls, limit %d: %d at once, of %v; %d run", test.n, test.limit, most, calls, running)
			}
		})
	}
}

// Functions that fail together do not try again together.
func TestAPauseIsARandomPartOfTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		different := map[time.Duration]bool{}
		for range 100 {
			start := time.Now()
			if err := objects.Pause(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			if different[took] = true; took < time.Second/2 || took > time.Second {
				t.Errorf("a pause of %s", took)
			}
		}
		if len(different) < 90 {
			t.Errorf("%d different pauses", len(different))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if err := objects.Pause(ctx, time.Hour); err == nil {
			t.Error("the end of the context is no error")
		}
	})
	for attempt, want := range map[int]time.Duration{0: 25, 1: 25, 2: 50, 6: 800, 7: 1000, 99: 1000} {
		if got := objects.Backoff(attempt); got != want*time.Millisecond {
			t.Errorf("after attempt %d: %s", attempt, got)
		}
	}
}

func TestAPartHasAtMostSoManyElementsAndBytes(t *testing.T) {
	for _, test := range []struct{ sizes, parts []int }{
		{nil, nil}, {[]int{1, 1, 1, 1, 1, 1, 1}, []int{3, 6, 7}}, {[]int{4, 4, 2, 8}, []int{3, 4}},
		{[]int{4, 4, 3, 8}, []int{2, 3, 4}}, {[]int{20, 1, 20}, []int{1, 2, 3}}, {[]int{10}, []int{1}},
	} {
		var ends []int
		begin := 0
		for b, e := range objects.Split(len(test.sizes), 3, 10, func(i int) int { return test.sizes[i] }) {
			if b != begin {
				t.Errorf("%v: from %d, want %d", test.sizes, b, begin)
			}
			begin, ends = e, append(ends, e)
		}
		if !slices.Equal(ends, test.parts) {
			t.Errorf("%v: %v, want %v", test.sizes, ends, test.parts)
		}
	}
	for range objects.Split(2, 1, 1, func(int) int { return 1 }) {
		break // and no further part is made
	}
}
