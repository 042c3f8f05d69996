package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/payment"
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
	values["eventBusName"] = "payments"
	folder := t.TempDir()
	app := awscdk.NewApp(&awscdk.AppProps{AutoSynth: jsii.Bool(false), Context: &values,
		Outdir: jsii.String(filepath.Join(folder, "out"))})
	if err := addStacks(app, filepath.Join("..", "rules"), func(string) (string, error) {
		code := filepath.Join(folder, "code.zip")
		return code, os.WriteFile(code, nil, 0o600)
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
		t.Errorf("%v: go test ./events/consumer -update writes it (-%s +now)\n%s", err, file, diff)
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
	if own["cli-telemetry"] != false {
		t.Error("the CDK CLI sends telemetry")
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

// The test events for a function and for a queue have the same event, which the code decodes.
func TestTheTestEventsCanBeDecoded(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join("..", "lambda", name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var rule bytes.Buffer
	if err := json.Compact(&rule, read("rule.json")); err != nil {
		t.Fatal(err)
	}
	var queue struct{ Records []struct{ Body string } }
	if err := json.Unmarshal(read("queue.json"), &queue); err != nil {
		t.Fatal(err)
	}
	if len(queue.Records) != 1 || queue.Records[0].Body != rule.String() {
		t.Errorf("queue.json has not the event of rule.json: %+v", queue)
	}
	var sent struct{ Detail json.RawMessage }
	if err := json.Unmarshal(rule.Bytes(), &sent); err != nil {
		t.Fatal(err)
	}
	if event, err := payment.DecodeEvent(sent.Detail); err != nil || event.EventData.Amount != "1234567890.10" {
		t.Errorf("rule.json has the event %+v, %v", event, err)
	}
}

// The functions that the tutorial names keep the digits of an amount, and process events without one.
func TestFunctionsInOtherLanguagesKeepTheDigitsOfAmounts(t *testing.T) {
	event, err := os.ReadFile(filepath.Join("..", "lambda", "queue.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []struct{ name, file, program, run, none string }{
		{name: "python", file: "index.py", program: "python3", none: "None",
			run: "import index, json, sys\nindex.handler(json.load(open(sys.argv[1])), None)"},
		{name: "js", file: "index.mjs", program: "node", none: "undefined", run: `import("./index.mjs").then(
			async (i) => i.handler(JSON.parse(await (await import("node:fs/promises")).readFile(process.argv[1]))))`},
	} {
		t.Run(language.name, func(t *testing.T) {
			code, err := os.ReadFile(filepath.Join("..", "lambda", language.file))
			if err != nil {
				t.Fatal(err)
			}
			folder, flag := t.TempDir(), "-c"
			if language.name == "js" {
				flag = "-e"
				// Older versions have no source of a number. Lambda has Node 22.
				old := exec.Command("node", "-e", `process.exit(+(parseInt(process.versions.node) < 22))`)
				if err := old.Run(); err != nil {
					t.Skip("Node 22 is needed")
				}
			}
			if err := os.WriteFile(filepath.Join(folder, language.file), code, 0o600); err != nil {
				t.Fatal(err)
			}
			for amount, want := range map[string]string{"1234567890.10": "1234567890.10", `\"1250.00\"`: "1250.00",
				"-0.10": "-0.10", "null": language.none} {
				changed := bytes.Replace(event, []byte("1234567890.10"), []byte(amount), 1)
				if amount == "null" {
					data := regexp.MustCompile(`\\"eventData\\":\{.*\}\}\}`)
					changed = data.ReplaceAll(changed, []byte(`\"eventData\":null}}`))
				}
				if err := os.WriteFile(filepath.Join(folder, "event.json"), changed, 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), language.program, flag, language.run, "event.json")
				cmd.Dir = folder
				out, err := cmd.CombinedOutput()
				if want := "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60 " + want + "\n"; err != nil || string(out) != want {
					t.Errorf("%s: %v, %s", changed, err, out)
				}
			}
		})
	}
}
