package main

import (
	"context"
	"fmt"
	"log/slog"

	"payhook/shared/contract"
	"payhook/shared/intake"
	"payhook/shared/ledger"
	"payhook/shared/parking"
	"payhook/shared/telemetry"
)

// handler turns an invocation into a run of redrive, and what it did into a log
// line and metrics. It may be invoked twice, late, or by hand.
type handler struct {
	redriver *intake.Redriver
	replayer *intake.Receiver
	lot      *parking.Lot
	log      *telemetry.Log
}

// event is what an invocation may say. The schedule says nothing, which makes a
// run.
type event struct {
	// Replay names what is parked and shall take its way again, instead of a run.
	Replay []string `json:"replay"`
}

// The metrics of a run.
var (
	found     = telemetry.Metric{Name: "RedriveFound", Unit: telemetry.Count}                 // items due
	published = telemetry.Metric{Name: "RedrivePublished", Unit: telemetry.Count}             // items now on the bus
	failed    = telemetry.Metric{Name: contract.RedriveFailedMetric, Unit: telemetry.Count}   // items not known to be on the bus
	parked    = telemetry.Metric{Name: contract.RedriveParkedMetric, Unit: telemetry.Count}   // items that failed too often
	left      = telemetry.Metric{Name: "RedriveLeft", Unit: telemetry.Count}                  // 1: the time was up before the work was done
	oldest    = telemetry.Metric{Name: contract.OldestPendingMetric, Unit: telemetry.Seconds} // how long ago the oldest item that the run took was recorded
)

// report is what an invocation returns.
type report struct {
	Found     int `json:"found"`
	Published int `json:"published"`
	Failed    int `json:"failed"`
	Parked    int `json:"parked,omitempty"` // of the failed: kept aside for good
	// Left is true if the time was up before every item had its turn.
	Left bool `json:"left"`

	Replayed []replayed `json:"replayed,omitempty"`
}

// replayed is what became of one thing that was parked.
type replayed struct {
	Name       string         `json:"name"`
	Outcome    intake.Outcome `json:"outcome"` // accepted: every event of it is recorded
	Cause      string         `json:"cause,omitempty"`
	Recorded   int            `json:"recorded"`
	Duplicates int            `json:"duplicates"`
	Conflicts  int            `json:"conflicts"`
}

// Handle makes one run, or replays. A run fails if the ledger could not be read
// or written, so that Lambda's own error metric tells.
func (h *handler) Handle(ctx context.Context, e event) (report, error) {
	if len(e.Replay) > 0 {
		return h.replay(ctx, e.Replay)
	}
	r := h.redriver.Run(ctx)
	level := slog.LevelInfo
	switch {
	case r.Err != nil || r.Unmarked > 0:
		level = slog.LevelError
	case r.Failed > 0 || r.Left:
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.Int("leased", r.Leased), slog.Int("unmarked", r.Unmarked), slog.Int("errors", r.Errors)}
	if r.Err != nil {
		attrs = append(attrs, slog.String("cause", telemetry.Cause(r.Err)))
	}
	leftCount := 0.0
	if r.Left {
		leftCount = 1
	}
	h.log.Outcome(ctx, level, "redrive", []telemetry.Value{
		{Metric: found, Value: float64(r.Found)},
		{Metric: published, Value: float64(r.Published)},
		{Metric: failed, Value: float64(r.Failed)},
		{Metric: parked, Value: float64(r.Parked)},
		{Metric: left, Value: leftCount},
		{Metric: oldest, Value: r.Oldest.Seconds()},
	}, attrs...)
	out := report{Found: r.Found, Published: r.Published, Failed: r.Failed, Parked: r.Parked, Left: r.Left}
	if r.Err != nil {
		return out, fmt.Errorf("redrive: %s", telemetry.Cause(r.Err))
	}
	return out, nil
}

// replay takes what is parked under names its way again, one after another.
func (h *handler) replay(ctx context.Context, names []string) (out report, err error) {
	for _, name := range names {
		result := replayed{Name: name}
		p, err := h.lot.Get(ctx, name)
		if err == nil {
			result, err = h.replayOne(ctx, name, p)
		}
		if err == nil && result.Outcome == intake.Accepted {
			err = h.lot.MarkReplayed(ctx, name)
		}
		if err != nil {
			result.Cause = telemetry.Cause(err)
		}
		level := slog.LevelInfo
		if result.Outcome != intake.Accepted || err != nil {
			level = slog.LevelWarn
		}
		h.log.Logger().LogAttrs(ctx, level, "replay", slog.String("name", name), slog.String("reason", string(p.Reason)),
			slog.String("deliveryId", p.DeliveryID), slog.String("outcome", string(result.Outcome)), slog.String("cause", result.Cause),
			slog.Int("recorded", result.Recorded), slog.Int("duplicates", result.Duplicates), slog.Int("conflicts", result.Conflicts))
		out.Replayed = append(out.Replayed, result)
	}
	return out, nil
}

func (h *handler) replayOne(ctx context.Context, name string, p parking.Parked) (replayed, error) {
	if p.Reason == parking.Unpublishable {
		outcome, err := h.redriver.Restore(ctx, p)
		switch {
		case err != nil:
			return replayed{Name: name}, err
		case outcome == ledger.Recorded:
			return replayed{Name: name, Outcome: intake.Accepted, Recorded: 1}, nil
		case outcome == ledger.Duplicate:
			return replayed{Name: name, Outcome: intake.Accepted, Duplicates: 1}, nil
		}
		return replayed{Name: name, Outcome: intake.Conflict, Conflicts: 1}, nil
	}
	r := h.replayer.Replay(ctx, p)
	return replayed{Name: name, Outcome: r.Outcome, Recorded: r.Recorded, Duplicates: r.Duplicates, Conflicts: r.Conflicts}, r.Err
}
