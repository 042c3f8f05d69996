package local

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
)

// A shell evaluates what is printed, in place of a profile that is set.
func TestEnvironmentIsForShells(t *testing.T) {
	folder := project(t)
	if _, message, status := command(t, "env"); status != cli.StatusFailed || !strings.Contains(message, "make up") {
		t.Errorf("%d, %s", status, message)
	}
	if err := os.Mkdir(filepath.Join(folder, ".local"), 0o700); err != nil {
		t.Fatal(err)
	}
	const secret = "arn:aws:secretsmanager:us-east-1:000000000000:secret:it's one; exit 1"
	if err := (&deployment.Deployment{Endpoint: "http://127.0.0.1:1", Region: "eu-north-1", TokenSecret: secret,
		PaymentService: "http://127.0.0.1:2"}).Write(folder); err != nil {
		t.Fatal(err)
	}
	out, _, status := command(t, "env")
	if status != 0 {
		t.Fatal(out)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", `eval "$1"; env`, "sh", out)
	shell.Env = []string{"PATH=/usr/bin:/bin", "AWS_PROFILE=production", "AWS_SESSION_TOKEN=x"}
	text, err := shell.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := "\n" + string(text)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "eu-north-1",
		"AWS_ACCESS_KEY_ID": deployment.AccessKey, "AWS_SECRET_ACCESS_KEY": deployment.AccessKey,
		"TOKEN_SECRET": secret,
		"BASE_URL":     "http://127.0.0.1:2"} {
		if !strings.Contains(lines, "\n"+name+"="+value+"\n") {
			t.Errorf("%s is not %s in\n%s", name, value, text)
		}
	}
	if strings.Contains(lines, "AWS_PROFILE") || strings.Contains(lines, "AWS_SESSION_TOKEN") {
		t.Errorf("variables of AWS are still set:\n%s", text)
	}
	out, _, _ = command(t, "env", "--json")
	var all map[string]string
	if err := json.Unmarshal([]byte(out), &all); err != nil || all["TOKEN_SECRET"] != secret || len(all) != 6 {
		t.Errorf("%v, %s", err, out)
	}
}
