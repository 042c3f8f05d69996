package payhook

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

// trusting lists the functions that verify client certificates.
var trusting = []string{"webhook", "redrive"}

// buildFunctions builds every function for Linux on the architecture arch, into the
// folder out, one program with the name of each function. top is the folder of go.mod.
//
// The build is reproducible: the same source and the same Go give the same bytes on
// every machine, so a deployment without changes uploads nothing.
//
// The error contains the output of the compiler.
func buildFunctions(top, out, arch string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	// One build for all functions compiles shared packages once.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=lambda.norpc", "-ldflags=-s -w -buildid=", "-o",
		out}
	for _, name := range functionNames {
		args = append(args, "./functions/"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = top
	// Other values of these variables would change the bytes. go.mod determines the
	// version of Go.
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=auto",
		"CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOARM64=", "GOAMD64=", "GOEXPERIMENT=", "GOFLAGS=",
		"GOFIPS140=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("payhook: build the functions: go build: %w\n%s", err, bytes.TrimSpace(output))
	}
	return nil
}

// packageFunctions creates the package of every function in the folder out, from the
// programs that buildFunctions built, and returns the folder of each package by the
// function's name. It adds the truststore, unless that is nil, to the packages of the
// functions that verify client certificates.
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
		// Lambda starts the program with this name.
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
