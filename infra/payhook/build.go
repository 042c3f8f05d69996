package payhook

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// functionNames are the folders under functions/, one program each.
var functionNames = []string{"webhook", "redrive", "token"}

// trusting lists the functions that verify client certificates.
var trusting = []string{"webhook", "redrive"}

// architecture returns the architecture of the functions: arm64 in the cloud, and that
// of this machine for an emulator, which runs them as local processes.
func architecture(conf settings.Deployment) string {
	if conf.Local {
		return runtime.GOARCH
	}
	return "arm64"
}

// builtFunctions are the programs that this process has built, by architecture and function.
var builtFunctions = map[string]map[string][]byte{}

// buildFunctions builds every function for Linux on the architecture arch and returns the
// programs by the names of the functions. It builds each only once. The current folder is in
// the module of the app, which names the version of this module in its go.mod.
//
// The build is reproducible: the same source and the same Go give the same bytes on
// every machine, so a deployment without changes uploads nothing.
//
// The error contains the output of the compiler.
func buildFunctions(arch string) (map[string][]byte, error) {
	if built := builtFunctions[arch]; built != nil {
		return built, nil
	}
	out, err := os.MkdirTemp("", "payhook-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	// One build for all functions compiles shared packages once.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=lambda.norpc", "-ldflags=-s -w -buildid=", "-o",
		out}
	for _, name := range functionNames {
		args = append(args, "payhook.example/functions/"+name)
	}
	cmd := exec.Command("go", args...)
	// Other values of these variables would change the bytes. go.mod determines the
	// version of Go.
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=auto",
		"CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOARM64=", "GOAMD64=", "GOEXPERIMENT=", "GOFLAGS=",
		"GOFIPS140=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("payhook: build the functions: go build: %w\n%s", err, bytes.TrimSpace(output))
	}
	built := map[string][]byte{}
	for _, name := range functionNames {
		if built[name], err = os.ReadFile(filepath.Join(out, name)); err != nil {
			return nil, err
		}
	}
	builtFunctions[arch] = built
	return built, nil
}

// packageFunctions creates the package of every function in the folder out and returns the
// folder of each package by the function's name. It adds the truststore, unless that is
// nil, to the packages of the functions that verify client certificates.
func packageFunctions(built map[string][]byte, out string, truststore []byte) (map[string]string, error) {
	folders := make(map[string]string, len(built))
	for name, program := range built {
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
