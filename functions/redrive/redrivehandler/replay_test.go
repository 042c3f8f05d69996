package redrivehandler

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

// The level of a line says whether a person must look.
func TestTheResultAndTheLineOfAReplay(t *testing.T) {
	d := deploy(t, nil)
	first, other := twoContents()
	d.replayed(wire.RedriveRequest{}, d.park(proof.Invalid, nil, first))
	unmarked := d.park(proof.Invalid, nil, newEvent())
	d.Parking.Fails = func(_ context.Context, call, key string) error {
		if call == "Create" && key == "replayed/"+unmarked {
			return errors.New("the bucket is down")
		}
		return nil
	}
	pending := newEvent()
	d.record(pending)
	const wait = "an event is recorded and not published yet: redrive publishes or parks it; " +
		"repeat the replay later"
	for _, test := range []struct {
		want  wire.Decided // with the name
		kind  proof.Reason
		state proof.Decision
	}{
		{wire.Decided{Name: d.park(proof.Invalid, nil, newEvent()), Outcome: "accepted", Recorded: 1},
			proof.Invalid, proof.Replayed},
		{wire.Decided{Name: unmarked, Outcome: "accepted", Recorded: 1,
			Cause: "replayed " + unmarked + ": the bucket is down"}, proof.Invalid, proof.Open},
		{wire.Decided{Name: d.park(proof.Invalid, nil, first, newEvent(), other), Outcome: "conflict",
			Recorded: 1, Duplicates: 1, Conflicts: 1}, proof.Invalid, proof.Replayed},
		{wire.Decided{Name: d.park(proof.Invalid, nil, pending, newEvent()), Outcome: "pending", Recorded: 1,
			Pending: 1, Duplicates: 1, Cause: wait}, proof.Invalid, proof.Open},
		{wire.Decided{Name: d.park(proof.Conflict, [][]byte{other}, other), Outcome: "content-missing",
			Cause: "a conflict needs a content"},
			proof.Conflict, proof.Open},
		{wire.Decided{Name: missing, Cause: missing + ": " + objects.ErrNotFound.Error()},
			proof.Invalid, proof.Open},
	} {
		got := d.replayed(wire.RedriveRequest{By: "ann", Reason: "why"}, test.want.Name)
		if (got.Parked != "") != (got.Outcome == "conflict") {
			t.Errorf("%s: parked as %q", got.Outcome, got.Parked)
		}
		got.Parked = ""
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		line := d.Line()
		delete(line, "deliveryId")
		delete(line, "parked")
		want := map[string]any{"msg": "replay", "name": got.Name, "kind": string(test.kind), "by": "ann",
			"reason": "why", "outcome": got.Outcome, "cause": got.Cause, "recorded": float64(got.Recorded),
			"duplicates": float64(got.Duplicates), "conflicts": float64(got.Conflicts), "pending": float64(got.Pending)}
		maps.DeleteFunc(want, func(_ string, value any) bool { return value == "" || value == 0.0 })
		if got.Outcome != "accepted" || got.Cause != "" {
			want["level"] = "WARN"
		}
		if diff := cmp.Diff(want, line); diff != "" {
			t.Errorf("%s: the line (-want +got):\n%s", got.Outcome, diff)
		}
		if note := d.decided(got.Name, test.state); test.state == proof.Replayed &&
			note != (proof.Note{By: "ann", At: noon, Reason: "why"}) {
			t.Errorf("%s: noted %+v", got.Outcome, note)
		}
	}
}

// A parked delivery has its proof. Evidence of it would have the time of the replay in its retention.
func TestAReplayOfAParkedDeliveryStoresNoEvidence(t *testing.T) {
	d := withRejected(t, nil) // with evidence
	if r := d.replayed(wire.RedriveRequest{}, d.park(proof.Invalid, nil, newEvent())); r.Outcome != "accepted" ||
		len(d.Bus.Entries()) != 1 || len(d.Evidence.Keys()) != 0 {
		t.Errorf("%+v, with evidence %s", r, d.Evidence.Keys())
	}
}

// The ledger stores who decided about a parked event.
func TestAParkedEventIsReplayedOrDismissed(t *testing.T) {
	d := deploy(t, nil)
	replayed, dismissed := d.parkEvent(newEvent()), d.parkEvent(newEvent())
	e := wire.RedriveRequest{By: "ann", Reason: "why"}
	if got := d.replayed(e, replayed); got != (wire.Decided{Name: replayed, Outcome: "accepted", Recorded: 1,
		Pending: 1}) || d.Line()["kind"] != "event" {
		t.Errorf("replayed: %+v, logged %v", got, d.Line())
	}
	got := d.replayed(wire.RedriveRequest{Content: wire.ParkedContent}, dismissed)
	if got.Outcome != "content-unavailable" || got.Cause == "" {
		t.Errorf("replayed with a content: %+v", got)
	}
	e.Dismiss = []string{dismissed}
	if got := d.handle(e).Decided[0]; got.Cause != "" || d.Line()["kind"] != "event" {
		t.Errorf("dismissed: %+v", got)
	}
	d.handle(wire.RedriveRequest{})
	for id, want := range map[string]string{replayed: "published", dismissed: "dismissed"} {
		if item := d.Ledger.Items()[id]; string(item.State) != want ||
			item.Note != (ledger.Note{By: "ann", At: noon, Reason: "why"}) {
			t.Errorf("%s: %+v", id, item)
		}
		if got := d.replayed(wire.RedriveRequest{}, id); got.Outcome != "already-"+want || got.Cause == "" {
			t.Errorf("again: %+v", got)
		}
	}
}

// After a decision, the other content could be a second payment.
func TestWhatIsDecidedIsReplayedOnlyAgain(t *testing.T) {
	d := deploy(t, nil)
	first, other := twoContents()
	d.replayed(wire.RedriveRequest{}, d.park(proof.Invalid, nil, first))
	conflict := d.park(proof.Conflict, [][]byte{other}, newEvent(), other)
	ann, bob := proof.Note{By: "ann", At: noon, Content: "first"}, proof.Note{By: "bob", At: noon, Content: "parked"}
	for i, step := range []struct {
		event wire.RedriveRequest
		want  wire.Decided
		state proof.Decision
		note  proof.Note
	}{
		{wire.RedriveRequest{Content: wire.FirstContent, By: "ann"}, wire.Decided{Outcome: "conflict-dismissed"},
			proof.Dismissed, ann},
		{wire.RedriveRequest{Content: wire.ParkedContent, By: "bob"}, wire.Decided{Outcome: "already-dismissed",
			Cause: "it was dismissed at 2026-01-31T12:00:00Z"}, proof.Dismissed, ann},
		{wire.RedriveRequest{Content: wire.ParkedContent, By: "bob", Again: true}, wire.Decided{
			Outcome: "accepted", Recorded: 1, Pending: 1}, proof.Replayed, bob},
		{wire.RedriveRequest{Content: wire.ParkedContent}, wire.Decided{Outcome: "already-replayed",
			Cause: "it was replayed at 2026-01-31T12:00:00Z"}, proof.Replayed, bob},
	} {
		step.want.Name = conflict
		got := d.replayed(step.event, conflict)
		if note := d.decided(conflict, step.state); got != step.want || note != step.note {
			t.Errorf("step %d: %+v, noted %+v, want %+v", i, got, note, step.want)
		}
	}
}

const missing = "invalid/2026/01/31/12/20260131T120000.000Z-unknown-00000000000000000000000000000000.json"

func TestWhatCannotBeNotedIsNotReplayed(t *testing.T) {
	d := deploy(t, nil)
	d.now = func() time.Time { return noon.Add(1) } // the longest text of a time
	refused := 0
	for n := proof.MaxNote - 100; n <= proof.MaxNote; n++ {
		name := d.park(proof.Invalid, nil, newEvent())
		e := wire.RedriveRequest{Replay: []string{name}, Reason: strings.Repeat("x", n), AcceptAge: true}
		if got, err := d.Handle(t.Context(), e); err != nil {
			refused++
			d.decided(name, proof.Open)
		} else if d.decided(name, proof.Replayed); got.Decided[0].Cause != "" {
			t.Errorf("a reason of %d bytes: %+v", n, got)
		}
	}
	if refused == 0 || refused > proof.MaxNote-900 {
		t.Errorf("%d are refused", refused)
	}
}

func TestWhatNeedsNoReplayIsDismissed(t *testing.T) {
	d := deploy(t, nil)
	name := d.park(proof.Invalid, nil, newEvent())
	note := proof.Note{By: "arn:aws:iam::123456789012:user/ann", At: noon, Reason: "sent again"}
	for name, cause := range map[string]string{name: "",
		missing: missing + ": " + objects.ErrNotFound.Error(), "x": "not a name"} {
		got := d.handle(wire.RedriveRequest{Dismiss: []string{name}, Reason: note.Reason, By: note.By}).Decided
		line := d.Line()
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
	long := strings.Repeat("x", proof.MaxNote)
	for _, e := range []wire.RedriveRequest{{}, {Reason: " "}, {Replay: []string{name}, Reason: "why"},
		{Reason: long}} {
		e.Dismiss = []string{name}
		if _, err := d.Handle(t.Context(), e); err == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
}
