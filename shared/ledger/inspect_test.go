package ledger_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"payhook.example/shared/ledger"
)

func TestAnEventIsFoundInEveryStateOfItsWay(t *testing.T) {
	b := newFixture(t)
	find := func(id string, want ledger.Item) {
		t.Helper()
		got, ok, err := ledger.Find(t.Context(), &b.store, id, false)
		if err != nil || !ok {
			t.Fatalf("%t, %v", ok, err)
		}
		open := got.State == ledger.Pending || got.State == ledger.Parked
		if open != (got.Shard != "") || open && !strings.HasPrefix(got.Shard, string(got.State)+"/") {
			t.Errorf("the shard is %q", got.Shard)
		}
		want.Shard, want.Holder = got.Shard, got.Holder
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		known, err := b.Known(t.Context(), []string{got.EventID, "unknown"})
		if diff := gocmp.Diff(map[string]ledger.Item{got.EventID: want}, known); err != nil || diff != "" {
			t.Errorf("known: %s, %v", diff, err)
		}
		got, _, err = b.Find(t.Context(), id)
		if open != (got.Detail != nil) || got.Size != len(got.Detail) || err != nil {
			t.Errorf("%d bytes of content, %v", len(got.Detail), err)
		}
	}
	e := b.new(t, 1)[0]
	if _, ok, err := ledger.Find(t.Context(), &b.store, e.EventID, false); ok || err != nil {
		t.Fatalf("before it was recorded: %t, %v", ok, err)
	}
	b.record(t, e, ledger.Recorded)
	want := ledger.Item{
		EventID: e.EventID, DeliveryID: e.DeliveryID, Digest: e.Digest, RecordedAt: b.now, State: ledger.Pending,
		Shard: "some", Due: b.now.Add(time.Minute),
	}
	find(strings.ToUpper(e.EventID), want)

	until := b.now.Add(3 * time.Minute)
	if l := b.leaseUntil(t, want, ledger.NewHolder(), until); !l.Held || l.Err != nil {
		t.Fatalf("%+v", l)
	}
	want.Due, want.Attempts = until, 1
	find(e.EventID, want)

	b.now = b.now.Add(time.Second)
	b.publish(t, e)
	find(e.EventID, ledger.Item{
		EventID: e.EventID, DeliveryID: e.DeliveryID, Digest: e.Digest, RecordedAt: e.RecordedAt,
		State:  ledger.Published,
		Amount: "1234567890.10", Currency: "EUR",
		PublishedAt: b.now, EventTimestamp: e.EventTimestamp.Truncate(time.Millisecond),
		ExpiresAt: b.now.Add(window),
	})

	claimed := b.new(t, 1)[0]
	claimed.Claimed = true
	b.record(t, claimed, ledger.Recorded)
	find(claimed.EventID, ledger.Item{
		EventID: claimed.EventID, DeliveryID: claimed.DeliveryID, Digest: claimed.Digest, RecordedAt: b.now,
		State: ledger.Pending,
		Shard: "some", Due: b.now.Add(time.Minute), Claimed: true,
	})
	if err := b.Park(t.Context(), claimed, "attempts", "a problem"); err != nil {
		t.Fatal(err)
	}
	want = ledger.Item{
		EventID: claimed.EventID, DeliveryID: claimed.DeliveryID, Digest: claimed.Digest, RecordedAt: b.now,
		State: ledger.Parked, Due: b.now, Claimed: true, Cause: "attempts", Problem: "a problem",
		Amount: "1234567890.10", Currency: "EUR",
	}
	find(claimed.EventID, want)
	want.Decision = ledger.Decision{By: "alice", At: b.now, Reason: "not ours"}
	if r := b.Dismiss(t.Context(), claimed, want.Decision); !r.Done {
		t.Fatalf("%+v", r)
	}
	want.State, want.Due, want.Claimed, want.Cause, want.Problem = ledger.Dismissed, time.Time{}, false, "", ""
	want.ExpiresAt = b.now.Add(window)
	find(claimed.EventID, want)
}

func TestTheBacklogIsAllThatIsPendingDueOrNot(t *testing.T) {
	b := newFixture(t)
	var want []ledger.Item
	for i := range 1000 {
		e := b.new(t, 1)[0]
		due := b.now.Add(time.Duration(i/10-15) * time.Second) // ten have the same time
		b.Record(t.Context(), []ledger.Item{e}, ledger.NewHolder(), due)
		if i%3 == 0 {
			b.publish(t, e)
			continue
		}
		want = append(want, ledger.Item{EventID: e.EventID, Shard: b.find(t, e).Shard, Due: due,
			RecordedAt: e.RecordedAt, Size: len(e.Detail)})
	}
	slices.SortFunc(want, func(x, y ledger.Item) int {
		return cmp.Or(x.Due.Compare(y.Due), cmp.Compare(x.EventID, y.EventID))
	})
	b.store.page = 7
	got, err := ledger.List(t.Context(), &b.store, ledger.Pending)
	if err != nil || b.count("Query") <= ledger.Shards {
		t.Fatal(b.count("Query"), err)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A call reads 100 items. One that fails does not hide what others read.
func TestManyItemsAreReadByMoreThanOneCall(t *testing.T) {
	b := newFixture(t)
	events := b.new(t, 101)
	b.recordDue(t, events...)
	var ids []string
	for _, e := range events {
		ids = append(ids, e.EventID)
	}
	got, err := b.Known(t.Context(), ids)
	sizes := b.sizes("Get")
	slices.Sort(sizes)
	if err != nil || len(got) != len(ids) || !slices.Equal(sizes, []int{1, 100}) {
		t.Errorf("%d of %d with calls of %v, %v", len(got), len(ids), sizes, err)
	}
	down := errors.New("down")
	b.store.after = func(_, id string) error {
		if id == ids[100] {
			return down
		}
		return nil
	}
	if got, err := b.Known(t.Context(), ids); !errors.Is(err, down) || len(got) < 100 {
		t.Errorf("%d of %d, %v", len(got), len(ids), err)
	}
}
