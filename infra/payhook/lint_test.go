package payhook

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// linted are settings that together create every resource that the app can create.
var linted = map[string]map[string]any{
	"default": nil,
	"everything": {
		"keysAuth": "bearer", "alarmEmail": "ops@payments.example", "parkedRetention": "3653d",
		"webhookConcurrency": 100,
		"subnetIds":          someSubnets["subnetIds"], "securityGroupIds": someSubnets["securityGroupIds"],
		"encryption": "cmk", "evidence": "7y compliance",
		"@aws-cdk/core:permissionsBoundary": map[string]any{"name": "payments-boundary"},
		"@aws-cdk/core:bootstrapQualifier":  "payments",
	},
	"a key that exists":           {"encryption": someKey},
	"a domain name":               with(map[string]any{"encryption": "cmk"}),
	"a domain name without zone":  {"domainName": "hook.bank.example", "certificateArn": someCertificate},
	"both":                        mtls("both"),
	"mTLS":                        mtls("mtls"),
	"existing tables and buckets": {"ledgerTable": "Ledger", "claimBucket": "claims", "parkingBucket": "parking"},
	"without":                     {"protectBus": false, "timestampTolerance": "off", "evidence": "1d"},
}

// make lint runs this test.
func TestTemplatesPassCfnLint(t *testing.T) {
	if os.Getenv("PAYHOOK_LINT") == "" {
		t.Skip("PAYHOOK_LINT is not set; make lint sets it")
	}
	var files []string
	for name, settings := range linted {
		files = append(files, filepath.Join(t.TempDir(), name+".json"))
		writeFile(t, files[len(files)-1], payhook(t, settings).text)
	}
	lint(t, files...)
}

// lint fails the test if cfn-lint reports anything about the templates.
func lint(t *testing.T, files ...string) {
	t.Helper()
	bin := filepath.Join("..", "..", ".local", "lint", "bin")
	args := append([]string{filepath.Join(bin, "cfn-lint"), "--config-file", "cfnlint.yaml", "--include-checks", "I",
		"--non-zero-exit-code", "informational", "--"}, files...)
	output, err := exec.Command(filepath.Join(bin, "python"), args...).CombinedOutput()
	if err != nil || len(output) > 0 {
		t.Errorf("cfn-lint: %v\n%s", err, output)
	}
}

// explained returns the findings of a tool that the templates of all linted settings
// explain, and the files of the templates without explanations, both by the name of
// the settings. A finding is the logical id of a resource and the id of a check.
func explained(t *testing.T, tool, list string) (findings map[string][]string, files map[string]string) {
	t.Helper()
	findings, files = map[string][]string{}, map[string]string{}
	folder := t.TempDir()
	for name, settings := range linted {
		var template map[string]any
		if err := json.Unmarshal([]byte(payhook(t, settings).text), &template); err != nil {
			t.Fatal(err)
		}
		for id, r := range template["Resources"].(map[string]any) {
			skipped, _ := at(r, "Metadata", tool, list).([]any)
			for _, f := range skipped {
				findings[name] = append(findings[name], id+" "+at(f, "id").(string))
			}
			delete(r.(map[string]any), "Metadata")
		}
		text, err := json.Marshal(template)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = filepath.Join(folder, name+".json")
		if err := os.WriteFile(files[name], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return findings, files
}

func wantFindings(t *testing.T, name string, explained, found []string) {
	t.Helper()
	slices.Sort(explained)
	slices.Sort(found)
	if diff := cmp.Diff(explained, slices.Compact(found)); diff != "" {
		t.Errorf("%s (-explained +found)\n%s", name, diff)
	}
}

func audited(t *testing.T) {
	t.Helper()
	if os.Getenv("PAYHOOK_AUDIT") == "" {
		t.Skip("PAYHOOK_AUDIT is not set; make audit sets it")
	}
}

// make audit runs this test, which fails for a finding of checkov that is not
// explained and for an explanation of what checkov does not find.
func TestCheckovFindsExactlyWhatIsExplained(t *testing.T) {
	audited(t)
	explained, files := explained(t, "checkov", "skip")
	for name, file := range files {
		bin := filepath.Join("..", "..", ".local", "audit", "bin")
		cmd := exec.Command(filepath.Join(bin, "python"), filepath.Join(bin, "checkov"), "--file", file,
			"--framework", "cloudformation", "--skip-download", "--output", "json", "--soft-fail")
		output, err := cmd.Output()
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
		if err := json.Unmarshal(output, &report); err != nil {
			t.Fatalf("checkov: %v\n%s", err, strings.TrimSpace(string(output)))
		}
		var found []string
		for _, f := range report.Results.Failed {
			// TYPE.ID
			_, id, _ := strings.Cut(f.Resource, ".")
			found = append(found, id+" "+f.ID)
		}
		wantFindings(t, name, explained[name], found)
	}
}

// make audit runs this test for the AwsSolutions pack of cdk-nag and for cdk-preflight, of which no finding is
// explained.
func TestCdkNagFindsExactlyWhatIsExplained(t *testing.T) {
	audited(t)
	explained, files := explained(t, "cdk_nag", "rules_to_suppress")
	modules, err := filepath.Abs(filepath.Join("..", "..", ".local", "nag", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", append([]string{filepath.Join("..", "audit", "audit.js")},
		slices.Collect(maps.Values(files))...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION=1")
	output, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("audit.js: %v\n%s", err, failed.Stderr)
	}
	if err != nil {
		t.Fatalf("audit.js: %v", err)
	}
	var found map[string][]string
	if err := json.Unmarshal(output, &found); err != nil {
		t.Fatalf("audit.js: %v\n%s", err, output)
	}
	for name, file := range files {
		wantFindings(t, name, explained[name], found[file])
	}
}
