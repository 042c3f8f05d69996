package operate

import (
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
)

func TestNothingPendingIsFine(t *testing.T) {
	w := newWorld(t)
	out, err := w.expect(0, "pending")
	if out != "nothing is pending\n" || err != "" {
		t.Errorf("%q, %q", out, err)
	}
	out, _ = w.expect(0, "pending", "--json")
	if diff := cmp.Diff(backlog{Buses: map[string]int{}, Events: []waiting{}}, document[backlog](t, out)); diff != "" {
		t.Error(diff)
	}
	published := w.record(time.Hour)
	if err := w.ledger.MarkPublished(t.Context(), []ledger.Entry{published})[0]; err != nil {
		t.Fatal(err)
	}
	w.expect(0, "pending")
}

func TestWhatIsUnderWayNeedsNobody(t *testing.T) {
	w := newWorld(t)
	w.record(30 * time.Second)
	w.record(2*time.Minute + 59*time.Second) // due for just under two minutes
	out, _ := w.expect(0, "pending")
	w.contains(out, "2 events", "overdue   0, due for more than 2m", "2m59s", "in 30s", "since 1m59s")
}

func TestOldestEventsAreListedFirst(t *testing.T) {
	w := newWorld(t)
	young := w.record(time.Second)
	old := w.record(3*time.Hour + 12*time.Minute)
	middle := w.record(time.Hour)
	for range 7 {
		w.try(middle, w.now.Add(20*time.Minute))
	}
	out, _ := w.expect(cli.StatusFailed, "pending")
	w.contains(out, "3 events", "overdue   1,", "failing   1,", "pending for 3h12m, since 2026-01-31T08:48:00.000Z",
		"7 at most",
		old.EventID, old.DeliveryID, middle.EventID, young.EventID)

	out, _ = w.expect(cli.StatusFailed, "pending", "--json")
	first := waiting{
		old.EventID,
		"bus",
		old.DeliveryID,
		old.RecordedAt,
		11520,
		old.RecordedAt.Add(time.Minute),
		0,
		false,
	}
	want := backlog{
		Pending: 3, Buses: map[string]int{"bus": 3}, Overdue: 1, Failing: 1, Examined: 3, MostAttempts: 7,
		Oldest: &first,
		Events: []waiting{first, {middle.EventID, "bus", middle.DeliveryID, middle.RecordedAt, 3600,
			w.now.Add(20 * time.Minute), 7, false}, {young.EventID, "bus", young.DeliveryID, young.RecordedAt, 1,
			young.RecordedAt.Add(time.Minute), 0, false}},
	}
	if diff := cmp.Diff(want, document[backlog](t, out)); diff != "" {
		t.Error(diff)
	}

	out, _ = w.expect(cli.StatusFailed, "pending", "--json", "--overdue", "4h")
	if b := document[backlog](t, out); b.Overdue != 0 || b.Failing != 1 {
		t.Errorf("%s", out)
	}
}

func TestLongestDueEventsAreExamined(t *testing.T) {
	w := newWorld(t)
	old := w.record(25 * time.Hour)
	for range mostExamined {
		w.record(time.Hour)
	}
	out, _ := w.expect(cli.StatusFailed, "pending")
	w.contains(out, "1001 events", "overdue   1001", "examined  the 1000 that are due longest", "pending for 1d1h",
		old.EventID)
	if reads := w.db.Calls("GetItem"); reads != mostExamined {
		t.Errorf("%d reads", reads)
	}
	if n := strings.Count(out, "since 59m"); n != mostListed-1 {
		t.Errorf("%d are listed:\n%s", n+1, out)
	}
}

// The index follows the table with a delay.
func TestWhatIsPublishedByNowIsNotPending(t *testing.T) {
	w := newWorld(t)
	e, taken := w.record(time.Hour), w.record(time.Hour)
	w.db.HoldIndexes()
	if err := w.ledger.MarkPublished(t.Context(), []ledger.Entry{e})[0]; err != nil {
		t.Fatal(err)
	}
	w.try(taken, w.now.Add(time.Minute))
	out, _ := w.expect(0, "pending", "--json")
	if b := document[backlog](t, out); b.Pending != 1 || b.Overdue != 0 || b.Examined != 1 ||
		b.Events[0].EventID != taken.EventID {
		t.Errorf("%s", out)
	}
	if err := w.ledger.MarkPublished(t.Context(), []ledger.Entry{taken})[0]; err != nil {
		t.Fatal(err)
	}
	if out, _ := w.expect(0, "pending"); out != "nothing is pending\n" {
		t.Errorf("%s", out)
	}
}

func TestLongWorkSaysHowFarItIs(t *testing.T) {
	w := newWorld(t)
	// One event only: two of them may be in one page of the index, and the first
	// line would say 2.
	w.record(time.Second)
	// Every look at the clock takes three seconds.
	w.clock = func() time.Time { w.now = w.now.Add(3 * time.Second); return w.now }
	_, err, _ := w.operate("pending")
	w.contains(err, "1 event so far", "looked at 1 of 1")

	w.record(time.Second)
	w.record(time.Second)
	_, err, _ = w.operate("pending")
	w.contains(err, "looked at 3 of 3")
}

func TestAnEventIsFollowedOnItsWay(t *testing.T) {
	w := newWorld(t)
	id := uuid.New().String()
	out, _ := w.expect(cli.StatusFailed, "event", id)
	w.contains(out, id, "unknown: it was never accepted, or its de-duplication window is over")
	out, _ = w.expect(cli.StatusFailed, "event", id, "--json")
	if diff := cmp.Diff(eventState{EventID: id, State: "unknown", Parked: []listed{}},
		document[eventState](t, out)); diff != "" {
		t.Error(diff)
	}

	e := w.record(2 * time.Minute)
	w.try(e, w.now.Add(time.Minute))
	out, _ = w.expect(0, "event", e.EventID)
	w.contains(out, "pending", e.DeliveryID, "2026-01-31T11:58:00.000Z (2m ago)", "(in 1m)", "1 by redrive")

	w.now = w.now.Add(time.Second)
	if err := w.ledger.MarkPublished(t.Context(), []ledger.Entry{e})[0]; err != nil {
		t.Fatal(err)
	}
	out, _ = w.expect(0, "event", e.EventID)
	w.contains(out, "published", "2026-01-31T12:00:01.000Z, 2m1s later",
		"2026-03-02T12:00:01.000Z (in 30d); after that, the same id is new")

	// Somebody sends the same id with other content.
	conflict, _ := w.park(time.Second, "conflict", about(e.EventID))
	out, _ = w.expect(cli.StatusFailed, "event", e.EventID)
	w.contains(out, conflict, "conflict, open")
	w.replayed(conflict)
	out, _ = w.expect(0, "event", e.EventID, "--json")
	s := document[eventState](t, out)
	s.SHA256 = ""
	want := eventState{
		EventID: e.EventID, State: "published", DeliveryID: e.DeliveryID, RecordedAt: e.RecordedAt,
		PublishedAt: noon.Add(time.Second), EventTimestamp: e.EventTimestamp.Truncate(time.Millisecond),
		ExpiresAt: noon.Add(time.Second + 30*24*time.Hour),
		Parked:    []listed{{Name: conflict, Time: noon, Reason: "conflict", State: "replayed"}},
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
}

func TestParkedEventNeedsAttention(t *testing.T) {
	w := newWorld(t)
	e := w.record(time.Hour)
	name, _ := w.park(0, "unpublishable", asEvent(e))
	if err := w.ledger.MarkParked(t.Context(), []ledger.Entry{e})[0]; err != nil {
		t.Fatal(err)
	}
	out, _ := w.expect(cli.StatusFailed, "event", e.EventID)
	w.contains(out, name)
	out, _ = w.expect(cli.StatusFailed, "event", e.EventID, "--json")
	if got := document[eventState](t, out); got.State != "parked" {
		t.Errorf("%s", out)
	}
}
