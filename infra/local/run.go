package local

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
	"payhook.example/shared/settings"
)

// foreground is the command run.
func foreground(ctx context.Context, p *cli.Program, o options, once bool) error {
	o.progress = emulator.NewProgress(p.Err)
	// A user who chooses the endpoint sees only this one.
	o.mechanisms = !scenario.UsesMTLS(o.settings) && scenario.Setting(o.settings, settings.DomainName) == ""
	m, main, mechanisms, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		o.progress.Say("ending everything")
		deployment.Remove(o.top)
		m.stop()
		o.progress.Say("everything has ended")
	}()
	if err := main.Write(o.top); err != nil {
		return err
	}
	in := scenario.Receive(main.AWS, main.Queues)
	report, err := main.Show(ctx, in, func(ctx context.Context) ([]scenario.Section, error) {
		return m.showMechanisms(ctx, mechanisms)
	})
	in.Stop()
	if err != nil {
		return err
	}
	if p.JSON {
		err = p.PrintJSON(report)
	} else {
		err = report.Print(p.Out, o.wide)
	}
	if err != nil {
		return err
	}
	if !once {
		fmt.Fprintf(p.Err, "\nEverything stays up until Ctrl-C. In another terminal:\n%s", hints(main.Deployment))
		select {
		case <-ctx.Done():
			fmt.Fprintln(p.Err)
		case <-m.emulator.Ended():
			return m.emulator.Err()
		}
	}
	if !report.Right {
		return cli.ErrAttention
	}
	return nil
}

// hints are the commands for a local run.
func hints(run *deployment.Deployment) string {
	send := `  make send                                         send another signed webhook
  make send ARGS="--corrupt signature --expect 401" send a forged one
  make invoke FUNCTION=webhook EVENT=events/webhook/one-event.json
`
	if !run.Simulated {
		send = `  make send ARGS="--key FILE --key-id UUID"         send a webhook; the payment service at
                                                    ` + run.PaymentService + `
                                                    must publish the public key
`
	}
	return send + `  make payhook ARGS="listen --local"                show live what arrives
  make payhook ARGS="local console"                 serve a page that sends and shows webhooks
  make payhook ARGS="pending --local"               show what is not published yet
  make payhook ARGS=--help                          list all commands
  cat .local/up.json                                show where everything is
  less .local/run/emulator.log                      show the log of the emulator
`
}

// background is the command up: it starts a process that goes on, and waits until everything
// is up.
func background(ctx context.Context, p *cli.Program, o options) error {
	if err := os.MkdirAll(o.state, 0o700); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(o.state, "up.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd := exec.Command(program, append([]string{"local", serve}, o.args()...)...)
	cmd.Dir = o.top
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{write}
	// In another session, no signal of this terminal reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	write.Close()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			cmd.Process.Signal(syscall.SIGTERM)
		case <-ended:
		}
	}()
	// It reports its progress, and at the end whether it is up.
	ready := false
	for lines := bufio.NewScanner(read); lines.Scan(); {
		if ready = lines.Text() == readyLine; !ready {
			fmt.Fprintln(p.Err, lines.Text())
		}
	}
	if !ready {
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return errors.New("it is not up")
		}
		return ctx.Err()
	}
	run, err := deployment.Read(o.top)
	if err != nil {
		return err
	}
	if p.JSON {
		return p.PrintJSON(run)
	}
	_, err = fmt.Fprintf(p.Out, "Everything is up; %s says where. To go on:\n%s  make down                           "+
		"              end it\n", deployment.Path, hints(run))
	return err
}

const readyLine = "ready"

// serveInBackground is the process that up starts. It ends after SIGTERM.
func serveInBackground(ctx context.Context, p *cli.Program, o options) error {
	terminal := os.NewFile(3, "terminal")
	if _, err := terminal.Stat(); err != nil {
		return cli.Usage("this command is run by payhook local up")
	}
	syscall.CloseOnExec(3)
	o.progress = emulator.NewProgress(io.MultiWriter(p.Out, terminal))
	o.capture = true
	m, main, _, err := start(ctx, o)
	if err != nil {
		fmt.Fprintln(terminal, err)
		return err
	}
	defer m.stop()
	defer deployment.Remove(o.top)
	err = main.Write(o.top)
	if err == nil {
		err = main.firstRuns(ctx)
	}
	if err != nil {
		fmt.Fprintln(terminal, err)
		return err
	}
	o.progress.Say("everything is up")
	fmt.Fprintln(terminal, readyLine)
	terminal.Close()
	o.progress.SetOutput(p.Out)
	select {
	case <-ctx.Done():
		o.progress.Say("ended on request")
		return nil
	case <-m.emulator.Ended():
		return m.emulator.Err()
	}
}

// firstRunTimeout is how long the first run of a function may take. A token endpoint that
// does not answer keeps its function busy for longer.
const firstRunTimeout = 15 * time.Second

// firstRuns runs the token function and redrive once, so that a token is stored and both
// have written metrics. Without a token, the local run is still useful: firstRuns writes what
// is missing, and returns only the error of ctx.
func (s *stack) firstRuns(ctx context.Context) error {
	p := s.Progress
	return p.Step("running token and redrive once", func() error {
		within, cancel := context.WithTimeout(ctx, firstRunTimeout)
		defer cancel()
		return errors.Join(emulator.Together(within,
			func(ctx context.Context) error {
				run, err := s.RunToken(ctx, scenario.AsScheduled)
				if err == nil {
					// The schedule may have been quicker.
					_, err = s.TokenReader().TokenContext(ctx)
				}
				if err != nil {
					p.Say("no access token is stored: %s", cmp.Or(run.Cause, err.Error()))
					p.Say("%s", s.tokenHint())
				}
				return nil
			},
			func(ctx context.Context) error {
				if err := s.Invoke(ctx, "redrive", scenario.AsScheduled, &struct{}{}); err != nil {
					p.Say("redrive did not run: %v", err)
				}
				return nil
			},
		), ctx.Err())
	})
}

// tokenHint says what to do if there is no token.
func (s *stack) tokenHint() string {
	if s.machine.opts.clientID == "" || s.machine.opts.clientSecret == "" {
		return "CLIENT_ID and CLIENT_SECRET are missing: run make down, then make up with both"
	}
	return "its schedule runs the token function again; its log: make payhook ARGS=\"logs token --local\""
}

// down is the command down.
func down(ctx context.Context, p *cli.Program, o options) error {
	ended := 0 // the process
	for start := time.Now(); ; {
		l, err := emulator.Lock(o.state)
		if held, ok := errors.AsType[emulator.LockedError](err); ok {
			if held.PID < 2 {
				return errors.New("another process uses .local/run, and its number is not known")
			}
			ended = held.PID
			signal := syscall.SIGTERM
			if time.Since(start) > 30*time.Second {
				signal = syscall.SIGKILL
			}
			syscall.Kill(held.PID, signal)
			select {
			case <-time.After(200 * time.Millisecond):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err != nil {
			return err
		}
		defer l.Close()
		left := emulator.EndLeftovers(o.state)
		deployment.Remove(o.top)
		switch {
		case p.JSON:
			return p.PrintJSON(struct {
				Ended bool `json:"ended"`
			}{ended > 0 || left})
		case ended > 0:
			_, err = fmt.Fprintf(p.Out, "The local run has ended (process %d); nothing is left running.\n", ended)
		case left:
			_, err = fmt.Fprintln(p.Out, "The emulator of a killed run has ended.")
		default:
			_, err = fmt.Fprintln(p.Out, "Nothing was running.")
		}
		return err
	}
}

// The states of a local run.
const (
	stateUp       = "up"
	stateStarting = "starting" // or ending
	stateDown     = "down"
	stateBroken   = "broken" // the emulator does not answer
)

// status is the command status.
func status(ctx context.Context, p *cli.Program, o options) error {
	shown := struct {
		State string `json:"state"`
		PID   int    `json:"pid,omitzero"`
		*deployment.Deployment
	}{State: stateDown}
	l, err := emulator.Lock(o.state)
	held, running := errors.AsType[emulator.LockedError](err)
	switch {
	case err == nil:
		l.Close()
	case !running:
		return err
	}
	if running {
		shown.State, shown.PID = stateStarting, held.PID
		if run, err := deployment.Read(o.top); err == nil {
			shown.State, shown.Deployment = stateUp, run
			if !emulator.Answers(ctx, run.Endpoint) {
				shown.State = stateBroken
			}
		}
	}
	if p.JSON {
		err = p.PrintJSON(shown)
	} else {
		t := p.Fields()
		t.Line("state", "%s", shown.State)
		if running {
			t.Line("process", "%d", shown.PID)
		}
		if run := shown.Deployment; run != nil {
			t.Line("webhooks", "%s", run.WebhookURL)
			t.Line("payment service", "%s", run.PaymentService)
			t.Line("AWS endpoint", "%s", run.Endpoint)
			t.Line("stack", "%s", run.Stack)
			t.Line("bus", "%s", run.Bus)
		}
		err = t.Flush()
	}
	if err == nil && shown.State != stateUp {
		return cli.ErrAttention
	}
	return err
}
