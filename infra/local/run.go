package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/checks"
	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/token"
)

const hints = `  make payhook ARGS="local send"                    send a signed webhook
  make payhook ARGS="logs --local --follow"         show live what arrives
  make payhook ARGS=--help                          list all commands
  less events/TUTORIAL.md                           write your first app
  cat .local/up.json                                show where everything is
  less .local/run/emulator.log                      show the log of the emulator
`

// inBackground is set in the environment of the process that up starts.
const inBackground = "PAYHOOK_IN_BACKGROUND"

// background is the command up: it starts this program again in the background with the same arguments, shows what
// that writes to its log, and waits for the file that it writes when everything is up.
func background(ctx context.Context, p *cli.Program, o options) error {
	if os.Getenv(inBackground) != "" {
		return stayUp(ctx, p, o)
	}
	held, err := Lock(o.state)
	if _, ok := errors.AsType[LockedError](err); ok {
		return upAlready(ctx, p, o, err)
	}
	if err != nil {
		return err
	}
	stack.Remove(o.top) // a run that was killed left it
	held.Close()
	log, err := os.Create(filepath.Join(o.state, "up.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	written := io.NewSectionReader(log, 0, math.MaxInt64) // from the beginning, wherever the process writes
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), inBackground+"=1"), log, log
	// In another session, no signal of this terminal reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	defer context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) })()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := io.Copy(p.Err, written); err != nil {
			return err
		}
		if run, err := stack.Read(o.top); err == nil && running {
			return isUp(p, run)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the process in the background ended: %s", cmd.ProcessState)
}

// upAlready is the command up while another process has the lock. The error is locked if that process has not started
// everything yet.
func upAlready(ctx context.Context, p *cli.Program, o options, locked error) error {
	run, err := stack.Running(ctx)
	switch {
	case errors.Is(err, stack.ErrNotUp):
		return locked
	case err != nil:
		return err
	case len(o.given) > 0 && !maps.Equal(o.given, run.Given):
		return fmt.Errorf("it is up with other settings: %s", run.Restart(o.given))
	}
	return isUp(p, run)
}

func isUp(p *cli.Program, run *stack.Stack) error {
	if p.JSON {
		return p.PrintJSON(run)
	}
	_, err := fmt.Fprintf(p.Out, "Everything is up; %s says where. To go on:\n%s  make down                           "+
		"              end it\n", stack.Path, hints)
	return err
}

// stayUp is what the process in the background does. It ends after SIGTERM.
func stayUp(ctx context.Context, p *cli.Program, o options) error {
	m, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer m.stop()
	// So a token is stored, and both have written metrics.
	err = o.progress.Step("running token and redrive once", func() error {
		return errors.Join(m.firstToken(ctx), m.main.Invoke(ctx, "redrive", checks.AsScheduled, &struct{}{}))
	})
	if err != nil {
		return err
	}
	o.progress.Say("everything is up")
	defer stack.Remove(o.top)
	if err := m.main.Stack.Write(o.top); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		o.progress.Say("ended on request")
		return nil
	case err := <-m.emulator.exited:
		return fmt.Errorf("MiniStack ended: %w", err)
	}
}

// firstToken lets the token function store a token, unless the stack keeps none.
func (m *machine) firstToken(ctx context.Context) error {
	if !m.main.Stack.KeepsToken() {
		return nil
	}
	run, err := m.main.RunToken(ctx, checks.AsScheduled)
	if err == nil && run.Outcome != token.Refreshed && run.Outcome != token.Fresh {
		err = fmt.Errorf("no access token is stored: %s: %s", run.Outcome, run.Cause)
	}
	return err
}

func down(ctx context.Context, p *cli.Program, o options) error {
	ended := 0 // the process
	start := time.Now()
	lock, err := Lock(o.state)
	for held, ok := errors.AsType[LockedError](err); ok; held, ok = errors.AsType[LockedError](err) {
		if held.PID < 2 {
			return errors.New("another process uses .local/run, and its number is not known")
		}
		ended = held.PID
		signal := syscall.SIGTERM
		if time.Since(start) > 30*time.Second {
			signal = syscall.SIGKILL
		}
		syscall.Kill(held.PID, signal)
		if err := smithytime.SleepWithContext(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		lock, err = Lock(o.state)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	stack.Remove(o.top)
	if p.JSON {
		return p.PrintJSON(map[string]bool{"ended": ended > 0})
	}
	text := "Nothing was running."
	if ended > 0 {
		text = fmt.Sprintf("The local run has ended (process %d); nothing is left running.", ended)
	}
	_, err = fmt.Fprintln(p.Out, text)
	return err
}

// environment is the command env. It unsets what the SDKs would use instead. Their variables
// are those of https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html
func environment(ctx context.Context, p *cli.Program, _ options) error {
	run, err := stack.Running(ctx)
	if err != nil {
		return err
	}
	variables := map[string]string{
		// Read by boto3 1.28, the AWS CLI 1.29 and 2.13, and the current SDKs for Go, Java and JavaScript:
		// https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html. Older ones call AWS,
		// where these credentials are not valid. As the host is an IP address, buckets are addressed by path.
		"AWS_ENDPOINT_URL": run.Endpoint,
		// The second is for boto3 and version 1 of the CLI.
		"AWS_REGION": run.Region, "AWS_DEFAULT_REGION": run.Region,
		"AWS_ACCESS_KEY_ID": stack.AccessKey, "AWS_SECRET_ACCESS_KEY": stack.AccessKey,
		// A profile can set FIPS endpoints or how buckets are addressed.
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true",
		// The CDK's rules take half of the time of a deployment. They are checked for AWS.
		"CDK_VALIDATION": "false",
		"BASE_URL":       run.PaymentService,
		"TOKEN_SECRET":   run.TokenSecret, "TOKEN_PARAMETER": run.TokenParameter,
	}
	maps.DeleteFunc(variables, func(_, value string) bool { return value == "" })
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		hosts := os.Getenv(name)
		if !strings.Contains(hosts, loopback) {
			hosts = strings.TrimSuffix(loopback+","+hosts, ",")
		}
		variables[name] = hosts
	}
	if p.JSON {
		return p.PrintJSON(variables)
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		fmt.Fprintf(p.Out, "export %s='%s'\n", name, strings.ReplaceAll(variables[name], "'", `'\''`))
	}
	unset := []string{"AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
		"AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if serviceEndpoint.MatchString(name) {
			unset = append(unset, name)
		}
	}
	_, err = fmt.Fprintln(p.Out, "unset", strings.Join(unset, " "))
	return err
}

const loopback = "127.0.0.1"

// serviceEndpoint is the name of a variable that replaces AWS_ENDPOINT_URL for one service.
var serviceEndpoint = regexp.MustCompile("^AWS_ENDPOINT_URL_[A-Z0-9_]+$")
