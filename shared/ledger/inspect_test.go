package ledger_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	gocmp "github.com/google/go-cmp/cmp"

	adapter "payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
)

func TestAnEventIsFoundInEveryStateOfItsWay(t *testing.T) {
	b := newFixture(t)
	inspector := adapter.NewLedgerReader(b.db, "ledger")
	find := func(id string, want ledger.Item) {
		t.Helper()
		got, ok, err := ledger.Find(t.Context(), inspector, id, false)
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
	e := b.entry(t, uuid.New().String(), "")
	if _, ok, err := ledger.Find(t.Context(), inspector, e.EventID, false); ok || err != nil {
		t.Fatalf("before it was recorded: %t, %v", ok, err)
	}
	b.record(t, e, ledger.Recorded)
	want := ledger.Item{
		EventID: e.EventID, DeliveryID: e.DeliveryID, Digest: e.Digest, RecordedAt: b.now, State: ledger.Pending,
		Shard: "some", Due: b.now.Add(time.Minute),
	}
	find(strings.ToUpper(e.EventID), want)

	until := b.now.Add(3 * time.Minute)
	if _, ok, err := b.Lease(t.Context(), ledger.Item{EventID: e.EventID, Due: want.Due}, ledger.NewHolder(),
		until); !ok || err != nil {
		t.Fatalf("%t, %v", ok, err)
	}
	want.Due, want.Attempts = until, 1
	find(e.EventID, want)

	b.now = b.now.Add(time.Second)
	if err := b.MarkPublished(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	find(e.EventID, ledger.Item{
		EventID: e.EventID, DeliveryID: e.DeliveryID, Digest: e.Digest, RecordedAt: e.RecordedAt,
		State:  ledger.Published,
		Amount: "1234567890.10", Currency: "EUR",
		PublishedAt: b.now, EventTimestamp: e.EventTimestamp.Truncate(time.Millisecond),
		ExpiresAt: b.now.Add(ledger.DefaultWindow),
	})

	claimed := b.entry(t, uuid.New().String(), "")
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
	want.ExpiresAt = b.now.Add(ledger.DefaultWindow)
	find(claimed.EventID, want)
}

func TestReadsAreConsistentAndWithoutTheBytes(t *testing.T) {
	b := newFixture(t)
	e := b.entry(t, uuid.New().String(), "")
	b.record(t, e, ledger.Recorded)
	check := func(consistent *bool, projection *string, names map[string]string) {
		if !aws.ToBool(consistent) {
			t.Error("what was written a moment ago may be missing")
		}
		if projection == nil || slices.Contains(slices.Collect(maps.Values(names)), "event") {
			t.Errorf("asked for %v", names)
		}
	}
	b.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		switch in := in.(type) {
		case *dynamodb.GetItemInput:
			check(in.ConsistentRead, in.ProjectionExpression, in.ExpressionAttributeNames)
		case *dynamodb.BatchGetItemInput:
			keys := in.RequestItems["ledger"]
			check(keys.ConsistentRead, keys.ProjectionExpression, keys.ExpressionAttributeNames)
		}
		return next(ctx, in)
	}
	inspector := adapter.NewLedgerReader(b.db, "ledger")
	if _, ok, err := ledger.Find(t.Context(), inspector, e.EventID, false); !ok || err != nil {
		t.Error(ok, err)
	}
	if known, err := b.Known(t.Context(), []string{e.EventID}); len(known) != 1 || err != nil {
		t.Error(known, err)
	}
}

func TestTheBacklogIsAllThatIsPendingDueOrNot(t *testing.T) {
	b := newFixture(t)
	inspector := adapter.NewLedgerReader(b.db, "ledger")
	var want []ledger.Item
	for i := range 1000 {
		e := b.entry(t, uuid.New().String(), "")
		due := b.now.Add(time.Duration(i/10-15) * time.Second) // ten have the same time
		if _, err := b.Record(t.Context(), e, ledger.NewHolder(), due); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := b.MarkPublished(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want = append(want, ledger.Item{EventID: e.EventID, Shard: b.shard(e), Due: due,
			RecordedAt: e.RecordedAt, Size: len(e.Detail)})
	}
	slices.SortFunc(want, func(x, y ledger.Item) int {
		return cmp.Or(x.Due.Compare(y.Due), cmp.Compare(x.EventID, y.EventID))
	})
	b.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		if query, ok := in.(*dynamodb.QueryInput); ok {
			query.Limit = aws.Int32(7)
		}
		return next(ctx, in)
	}
	got, err := ledger.List(t.Context(), inspector, ledger.Pending)
	if err != nil || b.db.Calls("Query") <= ledger.Shards {
		t.Fatal(b.db.Calls("Query"), err)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
