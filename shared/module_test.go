// Package shared_test tests that other modules can import the packages in this
// folder, and that a fork can rename the module.
package shared_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// checkout is the root folder of this module.
func checkout(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// run runs a shell command in a folder and returns its output.
func run(t *testing.T, folder, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", command)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=auto", "GOWORK=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// consumer is the program of a consumer's module.
const consumer = `package main

import (
	"fmt"

	"payhook.example/shared/aws/s3"
	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/bus"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
	"payhook.example/shared/token"
)

var (
	_ = bus.ErrGone
	_ = s3.Resolve
	_ = signature.Verify
	_ = token.NewClient
	_ = tokenstore.Source
)

func main() {
	value, ok := payment.Amount("100.00").Rat()
	fmt.Println(value, ok)
}
`

// instructions returns the command after a comment in events/README.md, so that the test runs what users read.
func instructions(t *testing.T, marker string) string {
	t.Helper()
	_, after, found := strings.Cut(documents(t)["events/README.md"], "<!-- "+marker+" -->\n\n```sh\n")
	if !found {
		t.Fatalf("the document has no commands %q", marker)
	}
	command, _, _ := strings.Cut(after, "```")
	return command
}

func TestAnotherModuleImportsTheSharedPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(consumer), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, folder, "go mod init payments.example/consumer")
	run(t, folder, strings.ReplaceAll(instructions(t, "replace"), "../payhook", checkout(t)))
	// A toolchain line does not count in another module (https://go.dev/doc/toolchain).
	needs := strings.TrimSpace(run(t, folder, "go list -m -f 'go{{.GoVersion}}' payhook.example"))
	if needs != runtime.Version() {
		t.Errorf("built with %s or newer, tested with %s", needs, runtime.Version())
	}
	if out := run(t, folder, "go run ."); out != "100/1 true\n" {
		t.Errorf("the program printed %q", out)
	}
}

// A server that verifies webhooks, as the example of package intake, needs no SDK.
func TestAModuleThatVerifiesNeedsNoSDK(t *testing.T) {
	folder := t.TempDir()
	const server = `package main

import (
	_ "payhook.example/shared/intake"
	_ "payhook.example/shared/keys"
	_ "payhook.example/shared/signature"
)

func main() {}
`
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(server), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, folder, "go mod init payments.example/server")
	run(t, folder, strings.ReplaceAll(instructions(t, "replace"), "../payhook", checkout(t)))
	sums := run(t, folder, "go build -o /dev/null . && cat go.sum")
	if !strings.Contains(sums, "golang.org/x/net ") || strings.Contains(sums, "github.com/aws/aws-sdk-go-v2") {
		t.Errorf("go.sum:\n%s", sums)
	}
}

// A fork changes every occurrence of the module path. A program and a test of a renamed copy compile.
func TestAForkRenamesTheModule(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a program")
	}
	if _, err := os.Stat(filepath.Join(checkout(t), ".git")); err != nil {
		t.Skip("needs the Git repository: ", err)
	}
	folder := t.TempDir()
	run(t, checkout(t), "git ls-files -z --cached --others --exclude-standard | "+
		"xargs -0 sh -c 'for f; do [ ! -e \"$f\" ] || echo \"$f\"; done' sh | tar -cf "+folder+"/tree.tar -T -")
	run(t, folder, "tar -xf tree.tar && rm tree.tar && git init -q && git add -A")
	command := instructions(t, "rename")
	run(t, folder, command)
	if out := run(t, folder, "git grep -l 'payhook[.]example' || true"); out != "" {
		t.Errorf("these files have the old path:\n%s", out)
	}
	run(t, folder, "go build -o /dev/null ./functions/webhook && go vet ./shared/payment")
	if out := run(t, folder, "gofmt -l shared functions infra/*.go events"); out != "" {
		t.Errorf("gofmt changes these files:\n%s", out)
	}
}
