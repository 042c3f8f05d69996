package handler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
)

// The level of a line says whether a person must look.
func TestTheResultAndTheLineOfAReplay(t *testing.T) {
	d := deploy(t, nil)
	first, other := twoContents()
	d.replayed(redrive.Request{}, d.park(proof.Invalid, nil, first))
	unmarked, missing := d.park(proof.Invalid, nil, newEvent()), "invalid/2026/01/31/12/20260131T120000.000Z-unknown-"+
		"00000000000000000000000000000000.json"
	d.parked.fails = func(key string) error {
		if key == "replayed/"+unmarked {
			return errors.New("the bucket is down")
		}
		return nil
	}
	pending := newEvent()
	d.record(pending)
	const wait = "intake: an event is recorded and not published yet: redrive publishes or parks it; " +
		"repeat the replay later"
	for name, test := range map[string]struct {
		object string
		want   redrive.Replayed
		level  any
		kind   proof.Reason
		state  proof.Decision
	}{
		"accepted": {d.park(proof.Invalid, nil, newEvent()), redrive.Replayed{Outcome: "accepted", Recorded: 1}, nil,
			proof.Invalid, proof.Replayed},
		"accepted, and not marked": {unmarked, redrive.Replayed{Outcome: "accepted", Recorded: 1,
			Cause: "proof: replayed " + unmarked + ": the bucket is down"}, "WARN", proof.Invalid, proof.Open},
		"with a conflict": {d.park(proof.Invalid, nil, first, newEvent(), other), redrive.Replayed{Outcome: "conflict",
			Recorded: 1, Duplicates: 1, Conflicts: 1}, "WARN", proof.Invalid, proof.Replayed},
		"an event is pending": {d.park(proof.Invalid, nil, pending, newEvent()), redrive.Replayed{
			Outcome: "pending", Recorded: 1, Pending: 1, Duplicates: 1, Cause: wait}, "WARN", proof.Invalid,
			proof.Open},
		"a conflict without a version": {d.park(proof.Conflict, [][]byte{other}, other),
			redrive.Replayed{Outcome: "version-missing"}, "WARN", proof.Conflict, proof.Open},
		"not parked": {missing, redrive.Replayed{Cause: "proof: " + missing + ": " + objects.ErrNotFound.Error()},
			"WARN", proof.Invalid, proof.Open},
	} {
		got := d.replayed(redrive.Request{By: "ann", Reason: "why"}, test.object)
		if (got.Parked != "") != (got.Outcome == "conflict") {
			t.Errorf("%s: parked as %q", name, got.Parked)
		}
		test.want.Name, got.Parked = test.object, ""
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		line := d.line()
		delete(line, "deliveryId")
		delete(line, "parked")
		want := map[string]any{"msg": "replay", "name": test.object, "kind": string(test.kind), "by": "ann",
			"reason": "why", "outcome": got.Outcome, "recorded": float64(got.Recorded),
			"duplicates": float64(got.Duplicates), "conflicts": float64(got.Conflicts)}
		for name, value := range map[string]any{"cause": got.Cause, "level": test.level,
			"pending": float64(got.Pending)} {
			if value != nil && value != "" && value != 0.0 {
				want[name] = value
			}
		}
		if diff := cmp.Diff(want, line); diff != "" {
			t.Errorf("%s: the line (-want +got):\n%s", name, diff)
		}
		if note := d.decided(test.object, test.state); test.state == proof.Replayed &&
			note != (proof.Note{By: "ann", At: noon, Reason: "why"}) {
			t.Errorf("%s: noted %+v", name, note)
		}
	}
}

// The ledger stores who decided about a parked event.
func TestAParkedEventIsReplayedOrDismissed(t *testing.T) {
	d := deploy(t, nil)
	replayed, dismissed, published := d.parkEvent(newEvent()), d.parkEvent(newEvent()), newEvent()
	e := redrive.Request{By: "ann", Reason: "why"}
	if got := d.replayed(e, replayed); got != (redrive.Replayed{Name: replayed, Outcome: "accepted", Recorded: 1,
		Pending: 1}) || d.line()["kind"] != "event" {
		t.Errorf("replayed: %+v, logged %v", got, d.line())
	}
	if got := d.replayed(redrive.Request{Version: redrive.ParkedVersion}, dismissed); got.Outcome != "version-unfit" {
		t.Errorf("replayed with a version: %+v", got)
	}
	e.Dismiss = []string{dismissed}
	if got := d.handle(e).Dismissed[0]; got.Cause != "" || d.line()["kind"] != "event" {
		t.Errorf("dismissed: %+v", got)
	}
	d.record(published)
	d.handle(redrive.Request{})
	for id, want := range map[string]string{replayed: "published", dismissed: "dismissed",
		idOf(t, published): "published"} {
		if item := d.table.Items()[id]; string(item.State) != want ||
			item.Decision.By != "" && item.Decision != (ledger.Decision{By: "ann", At: noon, Reason: "why"}) {
			t.Errorf("%s: %+v", id, item)
		}
	}
	for id, want := range map[string]string{dismissed: "already-dismissed", idOf(t, published): "already-published",
		uuid.New().String(): "not-parked"} {
		if got := d.replayed(redrive.Request{}, id); got.Outcome != want || got.Cause == "" {
			t.Errorf("want %s: %+v", want, got)
		}
	}
}

// After a decision, the other version could be a second payment.
func TestWhatIsDecidedIsReplayedOnlyAgain(t *testing.T) {
	d := deploy(t, nil)
	first, other := twoContents()
	d.replayed(redrive.Request{}, d.park(proof.Invalid, nil, first))
	conflict := d.park(proof.Conflict, [][]byte{other}, newEvent(), other)
	for i, step := range []struct {
		event redrive.Request
		want  redrive.Replayed
		state proof.Decision
		note  proof.Note
	}{
		{redrive.Request{Version: redrive.FirstVersion, By: "ann"}, redrive.Replayed{Outcome: "first-kept"},
			proof.Dismissed, proof.Note{By: "ann", At: noon, Version: "first"}},
		{redrive.Request{Version: redrive.ParkedVersion, By: "bob"}, redrive.Replayed{Outcome: "already-dismissed",
			Cause: "it was dismissed at 2026-01-31T12:00:00Z"}, proof.Dismissed,
			proof.Note{By: "ann", At: noon, Version: "first"}},
		{redrive.Request{Version: redrive.ParkedVersion, By: "bob", Again: true}, redrive.Replayed{
			Outcome: "accepted", Recorded: 1, Pending: 1}, proof.Replayed,
			proof.Note{By: "bob", At: noon, Version: "parked"}},
		{redrive.Request{Version: redrive.ParkedVersion}, redrive.Replayed{Outcome: "already-replayed",
			Cause: "it was replayed at 2026-01-31T12:00:00Z"}, proof.Replayed,
			proof.Note{By: "bob", At: noon, Version: "parked"}},
	} {
		step.want.Name = conflict
		if diff := cmp.Diff(step.want, d.replayed(step.event, conflict)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
		if note := d.decided(conflict, step.state); note != step.note {
			t.Errorf("step %d: noted %+v", i, note)
		}
	}
}

// Without the deadline of the invocation, Lambda could end the function before it has stored
// the decision.
func TestAReplayEndsBeforeItsInvocation(t *testing.T) {
	d := withRejected(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	end, _ := ctx.Deadline()
	calls := 0
	d.table.before = func(ctx context.Context) {
		calls++
		if got, ok := ctx.Deadline(); !ok || !got.Before(end) {
			t.Errorf("a call has time until %s, the invocation until %s", got, end)
		}
	}
	for name, replay := range map[string]string{"delivery": d.park(proof.Invalid, nil, newEvent()),
		"rejected webhook": d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})} {
		before := calls
		r, err := d.Handle(ctx, redrive.Request{Replay: []string{replay}, Reason: "why"})
		if err != nil || r.Replayed[0].Outcome != "accepted" || calls == before {
			t.Errorf("%s: %+v, %v, %d calls", name, r, err, calls)
		}
	}
}

func TestWhatNeedsNoReplayIsDismissed(t *testing.T) {
	d := deploy(t, nil)
	name := d.park(proof.Invalid, nil, newEvent())
	missing := "invalid/2026/01/31/12/20260131T120000.000Z-unknown-00000000000000000000000000000000.json"
	note := proof.Note{By: "arn:aws:iam::123456789012:user/ann", At: noon, Reason: "sent again"}
	for name, cause := range map[string]string{name: "",
		missing: "proof: " + missing + ": " + objects.ErrNotFound.Error(), "x": "proof: not a name"} {
		got := d.handle(redrive.Request{Dismiss: []string{name}, Reason: note.Reason, By: note.By}).Dismissed
		line := d.line()
		logged, _ := line["cause"].(string)
		if len(got) != 1 || got[0].Name != name || !strings.HasPrefix(got[0].Cause, cause) ||
			(got[0].Cause == "") != (cause == "") || line["msg"] != "dismiss" || line["name"] != name ||
			logged != got[0].Cause || (line["level"] == "WARN") != (cause != "") || line["by"] != note.By ||
			line["reason"] != note.Reason {
			t.Errorf("%+v, logged %v", got, line)
		}
	}
	if got := d.decided(name, proof.Dismissed); got != note {
		t.Errorf("noted %+v", got)
	}
	d.decided(missing, proof.Open)
	for _, e := range []redrive.Request{{Dismiss: []string{name}}, {Dismiss: []string{name}, Reason: " "},
		{Dismiss: []string{name}, Replay: []string{name}, Reason: "why"},
		{Dismiss: []string{name}, Reason: strings.Repeat("x", proof.MaxNote)}} {
		if _, err := d.Handle(t.Context(), e); err == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
}
