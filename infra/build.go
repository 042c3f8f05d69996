package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"payhook.example/shared/contract"
)

// functionNames are the folders under functions/, one program each.
var functionNames = []string{"webhook", "redrive", "token"}

// trusting are the functions that verify client certificates.
var trusting = []string{"webhook", "redrive"}

// buildFunctions builds every function for Linux on the architecture arch, into
// out/ARCH/FUNCTION/bootstrap, and returns the folder of each by its name. top is
// the folder of go.mod. The functions that verify client certificates find the
// truststore beside their program, unless it is nil.
//
// The same source and the same Go make the same bytes, wherever they are built:
// a deployment that changed nothing uploads nothing.
//
// Its error holds what the compiler says.
func buildFunctions(top, out, arch string, truststore []byte) (map[string]string, error) {
	programs := filepath.Join(out, arch, "programs")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return nil, err
	}
	// One build for all: it compiles once what they share.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=lambda.norpc", "-ldflags=-s -w -buildid=", "-o", programs}
	for _, name := range functionNames {
		args = append(args, "./functions/"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = top
	// What somebody has set for builds of their own would change the bytes. The
	// version of Go is the one in go.mod.
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=auto",
		"CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOARM64=", "GOAMD64=", "GOEXPERIMENT=", "GOFLAGS=", "GOFIPS140=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("payhook: the functions were not built: go build: %w\n%s", err, bytes.TrimSpace(said))
	}

	folders := make(map[string]string, len(functionNames))
	for _, name := range functionNames {
		program, err := os.ReadFile(filepath.Join(programs, name))
		if err != nil {
			return nil, err
		}
		folder := filepath.Join(out, arch, name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		// Lambda starts the program of this name.
		if err := os.WriteFile(filepath.Join(folder, "bootstrap"), program, 0o755); err != nil {
			return nil, err
		}
		if slices.Contains(trusting, name) {
			if err := writeTruststore(filepath.Join(folder, contract.TruststoreFile), truststore); err != nil {
				return nil, err
			}
		}
		folders[name] = folder
	}
	return folders, nil
}

// writeTruststore writes the file, or removes it: the folder may be that of an
// earlier build.
func writeTruststore(file string, truststore []byte) error {
	if truststore == nil {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.WriteFile(file, truststore, 0o644); err != nil {
		return err
	}
	// An earlier file keeps its mode, and Lambda's user must be able to read it.
	return os.Chmod(file, 0o644)
}
