package webhookhandler

import (
	"errors"
	"log/slog"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/settings"
)

// written returns the outcome line of a result.
func written(t *testing.T, authentication string, r intake.Result, a answer) map[string]any {
	t.Helper()
	f := &functiontest.Function{T: t}
	h := &Handler{conf: settings.Config{Authentication: authentication}, log: f.NewLog()}
	h.write(t.Context(), r, a, attempt{})
	return f.Line()
}

// A metric costs only in the hours in which it is written. Of zeros, only those of
// ClientErrors are written, which an alarm of function URLs needs.
func TestTheMetricsOfALine(t *testing.T) {
	for name, c := range map[string]struct {
		result intake.Result
		answer answer
		want   map[string]any
	}{
		"nothing": {intake.Result{}, answer{status: 399}, map[string]any{"ClientErrors": 0.0}},
		"everything": {intake.Result{Recorded: 2, Duplicates: 3, Conflicts: 4, Pending: 5,
			Large: 6, Unpublishable: 7,
			By: intake.Authentication{Key: keys.Found{TableFailed: true, Source: keys.StaleKey, Withdrawn: true}}},
			answer{status: 400, metric: settings.Metric{Name: "A"}},
			map[string]any{"A": 1.0, "ClientErrors": 1.0, "Conflicts": 4.0, "Parked": 7.0, "KeyStale": 1.0,
				"KeyWithdrawn": 1.0}},
		"parked": {intake.Result{ParkedAs: intake.ParkedAs{Name: "x"}}, answer{status: 499},
			map[string]any{"ClientErrors": 1.0, "Parked": 1.0}},
		"parked twice": {intake.Result{ParkedAs: intake.ParkedAs{Name: "x"}, AlsoParked: intake.ParkedAs{Name: "y"},
			Deviations: []string{"z"}}, answer{status: 499},
			map[string]any{"ClientErrors": 1.0, "Parked": 2.0, "Deviations": 1.0}},
		"parked before": {intake.Result{ParkedAs: intake.ParkedAs{Name: "x", Before: true}},
			answer{status: 500}, map[string]any{"ClientErrors": 0.0}},
	} {
		line, got := written(t, settings.BySignature, c.result, c.answer), map[string]any{}
		directive := line["_aws"].(map[string]any)["CloudWatchMetrics"].([]any)[0].(map[string]any)
		for _, m := range directive["Metrics"].([]any) {
			name := m.(map[string]any)["Name"].(string)
			got[name] = line[name]
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		// With client certificates, no zero is written.
		maps.DeleteFunc(c.want, func(_ string, value any) bool { return value == 0.0 })
		got = map[string]any{}
		for _, v := range (&Handler{conf: settings.Config{MTLS: &settings.MTLS{}}}).metrics(c.result, c.answer) {
			got[v.Metric.Name] = v.Value
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s, with client certificates (-want +got):\n%s", name, diff)
		}
	}
}

// The level of a line is that of its answer, or higher if an event needs attention.
func TestTheLevelOfALine(t *testing.T) {
	for want, results := range map[any][]intake.Result{
		nil: {{}}, "ERROR": {{Conflicts: 1}, {Unmarked: 1}, {Unpublishable: 1}},
		"WARN": {{Pending: 1}, {By: intake.Authentication{Key: keys.Found{TableFailed: true}}},
			{By: intake.Authentication{Key: keys.Found{Withdrawn: true}}},
			{By: intake.Authentication{Key: keys.Found{UnexpectedType: "text/html"}}}},
	} {
		for _, r := range results {
			if line := written(t, settings.BySignature, r, answer{}); line["level"] != want {
				t.Errorf("%+v: %v, want %v", r, line["level"], want)
			}
			line := written(t, settings.BySignature, r, answer{level: slog.LevelError})
			if line["level"] != "ERROR" {
				t.Errorf("%+v, answered with an error: %v", r, line["level"])
			}
		}
	}
}

func TestTheFieldsOfALine(t *testing.T) {
	ids := intake.EventIDs{intake.Published: {"a", "b"}, intake.Duplicate: {"c"}}
	full := intake.Result{Err: errors.New("first"), PublishErr: errors.New("second"), DeliveryID: "d",
		Events: 5, Recorded: 6, Duplicates: 7, Large: 8, Pending: 9, Unrecorded: 1, Unmarked: 2, Unpublishable: 3,
		EventIDs: ids, ParkedAs: intake.ParkedAs{Name: "p"}, AlsoParked: intake.ParkedAs{Name: "q"},
		Deviations: []string{"key.e"},
		By: intake.Authentication{KeyID: "k", Key: keys.Found{Source: keys.Service, TableFailed: true,
			UnexpectedType: "text/html"}},
		Steps: intake.Steps{Authenticate: 1, Record: 2, Publish: 3, Mark: 4, Evidence: 5}}
	named := map[string]any{"published": []any{"a", "b"}, "duplicate": []any{"c"}}
	for name, c := range map[string]struct {
		authentication string
		result         intake.Result
		want           map[string]any // beside the outcome and the status
	}{
		"nothing is known": {settings.BySignature, intake.Result{}, map[string]any{}},
		"everything": {settings.ByBoth, full, map[string]any{"authentication": "both",
			"cause": "first", "keyId": "k", "keySource": string(keys.Service), "deliveryId": "d", "recorded": 6.0,
			"duplicates": 7.0, "large": 8.0, "pending": 9.0, "keyTableFailed": true, "keyContentType": "text/html",
			"unrecorded": 1.0, "unmarked": 2.0, "unpublishable": 3.0, "ids": named, "events": 5.0, "idsLeftOut": 2.0,
			"parked": "p", "alsoParked": "q", "deviations": []any{"key.e"},
			"ms": map[string]any{"authenticate": 1.0, "record": 2.0, "publish": 3.0, "mark": 4.0,
				"evidence": 5.0}}},
		"no ids": {settings.BySignature, intake.Result{Events: 3}, map[string]any{}},
		"not authentic": {settings.BySignature, intake.Result{UnverifiedID: "c"},
			map[string]any{"unverifiedDeliveryId": "c"}},
		"a key in memory": {settings.BySignature, intake.Result{
			By: intake.Authentication{KeyID: "k", Key: keys.Found{Source: keys.InMemory}}},
			map[string]any{"keyId": "k"}},
		"an outage of the bus": {settings.BySignature, intake.Result{PublishErr: errors.New("second"), Events: 3,
			EventIDs: ids}, map[string]any{"cause": "second", "ids": named}},
	} {
		c.result.Outcome.Name, c.want["outcome"], c.want["status"] = "o", "o", 1.0
		line := written(t, c.authentication, c.result, answer{status: 1})
		for field := range line {
			if field == "level" || field == "msg" || field == "_aws" || 'A' <= field[0] && field[0] <= 'Z' {
				delete(line, field)
			}
		}
		if diff := cmp.Diff(c.want, line); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
