package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"payhook.example/shared/contract"
)

// readSettings reads the settings from the app's context: -c on the command
// line, cdk.json, cdk.context.json. Its error lists every setting that is wrong,
// missing or unknown, one a line.
func readSettings(app awscdk.App) (contract.Deployment, error) {
	context, _ := app.Node().GetAllContext(nil).(map[string]any)
	texts := map[string]string{}
	var given []string
	for key, value := range context {
		if value == nil || belongsToCDK(key) {
			continue
		}
		texts[key] = settingText(value)
		given = append(given, key)
	}
	settings, err := contract.ParseDeployment(func(key string) (string, bool) {
		text, ok := texts[key]
		return text, ok
	}, given)
	if err != nil {
		return contract.Deployment{}, settingsError{err}
	}
	return settings, nil
}

// settingsError is what somebody reads who deploys for the first time.
type settingsError struct{ problems error }

func (e settingsError) Unwrap() error { return e.problems }

func (e settingsError) Error() string {
	lines := strings.Split(e.problems.Error(), "\n")
	return fmt.Sprintf("payhook: nothing was synthesized, for these settings:\n\n  %s\n\nGive each with -c NAME=VALUE, or under \"context\" in cdk.json.",
		strings.Join(lines, "\n  "))
}

// belongsToCDK tells the context that the CDK keeps for itself: feature flags
// (@aws-cdk/…), what it looked up (availability-zones:…) and how it was called
// (aws:cdk:…), and two keys that its CLI writes into cdk.context.json. All else
// is a setting of ours, or a misspelt one.
func belongsToCDK(key string) bool {
	return strings.HasPrefix(key, "@") || strings.Contains(key, ":") ||
		key == "acknowledged-issue-numbers" || key == "cli-telemetry"
}

// settingText is the value as -c would give it. In cdk.json, a number or a
// boolean need not be quoted.
func settingText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(text)
	}
}
