package main

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	status := m.Run()
	jsii.Close()
	os.Exit(status)
}

var update = flag.Bool("update", false, "write the reviewed templates")

// A change of any property of a resource is seen in a review: go test ./events/consumer -update writes the file.
func TestTemplatesAreAsReviewed(t *testing.T) {
	values, err := context("cdk.json")
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(values, map[string]any{"eventBusName": "payments", "sourceAccount": "111122223333",
		"targetBus": "arn:aws:events:us-east-1:444455556666:event-bus/payhook-receiver"})
	folder := t.TempDir()
	app := awscdk.NewApp(&awscdk.AppProps{AutoSynth: jsii.Bool(false), Context: &values,
		Outdir: jsii.String(filepath.Join(folder, "out"))})
	if err := build(app, filepath.Join("..", "rules"), func(string) (string, error) {
		program := filepath.Join(folder, "program")
		return program, os.CopyFS(program, fstest.MapFS{"bootstrap": {Data: []byte("program"), Mode: 0o755}})
	}); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, stack := range *app.Synth(nil).Stacks() {
		text, err := os.ReadFile(*stack.TemplateFullPath())
		var template struct {
			Resources, Outputs map[string]map[string]any
		}
		if err := errors.Join(err, json.Unmarshal(text, &template)); err != nil {
			t.Fatal(err)
		}
		for id, r := range template.Resources {
			properties, _ := r["Properties"].(map[string]any)
			lines = append(lines, id+" "+r["Type"].(string))
			for name, value := range properties {
				lines = append(lines, id+"."+name+" = "+asText(t, value))
			}
		}
		for name, output := range template.Outputs {
			lines = append(lines, "output "+name+" = "+asText(t, output["Value"]))
		}
	}
	slices.Sort(lines)
	const file = "testdata/templates.txt"
	got := regexp.MustCompile("[0-9a-f]{64}").ReplaceAllString(strings.Join(lines, "\n")+"\n", "…")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), got); diff != "" || err != nil {
		t.Errorf("%v (-reviewed +now)\n%s", err, diff)
	}
}

func context(file string) (map[string]any, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config struct{ Context map[string]any }
	err = json.Unmarshal(text, &config)
	return config.Context, err
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
	payhook, err := context(filepath.Join("..", "..", "cdk.json"))
	own, ownErr := context("cdk.json")
	if diff := cmp.Diff(payhook, own); diff != "" || err != nil || ownErr != nil {
		t.Errorf("%v, %v (-Payhook +consumer)\n%s", err, ownErr, diff)
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
