package main

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/awstest"
	"payhook.example/shared/intake"
	"payhook.example/shared/parking"
)

// The level of a line says whether a person must look.
func TestTheResultAndTheLineOfAReplay(t *testing.T) {
	d := deploy(t, nil)
	first, other := twoContents()
	d.replay(event{}, d.park(parking.Invalid, nil, first))
	unmarked, missing := d.park(parking.Invalid, nil, newEvent()), "2026/01/31/12/20260131T120000.000Z-invalid-"+
		"00000000000000000000000000000000.json"
	d.buckets.Fails = func(operation, key string) error {
		if operation == "PutObject" && strings.HasSuffix(key, strings.ReplaceAll(unmarked, "/", "-")) {
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
		want   replayed
		level  any
		reason parking.Reason
		state  parking.State
	}{
		"accepted": {d.park(parking.Invalid, nil, newEvent()), replayed{Outcome: intake.Accepted, Recorded: 1}, nil,
			parking.Invalid, parking.Replayed},
		"accepted, and not marked": {unmarked, replayed{Outcome: intake.Accepted, Recorded: 1,
			Cause: "parking: put: the bucket is down"}, "WARN", parking.Invalid, parking.Open},
		"with a conflict": {d.park(parking.Invalid, nil, first, newEvent(), other), replayed{Outcome: intake.Conflict,
			Recorded: 1, Duplicates: 1, Conflicts: 1}, "WARN", parking.Invalid, parking.Replayed},
		"an event is pending": {d.park(parking.Invalid, nil, pending, newEvent()), replayed{
			Outcome: intake.StillPending, Recorded: 1, Pending: 1, Duplicates: 1, Cause: wait}, "WARN", parking.Invalid,
			parking.Open},
		"a conflict without a version": {d.park(parking.Conflict, [][]byte{other}, other),
			replayed{Outcome: intake.VersionMissing}, "WARN", parking.Conflict, parking.Open},
		"not parked": {missing, replayed{Cause: parking.ErrNotParked.Error()}, "WARN", "", parking.Open},
	} {
		got := d.replay(event{By: "ann"}, test.object)
		if (got.Parked != "") != (got.Outcome == intake.Conflict) {
			t.Errorf("%s: parked as %q", name, got.Parked)
		}
		test.want.Name, got.Parked = test.object, ""
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		line := d.line()
		for _, other := range []string{"version", "deliveryId", "unverified", "pending", "parked"} {
			delete(line, other)
		}
		want := map[string]any{"msg": "replay", "name": test.object, "reason": string(test.reason),
			"outcome": got.Outcome.Name, "cause": got.Cause, "recorded": float64(got.Recorded),
			"duplicates": float64(got.Duplicates), "conflicts": float64(got.Conflicts)}
		if test.level != nil {
			want["level"] = test.level
		}
		maps.DeleteFunc(want, func(_ string, v any) bool { return v == "" || v == 0.0 })
		if diff := cmp.Diff(want, line); diff != "" {
			t.Errorf("%s: the line (-want +got):\n%s", name, diff)
		}
		if note := d.decided(test.object, test.state); test.state == parking.Replayed &&
			note != (parking.Note{By: "ann", At: noon}) {
			t.Errorf("%s: noted %+v", name, note)
		}
	}
}

// After a decision, the other version could be a second payment.
func TestWhatIsDecidedIsReplayedOnlyAgain(t *testing.T) {
	d := deploy(t, nil)
	first, other := twoContents()
	d.replay(event{}, d.park(parking.Invalid, nil, first))
	conflict := d.park(parking.Conflict, [][]byte{other}, newEvent(), other)
	for i, step := range []struct {
		event event
		want  replayed
		state parking.State
		note  parking.Note
	}{
		{event{Version: intake.FirstVersion, By: "ann"}, replayed{Outcome: intake.Accepted}, parking.Dismissed,
			parking.Note{By: "ann", At: noon, Version: "first", Reason: "the first version stays"}},
		{event{Version: intake.ParkedVersion, By: "bob"}, replayed{Outcome: intake.Outcome{Name: "already-dismissed"},
			Cause: "it was dismissed at 2026-01-31T12:00:00Z"}, parking.Dismissed,
			parking.Note{By: "ann", At: noon, Version: "first", Reason: "the first version stays"}},
		{event{Version: intake.ParkedVersion, By: "bob", Again: true}, replayed{Outcome: intake.Accepted, Recorded: 1,
			Pending: 1}, parking.Replayed, parking.Note{By: "bob", At: noon, Version: "parked"}},
		{event{Version: intake.ParkedVersion}, replayed{Outcome: intake.Outcome{Name: "already-replayed"},
			Cause: "it was replayed at 2026-01-31T12:00:00Z"}, parking.Replayed,
			parking.Note{By: "bob", At: noon, Version: "parked"}},
	} {
		step.want.Name = conflict
		if diff := cmp.Diff(step.want, d.replay(step.event, conflict)); diff != "" {
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
	d := deploy(t, nil)
	name := d.park(parking.Invalid, nil, newEvent())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	end, _ := ctx.Deadline()
	calls := 0
	d.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		calls++
		if got, ok := ctx.Deadline(); !ok || !got.Before(end) {
			t.Errorf("%T has time until %s, the invocation until %s", in, got, end)
		}
		return next(ctx, in)
	}
	if r, err := d.Handle(ctx, event{Replay: []string{name}}); err != nil || r.Replayed[0].Outcome != intake.Accepted ||
		calls == 0 {
		t.Errorf("%+v, %v, %d calls", r, err, calls)
	}
}

func TestWhatNeedsNoReplayIsDismissed(t *testing.T) {
	d := deploy(t, nil)
	name := d.park(parking.Invalid, nil, newEvent())
	missing := "2026/01/31/12/20260131T120000.000Z-invalid-00000000000000000000000000000000.json"
	for name, cause := range map[string]string{name: "", missing: parking.ErrNotParked.Error()} {
		got := d.handle(event{Dismiss: []string{name}, Reason: "sent again", By: "arn:aws:iam::123456789012:user/ann"})
		line := d.line()
		logged, _ := line["cause"].(string)
		if diff := cmp.Diff([]dismissed{{name, cause}}, got.Dismissed); diff != "" || line["msg"] != "dismiss" ||
			line["name"] != name || logged != cause || (line["level"] == "WARN") != (cause != "") ||
			strings.Contains(d.log.String(), "arn:") {
			t.Errorf("logged %v; %s", line, diff)
		}
	}
	if note := d.decided(name, parking.Dismissed); note != (parking.Note{By: "arn:aws:iam::123456789012:user/ann",
		At: noon, Reason: "sent again"}) {
		t.Errorf("noted %+v", note)
	}
	d.decided(missing, parking.Open)
	for _, e := range []event{{Dismiss: []string{name}}, {Dismiss: []string{name}, Reason: " "},
		{Dismiss: []string{name}, Replay: []string{name}, Reason: "why"}} {
		if _, err := d.Handle(t.Context(), e); err == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
}
