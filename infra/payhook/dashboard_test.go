package payhook

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/names"
)

// everyAlarm are settings with which every alarm but that of function URLs, and every
// metric, exists.
var everyAlarm = mtls("both")

// dashboard returns the widgets of the dashboard. References are written as by render.
func (tm *template) dashboard(t *testing.T) []widget {
	t.Helper()
	var body struct{ Widgets []widget }
	text := tm.render(tm.get(t, "Monitoring/Dashboard", "AWS::CloudWatch::Dashboard").Properties["DashboardBody"])
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return body.Widgets
}

// shown returns the metrics on the dashboard, as NAMESPACE NAME of VALUE.
func (tm *template) shown(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, w := range tm.dashboard(t) {
		for _, m := range list(w.Properties["metrics"]) {
			if m != nil {
				all[fmt.Sprintf("%v %v of %v", at(m, 0), at(m, 1), at(m, 3))] = true
			}
		}
	}
	return all
}

func TestEveryMetricIsOnTheDashboard(t *testing.T) {
	for _, c := range []struct {
		conf   map[string]any
		absent []names.Metric
	}{
		{nil, []names.Metric{names.TrustDaysLeftMetric, names.SourceNotAllowedMetric}},
		{map[string]any{"allowedSources": "192.0.2.0/24"}, []names.Metric{names.TrustDaysLeftMetric}},
		{everyAlarm, []names.Metric{names.SourceNotAllowedMetric}},
	} {
		tm := payhook(t, c.conf)
		var want []string
		for _, m := range names.Metrics() {
			if !slices.Contains(c.absent, m) {
				want = append(want, fmt.Sprintf("%s %s of Payhook", names.MetricNamespace, m.Name))
			}
		}
		for _, r := range tm.Resources {
			if r.Type == "AWS::Logs::MetricFilter" {
				want = append(want, fmt.Sprintf("%s %v of Endpoint/Api", names.MetricNamespace,
					at(r.Properties, "MetricTransformations", 0, "MetricName")))
			}
		}
		var own []string
		for metric := range tm.shown(t) {
			if strings.HasPrefix(metric, names.MetricNamespace+" ") {
				own = append(own, metric)
			}
		}
		slices.Sort(want)
		slices.Sort(own)
		if diff := cmp.Diff(want, own); diff != "" || len(own) > 20 {
			t.Errorf("%d of 20 metrics (-declared +on the dashboard)\n%s", len(own), diff)
		}
	}
}

// What raises an alarm can be looked at.
func TestTheMetricsOfEveryAlarmAreOnTheDashboard(t *testing.T) {
	for _, conf := range []map[string]any{nil, everyAlarm, {"encryption": "cmk"}} {
		tm := payhook(t, conf)
		shown := tm.shown(t)
		for name, alarm := range tm.all(t, "AWS::CloudWatch::Alarm") {
			for _, m := range tm.watched(alarm.Properties) {
				metric := fmt.Sprintf("%v %v of %s", m["Namespace"], m["MetricName"],
					tm.render(at(m, "Dimensions", 0, "Value")))
				if !shown[metric] {
					t.Errorf("%v: %s watches %s, which is not on the dashboard", conf, name, metric)
				}
			}
		}
	}
}

func TestTheDashboardShowsWhatEachEndpointHas(t *testing.T) {
	for name, c := range map[string]struct {
		settings map[string]any
		want     []string
	}{
		"function URL": {nil, []string{"AWS/Lambda Url4xxCount of Webhook/Function",
			"AWS/Lambda Url5xxCount of Webhook/Function", "AWS/Lambda UrlRequestCount of Webhook/Function"}},
		"API with mTLS": {everyAlarm, []string{"AWS/ApiGateway 4xx of Endpoint/Api",
			"AWS/ApiGateway 5xx of Endpoint/Api",
			"AWS/ApiGateway Count of Endpoint/Api", "AWS/CertificateManager DaysToExpiry of Endpoint/Certificate"}},
	} {
		var got []string
		for metric := range payhook(t, c.settings).shown(t) {
			if strings.Contains(metric, " Url") || strings.HasPrefix(metric, "AWS/ApiGateway") ||
				strings.HasPrefix(metric, "AWS/CertificateManager") {
				got = append(got, metric)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// Each chart has a text of the same width above it: one sentence, and a link to an
// alarm.
func TestEveryChartHasASentenceAndALink(t *testing.T) {
	oneSentence := regexp.MustCompile(`^[A-Z][^.]{20,150}\. \[([^\]]+)\]\(([^)]+)\)$`)
	for _, conf := range []map[string]any{nil, everyAlarm, {"encryption": "cmk"}} {
		tm := payhook(t, conf)
		alarms := tm.all(t, "AWS::CloudWatch::Alarm")
		widgets := tm.dashboard(t)
		charts := 0
		for _, w := range widgets {
			if w.Type == "text" {
				continue
			}
			charts++
			title := w.Properties["title"]
			i := slices.IndexFunc(widgets, func(above widget) bool {
				return above.Type == "text" && above.X == w.X && above.Width == w.Width && above.Y+above.Height == w.Y
			})
			if i < 0 {
				t.Errorf("%v has no text above it", title)
				continue
			}
			found := oneSentence.FindStringSubmatch(widgets[i].Properties["markdown"].(string))
			if found == nil {
				t.Errorf("%v: %v", title, widgets[i].Properties["markdown"])
				continue
			}
			if label, target := found[1], found[2]; label != "Alarms" {
				name, _ := strings.CutPrefix(label, "Alarm: ")
				if target != "#alarmsV2:alarm/Payhook-"+name || alarms["Alarms/"+name] == nil {
					t.Errorf("%v links to %s (%s), which is no alarm", title, label, target)
				}
			}
		}
		if charts < 10 {
			t.Errorf("%v: %d charts", conf, charts)
		}
	}
}

func TestWidgetsFitTheGridAndDoNotOverlap(t *testing.T) {
	for _, conf := range []map[string]any{nil, everyAlarm, {"encryption": "cmk"}} {
		taken := map[[2]int]string{}
		widgets := payhook(t, conf).dashboard(t)
		// The dashboard body of AWS: at most 500 widgets.
		if len(widgets) > 500 {
			t.Errorf("%d widgets", len(widgets))
		}
		for _, w := range widgets {
			name := fmt.Sprint(w.Type, " ", w.Properties["title"], w.Properties["markdown"])
			if w.X < 0 || w.Width < 1 || w.X+w.Width > 24 || w.Height < 1 {
				t.Errorf("%s is at %d, %d wide", name, w.X, w.Width)
			}
			for x := w.X; x < w.X+w.Width; x++ {
				for y := w.Y; y < w.Y+w.Height; y++ {
					if other, ok := taken[[2]int{x, y}]; ok {
						t.Fatalf("%s overlaps %s", name, other)
					}
					taken[[2]int{x, y}] = name
				}
			}
		}
	}
}

// The name and the body have the Region: dashboards belong to an account.
func TestTheDashboardBelongsToTheRegionOfTheStack(t *testing.T) {
	tm := payhook(t, map[string]any{"stackName": "PayhookStaging"})
	d := tm.get(t, "Monitoring/Dashboard", "AWS::CloudWatch::Dashboard").Properties
	if got := tm.render(d["DashboardName"]); got != "PayhookStaging-AWS::Region" {
		t.Errorf("the dashboard is named %s", got)
	}
	for _, w := range tm.dashboard(t) {
		if w.Type != "text" && w.Type != "alarm" && w.Properties["region"] != "AWS::Region" {
			t.Errorf("%v is of the region %v", w.Properties["title"], w.Properties["region"])
		}
	}
}

// The steps are members of the outcome line.
func TestQueriesNameTheStepsOfTheOutcomeLine(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "functions", "webhook", "handler.go"))
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	step := regexp.MustCompile(`\{"(\w+)", s\.`)
	for _, found := range step.FindAllStringSubmatch(string(source), -1) {
		written["ms."+found[1]] = true
	}
	if len(written) < 5 {
		t.Fatalf("found only the steps %v", written)
	}
	tm := payhook(t, nil)
	var queries []string
	for _, w := range tm.dashboard(t) {
		if w.Type != "log" {
			continue
		}
		query := w.Properties["query"].(string)
		if !strings.HasPrefix(query, "SOURCE 'Webhook/Logs' | filter msg = \"webhook\"") {
			t.Errorf("%v queries %s", w.Properties["title"], query)
		}
		queries = append(queries, query)
	}
	for _, query := range tm.all(t, "AWS::Logs::QueryDefinition") {
		queries = append(queries, query.Properties["QueryString"].(string))
	}
	named := map[string]bool{}
	for _, query := range queries {
		for _, step := range regexp.MustCompile(`ms\.\w+`).FindAllString(query, -1) {
			named[step] = true
		}
	}
	if diff := cmp.Diff(written, named); diff != "" {
		t.Errorf("(-written +queried)\n%s", diff)
	}
}

func TestSavedQueriesAreOfTheLogOfTheirFunction(t *testing.T) {
	tm := payhook(t, map[string]any{"stackName": "PayhookStaging"})
	for path, query := range tm.all(t, "AWS::Logs::QueryDefinition") {
		p := query.Properties
		if want := "PayhookStaging/" + strings.TrimPrefix(path, "Monitoring/Queries/"); p["Name"] != want {
			t.Errorf("%v, want %s", p["Name"], want)
		}
		part := map[bool]string{true: "Webhook"}[strings.Contains(p["QueryString"].(string), `msg = "webhook"`)]
		for _, name := range []string{"Redrive", "Token"} {
			if strings.Contains(p["QueryString"].(string), `msg = "`+strings.ToLower(name)+`"`) {
				part = name
			}
		}
		if got := list(p["LogGroupNames"]); len(got) != 1 || tm.render(got[0]) != part+"/Logs" {
			t.Errorf("%v is of %v", p["Name"], got)
		}
	}
}

func TestTheDashboardShowsEveryAlarm(t *testing.T) {
	for _, conf := range []map[string]any{nil, everyAlarm, {"encryption": "cmk"}} {
		tm := payhook(t, conf)
		var shown, all []string
		for _, w := range tm.dashboard(t) {
			if w.Type == "alarm" {
				for _, arn := range list(w.Properties["alarms"]) {
					shown = append(shown, strings.TrimPrefix(tm.render(arn),
						"arn:AWS::Partition:cloudwatch:AWS::Region:AWS::AccountId:alarm:Payhook-"))
				}
			}
		}
		for path := range tm.all(t, "AWS::CloudWatch::Alarm") {
			all = append(all, filepath.Base(path))
		}
		slices.Sort(shown)
		slices.Sort(all)
		if diff := cmp.Diff(all, shown); diff != "" {
			t.Errorf("%v: alarms on the dashboard (-want +got)\n%s", conf, diff)
		}
	}
}
