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
)

// emulator is a MiniStack: the AWS APIs on this machine, in one account and
// region, empty at its start. Its functions are processes of this machine, in
// its process group.
type emulator struct {
	*group
	endpoint string
	folder   string // everything that it writes is in here
}

// startEmulator starts a MiniStack, with the patches in the folder ministack, on
// a free port and waits until it answers. endpointFor gives the endpoint that the
// functions are told, from its own.
func startEmulator(ctx context.Context, t tools, state string,
	endpointFor func(string) (string, error)) (*emulator, error) {
	var problems []error
	// Somebody else may take the port that was free a moment ago.
	for range 3 {
		e, err := tryEmulator(ctx, t, state, endpointFor)
		if err == nil {
			return e, nil
		}
		problems = append(problems, err)
		exit, ok := errors.AsType[*exec.ExitError](err)
		if ctx.Err() != nil || ok && exit.ExitCode() == patchDoesNotFit {
			break
		}
	}
	return nil, errors.Join(problems...)
}

// patchDoesNotFit is the exit status of ministack/start.py if a patch is not for
// the version of MiniStack that is installed.
const patchDoesNotFit = 3

func tryEmulator(ctx context.Context, t tools, state string,
	endpointFor func(string) (string, error)) (*emulator, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	e := &emulator{endpoint: "http://127.0.0.1:" + strconv.Itoa(port), folder: filepath.Join(state, "emulator")}
	if err := os.RemoveAll(e.folder); err != nil {
		return nil, err
	}
	environment := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONUNBUFFERED=1",
		"GATEWAY_PORT=" + strconv.Itoa(port), "BIND_HOST=127.0.0.1",
		// Requests are allowed or denied as IAM would. The access key test is the
		// account's root; each function has a session of its own role.
		"AUTH=true",
		// Neither would listen on loopback only, nor on a port that is free.
		"IOT_MTLS_ENABLED=0", "SFTP_ENABLED=0",
	}
	for variable, name := range map[string]string{"HOME": "home", "STATE_DIR": "state", "S3_DATA_DIR": "s3",
		"TMPDIR": "tmp"} {
		folder := filepath.Join(e.folder, name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		environment = append(environment, variable+"="+folder)
	}
	forFunctions, err := endpointFor(e.endpoint)
	if err != nil {
		return nil, err
	}
	logPath := filepath.Join(state, "emulator.log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(t.python(), t.ministack())
	cmd.Dir = e.folder
	// Functions inherit all of it, and nothing of ours is for them.
	cmd.Env = append(environment, "AWS_ENDPOINT_URL="+forFunctions)
	cmd.Stdout, cmd.Stderr = log, log
	if e.group, err = startGroup(cmd); err != nil {
		return nil, err
	}
	if err := e.awaitReady(ctx); err != nil {
		e.stop(time.Second)
		said, _ := os.ReadFile(logPath)
		return nil, fmt.Errorf("MiniStack: %w\n%s", err, lastLines(string(said), 20))
	}
	return e, nil
}

func (e *emulator) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("it does not answer"))
	defer cancel()
	for {
		if answers(ctx, e.endpoint) {
			return nil
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

// healthPath is where MiniStack says that it has started.
const healthPath = "/_ministack/health"

// direct is for servers of this machine, whatever proxy is set.
var direct = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
