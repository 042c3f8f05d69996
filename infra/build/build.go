// Package build builds the programs of the functions, for a deployment and to compare them with what is deployed.
package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Names are the folders under functions/, one program each.
var Names = []string{"webhook", "redrive", "token"}

// Functions builds every function for Linux on the architecture arch and returns the
// programs by the names of the functions. The current folder is in this module, or in
// that of an app, which names the version of this module in its go.mod.
//
// The build is reproducible: the same source and the same Go give the same bytes on
// every machine, so a deployment without changes uploads nothing. It uses no workspace (go.work).
//
// The error contains the output of the compiler.
func Functions(arch string) (map[string][]byte, error) {
	out, err := os.MkdirTemp("", "payhook-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	// One build for all functions compiles shared packages once.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=lambda.norpc", "-ldflags=-s -w -buildid=", "-o",
		out}
	for _, name := range Names {
		args = append(args, "payhook.example/functions/"+name)
	}
	cmd := exec.Command("go", args...)
	if cmd.Env, err = environment(); err != nil {
		return nil, fmt.Errorf("build the functions: %w", err)
	}
	cmd.Env = append(cmd.Env, "GOARCH="+arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the functions: go build: %w\n%s", err, bytes.TrimSpace(output))
	}
	built := map[string][]byte{}
	for _, name := range Names {
		if built[name], err = os.ReadFile(filepath.Join(out, name)); err != nil {
			return nil, err
		}
	}
	return built, nil
}

// environment returns that of a build without the architecture. What changes the bytes is not taken from the user,
// neither from variables nor from go env -w, whose values count where a variable is empty
// (https://go.dev/issue/50335). Where modules come from is the user's. go.mod determines the version of Go.
func environment() ([]string, error) {
	kept := []string{"GOPROXY", "GOPRIVATE", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOINSECURE", "GOAUTH", "GOVCS",
		"GOCACHE", "GOMODCACHE"}
	env := append(os.Environ(), "GOTOOLCHAIN=auto", "GOWORK=off")
	cmd := exec.Command("go", append([]string{"env"}, kept...)...)
	cmd.Env, cmd.Stderr = env, os.Stderr // it may download Go
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	for i, value := range strings.SplitN(strings.TrimSpace(string(out)), "\n", len(kept)) {
		env = append(env, kept[i]+"="+value)
	}
	return append(env, "GOENV=off", "CGO_ENABLED=0", "GOOS=linux", "GOARM64=", "GOAMD64=", "GOEXPERIMENT=", "GOFLAGS=",
		"GOFIPS140="), nil
}

// Version returns the version that [Functions] builds, as payment.Version writes it: that of
// go.mod, or the commit of the clone and whether it was modified.
func Version(ctx context.Context) (string, error) {
	env, err := environment()
	if err != nil {
		return "", err
	}
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = env
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	module, err := run("go", "list", "-m", "-f",
		"{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}|{{.Dir}}", "payhook.example")
	version, dir, _ := strings.Cut(module, "|")
	if err != nil || version != "" {
		return version, err
	}
	commit, err := run("git", "-C", dir, "rev-parse", "--short=12", "HEAD")
	changes, failed := run("git", "-C", dir, "status", "--porcelain")
	version = "commit " + commit
	if changes != "" {
		version += ", modified"
	}
	return version, errors.Join(err, failed)
}
