package payhook

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"payhook.example/shared/settings"
)

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

func TestLongestNamesAreValid(t *testing.T) {
	longest := strings.Repeat("PayhookOfTheDepartmentOfPayments", 4)[:100]
	tm := payhook(t, mtls("both"), map[string]any{
		"stackName": longest, "keysAuth": "bearer", "encryption": "cmk",
		"baseUrl": "https://" + strings.Repeat("api.", 50) + "payments.example",
	})
	for path, r := range tm.Resources {
		for property, value := range r.Properties {
			text, ok := value.(string)
			limit := limits[r.Type+"."+property]
			if n := utf8.RuneCountInString(text); limit > 0 && n > limit {
				t.Errorf("%s: %s has %d characters, and AWS takes %d: %s", path, property, n, limit, text)
			}
			if ok && limit == 0 && strings.Contains(strings.ToLower(text), strings.ToLower(longest[:40])) {
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
		{map[string]any{"encryption": "cmk", "claimBucket": "old-claims"}, "payhook:useKey"},
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
