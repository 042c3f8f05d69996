package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"payhook.example/shared/intake"
	"payhook.example/shared/telemetry"
)

// Every answer is counted, under the one metric of its status.
func TestEveryAnswerIsCounted(t *testing.T) {
	metrics := map[int]string{
		http.StatusBadRequest: "Rejected", http.StatusMethodNotAllowed: "Rejected", http.StatusUnauthorized: "Unauthenticated",
		http.StatusConflict: "Conflict", http.StatusUnprocessableEntity: "Invalid", http.StatusServiceUnavailable: "Unavailable",
	}
	for outcome, a := range answers {
		want := metrics[a.status]
		if a.status == http.StatusRequestEntityTooLarge {
			want = "Rejected"
			if outcome == intake.TooLarge {
				want = "TooLarge" // an event, not the payload
			}
		}
		var log bytes.Buffer
		h := &handler{log: telemetry.New(&log, "webhook")}
		h.write(t.Context(), a.status, intake.Result{Outcome: outcome}, time.Second)
		var line map[string]any
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if want == "" || line[want] != 1.0 {
			t.Errorf("%s, answered %d: %s is %v, want 1", outcome, a.status, want, line[want])
		}
		directive := line["_aws"].(map[string]any)["CloudWatchMetrics"].([]any)[0].(map[string]any)
		for _, m := range directive["Metrics"].([]any) {
			if name := m.(map[string]any)["Name"]; name == "" {
				t.Errorf("%s writes a metric without a name", outcome)
			}
		}
	}
}

// A 503 says when to send the webhook again: after the minute of the budget, or
// soon.
func TestEvery503SaysWhenToRetry(t *testing.T) {
	for outcome, a := range answers {
		want := 0
		switch {
		case outcome == intake.KeyOutOfBudget:
			want = 60
		case a.status == http.StatusServiceUnavailable:
			want = 5
		}
		if a.retryAfter != want {
			t.Errorf("%s: Retry-After is %d, want %d", outcome, a.retryAfter, want)
		}
	}
}
