// Command local runs all of Payhook on this machine: it deploys the real stack
// with the real CDK into MiniStack, an emulator of AWS, with a consumer's stack
// and a simulated payment service beside it.
//
// It guarantees that whatever it started ends with it: with Ctrl-C, SIGTERM or a
// closed terminal, after a step that failed, and, if it was killed, at the start
// of the next one. It listens on 127.0.0.1 only, on ports that it finds free, and
// writes below .local in the project only.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"payhook.example/infra/local/up"
	"payhook.example/shared/settings"
)

const usage = `Usage: local VERB [FLAGS]

  run   start everything, send webhooks, print what came of them, stay up
  up    start everything in the background; .local/up.json says where it is
  down  end what run or up has started in this project
  check say whether this machine has what is needed
  tools install the pinned tools into the project

Flags of run and up:
`

// serve is the verb that up runs in the background.
const serve = "serve"

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	cancel()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "ended on request")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	top, err := projectTop()
	if err != nil {
		return err
	}
	o := options{top: top, state: filepath.Join(top, ".local", "run"), settings: map[string]string{}}
	flags := flag.NewFlagSet("local", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	once := flags.Bool("once", false, "run: end after the table")
	flags.StringVar(&o.baseURL, "base-url", "", "up: base `URL` of a payment service that runs already, instead of the simulated one")
	flags.StringVar(&o.authURL, "auth-url", "", "`URL` of a token endpoint that runs already, instead of the simulated one; the client's\nid and secret are then read from CLIENT_ID and CLIENT_SECRET in the environment")
	flags.StringVar(&o.truststore, "truststore", "", "up: PEM `file` with the CAs of client certificates, instead of the simulated service's,\nwith the setting authentication=mtls or both")
	flags.Func("c", "`KEY=VALUE`, a setting other than its default, as of cdk deploy; may be repeated, or hold several, separated by spaces",
		func(text string) error { return addSettings(o.settings, text) })
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		flags.Usage()
		if len(args) > 0 && slices.Contains([]string{"-h", "-help", "--help"}, args[0]) {
			return nil
		}
		return errors.New("a verb is missing")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; settings are given with -c KEY=VALUE", flags.Arg(0))
	}
	if o.authURL != "" {
		// Not by flags: every process of this machine can see those.
		o.clientID, o.clientSecret = os.Getenv("CLIENT_ID"), os.Getenv("CLIENT_SECRET")
	}
	switch verb := args[0]; verb {
	case "run":
		return foreground(ctx, o, *once)
	case "up":
		return background(ctx, o, args[1:])
	case serve:
		return serveInBackground(ctx, o)
	case "down":
		return down(ctx, o)
	case "check":
		return checkTools()
	case "tools":
		if err := checkTools(); err != nil {
			return err
		}
		return tools{top}.install(ctx, newProgress(os.Stdout), filepath.Join(top, ".local", "install.log"))
	default:
		return fmt.Errorf("unknown verb %q; --help lists them", verb)
	}
}

// addSettings reads KEY=VALUE, or several of them.
func addSettings(to map[string]string, text string) error {
	for pair := range strings.FieldsSeq(text) {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("%q must be KEY=VALUE", pair)
		}
		if slices.Contains([]string{settings.BaseURL.Key, settings.AuthURL.Key, settings.Local.Key, settings.StackName.Key}, key) {
			return fmt.Errorf("%s is no setting of local runs", key)
		}
		if !slices.ContainsFunc(settings.All(), func(s *settings.Setting) bool { return s.Key == key }) {
			return fmt.Errorf("%s: no such setting", key)
		}
		to[key] = value
	}
	return nil
}

// projectTop returns the folder of go.mod.
func projectTop() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errors.New("start it inside the project")
		}
		folder = parent
	}
}

// foreground is the verb run.
func foreground(ctx context.Context, o options, once bool) error {
	if o.baseURL != "" {
		return errors.New("run is for the simulated payment service, whose keys it signs with; for one of your own, there is up")
	}
	if o.truststore != "" {
		return errors.New("run is for the client certificates of the simulated payment service; for a truststore of your own, there is up")
	}
	o.progress = newProgress(os.Stdout)
	// Whoever chooses the endpoint sees that one only.
	o.further = !usesMTLS(o.settings) && settingOr(o.settings, settings.DomainName) == ""
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		o.progress.say("ending everything")
		up.Remove(o.top)
		s.stop()
		o.progress.say("nothing is left running")
	}()
	if err := s.Write(o.top); err != nil {
		return err
	}
	right, err := s.show(ctx, os.Stdout)
	if err != nil {
		return err
	}
	o.progress.say("the table is complete")
	if !once {
		fmt.Printf("\nEverything stays up until Ctrl-C. In another terminal:\n%s", hints)
		select {
		case <-ctx.Done():
			fmt.Println()
		case <-s.emulator.exited:
			return fmt.Errorf("MiniStack ended: %w", s.emulator.err)
		}
	}
	if !right {
		return errors.New("not everything is as it must be")
	}
	return nil
}

const hints = `  make send                     one more signed webhook; make send HELP=1 for more
  make send CORRUPT=signature   a forged one
  make invoke FUNCTION=webhook EVENT=events/webhook/one-event.json
  cat .local/up.json            where everything is
  less .local/run/emulator.log  what the emulator says
`

// background is the verb up: it starts a process of its own that goes on, and
// waits until everything is there.
func background(ctx context.Context, o options, args []string) error {
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
	cmd := exec.Command(program, append([]string{serve}, args...)...)
	cmd.Dir = o.top
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{write}
	// In a session of its own, nothing that happens in this terminal reaches it.
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
	// It says how it goes, and last whether it is up.
	ready := false
	for lines := bufio.NewScanner(read); lines.Scan(); {
		if ready = lines.Text() == readyLine; !ready {
			fmt.Println(lines.Text())
		}
	}
	if ready {
		fmt.Printf("%s says where everything is. To go on:\n%s  make down                     end it\n", up.Path, hints)
		return nil
	}
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		return errors.New("it is not up")
	}
	return ctx.Err()
}

const readyLine = "ready"

// serveInBackground is what up starts. It ends when it is asked to.
func serveInBackground(ctx context.Context, o options) error {
	terminal := os.NewFile(3, "terminal")
	if _, err := terminal.Stat(); err != nil {
		return errors.New("this verb is for up")
	}
	syscall.CloseOnExec(3)
	o.progress = newProgress(io.MultiWriter(os.Stdout, terminal))
	s, err := start(ctx, o)
	if err != nil {
		fmt.Fprintln(terminal, err)
		return err
	}
	defer s.stop()
	defer up.Remove(o.top)
	if err := s.Write(o.top); err != nil {
		fmt.Fprintln(terminal, err)
		return err
	}
	o.progress.say("everything is up")
	fmt.Fprintln(terminal, readyLine)
	terminal.Close()
	o.progress.out = os.Stdout
	select {
	case <-ctx.Done():
		o.progress.say("ended on request")
		return nil
	case <-s.emulator.exited:
		return fmt.Errorf("MiniStack ended: %w", s.emulator.err)
	}
}

// down ends what run or up has started.
func down(ctx context.Context, o options) error {
	for start := time.Now(); ; {
		l, err := lockFolder(o.state)
		var held errLocked
		if errors.As(err, &held) {
			if held.pid < 2 {
				return errors.New("something is running here, and it is not known what")
			}
			signal := syscall.SIGTERM
			if time.Since(start) > 30*time.Second {
				signal = syscall.SIGKILL
			}
			syscall.Kill(held.pid, signal)
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
		defer l.release()
		endLeftovers(o.state)
		up.Remove(o.top)
		fmt.Println("nothing is up")
		return nil
	}
}
