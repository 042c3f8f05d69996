package payhook

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/settings"
)

// functions are the names of the functions in the template by their folder.
var functions = map[string]string{"webhook": "Webhook/Function", "redrive": "Redrive/Function",
	"token": "Token/Function"}

// statements returns the statements of all policies of a role.
func (tm *template) statements(t *testing.T, role string) (all []map[string]any) {
	t.Helper()
	for name, policy := range tm.all(t, "AWS::IAM::Policy") {
		roles := list(policy.Properties["Roles"])
		if !slices.Contains(roles, any(role)) {
			continue
		}
		if len(roles) > 1 {
			t.Errorf("%s is the policy of more than one role", name)
		}
		for _, s := range list(at(policy.Properties, "PolicyDocument", "Statement")) {
			all = append(all, s.(map[string]any))
		}
	}
	return all
}

// grants lists, for each resource, the actions that a role can perform on it.
func (tm *template) grants(t *testing.T, role string) map[string][]string {
	t.Helper()
	properties := tm.get(t, role, "AWS::IAM::Role").Properties
	if properties["ManagedPolicyArns"] != nil || properties["Policies"] != nil {
		t.Errorf("%s has other policies: %v", role, properties)
	}
	grants := map[string][]string{}
	for _, s := range tm.statements(t, role) {
		if s["Effect"] != "Allow" || s["NotAction"] != nil || s["NotResource"] != nil {
			t.Errorf("%s: not a plain permission: %v", role, s)
		}
		for _, r := range list(s["Resource"]) {
			on := fmt.Sprint(r)
			for _, action := range list(s["Action"]) {
				grants[on] = append(grants[on], action.(string))
			}
			slices.Sort(grants[on])
		}
	}
	return grants
}

func list(value any) []any {
	if l, ok := value.([]any); ok {
		return l
	}
	return []any{value}
}

// The emulator must be able to deploy what is left, also of options that it does not have. The data is deleted with the
// stack; the reviewed templates show that all others retain it.
func TestALocalTemplateHasOnlyWhatTheEmulatorSupports(t *testing.T) {
	conf := encrypted[0].settings
	tm := payhook(t, local, conf)
	for path, r := range tm.Resources {
		if slices.Contains(unsupported, r.Type) || r.Properties["Metrics"] != nil {
			t.Errorf("%s is a %s", path, r.Type)
		}
		if strings.HasPrefix(r.DeletionPolicy, "Retain") && r.Type != "AWS::Lambda::Version" ||
			at(r.Properties, "Replicas", 0, "DeletionProtectionEnabled") == true {
			t.Errorf("%s stays: %s", path, r.DeletionPolicy)
		}
	}
	for function, path := range functions {
		properties := tm.get(t, path, "AWS::Lambda::Function").Properties
		// The certificates of a user's machine are searched as usual.
		if got := at(properties, "Environment", "Variables", "SSL_CERT_DIR"); got != nil {
			t.Errorf("%s: SSL_CERT_DIR is %v", function, got)
		}
		want := map[string]string{"amd64": "x86_64", "arm64": "arm64"}[thisMachine]
		if got := at(properties, "Architectures", 0); got != want {
			t.Errorf("%s: %v, want %s", function, got, want)
		}
	}
	if removed := len(payhook(t, conf).Resources) - len(tm.Resources); removed != 4 {
		t.Errorf("%d resources are removed", removed)
	}
}

// limits are the maximum lengths of what contains the name of the stack, and of the texts of alarms. CloudFormation
// generates other names and respects their limits.
var limits = map[string]int{
	"AWS::ApiGatewayV2::Api.Name":              128,     // AWS, "CreateApi" in the API reference of HTTP APIs
	"AWS::ApiGatewayV2::Api.Description":       1024,    // the same page
	"AWS::CloudWatch::Alarm.AlarmName":         255,     // AWS, "PutMetricAlarm" in the CloudWatch API reference
	"AWS::CloudWatch::Alarm.AlarmDescription":  1024,    // the same page
	"AWS::CloudWatch::Dashboard.DashboardName": 255,     // AWS, "PutDashboard" in the CloudWatch API reference
	"AWS::CloudWatch::Dashboard.DashboardBody": 1 << 20, // which names no limit
	"AWS::Events::Archive.ArchiveName":         48,      // AWS, "CreateArchive" in the EventBridge API reference
	"AWS::Events::EventBus.Name":               256,     // AWS, "CreateEventBus" in the EventBridge API reference
	"AWS::IAM::Policy.PolicyName":              128,     // AWS, "PutRolePolicy" in the IAM API reference
	"AWS::KMS::Key.Description":                8192,    // AWS, "CreateKey" in the KMS API reference
	"AWS::SecretsManager::Secret.Description":  2048,    // AWS, "CreateSecret" in the Secrets Manager API reference
	"AWS::SNS::Topic.DisplayName":              100,     // AWS, "CreateTopic" in the SNS API reference
}

// long are settings with all alarms and the longest names.
var long = with(map[string]any{"authentication": "both", "truststore": truststores()[0], "encryption": "cmk",
	"stackName": strings.Repeat("PayhookOfTheDepartmentOfPayments", 4)[:100], "keyEndpointAuth": "bearer",
	"alarmSilence": "6h", "baseUrl": "https://" + strings.Repeat("api.", 50) + "payments.example"})

func TestLongestNamesAreValid(t *testing.T) {
	tm, prefix := payhook(t, long), "payhookofthedepartmentofpayments"
	for path, r := range tm.Resources {
		for property, value := range r.Properties {
			text, ok := value.(string)
			limit := limits[r.Type+"."+property]
			if n := utf8.RuneCountInString(text); limit > 0 && n > limit {
				t.Errorf("%s: %s has %d characters, and AWS takes %d: %s", path, property, n, limit, text)
			}
			if ok && limit == 0 && strings.Contains(strings.ToLower(text), prefix) {
				t.Errorf("%s: the limit of %s.%s is not known here: %s", path, r.Type, property, text)
			}
		}
	}
	if n := len(tm.Resources); n > 500 || len(tm.Outputs) > 200 { // AWS, "CloudFormation quotas"
		t.Errorf("%d resources, %d outputs", n, len(tm.Outputs))
	}
}

// printed returns what the CDK CLI prints about a construct at a level: info, warning or error.
func printed(p *Payhook, level string) (texts []string) {
	for _, entry := range *p.Node().Metadata() {
		if *entry.Type == "aws:cdk:"+level {
			texts = append(texts, fmt.Sprint(entry.Data))
		}
	}
	return texts
}

func TestSynthesisPrintsWarnings(t *testing.T) {
	email := map[string]any{"alarmEmail": "ops@payments.example"}
	for _, c := range []struct {
		settings map[string]any
		want     string // "" for none
	}{
		{nil, ""},
		{map[string]any{"alarmEmail": nil}, "payhook:alarmEmail"},
		{map[string]any{"alarmEmail": nil, settings.LocalKey: true}, ""},
		{map[string]any{"encryption": "cmk"}, ""},
		{map[string]any{"encryption": someKey, "ledgerTable": "old-ledger"}, ""},
		{map[string]any{"encryption": "cmk", "ledgerTable": "old-ledger"}, "by Payhook.UseKey"},
		{map[string]any{"encryption": "cmk", "largeEventBucket": "old-large-events"}, "payhook:useKey"},
		{map[string]any{"encryption": "cmk", "parkingBucket": "old-parking"}, "payhook:useKey"},
	} {
		_, p := newPayhook(t, "", email, c.settings)
		warnings := printed(p, "warning")
		if c.want == "" && len(warnings) > 0 ||
			c.want != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], c.want)) {
			t.Errorf("%v: %q, want one about %s", c.settings, warnings, c.want)
		}
	}
}

// AWS limits a description to 1,024 characters ("PutMetricAlarm" in the CloudWatch API reference).
func TestEveryAlarmSaysWhatToDo(t *testing.T) {
	tm := payhook(t, long)
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
