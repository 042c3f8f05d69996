package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"payhook/shared/contract"
	"payhook/shared/intake"
	"payhook/shared/keys"
	"payhook/shared/telemetry"
)

// What a person has to be told of is a figure of its own, on which an alarm can
// stand, and it is 0 where there is nothing to tell.
func TestWhatAlarmsWatchIsCountedAndNothingElseIs(t *testing.T) {
	always := []string{
		contract.KeyUnavailableMetric, contract.KeyOutOfBudgetMetric, contract.KeyStaleMetric, contract.KeyWithdrawnMetric, contract.NotStoredMetric,
		contract.ParkedMetric, contract.ConflictsMetric, contract.LeftPendingMetric,
	}
	for name, c := range map[string]struct {
		result intake.Result
		counts map[string]float64
	}{
		"taken":                             {intake.Result{Outcome: intake.Accepted, Recorded: 3, Published: 3}, nil},
		"a duplicate":                       {intake.Result{Outcome: intake.Accepted, Duplicates: 3}, nil},
		"left to redrive":                   {intake.Result{Outcome: intake.Accepted, Recorded: 3, Pending: 2}, map[string]float64{contract.LeftPendingMetric: 2}},
		"a key that is not fresh":           {intake.Result{Outcome: intake.Accepted, Key: keys.Found{Source: keys.Stale}}, map[string]float64{contract.KeyStaleMetric: 1}},
		"no key":                            {intake.Result{Outcome: intake.KeyUnavailable}, map[string]float64{contract.KeyUnavailableMetric: 1}},
		"out of budget":                     {intake.Result{Outcome: intake.KeyOutOfBudget}, map[string]float64{contract.KeyOutOfBudgetMetric: 1}},
		"a forgery":                         {intake.Result{Outcome: intake.SignatureDoesntMatch}, map[string]float64{contract.UnauthenticatedMetric: 1}},
		"an unknown key":                    {intake.Result{Outcome: intake.KeyUnknown}, map[string]float64{contract.UnauthenticatedMetric: 1}},
		"the ledger down":                   {intake.Result{Outcome: intake.LedgerUnavailable, Unrecorded: 1}, map[string]float64{contract.NotStoredMetric: 1}},
		"out of time":                       {intake.Result{Outcome: intake.OutOfTime, Unrecorded: 1}, map[string]float64{contract.NotStoredMetric: 1}},
		"parking down":                      {intake.Result{Outcome: intake.ParkingFailed}, map[string]float64{contract.NotStoredMetric: 1}},
		"parked":                            {intake.Result{Outcome: intake.Invalid, Parked: "x"}, map[string]float64{contract.ParkedMetric: 1}},
		"an event that EventBridge rejects": {intake.Result{Outcome: intake.Accepted, Recorded: 3, Published: 1, Unpublishable: 2}, map[string]float64{contract.ParkedMetric: 2}},
		"a conflict":                        {intake.Result{Outcome: intake.Conflict, Conflicts: 2, Parked: "x"}, map[string]float64{contract.ParkedMetric: 1, contract.ConflictsMetric: 2}},
		"a key in its grace":                {intake.Result{Outcome: intake.Accepted, Key: keys.Found{Source: keys.Stale, Withdrawn: true}}, map[string]float64{contract.KeyStaleMetric: 1, contract.KeyWithdrawnMetric: 1}},
		"a key that was removed":            {intake.Result{Outcome: intake.KeyUnknown, Key: keys.Found{Withdrawn: true}}, map[string]float64{contract.UnauthenticatedMetric: 1, contract.KeyWithdrawnMetric: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			h := &handler{log: telemetry.New(&log, "webhook")}
			h.write(t.Context(), 200, c.result, time.Second)
			var line map[string]any
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			for _, metric := range always {
				if line[metric] != c.counts[metric] {
					t.Errorf("%s is %v, want %v", metric, line[metric], c.counts[metric])
				}
			}
			if got, _ := line[contract.UnauthenticatedMetric].(float64); got != c.counts[contract.UnauthenticatedMetric] {
				t.Errorf("%s is %v", contract.UnauthenticatedMetric, got)
			}
		})
	}
}
