package payhook

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"payhook.example/shared/settings"
)

func TestReportsEveryMissingSetting(t *testing.T) {
	_, err := parse(t)
	if err == nil {
		t.Fatal("no error without any setting")
	}
	for _, s := range settings.All() {
		if reported := strings.Contains(err.Error(), "\n  "+s.Key+": is required"); reported != s.Required {
			t.Errorf("%s: reported as missing: %t, required: %t", s.Key, reported, s.Required)
		}
	}
	if !strings.Contains(err.Error(), settings.BaseURL.Example) {
		t.Errorf("no example in %v", err)
	}
}

func TestReportsUnknownSettings(t *testing.T) {
	for key, meant := range map[string]string{
		"baseURL": "; did you mean baseUrl?", "base-url": "; did you mean baseUrl?",
		"eventbusname": "; did you mean eventBusName?", "archiveRetentoin": "; did you mean archiveRetention?",
		"webhook_memory": "", "x": ""} {
		_, err := parse(t, required, map[string]any{key: "x"})
		if err == nil || !strings.Contains(err.Error(), "\n  "+key+": no such setting"+meant+"\n") {
			t.Errorf("%s: got error %v", key, err)
		}
	}
}

func TestCDKContextIsNotASetting(t *testing.T) {
	_, err := parse(t, required, map[string]any{
		"@aws-cdk/core:something":                          true,
		"availability-zones:account=1:region=eu-central-1": []any{"a"},
		"@cdklabs/something":                               true,
		"aws:cdk:something":                                "x",
		"acknowledged-issue-numbers":                       []any{34892},
		"cli-telemetry":                                    false,
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSettingsInCdkJsonNeedNoQuotes(t *testing.T) {
	d, err := parse(t, required, map[string]any{
		"maxPayloadBytes": 6000000, "webhookConcurrency": 7, settings.LocalKey: true, "logRetentionDays": nil,
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.Webhook.MaxPayloadBytes != 6000000 || d.Concurrency != 7 || !d.Local || d.LogRetention != 90 {
		t.Errorf("got %d bytes, concurrency %d, local %t, %d days",
			d.Webhook.MaxPayloadBytes, d.Concurrency, d.Local, d.LogRetention)
	}
	if got := d.Value(settings.MaxPayloadBytes); got != "6000000" {
		t.Errorf("the function would get %q", got)
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
