package payhook

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"payhook.example/shared/settings"
)

// everyAlarm are settings with which every alarm but that of function URLs, and every metric, exists.
var everyAlarm = mtls("both")

// dashboard returns the text of the dashboard, with references as written by render, and the metrics on it, as
// NAMESPACE NAME of VALUE.
func (tm *template) dashboard(t *testing.T) (text string, shown map[string]bool) {
	t.Helper()
	text = tm.render(tm.get(t, "Monitoring/Dashboard", "AWS::CloudWatch::Dashboard").Properties["DashboardBody"])
	var body struct {
		Widgets []struct{ Properties struct{ Metrics [][]any } }
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	shown = map[string]bool{}
	for _, w := range body.Widgets {
		for _, m := range w.Properties.Metrics {
			shown[fmt.Sprintf("%v %v of %v", m[0], m[1], m[3])] = true
		}
	}
	return text, shown
}

// What raises an alarm can be looked at, and each link is that of an alarm.
func TestTheDashboardShowsEveryMetric(t *testing.T) {
	for _, c := range []struct {
		conf   map[string]any
		absent []settings.Metric
	}{
		{nil, []settings.Metric{settings.TrustDaysLeftMetric, settings.NotInvokedMetric,
			settings.SourceNotAllowedMetric}},
		{map[string]any{"allowedSources": "192.0.2.0/24"},
			[]settings.Metric{settings.TrustDaysLeftMetric, settings.NotInvokedMetric}},
		{everyAlarm, []settings.Metric{settings.SourceNotAllowedMetric}},
		{map[string]any{"encryption": "cmk"},
			[]settings.Metric{settings.TrustDaysLeftMetric, settings.NotInvokedMetric,
				settings.SourceNotAllowedMetric}},
	} {
		tm := payhook(t, c.conf)
		text, shown := tm.dashboard(t)
		for _, m := range settings.Metrics() {
			metric := fmt.Sprintf("%s %s of Payhook", settings.MetricNamespace, m.Name)
			if shown[metric] == slices.Contains(c.absent, m) {
				t.Errorf("%v: %s is on the dashboard: %t", c.conf, metric, shown[metric])
			}
		}
		alarms := map[string]bool{}
		for path, alarm := range tm.all(t, "AWS::CloudWatch::Alarm") {
			alarms[filepath.Base(path)] = true
			for _, m := range tm.watched(alarm.Properties) {
				metric := fmt.Sprintf("%v %v of %s", m["Namespace"], m["MetricName"],
					tm.render(at(m, "Dimensions", 0, "Value")))
				if !shown[metric] {
					t.Errorf("%v: %s watches %s, which is not on the dashboard", c.conf, path, metric)
				}
			}
		}
		links := regexp.MustCompile(`#alarmsV2:alarm/Payhook-([\w-]+)`).FindAllStringSubmatch(text, -1)
		if len(links) < 10 {
			t.Errorf("%d links to alarms", len(links))
		}
		for _, link := range links {
			if !alarms[link[1]] {
				t.Errorf("%v: there is no alarm %s", c.conf, link[1])
			}
		}
	}
}
