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
	inspector := adapter.NewLedgerInspector(b.db, "ledger")
	find := func(id string, want ledger.Item) {
		t.Helper()
		got, ok, err := inspector.Find(t.Context(), id)
		if err != nil || !ok {
			t.Fatalf("%t, %v", ok, err)
		}
		pending := got.State == ledger.Pending
		if pending != (got.Shard != "") || pending && !strings.HasPrefix(got.Shard, "pending/") {
			t.Errorf("the shard is %q", got.Shard)
		}
		got.Detail, got.Size, got.Holder = nil, 0, ledger.Holder{} // the DynamoDB in memory ignores the projection
		if want.Shard = got.Shard; !gocmp.Equal(want, got) {
			t.Error(gocmp.Diff(want, got))
		}
		known, err := b.Known(t.Context(), []string{got.EventID, "unknown"})
		if k := known[got.EventID]; err != nil || len(known) != 1 || k.Digest != want.Digest || k.Shard != want.Shard ||
			k.DeliveryID != want.DeliveryID || !k.ParkedAt.Equal(want.ParkedAt) || !k.ExpiresAt.Equal(want.ExpiresAt) {
			t.Errorf("known: %+v, %v", known, err)
		}
	}
	e := b.entry(t, uuid.New().String(), "")
	if _, ok, err := inspector.Find(t.Context(), e.EventID); ok || err != nil {
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
		State:       ledger.Published,
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
	if err := b.MarkParked(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	find(claimed.EventID, ledger.Item{
		EventID: claimed.EventID, DeliveryID: claimed.DeliveryID, Digest: claimed.Digest, RecordedAt: b.now,
		State:    ledger.Parked,
		ParkedAt: b.now, ExpiresAt: b.now.Add(ledger.DefaultWindow),
	})
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
	if _, ok, err := adapter.NewLedgerInspector(b.db, "ledger").Find(t.Context(), e.EventID); !ok || err != nil {
		t.Error(ok, err)
	}
	if known, err := b.Known(t.Context(), []string{e.EventID}); len(known) != 1 || err != nil {
		t.Error(known, err)
	}
}

func TestTheBacklogIsAllThatIsPendingDueOrNot(t *testing.T) {
	b := newFixture(t)
	inspector := adapter.NewLedgerInspector(b.db, "ledger")
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
		if scan, ok := in.(*dynamodb.ScanInput); ok {
			scan.Limit = aws.Int32(300)
		}
		return next(ctx, in)
	}
	got, err := inspector.Backlog(t.Context())
	if err != nil || b.db.Calls("Scan") < 2 {
		t.Fatal(b.db.Calls("Scan"), err)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
