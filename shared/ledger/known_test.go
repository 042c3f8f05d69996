package ledger_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"payhook.example/shared/ledger"
)

// DynamoDB may answer a part of a batch.
func TestWhatIsLeftUnprocessedIsAskedForAgain(t *testing.T) {
	b := newFixture(t)
	var ids []string
	for range 100 {
		e := b.entry(t, uuid.New().String(), "")
		if _, err := b.Record(t.Context(), e, ledger.NewHolder(), b.now); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.EventID)
	}
	asked := map[string]int{}
	b.db.Unprocessed = func(id string) bool {
		asked[id]++
		return asked[id] < 1+strings.IndexByte("0123456789abcdef", id[0])/4
	}
	if got, err := b.Known(t.Context(), ids); err != nil || len(got) != len(ids) {
		t.Errorf("%d of %d, %v", len(got), len(ids), err)
	}
	// The 101st is in a call of its own.
	b.db.Unprocessed = nil
	calls := b.db.Calls("BatchGetItem")
	if got, err := b.Known(t.Context(), append(ids, "one more")); err != nil || len(got) != len(ids) ||
		b.db.Calls("BatchGetItem") != calls+2 {
		t.Errorf("%d of %d in %d calls, %v", len(got), len(ids), b.db.Calls("BatchGetItem")-calls, err)
	}
}

// The pauses between calls that get nothing grow to a second. A call that gets some
// of the items is followed by the next at once.
func TestItemsThatDynamoDBDoesNotReadAreNotAskedForWithoutPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t)
		ids := make([]string, 10)
		for i := range ids {
			e := b.entry(t, uuid.New().String(), "")
			if _, err := b.Record(t.Context(), e, ledger.NewHolder(), b.now); err != nil {
				t.Fatal(err)
			}
			ids[i] = e.EventID
		}
		b.db.Unprocessed = func(id string) bool { return id == ids[0] }
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if got, err := b.Known(ctx, ids); !errors.Is(err, context.DeadlineExceeded) || len(got) != len(ids)-1 {
			t.Errorf("%d of %d, %v", len(got), len(ids), err)
		}
		// After 0, 0, 25, 75, 175, 375, 775, 1575, 2575, 3575 and 4575 ms, and at the end.
		if n := b.db.Calls("BatchGetItem"); n != 12 {
			t.Errorf("%d calls in 5 seconds", n)
		}

		left := len(ids)
		start := time.Now()
		b.db.Unprocessed = func(id string) bool {
			if id == ids[0] {
				left--
			}
			return slices.Index(ids, id) < left
		}
		if got, err := b.Known(t.Context(), ids); err != nil || len(got) != len(ids) || time.Since(start) != 0 {
			t.Errorf("%d items after %s, %v", len(got), time.Since(start), err)
		}
	})
}
