package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// functionNames are the folders under functions/, one program each.
var functionNames = []string{"webhook", "redrive", "token"}

// buildFunctions builds every function for Linux on the architecture arch, into
// out/ARCH/FUNCTION/bootstrap, and returns the folder of each by its name. top is
// the folder of go.mod.
//
// The same source and the same Go make the same bytes, wherever they are built:
// a deployment that changed nothing uploads nothing.
//
// Its error holds what the compiler says.
func buildFunctions(top, out, arch string) (map[string]string, error) {
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
	// What somebody has set for builds of their own would change the bytes.
	cmd.Env = append(os.Environ(),
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
		folders[name] = folder
	}
	return folders, nil
}
