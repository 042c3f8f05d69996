package payhook

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/jsii-runtime-go"
)

// The example of a file for an environment is one that can be deployed.
func TestTheExampleOfAnEnvironmentIsSynthesized(t *testing.T) {
	app := newApp(t, map[string]any{"env": "staging"})
	stack, props := newStack(t, app, "..")
	create(stack, jsii.String("Default"), props, programs(""))
	if *stack.StackName() != "PayhookStaging" || *stack.Region() != "eu-central-1" ||
		*stack.Account() != "111122223333" {
		t.Error(*stack.StackName(), *stack.Region(), *stack.Account())
	}
	if err := synthesize(app); err != nil {
		t.Error(err)
	}
}

// The command line replaces an environment, which replaces the file of all environments.
func TestSettingsAreReadFromThreePlaces(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"settings.json":          `{"scopes": "all", "keysAuth": "bearer", "successStatus": 201, "stackName": "All"}`,
		"environments/one.json":  `{"scopes": "one", "successStatus": 202, "allowedSources": ["192.0.2.0/24", "::/0"]}`,
		"environments/list.json": `[]`, "environments/region.json": `{"region": "eu-centrl-1"}`,
		"environments/account.json": `{"account": "1111-2222-3333"}`} {
		writeFile(t, filepath.Join(folder, name), text)
	}
	for env, want := range map[string]string{"": "all bearer 203 All", "one": "one bearer 203 All 192.0.2.0/24;::/0"} {
		stack, props := newStack(t, newApp(t, map[string]any{"env": env, "successStatus": "203"}), folder)
		var got []string
		for _, key := range []string{"scopes", "keysAuth", "successStatus", "stackName", "allowedSources"} {
			got = append(got, props.given[key].Text)
		}
		if text := strings.TrimSpace(strings.Join(got, " ")); text != want || *stack.StackName() != "All" {
			t.Errorf("%q: %s in %s, want %s", env, text, *stack.StackName(), want)
		}
	}
	_, props := newStack(t, newApp(t, map[string]any{"env": "one"}), folder)
	if got, want := props.given["scopes"].From, filepath.Join(folder, "environments", "one.json"); got != want {
		t.Errorf("scopes are from %s, want %s", got, want)
	}
	for name, want := range map[string]string{
		"two":  `no environment "two"; ` + folder + "/environments has: account, list, one, region",
		"../x": "no environment", "list": "list.json: json: cannot unmarshal array",
		"region":  "region.json: region=eu-centrl-1: the CDK knows no such Region",
		"account": "account.json: account=1111-2222-3333: must be the 12 digits"} {
		if _, _, err := ReadSettings(newApp(t, map[string]any{"env": name}), folder); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("CDK_DEFAULT_ACCOUNT", "111122223333")
	t.Setenv("CDK_DEFAULT_REGION", "me-central-1")
	if stack, _ := newStack(t, newApp(t), folder); *stack.Account() != "111122223333" ||
		*stack.Region() != "me-central-1" {
		t.Error(*stack.Account(), *stack.Region())
	}
}
