package payhook

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"payhook.example/infra/build"
	"payhook.example/shared/settings"
)

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

// buildFunctions is [build.Functions]. It builds each only once.
func buildFunctions(arch string) (map[string][]byte, error) {
	if built := builtFunctions[arch]; built != nil {
		return built, nil
	}
	// The CDK CLI shows it. Without it, nothing happens on the screen for a minute or more the first time.
	slow := time.AfterFunc(5*time.Second, func() {
		fmt.Fprintln(os.Stderr, "payhook: building the functions, which takes minutes the first time ...")
	})
	defer slow.Stop()
	built, err := build.Functions(arch)
	if err != nil {
		return nil, fmt.Errorf("payhook: %w", err)
	}
	builtFunctions[arch] = built
	return built, nil
}

// packageFunctions creates the package of every function in the folder out and returns the
// folder of each package by the function's name. It adds the CAs of the service to all packages, and the
// truststore to those of the functions that verify client certificates, unless they are nil.
func packageFunctions(built map[string][]byte, out string, truststore, serviceCA []byte) (map[string]string, error) {
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
		files := map[string][]byte{settings.ServiceCAFile: serviceCA}
		if slices.Contains(trusting, name) {
			files[settings.TruststoreFile] = truststore
		}
		for file, text := range files {
			if text == nil {
				continue
			}
			// Lambda's user must be able to read it.
			if err := os.WriteFile(filepath.Join(folder, file), text, 0o644); err != nil {
				return nil, err
			}
		}
		folders[name] = folder
	}
	return folders, nil
}
