package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

func (w *world) parkMany(n int) (names []string) {
	w.t.Helper()
	for i := range n {
		name, _ := w.park(time.Duration(n-i)*time.Minute, parking.Invalid)
		names = append(names, name)
	}
	return names
}

func TestOneIsReplayedWithoutAsking(t *testing.T) {
	w := newWorld(t)
	name := w.parkMany(2)[1]
	out, err := w.expect(0, "parked", "replay", "parked/"+name, name)
	if want := "accepted      " + name + "  1 event new, 0 known\n"; out != want || err != "" {
		t.Errorf("%q, %q", out, err)
	}
	if diff := cmp.Diff([]request{{Replay: []string{name}, By: callerARN}}, w.requests); diff != "" {
		t.Error(diff)
	}
}

func TestItAsksBeforeItReplaysMoreThanOne(t *testing.T) {
	for answer, yes := range map[string]bool{"y\n": true, "YES\n": true, " yes ": true, "\n": false, "n\n": false,
		"": false, "yesterday\n": false} {
		w := newWorld(t)
		names := w.parkMany(3)
		w.terminal, w.answer = true, strings.NewReader(answer)
		status := cli.StatusUsage
		if yes {
			status = 0
		}
		out, err := w.expect(status, append([]string{"parked", "replay"}, names...)...)
		w.contains(err, "Replay 3 in stack Payhook (nowhere)? [y/N]")
		if (len(w.requests) == 3) != yes || strings.Contains(err, "nothing was done") == yes ||
			strings.Count(out, "accepted") != 3 && yes {
			t.Errorf("%q: %v\n%s%s", answer, w.requests, out, err)
		}
	}
}

func TestWithoutTerminalManyNeedTheFlag(t *testing.T) {
	w := newWorld(t)
	names := w.parkMany(3)
	w.answer = strings.NewReader("y\n") // nobody typed that
	for _, call := range [][]string{append([]string{"parked", "replay"}, names...), {"parked", "replay", "--all"}} {
		_, err := w.expect(cli.StatusUsage, call...)
		w.contains(err, "Replay 3", "--yes")
		if len(w.requests) > 0 {
			t.Fatalf("%v", w.requests)
		}
		w.expect(0, append(call, "--yes")...)
		w.requests = nil
	}
}

func TestAllThatIsOpenIsReplayed(t *testing.T) {
	w := newWorld(t)
	all := w.parkMany(5)
	w.replayed(all[3])
	conflict, _ := w.park(0, parking.Conflict)
	out, err := w.expect(0, "parked", "replay", "--all", "--yes")
	want := slices.Concat(all[:3], all[4:])
	same(t, "invoked with", w.replays(), want)
	if len(w.requests) != len(want) || strings.Contains(out, conflict) || strings.Count(out, "\n") != len(want) {
		t.Errorf("%d invocations\n%s", len(w.requests), out)
	}
	w.contains(err, "4 of 4 tried: 4 accepted, 0 not", "1 conflict is not included")

	w.requests = nil
	_, err = w.expect(0, "parked", "replay", "--all", "--from", "1ms", "--reason", "unpublishable")
	w.contains(err, "nothing was done")
	if len(w.requests) > 0 {
		t.Errorf("%v", w.requests)
	}
}

func TestRejectedReplaysAreShownWithReason(t *testing.T) {
	w := newWorld(t)
	names := w.parkMany(6)
	w.redrive = func(r request) (string, error) {
		return report(r.Replay, func(name string) string {
			return map[string]string{
				names[0]: `"outcome":"accepted","recorded":2,"duplicates":1,"conflicts":0`,
				names[1]: `"outcome":"conflict","recorded":0,"duplicates":0,"conflicts":2`,
				names[2]: `"outcome":"invalid","cause":"events[3].eventId: must be a UUID",` +
					`"recorded":0,"duplicates":0,"conflicts":0`,
				names[3]: `"outcome":"","cause":"` + parking.ErrNotParked.Error() +
					`","recorded":0,"duplicates":0,"conflicts":0`,
				names[4]: `"outcome":"already-replayed","cause":"it was replayed at 2026-01-31T12:00:00Z"`,
				names[5]: `"outcome":"conflict","conflicts":1,"parked":"2026/other.json"`,
			}[name]
		}), nil
	}
	out, err := w.expect(cli.StatusFailed, append([]string{"parked", "replay", "--yes"}, names...)...)
	w.contains(out,
		"accepted      "+names[0]+"  2 events new, 1 known\n",
		"not accepted  "+names[1]+"  conflict: 2 events are known with other content\n",
		"not accepted  "+names[2]+"  invalid: events[3].eventId: must be a UUID\n",
		"not accepted  "+names[3]+"  parking: no parked object has this name\n",
		"not accepted  "+names[4]+"  already-replayed: it was replayed at 2026-01-31T12:00:00Z\n",
		"not accepted  "+names[5]+"  conflict: 1 event is known with other content, now parked as 2026/other.json\n")
	w.contains(err, "6 of 6 tried: 1 accepted, 5 not")

	out, _ = w.expect(cli.StatusFailed, append([]string{"parked", "replay", "--yes", "--json"}, names...)...)
	want := []replayed{
		{Name: names[0], Accepted: true, Outcome: "accepted", Recorded: 2, Duplicates: 1},
		{Name: names[1], Outcome: "conflict", Conflicts: 2},
		{Name: names[2], Outcome: "invalid", Cause: "events[3].eventId: must be a UUID"},
		{Name: names[3], Cause: parking.ErrNotParked.Error()},
		{Name: names[4], Outcome: "already-replayed", Cause: "it was replayed at 2026-01-31T12:00:00Z"},
		{Name: names[5], Outcome: "conflict", Conflicts: 1, Parked: "2026/other.json"},
	}
	if diff := cmp.Diff(want, lines[replayed](t, out)); diff != "" {
		t.Error(diff)
	}
}

func TestReplayStopsAfterThreeFailedInvocations(t *testing.T) {
	w := newWorld(t)
	w.parkMany(5)
	w.redrive = func(request) (string, error) {
		return `{"errorMessage":"redrive: nothing is parked in this deployment","errorType":"errorString"}`, nil
	}
	out, err := w.expect(cli.StatusFailed, "parked", "replay", "--all", "--yes")
	w.contains(err, "3 of 5 tried: 0 accepted, 3 not",
		"stopped: the redrive function failed: redrive: nothing is parked in this deployment")
	if len(w.requests) != maxFailures || strings.Count(out, "not accepted") != 3 {
		t.Errorf("%d invocations\n%s", len(w.requests), out)
	}
}

func TestErrorOfAWSShowsWhatWasDone(t *testing.T) {
	w := newWorld(t)
	w.parkMany(5)
	w.redrive = func(r request) (string, error) {
		if len(w.requests) == 3 {
			return "", errors.New("AccessDeniedException")
		}
		return report(r.Replay, func(string) string { return `"outcome":"accepted"` }), nil
	}
	_, err := w.expect(cli.StatusUnreachable, "parked", "replay", "--all", "--yes")
	w.contains(err, "2 of 5 tried: 2 accepted, 0 not", "AccessDeniedException")
}

func TestCtrlCSaysWhatWasDone(t *testing.T) {
	w := newWorld(t)
	w.parkMany(5)
	ctx, cancel := context.WithCancel(t.Context())
	w.ctx = ctx
	w.redrive = func(r request) (string, error) {
		if len(w.requests) == 2 {
			cancel()
			return "", ctx.Err()
		}
		return report(r.Replay, func(string) string { return `"outcome":"accepted"` }), nil
	}
	out, err := w.expect(cli.StatusInterrupted, "parked", "replay", "--all", "--yes")
	w.contains(err, "1 of 5 tried: 1 accepted, 0 not", "may still be accepted", "interrupted")
	if n := strings.Count(out, "accepted"); n != 2 { // and one that is not
		t.Errorf("%d said to be accepted", n)
	}
}

func TestCtrlCAtTheQuestionChangesNothing(t *testing.T) {
	w := newWorld(t)
	names := w.parkMany(2)
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	defer write.Close()
	w.ctx, w.terminal = ctx, true
	w.answer = reader(func(b []byte) (int, error) {
		cancel() // the operator looks at the question, and thinks better of it
		return read.Read(b)
	})
	_, err := w.expect(cli.StatusInterrupted, append([]string{"parked", "replay"}, names...)...)
	w.contains(err, "[y/N]", "nothing was done")
	if len(w.requests) > 0 {
		t.Errorf("%v", w.requests)
	}
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

func TestConflictIsReplayedInTheChosenVersion(t *testing.T) {
	w := newWorld(t)
	name, _ := w.park(time.Hour, parking.Conflict)
	for version, message := range map[string]string{
		"first": "settled       " + name, "parked": "accepted      " + name,
	} {
		out, _ := w.expect(0, "parked", "replay", name, "--version", version, "--yes")
		w.contains(out, message)
		if got := w.requests[len(w.requests)-1].Version; got != version {
			t.Errorf("replayed in version %q, want %q", got, version)
		}
	}
	event, _ := w.park(time.Hour, parking.Unpublishable)
	w.expect(0, "parked", "replay", event, "--version", "parked", "--yes")
}

// paymentOf returns an event with an amount.
func paymentOf(id, amount string) []byte {
	return fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":%q,"eventTimestamp":`+
		`"2026-01-31T12:00:00Z","eventData":{"amount":%s,"paymentCurrency":"EUR",`+
		`"paymentStatus":{"status":"RELEASED"}}}`,
		id, amount)
}

// conflict publishes an event of 100.00, and parks a delivery in which it is 9250.00. With
// both, the delivery has the first content as well.
func (w *world) conflict(both bool) (name, id string) {
	w.t.Helper()
	id = uuid.New().String()
	first, other := paymentOf(id, "100.00"), paymentOf(id, "9250.00")
	raw, err := payment.DecodeRawEvent(first)
	if err != nil {
		w.t.Fatal(err)
	}
	e := ledger.NewEntry(raw, uuid.New().String(), w.now.Add(-time.Hour))
	w.ledger.Record(w.t.Context(), []ledger.Entry{e}, ledger.NewHolder(), w.now)
	if err := w.ledger.MarkPublished(w.t.Context(), []ledger.Entry{e})[0]; err != nil {
		w.t.Fatal(err)
	}
	events := [][]byte{other}
	if both {
		events = [][]byte{first, other}
	}
	name, _ = w.park(time.Minute, parking.Conflict, func(p *parking.Parked) {
		digest := ledger.DigestOf(other)
		p.EventIDs, p.EventDigests = []string{id}, [][]byte{digest[:]}
		p.Payload = paymenttest.RawDelivery(p.DeliveryID, events...)
	})
	return name, id
}

// Of what is published, the ledger keeps only the digest.
func TestParkedVersionNeedsConfirmationOfBothVersions(t *testing.T) {
	w := newWorld(t)
	name, id := w.conflict(false)
	_, err := w.expect(cli.StatusUsage, "parked", "replay", name, "--version", "parked")
	w.contains(
		err,
		"event "+id,
		"FIRST VERSION",
		"PARKED VERSION",
		"published 2026-01-31T12:00:00.000Z",
		"9250.00",
		"EUR",
		"RELEASED",
		"The content of the first version is not available: of what is published, the ledger keeps only the",
		"Consumers may process a second payment. Publish the parked version",
		"--yes",
	)
	if strings.Count(err, "not available  ") != 3 || len(w.requests) > 0 {
		t.Fatalf("%v\n%s", w.requests, err)
	}
	w.terminal, w.answer = true, strings.NewReader("n\n")
	w.expect(cli.StatusUsage, "parked", "replay", name, "--version", "parked")
	w.answer = strings.NewReader("y\n")
	w.expect(0, "parked", "replay", name, "--version", "parked", "--again")
	if len(w.requests) != 1 || !w.requests[0].Again {
		t.Errorf("%+v", w.requests)
	}
}

// The first version is shown if it is parked as well: in the same delivery, or in another.
func TestFirstVersionIsFoundInParkedObjects(t *testing.T) {
	w := newWorld(t)
	same, _ := w.conflict(true)
	other, id := w.conflict(false)
	first := paymentOf(id, "100.00")
	w.park(time.Minute, parking.Unpublishable, func(p *parking.Parked) {
		digest := ledger.DigestOf(first)
		*p = parking.Parked{
			Reason:   p.Reason,
			ParkedAt: p.ParkedAt,
			EventIDs: []string{id},
			Event:    first,
			Digest:   digest[:],
		}
	})
	for _, name := range []string{same, other} {
		out, _ := w.expect(0, "parked", "show", name)
		w.contains(out, "amount    100.00", "9250.00")
		if strings.Contains(out, "not available") {
			t.Errorf("%s", out)
		}
		out, _ = w.expect(0, "parked", "show", name, "--json")
		v := document[proof](t, out).Versions[0]
		if v.First.State != "published" || v.First.Amount != "100.00" || v.Parked.Amount != "9250.00" ||
			v.First.Currency != "EUR" || v.Parked.Status != "RELEASED" {
			t.Errorf("%+v", v)
		}
	}
}

// What the ledger does not have is not invented.
func TestUnknownFirstVersionIsExplained(t *testing.T) {
	for state, change := range map[string]func(w *world, p *parking.Parked){
		"de-duplication window is over": func(w *world, p *parking.Parked) {
			p.EventIDs, p.EventDigests = []string{uuid.New().String()}, [][]byte{{1}}
		},
		"it is pending, and is published soon": func(w *world, p *parking.Parked) {
			p.EventIDs, p.EventDigests = []string{w.record(time.Second).EventID}, [][]byte{{1}}
		},
		"The ledger has the parked version": func(w *world, p *parking.Parked) {
			e := w.record(time.Second)
			p.EventIDs, p.EventDigests = []string{e.EventID}, [][]byte{e.Digest[:]}
		},
	} {
		w := newWorld(t)
		name, _ := w.park(time.Minute, parking.Conflict, func(p *parking.Parked) { change(w, p) })
		out, _ := w.expect(0, "parked", "show", name)
		w.contains(out, state, "not available")
	}
}
