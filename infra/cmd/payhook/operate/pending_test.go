package operate

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
)

func TestWhatIsPublishedIsNotPending(t *testing.T) {
	w := newWorld(t)
	e := w.record(time.Hour)
	w.db.HoldIndexes() // the index follows the table with a delay
	w.publish(e)
	if out, _ := w.expect(0, "pending"); out != "nothing is pending\n" {
		t.Errorf("%q", out)
	}
	out, _ := w.expect(0, "pending", "--json")
	if diff := cmp.Diff(backlog{Events: []waiting{}}, document[backlog](t, out)); diff != "" {
		t.Error(diff)
	}
}

func TestPendingNeedsAttentionIfOverdueOrFailing(t *testing.T) {
	for name, test := range map[string]struct {
		age    time.Duration
		leases int
		status int
		want   string
	}{
		"under way": {2*time.Minute + 59*time.Second, 1, 0, "pending  1"},
		"overdue":   {3*time.Minute + time.Second, 0, cli.StatusFailed, "overdue  1"},
		"failing":   {time.Second, 2, cli.StatusFailed, "failing  1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e := w.record(test.age)
			for range test.leases {
				w.lease(e, w.now.Add(time.Minute))
			}
			out, _ := w.expect(test.status, "pending")
			w.contains(out, test.want, e.EventID, e.DeliveryID)
		})
	}
}

func TestOldestEventsAreListed(t *testing.T) {
	w := newWorld(t)
	for range mostListed {
		w.record(time.Hour)
	}
	old := w.record(3 * time.Hour)
	w.lease(old, w.now.Add(time.Hour)) // it is due last
	out, _ := w.expect(cli.StatusFailed, "pending", "--json")
	got := document[backlog](t, out)
	want := waiting{old.RecordedAt, w.now.Add(time.Hour), 1, false, old.EventID, old.DeliveryID}
	if diff := cmp.Diff(want, got.Events[0]); diff != "" {
		t.Error(diff)
	}
	if got.Pending != 11 || got.Overdue != 10 || len(got.Events) != mostListed {
		t.Errorf("%+v", got)
	}
}

// damage makes an attribute of an event's item one of another type.
func (w *world) damage(e ledger.Item, attribute string) {
	w.t.Helper()
	item := maps.Clone(w.db.Items("ledger")[e.EventID])
	item[attribute] = &types.AttributeValueMemberBOOL{}
	if _, err := w.db.PutItem(w.t.Context(),
		&dynamodb.PutItemInput{TableName: aws.String("ledger"), Item: item}); err != nil {
		w.t.Fatal(err)
	}
}

func TestDamagedEventsAreShownWithTheOthers(t *testing.T) {
	w := newWorld(t)
	other, size, attempts := w.record(time.Second), w.record(time.Hour), w.record(time.Second)
	w.damage(size, names.LedgerSize)
	w.damage(attempts, "attempts") // which the index does not have
	out, _ := w.expect(cli.StatusFailed, "pending", "--json")
	got := document[backlog](t, out)
	slices.Sort(got.Damaged)
	want := []string{size.EventID + ": can't decode size", attempts.EventID + ": can't decode attempts"}
	slices.Sort(want)
	if diff := cmp.Diff(want, got.Damaged); diff != "" || got.Pending != 3 || len(got.Events) != 3 {
		t.Errorf("%+v, %s", got, diff)
	}
	w.publish(other)
	out, _ = w.expect(cli.StatusFailed, "pending")
	w.contains(out, want...)
}

func TestADamagedEventIsShownAsFarAsItCanBeRead(t *testing.T) {
	w := newWorld(t)
	e := w.record(time.Second)
	w.damage(e, "attempts")
	out, _ := w.expect(cli.StatusFailed, "event", e.EventID)
	w.contains(out, "damaged", "can't decode attempts", e.DeliveryID)
}
