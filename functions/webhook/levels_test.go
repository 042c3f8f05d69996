package main

import (
	"bytes"
	"encoding/json/v2"
	"log/slog"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/telemetry"
)

// Each count of a webhook has its metric, and a count of 0 is not written.
func TestEveryCountHasItsMetric(t *testing.T) {
	for name, c := range map[string]struct {
		result intake.Result
		want   map[string]float64
	}{
		"none": {intake.Result{Outcome: intake.Accepted}, nil},
		"all": {intake.Result{Outcome: intake.Accepted, Recorded: 2, Duplicates: 3, Conflicts: 4, Pending: 5,
			Claimed: 6, Unpublishable: 7, Key: keys.Found{TableFailed: true, Source: keys.Stale, Withdrawn: true}},
			map[string]float64{names.RecordedMetric: 2, names.DuplicatesMetric: 3, names.ConflictsMetric: 4,
				names.LeftPendingMetric: 5, names.ClaimedMetric: 6, names.ParkedMetric: 7,
				names.KeyTableFailedMetric: 1, names.KeyStaleMetric: 1, names.KeyWithdrawnMetric: 1}},
		"parked": {intake.Result{Outcome: intake.Invalid, Parked: "x"},
			map[string]float64{names.ParkedMetric: 1}},
		"parked before": {intake.Result{Outcome: intake.Invalid, Parked: "x", ParkedBefore: true}, nil},
	} {
		h := &handler{}
		got := map[string]float64{}
		for _, v := range h.metrics(c.result, intake.Answer{Status: 200, Metric: "Answer"}) {
			got[v.Metric.Name] = v.Value
		}
		want := map[string]float64{"Answer": 1, names.ClientErrorsMetric: 0}
		maps.Copy(want, c.want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The level of a webhook's line is that of its answer, or higher if an event needs
// attention.
func TestTheLevelOfALine(t *testing.T) {
	for name, c := range map[string]struct {
		result intake.Result
		level  slog.Level // of the answer
		want   any
	}{
		"accepted":          {intake.Result{}, slog.LevelInfo, nil},
		"rejected":          {intake.Result{}, slog.LevelWarn, "WARN"},
		"a conflict":        {intake.Result{Conflicts: 1}, slog.LevelInfo, "ERROR"},
		"not marked":        {intake.Result{Unmarked: 1}, slog.LevelInfo, "ERROR"},
		"unpublishable":     {intake.Result{Unpublishable: 1}, slog.LevelInfo, "ERROR"},
		"left to redrive":   {intake.Result{Pending: 1}, slog.LevelInfo, "WARN"},
		"no shared table":   {intake.Result{Key: keys.Found{TableFailed: true}}, slog.LevelInfo, "WARN"},
		"a withdrawn key":   {intake.Result{Key: keys.Found{Withdrawn: true}}, slog.LevelInfo, "WARN"},
		"an error and more": {intake.Result{Pending: 1}, slog.LevelError, "ERROR"},
	} {
		var log bytes.Buffer
		h := &handler{log: telemetry.New(&log, "webhook")}
		h.write(t.Context(), c.result, intake.Answer{Level: c.level})
		var line map[string]any
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line["level"] != c.want {
			t.Errorf("%s: %v, want %v", name, line["level"], c.want)
		}
	}
}
