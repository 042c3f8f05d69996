package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/build"
	"payhook.example/shared/paymenttest"
)

// useClients uses the local run with the AWS CLI of PyPI, boto3 and the SDK for Go. The CDK uses the SDK for
// JavaScript.
const useClients = `aws s3 ls
python - <<'END'
import boto3, os
bucket = os.environ["BUCKET"]
s3 = boto3.client("s3")
s3.put_object(Bucket=bucket, Key="boto3", Body=b"x")
s3.delete_object(Bucket=bucket, Key="boto3")
boto3.client("secretsmanager").get_secret_value(SecretId=os.environ["TOKEN_SECRET"])
END
../payhook/.local/bin/payhook keys 00000000-0000-4000-8000-000000000000 --stack "$STACK" || [ $? = 1 ] # absent
`

// shell returns bash, which runs a script in a folder beside payhook: a checkout whose local run is the
// fixture, as after make up. Its programs aws and python have the packages of testdata/clients.txt. The
// variables that are set lead elsewhere.
func (f *fixture) shell(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	clients := filepath.Join(f.machine.options.top, ".local", "clients")
	install := exec.CommandContext(t.Context(), "make", "-C", f.machine.options.top, ".local/clients")
	install.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	folder := t.TempDir()
	checkout := filepath.Join(folder, "payhook")
	entries, err := os.ReadDir(f.machine.options.top)
	if err != nil {
		t.Fatal(err)
	}
	run := *f.Stack
	run.PaymentService = f.machine.service.URL
	if err := run.Write(checkout); err != nil {
		t.Fatal(err)
	}
	up, err := Lock(filepath.Join(checkout, ".local", "run"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Close() })
	bin := filepath.Join(".local", "bin")
	if err := os.CopyFS(filepath.Join(checkout, bin), os.DirFS(filepath.Join(f.machine.options.top, bin))); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == ".local" || e.Name() == ".git" {
			continue
		}
		if err := os.Symlink(filepath.Join(f.machine.options.top, e.Name()),
			filepath.Join(checkout, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(clients, "bin")+":"+os.Getenv("PATH"), "GOWORK=",
		"AWS_PROFILE=production", "AWS_DEFAULT_REGION=eu-central-1", "AWS_ENDPOINT_URL_S3=http://127.0.0.1:1",
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true", "HTTP_PROXY=http://127.0.0.1:1", "http_proxy=http://127.0.0.1:1",
		"PYTHONDONTWRITEBYTECODE=", "GOTOOLCHAIN=local", "GOFLAGS=", "BUCKET="+f.Stack.LargeEventBucket,
		"STACK="+f.Stack.StackName)
	return cmd
}

// block is a block of code, with its language.
var block = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

// The tutorial, as a reader plays it from an empty module on, other programs with its environment, and the runbook's
// commands that run a function and compare its code. The tutorial's function gets what is documented.
func (f *fixture) testTutorial(t *testing.T) {
	// The settings of the app's Payhook are the defaults: it fetches keys without a token.
	if err := f.Change(t.Context(), func(s *paymenttest.State) { s.KeysBearer = false }); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../events/TUTORIAL.md")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(page), "\n## ")
	blocks := block.FindAllStringSubmatch(first, -1)
	if len(blocks) != 3 || slices.ContainsFunc(blocks, func(b []string) bool { return b[1] != "sh" }) {
		t.Fatalf("blocks of code: %q", blocks)
	}
	app, err := os.ReadFile("../../events/tutorial/main.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(app) + blocks[0][2] + blocks[1][2] + blocks[2][2]) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 45 {
		t.Errorf("%d lines, want at most 45", lines)
	}
	runbook, err := os.ReadFile("../RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	_, run, _ := bytes.Cut(runbook, []byte("## Run a function"))
	_, compare, _ := bytes.Cut(runbook, []byte("### Compare the deployed code"))
	programs, err := build.Functions(runtime.GOARCH, false)
	if err != nil {
		t.Fatal(err)
	}
	// The log has the event some time after the answer to the webhook.
	at := strings.Index(blocks[2][2], "aws logs")
	deploy, look := blocks[2][2][:at], strings.TrimSpace(blocks[2][2][at:])
	cmd := f.shell(t, blocks[0][2]+useClients+"(cd ../payhook\n"+block.FindStringSubmatch(string(run))[2]+")\n"+
		"(export no_proxy='*' FUNCTION="+
		f.Stack.Functions["redrive"]+"\n"+block.FindStringSubmatch(string(compare))[2]+")\n"+
		blocks[1][2]+deploy+"until "+look+" | grep detail; do sleep 0.1; done")
	out, err := cmd.CombinedOutput()
	event := strings.Index(string(out), `{"version"`)
	digest := fmt.Sprintf("\n%x  -\n", sha256.Sum256(programs["redrive"]))
	if err != nil || event < 0 || !strings.Contains(string(out), digest) ||
		!strings.Contains(string(out), f.Stack.LargeEventBucket) ||
		!strings.Contains(string(out), "stack First (account ") ||
		!strings.Contains(string(out), `"ExecutedVersion"`) || strings.Contains(string(out), "FunctionError") ||
		strings.Contains(string(out), "compiling and installing") {
		t.Fatalf("%v\n%s", err, out)
	}
	sample, err := os.ReadFile("../../events/lambda/rule.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(shape(t, string(sample)), shape(t, string(out)[event:])); diff != "" {
		t.Errorf("(-events/lambda/rule.json +the function got)\n%s", diff)
	}
}

// shape returns the names in the JSON at the beginning of a text, without the values.
func shape(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&value); err != nil {
		t.Fatal(err)
	}
	var names func(any) any
	names = func(value any) any {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		for name := range object {
			object[name] = names(object[name])
		}
		return object
	}
	return names(value)
}
