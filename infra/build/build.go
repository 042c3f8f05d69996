// Package build builds the programs of the functions for a deployment.
package build

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names are the folders under functions/, one program each.
var Names = []string{"webhook", "redrive", "token"}

// FIPSModule is the version of the Go Cryptographic Module that functions with fips use.
const FIPSModule = "v1.0.0"

// Functions builds every function for Linux on the architecture arch and returns the
// programs by the names of the functions. With fips, they use the FIPS 140-3 module of Go. The current folder is in
// this module, or in that of an app, which names the version of this module in its go.mod.
//
// The error contains the output of the compiler.
func Functions(arch string, fips bool) (map[string][]byte, error) {
	var packages []string
	for _, name := range Names {
		packages = append(packages, "payhook.example/functions/"+name)
	}
	return Programs("", arch, fips, packages...)
}

// Programs builds main packages for Linux on the architecture arch, in a folder, which "" is the current one. It
// returns the programs by the last elements of the paths of the packages.
//
// The build is reproducible: the same source and the same Go give the same bytes on
// every machine, so a deployment without changes uploads nothing. It uses no workspace (go.work).
func Programs(folder, arch string, fips bool, packages ...string) (map[string][]byte, error) {
	out, err := os.MkdirTemp("", "payhook-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	// One build for all programs compiles shared packages once. The Makefile has the reasons for the flags.
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-tags=lambda.norpc",
		"-gcflags=all=-dwarf=false", "-gcflags=github.com/aws/aws-sdk-go-v2/...=-l -dwarf=false",
		"-ldflags=-s -w -buildid=",
		"-o", out + string(filepath.Separator)}, packages...)...)
	cmd.Dir = folder
	if cmd.Env, err = environment(); err != nil {
		return nil, fmt.Errorf("build the functions: %w", err)
	}
	cmd.Env = append(cmd.Env, "GOARCH="+arch)
	if fips { // the module in lib/fips140 of Go, which is then on by default (https://go.dev/doc/security/fips140)
		cmd.Env = append(cmd.Env, "GOFIPS140="+FIPSModule)
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the functions: go build: %w\n%s", err, bytes.TrimSpace(output))
	}
	built := map[string][]byte{}
	for _, p := range packages {
		if built[path.Base(p)], err = os.ReadFile(filepath.Join(out, path.Base(p))); err != nil {
			return nil, err
		}
	}
	return built, nil
}

// Package returns a zip file for Lambda with a program and other files by their names. A name with a nil text is left
// out. The bytes depend on nothing else, so neither the umask nor the file system of this machine decides about the
// modes: they are those that Lambda needs
// (https://docs.aws.amazon.com/lambda/latest/dg/troubleshooting-deployment.html).
// The CDK names an asset by a digest of its bytes. For a zip file, the digest includes the modes; for a folder, which
// the CDK CLI would zip, it does not, and the CLI would not replace a package that has wrong modes.
func Package(program []byte, files map[string][]byte) ([]byte, error) {
	var text bytes.Buffer
	w := zip.NewWriter(&text)
	add := func(name string, mode fs.FileMode, content []byte) error {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate,
			Modified: time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)} // the first date of the format
		header.SetMode(mode)
		f, err := w.CreateHeader(header)
		if err == nil {
			_, err = f.Write(content)
		}
		return err
	}
	err := add("bootstrap", 0o755, program) // the name that Lambda starts
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name] != nil {
			err = errors.Join(err, add(name, 0o644, files[name]))
		}
	}
	err = errors.Join(err, w.Close()) // it writes the list of the files
	return text.Bytes(), err
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
		"GOFIPS140=", "GO111MODULE=", "GO_EXTLINK_ENABLED=", "GOGC=400"), nil // as make
}
