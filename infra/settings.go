package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"payhook.example/shared/settings"
)

// furtherStacks is the key in the context for further stacks of a local run: a JSON
// list of objects, each with the settings in which a stack differs from the first.
// One synthesis of three stacks takes much less time than three.
const furtherStacks = "localStacks"

// readSettings reads the settings from the app's context: -c on the command
// line, cdk.json, cdk.context.json. It returns those of the stack, followed by those of
// the further stacks of a local run. Its error lists every setting that is wrong,
// missing or unknown, one a line.
func readSettings(app awscdk.App) ([]settings.Deployment, error) {
	context, _ := app.Node().GetAllContext(nil).(map[string]any)
	texts := map[string]string{}
	for key, value := range context {
		if value != nil && !belongsToCDK(key) {
			texts[key] = settingText(value)
		}
	}
	further, err := takeFurtherStacks(texts)
	if err != nil {
		return nil, settingsError{err}
	}
	var stacks []settings.Deployment
	for _, changes := range append([]map[string]string{nil}, further...) {
		own := maps.Clone(texts)
		maps.Copy(own, changes)
		conf, err := settings.ParseDeployment(func(key string) (string, bool) {
			text, ok := own[key]
			return text, ok
		}, slices.Collect(maps.Keys(own)))
		if err != nil {
			return nil, settingsError{err}
		}
		if slices.ContainsFunc(stacks, func(s settings.Deployment) bool { return s.StackName == conf.StackName }) {
			return nil, settingsError{fmt.Errorf("%s: two stacks are named %s", furtherStacks, conf.StackName)}
		}
		stacks = append(stacks, conf)
	}
	if len(further) > 0 && !stacks[0].Local {
		return nil, settingsError{errors.New(furtherStacks + ": is for local runs")}
	}
	return stacks, nil
}

// takeFurtherStacks removes the further stacks from the texts of settings and
// returns what is different about each.
func takeFurtherStacks(texts map[string]string) (further []map[string]string, err error) {
	text, ok := texts[furtherStacks]
	if !ok {
		return nil, nil
	}
	delete(texts, furtherStacks)
	if err := json.Unmarshal([]byte(text), &further); err != nil {
		return nil, fmt.Errorf("%s: must be a JSON list of objects with texts: %w", furtherStacks, err)
	}
	return further, nil
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
