package operate

import (
	"maps"
	"slices"
	"strings"
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
	if diff := cmp.Diff(backlog{Buses: map[string]int{}, Events: []waiting{}}, document[backlog](t, out)); diff != "" {
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
		"under way": {2*time.Minute + 59*time.Second, 1, 0, "pending    1"},
		"overdue":   {3*time.Minute + time.Second, 0, cli.StatusFailed, "overdue    1"},
		"failing":   {time.Second, 2, cli.StatusFailed, "failing    1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e := w.record(test.age)
			for range test.leases {
				w.lease(e, w.now.Add(time.Minute))
			}
			out, _ := w.expect(test.status, "pending")
			w.contains(out, test.want, "buses.bus  1", e.EventID, e.DeliveryID)
		})
	}
}

func TestOldestEventsAreListed(t *testing.T) {
	w := newWorld(t)
	for range mostListed {
		w.recordOn("gone", time.Hour)
	}
	old := w.record(3 * time.Hour)
	w.lease(old, w.now.Add(time.Hour)) // it is due last
	out, _ := w.expect(cli.StatusFailed, "pending", "--json")
	got := document[backlog](t, out)
	want := waiting{old.RecordedAt, w.now.Add(time.Hour), 1, false, "bus", old.EventID, old.DeliveryID}
	if diff := cmp.Diff(want, got.Events[0]); diff != "" {
		t.Error(diff)
	}
	if got.Pending != 11 || got.Overdue != 10 || got.Buses["gone"] != 10 || len(got.Events) != mostListed {
		t.Errorf("%+v", got)
	}
}

// damage makes an attribute of an event's item one of another type.
func (w *world) damage(e ledger.Entry, attribute string) {
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
	other, size, attempts := w.record(time.Second), w.recordOn("gone", time.Hour), w.record(time.Second)
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
	w.moves(`{"moved":1}`)
	_, err := w.expect(0, "pending", "move", "--from", "gone", "--yes")
	w.contains(err, size.EventID+": can't decode size")
}

func TestADamagedEventIsShownAsFarAsItCanBeRead(t *testing.T) {
	w := newWorld(t)
	e := w.record(time.Second)
	w.damage(e, "attempts")
	out, _ := w.expect(cli.StatusFailed, "event", e.EventID)
	w.contains(out, "damaged", "can't decode attempts", e.DeliveryID)
}

// moves lets the redrive function answer one move after another.
func (w *world) moves(answers ...string) {
	w.redrive = func(request) (string, error) {
		answer := answers[0]
		answers = answers[1:]
		return answer, nil
	}
}

func TestDueEventsOfAnotherBusAreMoved(t *testing.T) {
	w := newWorld(t)
	w.record(time.Hour) // of the bus of the stack
	for range 3 {
		w.recordOn("gone", time.Hour)
	}
	w.recordOn("gone", 0) // not due
	w.expect(cli.StatusUsage, "pending", "move", "--from", "gone")
	w.terminal, w.answer = true, strings.NewReader("y\n")
	w.moves(`{"moved":2,"left":true}`, `{"moved":1,"left":false}`)
	out, err := w.expect(cli.StatusFailed, "pending", "move", "--from", "gone", "--json")
	w.contains(err, "Move 3 of the 4 that are pending for gone to bus in stack Payhook (nowhere)?",
		"Consumers of gone do not get them. [y/N]")
	want := move{From: "gone", To: "bus", Pending: 4, Moved: 3, NotDue: 1, Until: w.now.Add(time.Minute)}
	if diff := cmp.Diff(want, document[move](t, out)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]request{{MoveFrom: "gone"}, {MoveFrom: "gone"}}, w.requests); diff != "" {
		t.Error(diff)
	}
	w.moves(`{"moved":2,"left":true}`, `{"errorMessage":"no time"}`)
	_, err = w.expect(cli.StatusUnreachable, "pending", "move", "--from", "gone", "--yes")
	w.contains(err, "2 events are moved", "the redrive function failed: no time")
}

func TestNothingIsMovedIfNothingIsDue(t *testing.T) {
	w := newWorld(t)
	w.expect(0, "pending", "move", "--from", "gone")
	w.recordOn("gone", 0)
	out, _ := w.expect(cli.StatusFailed, "pending", "move", "--from", "gone")
	w.contains(out, "notDue   1", "2026-01-31T12:01:00.000Z (in 1m)")
	if len(w.requests) > 0 {
		t.Errorf("%v", w.requests)
	}
}
