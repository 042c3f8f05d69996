package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"payhook.example/shared/payment"
)

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

// The functions of the tutorial keep the digits of an amount, and process events without one.
func TestFunctionsInOtherLanguagesKeepTheDigitsOfAmounts(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "TUTORIAL.md"))
	if err != nil {
		t.Fatal(err)
	}
	event, err := os.ReadFile(filepath.Join("..", "lambda", "queue.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []struct{ name, file, program, run, none string }{
		{"python", "index.py", "python3", "import index, json, sys\nindex.handler(json.load(open(sys.argv[1])), None)",
			"None"},
		{"js", "index.mjs", "node", `import("./index.mjs").then(async ({ handler }) =>
			handler(JSON.parse(await (await import("node:fs/promises")).readFile(process.argv[1]))))`, "undefined"},
	} {
		t.Run(language.name, func(t *testing.T) {
			code := regexp.MustCompile("(?s)```" + language.name + "\n(.*?)```").FindSubmatch(page)
			if code == nil {
				t.Fatal("the tutorial has no such code")
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
			if err := os.WriteFile(filepath.Join(folder, language.file), code[1], 0o600); err != nil {
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
