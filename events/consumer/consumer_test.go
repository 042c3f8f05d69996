package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	status := m.Run()
	jsii.Close()
	os.Exit(status)
}

type resource struct {
	Type       string
	Properties map[string]any
}

// synthesize returns the resources of a stack with these rules, in no particular order,
// and its outputs.
func synthesize(t *testing.T, rules []rule) (map[string]resource, map[string]struct{ Value any }) {
	t.Helper()
	app := awscdk.NewApp(&awscdk.AppProps{AutoSynth: jsii.Bool(false), Outdir: jsii.String(t.TempDir()),
		Context: context(t, "cdk.json")})
	stack := newStack(app, "Consumer", "payments", rules)
	app.Synth(nil)
	text, err := os.ReadFile(filepath.Join(*app.Outdir(), *stack.TemplateFile()))
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Resources map[string]resource
		Outputs   map[string]struct{ Value any }
	}
	if err := json.Unmarshal(text, &template); err != nil {
		t.Fatal(err)
	}
	return template.Resources, template.Outputs
}

func context(t *testing.T, file string) *map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Context map[string]any }
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	return &config.Context
}

func TestEveryPatternBecomesARule(t *testing.T) {
	rules, err := readRules(filepath.Join("..", "rules"), "")
	if err != nil {
		t.Fatal(err)
	}
	resources, outputs := synthesize(t, rules)
	var made []any
	for _, r := range resources {
		if r.Type != "AWS::Events::Rule" {
			continue
		}
		made = append(made, r.Properties["EventPattern"])
		if r.Properties["EventBusName"] != "payments" {
			t.Errorf("a rule on the bus %v", r.Properties["EventBusName"])
		}
	}
	if len(made) != len(rules) {
		t.Errorf("%d rules from %d files", len(made), len(rules))
	}
	queues := asText(t, outputs["Queues"].Value)
	for _, r := range rules {
		var found bool
		for _, pattern := range made {
			found = found || cmp.Equal(any(r.pattern), pattern)
		}
		if !found {
			t.Errorf("no rule has the pattern of %s.json", r.name)
		}
		if outputs[words(r.name)+"QueueUrl"].Value == nil {
			t.Errorf("no output %sQueueUrl", words(r.name))
		}
		if !strings.Contains(queues, `\"`+r.name+`\":`) {
			t.Errorf("%s is not in the output Queues: %s", r.name, queues)
		}
	}
}

func TestQueuesAreEncryptedAndOnlyTheirRulesCanWrite(t *testing.T) {
	resources, _ := synthesize(t, []rule{{name: "high-value", pattern: map[string]any{"source": []any{"payhook"}}}})
	var queues, policies int
	for id, r := range resources {
		switch r.Type {
		case "AWS::SQS::Queue":
			queues++
			if r.Properties["SqsManagedSseEnabled"] != true {
				t.Errorf("%s is not encrypted", id)
			}
		case "AWS::SQS::QueuePolicy":
			for _, s := range r.Properties["PolicyDocument"].(map[string]any)["Statement"].([]any) {
				statement := s.(map[string]any)
				if statement["Effect"] != "Allow" {
					continue
				}
				policies++
				if statement["Action"] != "sqs:SendMessage" ||
					!strings.Contains(asText(t, statement["Condition"]), "HighValueRule") {
					t.Errorf("%s allows %s", id, asText(t, statement))
				}
			}
		case "AWS::Events::Rule":
			target := asText(t, r.Properties["Targets"])
			if !strings.Contains(target, "HighValueQueue") || !strings.Contains(target, "HighValueUndelivered") {
				t.Errorf("%s sends to %s", id, target)
			}
		}
	}
	if queues != 2 || policies != 2 {
		t.Errorf("%d queues, %d permissions", queues, policies)
	}
}

func TestReadRulesRejectsInvalidFolders(t *testing.T) {
	for name, text := range map[string]string{
		"":                "",
		"High_Value.json": `{"source":["x"]}`,
		"broken.json":     `{"source":`,
		"list.json":       `["x"]`,
		// The CDK would remove it, and the rule would match other events.
		"null.json": `{"detail":{"x":[null]}}`,
	} {
		folder := t.TempDir()
		if name != "" {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		rules, err := readRules(folder, "")
		if err == nil || !strings.Contains(err.Error(), filepath.Join(folder, name)) {
			t.Errorf("%q: got %v, error %v", name, rules, err)
		}
	}
}

func TestReadRulesReadsTheNamedPatterns(t *testing.T) {
	rules, err := readRules(filepath.Join("..", "rules"), "released,euro")
	if err != nil || len(rules) != 2 || rules[0].name != "released" || rules[1].name != "euro" {
		t.Errorf("got %v, %v", rules, err)
	}
	if _, err := readRules(filepath.Join("..", "rules"), "released,none"); err == nil ||
		!strings.Contains(err.Error(), "none.json") {
		t.Errorf("a pattern that does not exist: %v", err)
	}
}

func TestFeatureFlagsAreThoseOfPayhook(t *testing.T) {
	if diff := cmp.Diff(context(t, filepath.Join("..", "..", "cdk.json")), context(t, "cdk.json")); diff != "" {
		t.Errorf("(-Payhook +consumer)\n%s", diff)
	}
}

func asText(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
