package payhook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

// The example of a file for an environment is one that can be deployed.
func TestTheExampleOfAnEnvironmentIsSynthesized(t *testing.T) {
	app := newApp(t, map[string]any{"env": "staging", "webhookConcurrency": "5"})
	env, err := Environment(app, "../environments")
	if err != nil || *env.Region != "eu-central-1" || *env.Account != "111122223333" {
		t.Fatal(env, err)
	}
	stack := awscdk.NewStack(app, jsii.String("Payhook"), &awscdk.StackProps{StackName: StackName(app), Env: env})
	p := create(stack, jsii.String("Default"), PropsFromContext(stack), programs(""))
	if *stack.StackName() != "PayhookStaging" || *stack.Region() != "eu-central-1" {
		t.Error(*stack.StackName(), *stack.Region())
	}
	if p.conf.WebhookConcurrency != 5 {
		t.Errorf("-c does not replace the file: %d", p.conf.WebhookConcurrency)
	}
	if err := synthesize(app); err != nil {
		t.Error(err)
	}
}

func TestAnEnvironmentReplacesTheContextOfTheApp(t *testing.T) {
	apps := map[string]awscdk.App{}
	for _, name := range []string{"", "one", "two", "../x", "wrong"} {
		context := map[string]any{"scopes": "of.app", "keysAuth": "bearer"}
		if name != "" {
			context["env"] = name
		}
		apps[name] = newApp(t, context)
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"cdk.json": `{"context": {"scopes": "of.app", "keysAuth": "bearer"}}`,
		"one.json": `{"scopes": "of.one", "webhookConcurrency": 7}`, "wrong.json": `[]`} {
		if err := os.WriteFile(filepath.Join(".", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	app := apps["one"]
	if env, err := Environment(app, "."); err != nil || env.Account != nil {
		t.Fatal(env, err)
	}
	for key, want := range map[string]string{"scopes": "of.one", "keysAuth": "bearer", "webhookConcurrency": "7"} {
		if got := contextText(app, key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	for name, want := range map[string]string{"two": `no environment "two"; . has: cdk, one, wrong`,
		"../x": "no environment", "wrong": "wrong.json: must be a JSON object"} {
		if _, err := Environment(apps[name], "."); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("CDK_DEFAULT_ACCOUNT", "111122223333")
	t.Setenv("CDK_DEFAULT_REGION", "me-central-1")
	if env, err := Environment(apps[""], "."); err != nil || *env.Account != "111122223333" ||
		*env.Region != "me-central-1" {
		t.Error(env, err)
	}
}
