package payhook

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"payhook.example/shared/settings"
)

func TestSettingsComeFromTheContext(t *testing.T) {
	d, err := parse(t, required, map[string]any{"maxPayloadBytes": 6000000, "logRetentionDays": nil,
		settings.LocalKey: true, environmentKey: "x", "@aws-cdk/core:something": true})
	if err != nil || d.MaxPayloadBytes != 6000000 || d.LogRetentionDays != 90 || !d.Local {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestInvalidSettingsWriteAMessageAndNoTemplate(t *testing.T) {
	app := filepath.Join(t.TempDir(), "infra")
	if output, err := exec.Command("go", "build", "-o", app, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	out := t.TempDir()
	cmd := exec.Command(app)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CDK_OUTDIR="+out, `CDK_CONTEXT_JSON={"baseUrl":"nowhere","loca":"true"}`)
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("got exit status %d (%v)", cmd.ProcessState.ExitCode(), err)
	}
	for _, want := range []string{"baseUrl: must be an https URL", "authUrl: is required",
		"tokenManagerId: is required", "loca: no such setting"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("no %q in\n%s", want, output)
		}
	}
	if strings.Contains(string(output), "goroutine") || strings.Contains(string(output), "panic") {
		t.Errorf("a stack trace:\n%s", output)
	}
	if written, _ := filepath.Glob(filepath.Join(out, "*.template.json")); written != nil {
		t.Errorf("written: %q", written)
	}
}

func TestDisabledWindowIsAWarning(t *testing.T) {
	const warning = "timestampTolerance is off"
	for setting, want := range map[string]bool{"off": true, "5m": false} {
		_, stack := newPayhook(t, "", map[string]any{"timestampTolerance": setting, "deduplicationWindow": "9d"})
		var got bool
		for _, entry := range *stack.Node().Metadata() {
			text, _ := entry.Data.(string)
			if *entry.Type == "aws:cdk:warning" && strings.Contains(text, warning) {
				got = true
				if !strings.Contains(text, "ledger detects a repeated webhook, for 9d") {
					t.Errorf("the warning does not name the ledger: %s", text)
				}
			}
		}
		if got != want {
			t.Errorf("timestampTolerance=%s: warned: %t, want %t", setting, got, want)
		}
	}
}
