package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/infra/deployment"
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
	if os.Getenv("PAYHOOK_READY") == "" { // make up has done it
		err = prepare(ctx, top, p)
	}
	if err != nil {
		held.Close()
		return nil, err
	}
	return func() { held.Close() }, nil
}

func prepare(ctx context.Context, top string, p *Progress) error {
	install := exec.Command("make", "--no-print-directory", "-C", top, "-j", "prepare")
	install.Stdout, install.Stderr = p.out, p.out
	// Variables on the command line of the make that runs this program are not for this one.
	install.Env = append(os.Environ(), "MAKEFLAGS=", fmt.Sprintf("%s=%d", startedVariable, p.start.Unix()))
	return runGroup(ctx, install)
}

// StartEmulator starts an emulator with the patches of the folder ministack, and bootstraps it for the
// CDK. Its files are in the folder state, for which Prepare was called. The functions call
// the AWS APIs at what forFunctions returns for the endpoint of the emulator, or at the latter if it
// is nil. The caller must Stop it; it loses its data.
func StartEmulator(ctx context.Context, top, state string, forFunctions func(string) string) (*Emulator, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	endpoint := "http://127.0.0.1:" + strconv.Itoa(port)
	e := &Emulator{Endpoint: endpoint, AWS: deployment.EmulatorConfig(endpoint, Region), state: state,
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
		return nil, err
	}
	if err = e.awaitReady(ctx); err != nil {
		err = fmt.Errorf("MiniStack: %w\n%s", err, lastLines(logPath))
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
	return &CDK{Top: top, State: e.state,
		Environment: append(CDKEnvironment(top), "AWS_ENDPOINT_URL="+e.Endpoint)}
}

// healthPath is the path at which an emulator answers 200 when it has started.
const healthPath = "/_ministack/health"

func (e *Emulator) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("it does not answer"))
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.Endpoint+healthPath, nil)
		if err != nil {
			return err
		}
		if resp, err := deployment.Direct.Do(r); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-e.exited:
			return fmt.Errorf("it ended: %w", e.err)
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
