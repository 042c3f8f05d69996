package redrivehandler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/ledger"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/wire"
)

// The line of a run is what an operator reads, and what alarms and the dashboard count.
func TestTheLineAndTheReportOfARun(t *testing.T) {
	some := intake.Redriven{Oldest: time.Minute,
		Found: 7, Leased: 6, Published: 3, Failed: 2, Parked: 1}
	counts := func(c wire.RedriveCounts) intake.Redriven { return intake.Redriven{RedriveCounts: c} }
	for name, test := range map[string]struct {
		run  intake.Redriven
		want map[string]any // what differs from a run that finds nothing
		err  string
	}{
		"nothing is due": {intake.Redriven{}, nil, "<nil>"},
		"some": {some, map[string]any{"level": "WARN", "leased": 6.0, "found": 7.0, "published": 3.0,
			"failed": 2.0, "parked": 1.0, "Parked": 1.0, "OldestPending": 60.0}, "<nil>"},
		"no time": {counts(wire.RedriveCounts{Left: true}), map[string]any{"level": "WARN", "left": true}, "<nil>"},
		"not marked": {counts(wire.RedriveCounts{Unmarked: 1}),
			map[string]any{"level": "ERROR", "unmarked": 1.0}, "<nil>"},
		"not published": {intake.Redriven{Failed: 1, PublishErr: errors.New("no")},
			map[string]any{"level": "WARN", "cause": "no", "failed": 1.0}, "<nil>"},
		"the ledger can't be read": {intake.Redriven{Errors: 2, Unread: true,
			Err: errors.New("index"), PublishErr: errors.New("no")}, map[string]any{"level": "ERROR",
			"errors": 2.0, "cause": "index", "OldestPending": nil}, "redrive: index"},
	} {
		d := deploy(t, nil)
		got, err := d.write(t.Context(), test.run, nil)
		diff := cmp.Diff(wire.RedriveReport{RedriveCounts: test.run.RedriveCounts}, got)
		if diff != "" || fmt.Sprint(err) != test.err {
			t.Errorf("%s: the error %v, the answer (-want +got):\n%s", name, err, diff)
		}
		want := map[string]any{"msg": "redrive", "OldestPending": 0.0, "found": 0.0, "published": 0.0, "failed": 0.0,
			"left": false}
		maps.Copy(want, test.want)
		maps.DeleteFunc(want, func(_ string, v any) bool { return v == nil })
		line := d.Line()
		delete(line, settings.MetricDimension)
		delete(line, "_aws")
		if diff := cmp.Diff(want, line); diff != "" {
			t.Errorf("%s: the line (-want +got):\n%s", name, diff)
		}
	}
}

// EventBridge loses what is published on a bus that does not exist, and reports no error.
func TestNothingIsPublishedIfTheBusDoesNotExist(t *testing.T) {
	d := deploy(t, nil)
	d.record(newEvent())
	parked := d.park(proof.Invalid, nil, newEvent())
	d.Bus.Missing = true
	r, err := d.Handle(t.Context(), wire.RedriveRequest{})
	line := d.Line()
	if fmt.Sprint(err) != "redrive: the event bus does not exist" || r.Published > 0 || r.Found > 0 ||
		line["BusMissing"] != 1.0 || line["level"] != "ERROR" || line["cause"] != lambdaruntime.Cause(bus.ErrMissing) ||
		line["OldestPending"] != nil {
		t.Errorf("a run: %+v, %v, %v", r, err, line)
	}
	if _, err := d.Handle(t.Context(), wire.RedriveRequest{Replay: []string{parked}}); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("a replay: %v", err)
	}
	for id, item := range d.Ledger.Items() {
		if item.State != ledger.Pending {
			t.Errorf("%s is %s", id, item.State)
		}
	}
	d.decided(parked, proof.Open)

	d.Bus.Missing = false
	if r := d.handle(wire.RedriveRequest{}); r.Published != 1 || d.Line()["BusMissing"] != nil {
		t.Errorf("with a bus: %+v, %v", r, d.Line())
	}
}

// silentBus is a bus whose look-up is not answered.
type silentBus struct{ bus.Memory }

func (*silentBus) Find(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Without the permission, or if EventBridge does not answer, it is not known whether the bus exists. Then a run
// publishes. A look-up that is not answered leaves most of the time of an invocation to the run.
func TestARunDoesNotWaitForTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deploy(t, nil)
		stores := d.Stores()
		stores.Bus = &silentBus{}
		d.Handler = New(stores, &http.Client{}, d.Conf, d.NewLog())
		d.record(newEvent())
		start := time.Now()
		r := d.handle(wire.RedriveRequest{})
		line := d.Line()
		if took := time.Since(start); took != 5*time.Second || r.Published != 1 || line["busCause"] == nil ||
			line["level"] != "WARN" || line["BusMissing"] != nil {
			t.Errorf("%s: %+v, %v", took, r, line)
		}
	})
}
