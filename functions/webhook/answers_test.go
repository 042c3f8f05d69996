package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"payhook.example/shared/intake"
	"payhook.example/shared/telemetry"
)

// Every answer increments the metric of its status.
func TestEveryAnswerIsCounted(t *testing.T) {
	metrics := map[int]string{
		0: "Accepted", http.StatusBadRequest: "Rejected", http.StatusMethodNotAllowed: "Rejected",
		http.StatusUnauthorized:          "Unauthenticated",
		http.StatusRequestEntityTooLarge: "Rejected", http.StatusUnprocessableEntity: "Invalid",
		http.StatusServiceUnavailable: "Unavailable",
	}
	for outcome, a := range intake.Answers() {
		want := metrics[a.Status]
		var log bytes.Buffer
		h := &handler{log: telemetry.New(&log, "webhook")}
		h.write(t.Context(), intake.Result{Outcome: outcome}, a)
		var line map[string]any
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if want == "" || line[want] != 1.0 {
			t.Errorf("%s, answered %d: %s is %v, want 1", outcome, a.Status, want, line[want])
		}
		directive := line["_aws"].(map[string]any)["CloudWatchMetrics"].([]any)[0].(map[string]any)
		for _, m := range directive["Metrics"].([]any) {
			if name := m.(map[string]any)["Name"]; name == "" {
				t.Errorf("%s writes a metric without a name", outcome)
			}
		}
	}
}

// A 503 has a Retry-After: one minute if the budget is used up, otherwise some
// seconds.
func TestEvery503HasARetryAfter(t *testing.T) {
	for outcome, a := range intake.Answers() {
		want := 0
		switch {
		case outcome == intake.KeyOutOfBudget:
			want = 60
		case a.Status == http.StatusServiceUnavailable:
			want = 5
		}
		if a.RetryAfter != want {
			t.Errorf("%s: Retry-After is %d, want %d", outcome, a.RetryAfter, want)
		}
	}
}
