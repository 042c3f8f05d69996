package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"
)

func TestMain(m *testing.M) {
	status := m.Run()
	jsii.Close()
	os.Exit(status)
}

func TestFunctionOnlyReadsStateAndWritesLogs(t *testing.T) {
	text, err := os.ReadFile("cdk.json")
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Context map[string]any }
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	app := awscdk.NewApp(&awscdk.AppProps{AutoSynth: jsii.Bool(false), Outdir: jsii.String(t.TempDir()),
		Context: &config.Context})
	code := t.TempDir()
	if err := os.WriteFile(filepath.Join(code, "bootstrap"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	stack := newStack(app, "PayhookAcceptance-x-Service", "arm64", awslambda.Code_FromAsset(jsii.String(code), nil))
	app.Synth(nil)
	var template struct {
		Resources map[string]struct {
			Type       string
			Properties struct{ PolicyDocument json.RawMessage }
		}
	}
	if text, err = os.ReadFile(filepath.Join(*app.Outdir(), *stack.TemplateFile())); err == nil {
		err = json.Unmarshal(text, &template)
	}
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, r := range template.Resources {
		if policy := string(r.Properties.PolicyDocument); r.Type == "AWS::IAM::Policy" {
			actions = append(actions, regexp.MustCompile(`"[a-z0-9]+:\w+"`).FindAllString(policy, -1)...)
			if !strings.Contains(policy, "/state.json") || strings.Contains(policy, `"*"`) {
				t.Errorf("the policy is not for the state and the log alone: %s", policy)
			}
		}
	}
	slices.Sort(actions)
	want := []string{`"logs:CreateLogStream"`, `"logs:PutLogEvents"`, `"s3:GetObject"`}
	if !slices.Equal(actions, want) {
		t.Errorf("the function can do %q, not %q", actions, want)
	}
}
