package ledger_test

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	gocmp "github.com/google/go-cmp/cmp"

	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
)

func TestAnEventIsFoundInEveryStateOfItsWay(t *testing.T) {
	b := newFixture(t)
	inspector := ledger.NewInspector(b.db, "ledger")
	find := func(id string, want ledger.Item) {
		t.Helper()
		got, ok, err := inspector.Find(t.Context(), id)
		if err != nil || !ok {
			t.Fatalf("%t, %v", ok, err)
		}
		if got.Pending() != (want.Shard != "") || got.Pending() && got.Bus() != "bus" {
			t.Errorf("the shard is %q", got.Shard)
		}
		got.Detail, got.Size, got.Holder = nil, 0, nil // the DynamoDB in memory ignores the projection
		if want.Shard = got.Shard; !gocmp.Equal(want, got) {
			t.Error(gocmp.Diff(want, got))
		}
	}
	e := b.entry(t, uuid.New().String(), "")
	if _, ok, err := inspector.Find(t.Context(), e.EventID); ok || err != nil {
		t.Fatalf("before it was recorded: %t, %v", ok, err)
	}
	b.record(t, e, ledger.Recorded)
	want := ledger.Item{
		EventID: e.EventID, DeliveryID: e.DeliveryID, Digest: e.Digest, RecordedAt: b.now,
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
		PublishedAt: b.now, EventTimestamp: e.EventTimestamp.Truncate(time.Millisecond),
		ExpiresAt: b.now.Add(ledger.DefaultWindow),
	})

	claimed := b.entry(t, uuid.New().String(), "")
	claimed.Claimed = true
	b.record(t, claimed, ledger.Recorded)
	find(claimed.EventID, ledger.Item{
		EventID: claimed.EventID, DeliveryID: claimed.DeliveryID, Digest: claimed.Digest, RecordedAt: b.now,
		Shard: "some", Due: b.now.Add(time.Minute), Claimed: true,
	})
	if err := b.MarkParked(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	find(claimed.EventID, ledger.Item{
		EventID: claimed.EventID, DeliveryID: claimed.DeliveryID, Digest: claimed.Digest, RecordedAt: b.now,
		ParkedAt: b.now, ExpiresAt: b.now.Add(ledger.DefaultWindow),
	})
}

func TestFindingAnEventAsksForEverythingButItsBytes(t *testing.T) {
	b := newFixture(t)
	e := b.entry(t, uuid.New().String(), "")
	b.record(t, e, ledger.Recorded)
	var got *dynamodb.GetItemInput
	b.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		got = in.(*dynamodb.GetItemInput)
		return next(ctx, in)
	}
	if _, _, err := ledger.NewInspector(b.db, "ledger").Find(t.Context(), e.EventID); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range strings.SplitSeq(aws.ToString(got.ProjectionExpression), ", ") {
		names = append(names, got.ExpressionAttributeNames[name])
	}
	if slices.Contains(names, "event") || slices.Contains(names, "") ||
		len(names) != len(got.ExpressionAttributeNames) {
		t.Errorf("asked for %q", names)
	}
	if !aws.ToBool(got.ConsistentRead) {
		t.Error("what was written a moment ago may be missing")
	}
}

func TestTheBacklogIsAllThatIsPendingDueOrNot(t *testing.T) {
	b := newFixture(t)
	inspector := ledger.NewInspector(b.db, "ledger")
	var want []ledger.Item
	for i := range 300 {
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
	got, err := inspector.Backlog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The items of all buses take several pages of the index.
func TestTheBacklogIsReadToItsLastPage(t *testing.T) {
	b := newFixture(t)
	long := strings.Repeat("b", 255)
	buses := map[string]*ledger.Ledger{"bus": b.Ledger}
	for i := range 9 {
		name := long + strconv.Itoa(i)
		buses[name] = ledger.New(b.db, "ledger", name, ledger.Options{})
	}
	for _, l := range buses {
		for _, r := range l.Record(t.Context(), b.entries(t, 500), ledger.NewHolder(), b.now) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	got, err := ledger.NewInspector(b.db, "ledger").Backlog(t.Context())
	found := map[string]int{}
	for _, p := range got {
		found[p.Bus()]++
	}
	for name := range buses {
		if found[name] != 500 {
			t.Errorf("%d of %s", found[name], name)
		}
	}
	if err != nil || len(got) != 5000 || b.db.Calls("Scan") < 2 {
		t.Errorf("%d in %d pages, %v", len(got), b.db.Calls("Scan"), err)
	}
}
