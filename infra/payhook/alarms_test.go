package payhook

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/settings"
)

// AWS limits a description to 1,024 characters ("PutMetricAlarm" in the CloudWatch API reference).
func TestEveryAlarmSaysWhatToDo(t *testing.T) {
	tm := payhook(t, mtls("both"), map[string]any{"encryption": "cmk", "alarmSilence": "6h"})
	var created []string
	for path, alarm := range tm.all(t, "AWS::CloudWatch::Alarm") {
		text := alarm.Properties["AlarmDescription"].(string)
		if cause, action, _ := strings.Cut(text, settings.WhatToDo); cause == "" || action == "" || len(text) > 1024 {
			t.Errorf("%s: %d characters: %s", path, len(text), text)
		}
		created = append(created, filepath.Base(path))
	}
	slices.Sort(created)
	var described []string
	for _, found := range regexp.MustCompile(`(?m)^# (.+)$`).FindAllStringSubmatch(texts, -1) {
		described = append(described, found[1])
	}
	if diff := cmp.Diff(described, created); diff != "" || len(created) > 15 { // a person cannot know more
		t.Errorf("%d alarms (-alarms.txt, sorted +template)\n%s", len(created), diff)
	}
}

// At least one alarm must report each problem, and no metric is written for nothing.
func TestEveryMetricHasAnAlarm(t *testing.T) {
	got := map[string]bool{}
	for _, conf := range []map[string]any{nil, mtls("both")} {
		for _, alarm := range payhook(t, conf).all(t, "AWS::CloudWatch::Alarm") {
			watched := []any{alarm.Properties}
			for _, query := range list(alarm.Properties["Metrics"]) {
				watched = append(watched, at(query, "MetricStat", "Metric"))
			}
			for _, metric := range watched {
				if name := at(metric, "MetricName"); name != nil {
					got[fmt.Sprint(at(metric, "Namespace"), " ", name)] = true
				}
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
