package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/infra/acceptance/service/names"
)

func TestMain(m *testing.M) {
	status := m.Run()
	jsii.Close()
	os.Exit(status)
}

type resource struct {
	Type           string
	DeletionPolicy string
	Properties     map[string]any
}

func synthesize(t *testing.T) map[string]resource {
	t.Helper()
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
	stack := newStack(app, settings{stackName: "PayhookAcceptance-x-Service"},
		awslambda.Code_FromAsset(jsii.String(code), nil))
	app.Synth(nil)
	var template struct{ Resources map[string]resource }
	if text, err = os.ReadFile(filepath.Join(*app.Outdir(), *stack.TemplateFile())); err == nil {
		err = json.Unmarshal(text, &template)
	}
	if err != nil {
		t.Fatal(err)
	}
	return template.Resources
}

func TestFunctionOnlyReadsStateAndWritesLogs(t *testing.T) {
	var actions []string
	for _, r := range synthesize(t) {
		if r.Type != "AWS::IAM::Policy" {
			continue
		}
		text, err := json.Marshal(r.Properties["PolicyDocument"])
		if err != nil {
			t.Fatal(err)
		}
		var policy struct {
			Statement []struct{ Action, Resource any }
		}
		if err := json.Unmarshal(text, &policy); err != nil {
			t.Fatal(err)
		}
		for _, s := range policy.Statement {
			if list, ok := s.Action.([]any); ok {
				for _, a := range list {
					actions = append(actions, a.(string))
				}
			} else {
				actions = append(actions, s.Action.(string))
			}
			if resource, _ := json.Marshal(s.Resource); string(resource) == `"*"` {
				t.Errorf("%v is allowed on everything", s.Action)
			}
		}
		if !strings.Contains(string(text), "/"+names.StateObject) {
			t.Errorf("the policy is not for the state alone: %s", text)
		}
	}
	slices.Sort(actions)
	if want := []string{"logs:CreateLogStream", "logs:PutLogEvents", "s3:GetObject"}; !slices.Equal(actions, want) {
		t.Errorf("the function can do %q, not %q", actions, want)
	}
}

func TestNothingIsRetained(t *testing.T) {
	for id, r := range synthesize(t) {
		if r.DeletionPolicy == "Retain" {
			t.Errorf("%s (%s) is retained", id, r.Type)
		}
	}
}
