package operate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
)

// moves lets the redrive function answer one move after another.
func (w *world) moves(answers ...string) {
	w.redrive = func(r request) (string, error) {
		answer := answers[0]
		answers = answers[1:]
		return answer, nil
	}
}

// recordOn records an event on another bus that is due at that time.
func (w *world) recordOn(bus string, due time.Time) string {
	w.t.Helper()
	e := w.entry(time.Hour)
	l := ledger.New(w.db, "ledger", bus, ledger.Options{})
	if r := l.Record(w.t.Context(), []ledger.Entry{e}, ledger.NewHolder(), due)[0]; r.Err != nil {
		w.t.Fatal(r.Err)
	}
	return e.EventID
}

func TestPendingShowsTheBusOfEachEvent(t *testing.T) {
	w := newWorld(t)
	own, other := w.record(time.Hour), w.recordOn("gone", w.now.Add(-time.Hour))
	out, _ := w.expect(cli.StatusFailed, "pending")
	w.contains(out, "2 events", "bus       bus: 1\nbus       gone: 1\n", "overdue   2,",
		"  bus   "+own.EventID, "  gone  "+other)
	out, _ = w.expect(cli.StatusFailed, "pending", "--json")
	if diff := cmp.Diff(map[string]int{"bus": 1, "gone": 1}, document[backlog](t, out).Buses); diff != "" {
		t.Error(diff)
	}
	out, _ = w.expect(0, "event", other)
	w.contains(out, "bus       gone\n")
}

func TestTheEventsOfAnotherBusAreMoved(t *testing.T) {
	w := newWorld(t)
	w.record(time.Hour) // of the bus of the stack
	for range 3 {
		w.recordOn("gone", w.now.Add(-time.Minute))
	}
	w.terminal, w.answer = true, strings.NewReader("y\n")
	w.moves(`{"moved":2,"left":true}`, `{"moved":1,"left":false}`)
	out, err := w.expect(0, "pending", "move", "--from", "gone")
	w.contains(err, "3 events are pending for the bus gone. Consumers of gone do not get what is moved\n",
		"Move 3 that are due to bus in stack Payhook (nowhere)? [y/N]")
	if want := "3 events are moved to bus; redrive publishes what is moved in its next run\n"; out != want {
		t.Errorf("%q", out)
	}
	if diff := cmp.Diff([]request{{MoveFrom: "gone"}, {MoveFrom: "gone"}}, w.requests); diff != "" {
		t.Error(diff)
	}
	w.terminal = false
	w.expect(cli.StatusUsage, "pending", "move", "--from", "gone")
}

func TestWhatIsNotDueIsNotMoved(t *testing.T) {
	w := newWorld(t)
	until := w.now.Add(time.Minute)
	w.recordOn("gone", until)
	_, err := w.expect(cli.StatusFailed, "pending", "move", "--from", "gone")
	w.contains(err, "1 event is pending for the bus gone; not due yet: 1, the last until 2026-01-31T12:01:00.000Z")
	w.recordOn("gone", w.now)
	w.moves(`{"moved":1}`)
	out, _ := w.expect(cli.StatusFailed, "pending", "move", "--from", "gone", "--yes", "--json")
	want := move{From: "gone", To: "bus", Pending: 2, Moved: 1, NotDue: 1, Until: until}
	if diff := cmp.Diff(want, document[move](t, out)); diff != "" {
		t.Error(diff)
	}
	w.moves(`{"errorMessage":"no time"}`)
	_, err = w.expect(cli.StatusUnreachable, "pending", "move", "--from", "gone", "--yes")
	w.contains(err, "0 events are moved", "the redrive function failed: no time")
}

func TestNothingIsMovedWithoutAnotherBus(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{}, {"--from", "bus"}} {
		w.expect(cli.StatusUsage, append([]string{"pending", "move"}, args...)...)
	}
	out, _ := w.expect(0, "pending", "move", "--from", "gone")
	if out != "nothing is pending for the bus gone\n" || len(w.requests) > 0 {
		t.Errorf("%q", out)
	}
}

func TestAReplayOfAnotherBusNamesIt(t *testing.T) {
	w := newWorld(t)
	name := w.parkMany(1)[0]
	w.expect(0, "parked", "replay", name, "--bus", "gone")
	if w.requests[0].Bus != "gone" {
		t.Errorf("%+v", w.requests)
	}
}
