package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/infra/stack"
	"payhook.example/shared/settings"
)

// The region and account of every emulator.
const (
	Region  = "us-east-1"
	Account = settings.LocalAccount
)

// Emulator is a MiniStack: the AWS APIs in one account and region, empty at the start. Its
// functions are processes of this machine, in its process group.
type Emulator struct {
	*group
	Endpoint string // of the AWS APIs
	AWS      aws.Config
	Folder   string // of all its files

	state string
}

// Prepare locks the folder state, installs the tools and compiles the CDK apps, with make. The
// caller must release the lock after the emulator has ended.
func Prepare(ctx context.Context, top, state string, p *Progress) (release func(), err error) {
	held, err := Lock(state)
	if err != nil {
		return nil, err
	}
	release = func() { held.Close() }
	if os.Getenv("PAYHOOK_READY") != "" { // make up has done it
		return release, nil
	}
	install := exec.Command("make", "--no-print-directory", "-C", top, "-j", "prepare")
	install.Stdout, install.Stderr = p.out, p.out
	// Variables on the command line of the make that runs this program are not for this one.
	install.Env = append(os.Environ(), "MAKEFLAGS=", fmt.Sprintf("%s=%d", startedVariable, p.start.Unix()))
	if err := runGroup(ctx, install); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// StartEmulator starts an emulator with the patches of the folder ministack, and bootstraps it for the CDK. Its files
// are in the folder state, for which Prepare was called. The functions call the AWS APIs at what forFunctions returns
// for the endpoint of the emulator, or at the latter if it is nil. The caller must Stop it; it loses its data.
func StartEmulator(ctx context.Context, top, state string, forFunctions func(string) string) (*Emulator, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	endpoint := "http://127.0.0.1:" + strconv.Itoa(port)
	e := &Emulator{Endpoint: endpoint, AWS: stack.EmulatorConfig(endpoint, Region), state: state,
		Folder: filepath.Join(state, "emulator")}
	if err := os.RemoveAll(e.Folder); err != nil {
		return nil, err
	}
	if forFunctions == nil {
		forFunctions = func(endpoint string) string { return endpoint }
	}
	// The functions inherit it, so it has nothing of this process.
	environment := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONUNBUFFERED=1",
		"GATEWAY_PORT=" + strconv.Itoa(port), "BIND_HOST=127.0.0.1",
		"AWS_ENDPOINT_URL=" + forFunctions(endpoint),
		// Requests are allowed or denied as by IAM. The access key test is the root of the
		// account; each function has a session of its own role.
		"AUTH=true",
		// MiniStack wakes up for each process of a function often, also if that waits for an invocation. Those that
		// ran at the same time as another one end after so many seconds.
		"LAMBDA_WARM_TTL_SECONDS=10",
		// These two would listen on other addresses and on fixed ports.
		"IOT_MTLS_ENABLED=0", "SFTP_ENABLED=0",
	}
	for variable, name := range map[string]string{"HOME": "home", "STATE_DIR": "state", "S3_DATA_DIR": "s3",
		"TMPDIR": "tmp"} {
		folder := filepath.Join(e.Folder, name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		environment = append(environment, variable+"="+folder)
	}
	logPath := filepath.Join(state, "emulator.log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(top, ".local", "venv", "bin", "python"),
		filepath.Join(top, "infra", "local", "emulator", "ministack", "start.py"))
	cmd.Dir, cmd.Env = e.Folder, environment
	cmd.Stdout, cmd.Stderr = log, log
	// The emulator ends when this pipe is closed, so it does not outlive this process.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if e.group, err = startGroup(cmd); err != nil {
		return nil, withRemedy(err)
	}
	if err = e.awaitReady(ctx); err != nil {
		err = withRemedy(fmt.Errorf("MiniStack: %w\n%s", err, lastLines(logPath)))
	} else {
		err = e.CDK(top).run(ctx, "bootstrap", state, "bootstrap", "aws://"+Account+"/"+Region)
	}
	if err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

// CDK runs the CDK CLI of the project for the emulator.
func (e *Emulator) CDK(top string) *CDK {
	return &CDK{Top: top, State: e.state, Environment: append(CDKEnvironment(top), "AWS_ENDPOINT_URL="+e.Endpoint)}
}

// healthPath is the path at which an emulator answers 200 when it has started.
const healthPath = "/_ministack/health"

func (e *Emulator) awaitReady(ctx context.Context) error {
	// It compiles itself at the first start, which takes minutes on a busy machine.
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("it does not answer"))
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.Endpoint+healthPath, nil)
		if err != nil {
			return err
		}
		if resp, err := stack.Direct.Do(r); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-e.exited:
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

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
		"AWS_ACCESS_KEY_ID="+stack.AccessKey, "AWS_SECRET_ACCESS_KEY="+stack.AccessKey, "AWS_REGION="+Region,
		"AWS_DEFAULT_REGION="+Region,
		// The CLI must not use the AWS configuration of this machine.
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
		"CDK_DISABLE_VERSION_CHECK=1",
		// Where bootstrap and deploy run, no cdk.json turns it off.
		"CDK_DISABLE_CLI_TELEMETRY=true",
		// The tests of infra and every deployment to AWS check the CDK's rules for templates.
		// Here they would take half of the time.
		"CDK_VALIDATION=false",
		// Node 22 and newer cache compiled code there.
		"NODE_COMPILE_CACHE="+filepath.Join(top, ".local", "node"),
		"JSII_RUNTIME_PACKAGE_CACHE_ROOT="+library(top),
		"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost",
	)
}

// Synth writes the templates of the CDK app in a folder to the folder out of the state, whose path it returns.
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
	return withRemedy(runLogged(ctx, filepath.Join(c.State, log+".log"), cmd))
}

// withRemedy returns the error of a tool, and says what to do if the tool is incomplete, as after an installation that
// was killed, or on a disk that was full.
func withRemedy(err error) error {
	if err != nil && incomplete.MatchString(err.Error()) {
		return fmt.Errorf("%w\nThis tool is incomplete: make clean removes it, and the next make installs it", err)
	}
	return err
}

// incomplete matches what the system, Node and Python say of a file that is missing.
var incomplete = regexp.MustCompile(`no such file or directory|Cannot find module|No module named|ImportError`)
