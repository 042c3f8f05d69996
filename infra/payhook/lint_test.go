package payhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lint fails the test if cfn-lint reports anything about the reviewed templates and another. It takes seconds to start,
// so it starts once.
func lint(t *testing.T, another *template) {
	t.Helper()
	files := []string{filepath.Join(t.TempDir(), "another.json")}
	writeFile(t, files[0], another.text)
	for i, variant := range reviewed {
		files = append(files, filepath.Join(t.TempDir(), fmt.Sprint(i, ".json")))
		writeFile(t, files[i+1], payhook(t, variant.settings).text)
	}
	bin := filepath.Join("..", "..", ".local", "lint", "bin")
	args := append([]string{filepath.Join(bin, "cfn-lint"), "--config-file", "cfnlint.yaml", "--include-checks", "I",
		"--non-zero-exit-code", "informational", "--"}, files...)
	output, err := exec.Command(filepath.Join(bin, "python"), args...).CombinedOutput()
	if err != nil || len(output) > 0 {
		t.Errorf("cfn-lint: %v\n%s", err, output)
	}
}

// make audit runs this test, which fails for a finding that is not explained, and for an explanation of what a tool
// does not find. A finding is a resource and the id of a check. Those of checkov are explained in the template, where
// users of the construct have them as well. Those of the other tools are in a list, below their explanations.
func TestToolsFindExactlyWhatIsExplained(t *testing.T) {
	if os.Getenv("PAYHOOK_AUDIT") == "" {
		t.Skip("PAYHOOK_AUDIT is not set; make audit sets it")
	}
	explained, names, files := map[string][]string{}, map[string]string{}, []string(nil)
	for i, variant := range reviewed {
		var template map[string]any
		if err := json.Unmarshal([]byte(payhook(t, variant.settings).text), &template); err != nil {
			t.Fatal(err)
		}
		maps.Copy(names, payhook(t, variant.settings).names)
		file := filepath.Join(t.TempDir(), fmt.Sprint(i, variant.file, ".json"))
		for id, r := range template["Resources"].(map[string]any) {
			skipped, _ := at(r, "Metadata", "checkov", "skip").([]any)
			for _, f := range skipped {
				explained[file] = append(explained[file], id+" "+at(f, "id").(string))
			}
			delete(r.(map[string]any), "Metadata")
		}
		writeFile(t, file, toJSON(template))
		files = append(files, file)
	}
	compare := func(tool string, explained, found []string) {
		slices.Sort(explained)
		slices.Sort(found)
		if diff := cmp.Diff(explained, slices.Compact(found)); diff != "" {
			t.Errorf("%s (-explained +found)\n%s", tool, diff)
		}
	}
	found := checkov(t, files)
	for _, file := range files {
		compare("checkov, "+filepath.Base(file), explained[file], found[file])
	}
	var listed []string
	for line := range strings.Lines(string(readFile(t, filepath.Join("testdata", "nag.txt")))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			listed = append(listed, line)
		}
	}
	others := nag(t, files)
	for i, f := range others {
		id, rule, _ := strings.Cut(f, " ")
		others[i] = names[id] + " " + rule
	}
	compare("cdk-nag and cdk-preflight", listed, others)
}

func checkov(t *testing.T, files []string) map[string][]string {
	t.Helper()
	found, bin := map[string][]string{}, filepath.Join("..", "..", ".local", "audit", "bin")
	for _, file := range files {
		var report struct {
			Results struct {
				Failed []struct {
					ID       string `json:"check_id"`
					Resource string // TYPE.ID
				} `json:"failed_checks"`
			}
		}
		reported(t, exec.Command(filepath.Join(bin, "python"), filepath.Join(bin, "checkov"), "--file", file,
			"--framework", "cloudformation", "--skip-download", "--output", "json", "--soft-fail"), &report)
		for _, f := range report.Results.Failed {
			_, id, _ := strings.Cut(f.Resource, ".")
			found[file] = append(found[file], id+" "+f.ID)
		}
	}
	return found
}

// nag returns the findings of the AwsSolutions pack of cdk-nag, and of cdk-preflight.
func nag(t *testing.T, files []string) (found []string) {
	t.Helper()
	modules, err := filepath.Abs(filepath.Join("..", "..", ".local", "nag", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", append([]string{filepath.Join("..", "audit", "audit.js")}, files...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION=1")
	reported(t, cmd, &found)
	return found
}

// reported reads the JSON that a command writes.
func reported(t *testing.T, cmd *exec.Cmd, to any) {
	t.Helper()
	var failed strings.Builder
	cmd.Stderr = &failed
	output, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(output, to)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", cmd, err, failed.String(), output)
	}
}
