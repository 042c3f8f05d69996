package payhook

import (
	"fmt"
	"maps"
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
func architecture(conf settings.Settings) string {
	if conf.Local() {
		return runtime.GOARCH
	}
	return "arm64"
}

// variant is what the programs of the functions depend on, beside their source.
type variant struct {
	arch string
	fips bool
}

// builtFunctions are the programs that this process has built, by variant and function.
var builtFunctions = map[variant]map[string][]byte{}

// buildFunctions is [build.Functions]. It builds each only once.
func buildFunctions(arch string, fips bool) (map[string][]byte, error) {
	v := variant{arch, fips}
	if built := builtFunctions[v]; built != nil {
		return built, nil
	}
	// The CDK CLI shows it. Without it, nothing happens on the screen for a minute or more the first time.
	slow := time.AfterFunc(5*time.Second, func() {
		fmt.Fprintln(os.Stderr, "payhook: building the functions, which takes minutes the first time ...")
	})
	defer slow.Stop()
	built, err := build.Functions(arch, fips)
	if err != nil {
		return nil, fmt.Errorf("payhook: %w", err)
	}
	builtFunctions[v] = built
	return built, nil
}

// packageFunctions writes the package of every function into the folder out and returns the path of each by the
// function's name. A package has the files by their names, but the truststore only if the function verifies client
// certificates. The truststore is also a file of its own, for API Gateway.
func packageFunctions(built map[string][]byte, out string, files map[string][]byte) (map[string]string, error) {
	packages := map[string]string{settings.TruststoreFile: filepath.Join(out, settings.TruststoreFile)}
	if err := os.WriteFile(packages[settings.TruststoreFile], files[settings.TruststoreFile], 0o600); err != nil {
		return nil, err
	}
	for name, program := range built {
		its := maps.Clone(files)
		if !slices.Contains(trusting, name) {
			delete(its, settings.TruststoreFile)
		}
		text, err := build.Package(program, its)
		if err == nil {
			packages[name] = filepath.Join(out, name+".zip")
			err = os.WriteFile(packages[name], text, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	return packages, nil
}
