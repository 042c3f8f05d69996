package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryFindingThatIsExplainedHasAReason(t *testing.T) {
	for name, settings := range linted {
		explained := 0
		for path, r := range payhook(t, settings).Resources {
			for _, f := range list(at(r.Metadata["checkov"], "skip")) {
				if f != nil && len(at(f, "comment").(string)) < 20 {
					t.Errorf("%s: %s: %v", name, path, f)
				}
				explained++
			}
			for _, f := range list(at(r.Metadata["cdk_nag"], "rules_to_suppress")) {
				if f != nil && len(at(f, "reason").(string)) < 20 {
					t.Errorf("%s: %s: %v", name, path, f)
				}
			}
		}
		if explained == 0 {
			t.Errorf("%s: nothing is explained", name)
		}
	}
}

// make audit runs this test, which fails for a finding of checkov that is not
// explained and for an explanation of what checkov does not find.
func TestCheckovFindsWhatIsExplained(t *testing.T) {
	if os.Getenv("PAYHOOK_AUDIT") == "" {
		t.Skip("PAYHOOK_AUDIT is not set; make audit sets it")
	}
	for name, settings := range linted {
		var template map[string]any
		if err := json.Unmarshal([]byte(payhook(t, settings).text), &template); err != nil {
			t.Fatal(err)
		}
		var explained []string
		for id, r := range template["Resources"].(map[string]any) {
			for _, f := range list(at(r, "Metadata", "checkov", "skip")) {
				if f != nil {
					explained = append(explained, at(r, "Type").(string)+"."+id+" "+at(f, "id").(string))
				}
			}
			delete(r.(map[string]any), "Metadata")
		}
		text, err := json.Marshal(template)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "template.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join("..", ".local", "audit", "bin", "checkov"), "--file", file,
			"--framework", "cloudformation", "--skip-download", "--output", "json", "--soft-fail")
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("checkov: %v", err)
		}
		var report struct {
			Results struct {
				Failed []struct {
					ID       string `json:"check_id"`
					Resource string
				} `json:"failed_checks"`
			}
		}
		if err := json.Unmarshal(said, &report); err != nil {
			t.Fatalf("checkov: %v\n%s", err, strings.TrimSpace(string(said)))
		}
		var found []string
		for _, f := range report.Results.Failed {
			found = append(found, f.Resource+" "+f.ID)
		}
		slices.Sort(explained)
		slices.Sort(found)
		if diff := cmp.Diff(explained, found); diff != "" {
			t.Errorf("%s (-explained +found)\n%s", name, diff)
		}
	}
}
