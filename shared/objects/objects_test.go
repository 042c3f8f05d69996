package objects_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

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
	calls := 0
	bucket.Fails = func(context.Context, string, string) error { calls++; return nil }
	var got []string
	for o, err := range objects.All(t.Context(), &bucket, "a/", want[0]) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, o.Key)
	}
	if !slices.Equal(got, want[1:]) || calls != 2 {
		t.Errorf("%d of %d objects with %d calls", len(got), n-1, calls)
	}
	calls = 0
	for range objects.All(t.Context(), &bucket, "", "") {
		break
	}
	if calls != 1 {
		t.Errorf("%d calls until it was stopped", calls)
	}
	down := errors.New("down")
	bucket.Fails = func(context.Context, string, string) error { return down }
	failed := 0
	for o, err := range objects.All(t.Context(), &bucket, "", "") {
		if failed++; o != (objects.Object{}) || err != down {
			t.Errorf("%v, %v", o, err)
		}
	}
	if failed != 1 {
		t.Errorf("%d errors", failed)
	}
}

func TestTheMemoryHasTheTimeOfTheLastWrite(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	bucket := objects.Memory{Now: func() time.Time { return now }}
	create := func() error {
		_, err := bucket.Create(t.Context(), "key", nil)
		return err
	}
	for _, test := range []struct {
		name  string
		write func() error
		age   time.Duration
	}{
		{"new", create, 0},
		{"it exists", create, time.Hour},
		{"replaced", func() error { return bucket.Put(t.Context(), "key", nil) }, 0},
	} {
		now = now.Add(time.Hour)
		if err := test.write(); err != nil {
			t.Error(err)
		}
		page, _, err := bucket.List(t.Context(), "", "", 1)
		if err != nil || now.Sub(page[0].StoredAt) != test.age {
			t.Errorf("%s: %v, %v", test.name, page, err)
		}
	}
	bucket.Delete("key")
	if keys := bucket.Keys(); len(keys) > 0 {
		t.Errorf("deleted: %q", keys)
	}
}
