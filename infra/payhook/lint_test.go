package payhook

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// linted are settings that together create every resource that the app can create.
var linted = map[string]map[string]any{
	"default": nil,
	"everything": {
		"keysAuth": "bearer", "alarmEmail": "ops@payments.example", "parkedRetention": "3653d",
		"tracing": true, "webhookConcurrency": 100,
		"encryption": "cmk", "deployment": "canary", "evidence": "7y", "evidenceLock": "compliance",
		"@aws-cdk/core:permissionsBoundary": map[string]any{"name": "payments-boundary"},
		"@aws-cdk/core:bootstrapQualifier":  "payments",
	},
	"a key that exists":           {"encryption": someKey},
	"a domain name":               with(map[string]any{"encryption": "cmk", "deployment": "canary"}),
	"a domain name without zone":  {"domainName": "hook.bank.example", "certificateArn": someCertificate},
	"both":                        mtls("both"),
	"mTLS":                        mtls("mtls"),
	"existing tables and buckets": {"ledgerTable": "Ledger", "claimBucket": "claims", "parkingBucket": "parking"},
	"without":                     {"protectBus": false, "timestampTolerance": "off", "evidence": "1d"},
}

// lintedTemplates writes the templates of all linted settings into a folder and
// returns their files.
func lintedTemplates(t *testing.T) []string {
	t.Helper()
	folder := t.TempDir()
	var files []string
	for name, settings := range linted {
		file := filepath.Join(folder, name+".json")
		if err := os.WriteFile(file, []byte(payhook(t, settings).text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// make lint runs this test.
func TestTemplatesPassCfnLint(t *testing.T) {
	if os.Getenv("PAYHOOK_LINT") == "" {
		t.Skip("PAYHOOK_LINT is not set; make lint sets it")
	}
	lint(t, lintedTemplates(t)...)
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
