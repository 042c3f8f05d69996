// Run runs the functions of Payhook in one process, over stores in memory. It needs no AWS account, and links no
// client of AWS.
package main

import (
	"context"
	_ "embed" // for usage
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/term"

	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
)

//go:embed usage.txt
var usage string

// usageError is an error of who calls the program.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if _, ok := errors.AsType[usageError](err); ok {
		os.Exit(2)
	}
	os.Exit(1)
}

func (p *process) flags() *flag.FlagSet {
	f := flag.NewFlagSet("payhook-run", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&p.once, "once", false, "end after the table")
	f.IntVar(&p.port, "port", 0, "the `port` of the page and the webhook URL; 0: one that is free")
	f.Func("setting", "a setting other than in the file, `KEY=VALUE`; may be repeated, or have several,\n"+
		"separated by spaces; a value with spaces can be in quotes: KEY='A B'", func(text string) error {
		return settings.ParsePairs(p.given, text, settings.AllExcept("baseUrl", "authUrl")) // they have flags
	})
	f.StringVar(&p.service.baseURL, "base-url", "",
		"the base `URL` of a payment service that is not simulated, for keys")
	f.StringVar(&p.service.authURL, "auth-url", "", "the base `URL` of its token endpoint")
	f.Func("forward", "post each event that is published to a program on this machine, at this `URL`, once and in\n"+
		"EventBridge's envelope; its answer is shown", func(text string) error {
		p.screen.forwardTo = text
		return checkForward(text)
	})
	f.BoolVar(&p.asIs, "as-is", false, "invoke: sign no event of a webhook")
	f.BoolVar(&p.version, "version", false, "print the version")
	return f
}

// run does what the arguments say, until it is done, ctx ends, or Ctrl-C.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends it at once

	invokes := len(args) > 0 && args[0] == "invoke"
	if invokes {
		args = args[1:]
	}
	p := &process{screen: screen{out: stdout}, given: map[string]string{}}
	f := p.flags()
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		f.SetOutput(stdout)
		f.PrintDefaults()
		return err
	case err != nil:
		return usagef("%w; --help lists the flags", err)
	case p.screen.forwardTo != "" && (p.once || invokes):
		return usagef("--forward is for a run that receives webhooks")
	case !invokes && f.NArg() > 0:
		return usagef("%q is not a flag; --help lists them", f.Arg(0))
	case p.version:
		fmt.Fprintf(stdout, "payhook-run version %s (%s)\n", payment.Version(), runtime.Version())
		return nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
	if err != nil {
		return usageError{err}
	}
	defer listener.Close()
	if err := p.start(ctx, stderr); err != nil {
		return err
	}
	defer p.service.simulated.Close()
	if invokes {
		return p.invokeFiles(ctx, f.Args())
	}
	err = p.playTable(ctx)
	if p.once {
		return err
	}
	minute := time.NewTicker(time.Minute) // as the schedules of a stack
	defer minute.Stop()
	return errors.Join(p.serve(ctx, listener, minute.C), err)
}

// credentials returns client id and secret of the environment, or asks for them. They are no flags, since every process
// of this machine can see those.
func credentials(ctx context.Context, stderr io.Writer) (id, secret string, err error) {
	in := int(os.Stdin.Fd())
	if state, err := term.GetState(in); err == nil {
		defer context.AfterFunc(ctx, func() { // Ctrl-C does not end a read
			_ = term.Restore(in, state)
			os.Exit(1)
		})()
	}
	for i, value := range []*string{&id, &secret} {
		name := []string{"PAYHOOK_CLIENT_ID", "PAYHOOK_CLIENT_SECRET"}[i]
		if *value = os.Getenv(name); *value != "" {
			continue
		}
		if !term.IsTerminal(in) {
			return "", "", usagef("%s is not set, and there is no terminal to ask for it: --auth-url needs it", name)
		}
		fmt.Fprintf(stderr, "%s, which is not shown: ", name)
		text, err := term.ReadPassword(in)
		fmt.Fprintln(stderr)
		if err != nil {
			return "", "", err
		}
		*value = string(text)
	}
	return id, secret, nil
}
