package payhook

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

// furtherStacks is the context key for further stacks of a local run: a JSON list of
// objects, each with the settings in which a stack differs from the first. One synthesis
// of three stacks takes much less time than three syntheses.
const furtherStacks = "localStacks"

// readSettings reads the settings from the app's context: -c on the command line,
// cdk.json, cdk.context.json. It returns those of the stack, followed by those of the
// further stacks of a local run. Its error lists every invalid, missing or unknown
// setting, one per line.
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

// takeFurtherStacks removes the further stacks from the texts of settings and returns
// the settings of each that differ from the first stack.
func takeFurtherStacks(texts map[string]string) (further []map[string]string, err error) {
	text, ok := texts[furtherStacks]
	if !ok {
		return nil, nil
	}
	delete(texts, furtherStacks)
	if err := json.Unmarshal([]byte(text), &further); err != nil {
		return nil, fmt.Errorf("%s: must be a JSON list of objects with string values: %w", furtherStacks, err)
	}
	return further, nil
}

// settingsError lists the problems of the settings, with a hint for first-time users.
type settingsError struct{ problems error }

func (e settingsError) Unwrap() error { return e.problems }

func (e settingsError) Error() string {
	lines := strings.Split(e.problems.Error(), "\n")
	return fmt.Sprintf("payhook: nothing was synthesized because of these settings:\n\n  %s\n\nSet each with -c "+
		"NAME=VALUE, or under \"context\" in cdk.json.",
		strings.Join(lines, "\n  "))
}

// belongsToCDK reports whether a context key is one of the CDK: feature flags
// (@aws-cdk/…), lookups (availability-zones:…), information about the invocation
// (aws:cdk:…), and two keys that its CLI writes into cdk.context.json. All other keys
// must be settings.
func belongsToCDK(key string) bool {
	return strings.HasPrefix(key, "@") || strings.Contains(key, ":") ||
		key == "acknowledged-issue-numbers" || key == "cli-telemetry"
}

// settingText returns a value as -c would pass it. In cdk.json, numbers and booleans
// need no quotes.
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
