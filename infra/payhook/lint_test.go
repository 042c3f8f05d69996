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
