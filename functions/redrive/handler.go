package main

import (
	"context"
	"fmt"
	"log/slog"

	"payhook/shared/intake"
	"payhook/shared/telemetry"
)

// handler turns an invocation into a run of redrive, and what it did into a log
// line and metrics. What invokes it, and with what, has no meaning, so that it
// may be invoked twice, late, or by hand.
type handler struct {
	redriver *intake.Redriver
	log      *telemetry.Log
}

// The metrics of a run.
var (
	found     = telemetry.Metric{Name: "RedriveFound", Unit: telemetry.Count}     // items due
	published = telemetry.Metric{Name: "RedrivePublished", Unit: telemetry.Count} // items now on the bus
	failed    = telemetry.Metric{Name: "RedriveFailed", Unit: telemetry.Count}    // items not known to be on the bus
	left      = telemetry.Metric{Name: "RedriveLeft", Unit: telemetry.Count}      // 1: the time was up before the work was done
	oldest    = telemetry.Metric{Name: "OldestPending", Unit: telemetry.Seconds}  // how long the longest pending item had been due
)

// report is what an invocation returns.
type report struct {
	Found     int `json:"found"`
	Published int `json:"published"`
	Failed    int `json:"failed"`
	// Left is true if the time was up before every item had its turn.
	Left bool `json:"left"`
}

// Handle makes one run. It fails if the ledger could not be read or written, so
// that Lambda's own error metric tells.
func (h *handler) Handle(ctx context.Context) (report, error) {
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
		{Metric: left, Value: leftCount},
		{Metric: oldest, Value: r.Oldest.Seconds()},
	}, attrs...)
	out := report{Found: r.Found, Published: r.Published, Failed: r.Failed, Left: r.Left}
	if r.Err != nil {
		return out, fmt.Errorf("redrive: %s", telemetry.Cause(r.Err))
	}
	return out, nil
}
