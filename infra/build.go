package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"payhook.example/shared/names"
)

// functionNames are the folders under functions/, one program each.
var functionNames = []string{"webhook", "redrive", "token"}

// trusting are the functions that verify client certificates.
var trusting = []string{"webhook", "redrive"}

// buildFunctions builds every function for Linux on the architecture arch, into the
// folder out, one program by the name of each. top is the folder of go.mod.
//
// The same source and the same Go make the same bytes, wherever they are built:
// a deployment that changed nothing uploads nothing.
//
// Its error holds what the compiler says.
func buildFunctions(top, out, arch string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	// One build for all: it compiles once what they share.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=lambda.norpc", "-ldflags=-s -w -buildid=", "-o", out}
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
		return fmt.Errorf("payhook: the functions were not built: go build: %w\n%s", err, bytes.TrimSpace(said))
	}
	return nil
}

// packageFunctions makes the package of every function in the folder out, from the
// programs that buildFunctions has built, and returns the folder of each by its
// name. The functions that verify client certificates find the truststore beside
// their program, unless it is nil.
func packageFunctions(programs, out string, truststore []byte) (map[string]string, error) {
	folders := make(map[string]string, len(functionNames))
	for _, name := range functionNames {
		program, err := os.ReadFile(filepath.Join(programs, name))
		if err != nil {
			return nil, err
		}
		folder := filepath.Join(out, name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		// Lambda starts the program of this name.
		if err := os.WriteFile(filepath.Join(folder, "bootstrap"), program, 0o755); err != nil {
			return nil, err
		}
		if truststore != nil && slices.Contains(trusting, name) {
			// Lambda's user must be able to read it.
			if err := os.WriteFile(filepath.Join(folder, names.TruststoreFile), truststore, 0o644); err != nil {
				return nil, err
			}
		}
		folders[name] = folder
	}
	return folders, nil
}
