package local

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"payhook.example/infra/deployment"
)

// CDK runs the CDK CLI of the project.
type CDK struct {
	Top         string   // the folder of go.mod
	State       string   // the folder of logs and outputs
	Environment []string // of the CLI
}

// library is where the first CDK app unpacks the CDK's library.
func library(top string) string { return filepath.Join(top, ".local", "jsii") }

// CDKEnvironment is the environment of the CDK CLI for an emulator, without its endpoint.
func CDKEnvironment(top string) []string {
	isAWS := func(variable string) bool { return strings.HasPrefix(variable, "AWS_") }
	return append(slices.DeleteFunc(os.Environ(), isAWS),
		"AWS_ACCESS_KEY_ID="+deployment.AccessKey, "AWS_SECRET_ACCESS_KEY="+deployment.AccessKey, "AWS_REGION="+Region,
		"AWS_DEFAULT_REGION="+Region,
		// The CLI must not use the AWS configuration of this machine.
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
		"CDK_DISABLE_VERSION_CHECK=1", "CDK_DISABLE_CLI_TELEMETRY=true",
		// The tests of infra and every deployment to AWS check the CDK's rules for templates.
		// Here they would take half of the time.
		"CDK_VALIDATION=false",
		// Node 22 and newer cache compiled code there.
		"NODE_COMPILE_CACHE="+filepath.Join(top, ".local", "node"),
		"JSII_RUNTIME_PACKAGE_CACHE_ROOT="+library(top),
		"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost",
	)
}

// Synth writes the templates of the CDK app in a folder to the folder out of the state, whose
// path it returns.
func (c *CDK) Synth(ctx context.Context, folder, out string, values map[string]string) (string, error) {
	assembly := filepath.Join(c.State, out)
	args := []string{"synth", "--quiet", "--output", assembly}
	for key, value := range values {
		args = append(args, "-c", key+"="+value)
	}
	// Two apps that unpack the library at the same time fail on a slow machine.
	unpacking, err := lock(library(c.Top), 0)
	if err != nil {
		return "", err
	}
	defer unpacking.Close()
	if _, err := os.Stat(filepath.Join(library(c.Top), "aws-cdk-lib")); err == nil {
		unpacking.Close()
	}
	return assembly, c.run(ctx, "synth-"+out, folder, args...)
}

// Deploy deploys stacks of an assembly at the same time, by their paths there, and returns the
// outputs of each by its name.
func (c *CDK) Deploy(ctx context.Context, assembly string, flags []string,
	paths ...string) (map[string]map[string]string, error) {
	file := filepath.Join(c.State, "outputs-"+filepath.Base(assembly)+".json")
	args := slices.Concat([]string{"deploy"}, paths, flags, []string{"--app", assembly, "--concurrency",
		strconv.Itoa(len(paths)), "--require-approval", "never", "--progress", "events", "--outputs-file", file})
	if err := c.run(ctx, "deploy-"+filepath.Base(assembly), c.State, args...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var stacks map[string]map[string]string
	if err := json.Unmarshal(text, &stacks); err != nil {
		return nil, err
	}
	if len(stacks) < len(paths) {
		return nil, fmt.Errorf("%s: of %d stacks, %d have outputs", assembly, len(paths), len(stacks))
	}
	return stacks, nil
}

// run runs the CDK CLI in a folder, and writes its output to the log of that name.
func (c *CDK) run(ctx context.Context, log, folder string, args ...string) error {
	cmd := exec.Command(filepath.Join(c.Top, "infra", "node_modules", ".bin", "cdk"),
		append(args, "--no-notices", "--no-color", "--ci")...)
	cmd.Dir, cmd.Env = folder, c.Environment
	return runLogged(ctx, filepath.Join(c.State, log+".log"), cmd)
}
