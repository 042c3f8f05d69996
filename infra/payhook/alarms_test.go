package payhook

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/settings"
)

// watched returns the metrics that an alarm watches, with their statistics and
// periods: the one that it is on, and those that are subtracted from it.
func (tm *template) watched(alarm map[string]any) (metrics []map[string]any) {
	if alarm["Metrics"] == nil {
		return []map[string]any{alarm}
	}
	for _, query := range list(alarm["Metrics"]) {
		if stat, ok := at(query, "MetricStat").(map[string]any); ok {
			metric := maps.Clone(at(stat, "Metric").(map[string]any))
			metric["Statistic"], metric["Period"] = stat["Stat"], stat["Period"]
			metrics = append(metrics, metric)
		}
	}
	return metrics
}

// alarmTable writes the table of alarms in infra/RUNBOOK.md.
func alarmTable(t *testing.T) string {
	t.Helper()
	rows := map[string]string{}
	tm := payhook(t, mtls("both"), map[string]any{"encryption": "cmk", "alarmSilence": "6h"})
	for path, alarm := range tm.all(t, "AWS::CloudWatch::Alarm") {
		name, text := filepath.Base(path), alarm.Properties["AlarmDescription"].(string)
		means, step, _ := strings.Cut(text, settings.WhatToDo)
		rows[name] = fmt.Sprintf("| `%s` | %s |", name, means)
		if len(text) > 1024 || means == "" || step == "" { // AWS, "PutMetricAlarm" in the CloudWatch API reference
			t.Errorf("%s: %d characters: %s", name, len(text), text)
		}
	}
	if len(rows) > 15 {
		t.Errorf("%d alarms: a person cannot know more than 15", len(rows))
	}
	for _, file := range []string{"alarms.go", "encryption.go"} {
		found := regexp.MustCompile(`name: +"([\w-]+)"`).FindAllStringSubmatch(string(readFile(t, file)), -1)
		for _, name := range found {
			if rows[name[1]] == "" {
				t.Errorf("the configuration of this test lacks the alarm %s", name[1])
			}
		}
	}
	table := "| alarm | raised when |\n|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		table += rows[name] + "\n"
	}
	return table
}

// The texts of alarms are in the source. go test ./infra/payhook -run Runbook -update writes them into the runbook.
func TestRunbookListsEveryAlarm(t *testing.T) {
	file := filepath.Join("..", "RUNBOOK.md")
	const begin, end = "<!-- alarms -->\n", "<!-- /alarms -->"
	before, rest, begun := strings.Cut(string(readFile(t, file)), begin)
	got, after, ended := strings.Cut(rest, end)
	want := alarmTable(t)
	switch {
	case !begun || !ended:
		t.Errorf("%s has no table between the lines %s and %s", file, begin, end)
	case *update:
		writeFile(t, file, before+begin+want+end+after)
	case got != want:
		t.Errorf("%s (-the source +the document)\n%s", file, cmp.Diff(strings.Split(want, "\n"),
			strings.Split(got, "\n")))
	}
}

// At least one alarm must report each problem, and no metric is written for nothing.
func TestEveryMetricHasAnAlarm(t *testing.T) {
	got := map[string]bool{}
	for _, conf := range []map[string]any{nil, mtls("both")} {
		for _, alarm := range payhook(t, conf).all(t, "AWS::CloudWatch::Alarm") {
			for _, metric := range payhook(t, conf).watched(alarm.Properties) {
				got[fmt.Sprintf("%s %s", metric["Namespace"], metric["MetricName"])] = true
			}
		}
	}
	want := map[string]bool{"AWS/Lambda Errors": true, "AWS/Lambda Throttles": true, "AWS/Lambda Url4xxCount": true}
	for _, m := range settings.Metrics() {
		// The first is for the main chart, and webhooks with deviations are published.
		if m != settings.AcceptedMetric && m != settings.DeviationsMetric && m.Status/100 != 4 {
			want["Payhook "+m.Name] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
