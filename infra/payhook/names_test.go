package payhook

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"payhook.example/shared/settings"
)

// limits are the maximum lengths of the names and descriptions
// in the template. CloudFormation generates other names and respects
// their limits.
var limits = map[string]int{
	// AWS, "PutCompositeAlarm" in the CloudWatch API reference.
	"AWS::CloudWatch::CompositeAlarm.AlarmName":        255,
	"AWS::CloudWatch::CompositeAlarm.AlarmDescription": 1024,

	// AWS, "PutQueryDefinition" in the CloudWatch Logs API reference.
	"AWS::Logs::QueryDefinition.Name": 255,

	"AWS::CloudWatch::Alarm.AlarmName":        255,  // AWS, "PutMetricAlarm" in the CloudWatch API reference
	"AWS::CloudWatch::Alarm.AlarmDescription": 1024, // the same page
	"AWS::CloudWatch::Alarm.MetricName":       255,
	"AWS::CloudWatch::Alarm.Namespace":        255,
	"AWS::Events::Archive.ArchiveName":        48, // AWS, "CreateArchive" in the EventBridge API reference
	"AWS::Events::Archive.Description":        512,
	"AWS::Events::EventBus.Name":              256, // AWS, "CreateEventBus" in the EventBridge API reference
	"AWS::Events::EventBus.Description":       512,
	"AWS::Events::EventBusPolicy.StatementId": 64,  // AWS, "PutPermission" in the EventBridge API reference
	"AWS::IAM::Policy.PolicyName":             128, // AWS, "PutRolePolicy" in the IAM API reference
	"AWS::IAM::Role.RoleName":                 64,  // AWS, "CreateRole" in the IAM API reference
	"AWS::IAM::Role.Description":              1000,
	"AWS::Lambda::Alias.Name":                 128, // AWS, "CreateAlias" in the Lambda API reference
	"AWS::Lambda::Alias.Description":          256,
	"AWS::Lambda::Function.FunctionName":      64, // AWS, "CreateFunction" in the Lambda API reference
	"AWS::Lambda::Function.Description":       256,
	"AWS::Lambda::Function.Handler":           128,
	"AWS::Logs::LogGroup.LogGroupName":        512,  // AWS, "CreateLogGroup" in the CloudWatch Logs API reference
	"AWS::SNS::Topic.DisplayName":             100,  // AWS, "CreateTopic" in the SNS API reference
	"AWS::SNS::Topic.TopicName":               256,  // the same page
	"AWS::SQS::Queue.QueueName":               80,   // AWS, "CreateQueue" in the SQS API reference
	"AWS::Scheduler::Schedule.Name":           64,   // AWS, "CreateSchedule" in the EventBridge Scheduler API reference
	"AWS::SecretsManager::Secret.Name":        512,  // AWS, "CreateSecret" in the Secrets Manager API reference
	"AWS::SecretsManager::Secret.Description": 2048, // the same page
}

// named are the suffixes of the properties that limits must cover.
var named = []string{"Name", "Description", "StatementId", "Handler", "Namespace"}

func TestLongestNamesAreValid(t *testing.T) {
	longest := strings.Repeat("PayhookOfTheDepartmentOfPayments", 4)[:100]
	tm := payhook(t, map[string]any{
		"stackName": longest, "deployment": "canary", "keysAuth": "bearer", "alarmEmail": "ops@payments.example",
		"baseUrl": "https://" + strings.Repeat("api.", 50) + "payments.example",
	})
	checked := map[string]bool{}
	for path, r := range tm.Resources {
		for property, value := range r.Properties {
			text, ok := value.(string)
			if !ok {
				continue // a reference to a name that CloudFormation generates
			}
			of := r.Type + "." + property
			limit, known := limits[of]
			switch {
			case known && utf8.RuneCountInString(text) > limit:
				t.Errorf("%s: %s has %d characters, and AWS takes %d: %s", path, of, utf8.RuneCountInString(text),
					limit, text)
			case known:
				checked[of] = true
			case isNamed(property) && !isChosenByAWS(text):
				t.Errorf("%s: the limit of %s is not known here: %s", path, of, text)
			}
		}
	}
	if !checked["AWS::SNS::Topic.DisplayName"] || !checked["AWS::CloudWatch::Alarm.AlarmName"] ||
		!checked["AWS::Events::EventBus.Name"] {
		t.Errorf("checked only %v", checked)
	}
	for function, path := range functions {
		// AWS, "Lambda quotas": all environment variables of a function together. A
		// reference is a name of at most 255 characters, or an ARN.
		size := 0
		for name, value := range at(tm.get(t, path, "AWS::Lambda::Function").Properties, "Environment",
			"Variables").(map[string]any) {
			size += len(name) + 255
			if text, ok := value.(string); ok {
				size += len(text) - 255
			}
		}
		if size > 4096 {
			t.Errorf("%s: the environment has up to %d bytes", function, size)
		}
	}
	// AWS, "CloudFormation quotas".
	if n := len(tm.Resources); n > 500 {
		t.Errorf("%d resources", n)
	}
	if n := len(tm.Outputs); n > 200 {
		t.Errorf("%d outputs", n)
	}
}

func isNamed(property string) bool {
	for _, end := range named {
		if strings.HasSuffix(property, end) {
			return true
		}
	}
	return false
}

// isChosenByAWS reports whether AWS defines a name.
func isChosenByAWS(text string) bool { return strings.HasPrefix(text, "CodeDeployDefault.") }

func TestSynthesisPrintsWarnings(t *testing.T) {
	for _, c := range []struct {
		settings map[string]any
		want     string // "" for none
	}{
		{map[string]any{"alarmEmail": "ops@payments.example"}, ""},
		{nil, "payhook:alarmEmail"},
		{map[string]any{"alarmEmail": "ops@payments.example", "eventBusName": "payments"}, "payhook:eventBusName"},
		{map[string]any{"alarmEmail": "ops@payments.example", "stackName": "Staging", "eventBusName": "staging"}, ""},
		{map[string]any{settings.LocalKey: true, "eventBusName": "payments"}, ""},
	} {
		_, stack := newPayhook(t, "", c.settings)
		var warnings []string
		for _, entry := range *stack.Node().Metadata() {
			if *entry.Type == "aws:cdk:warning" {
				warnings = append(warnings, fmt.Sprint(entry.Data))
			}
		}
		switch {
		case c.want == "" && len(warnings) > 0:
			t.Errorf("%v: %q", c.settings, warnings)
		case c.want != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], c.want)):
			t.Errorf("%v: %q, want one about %s", c.settings, warnings, c.want)
		}
	}
}
