// Command operator shows what Payhook holds back, and lets it go on: what is
// pending, what is parked, one event, one key, the client certificates. It works on a stack in AWS and
// on the local run alike.
//
// It guarantees that it changes nothing but with the verbs "parked replay",
// "parked settle" and "prepare-deploy" and with "key --drop", that it never changes more than one thing without being
// told so, and that it shows no payload but with "parked show --payload".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"

	"payhook.example/infra/payhook/creation"
)

const usage = `Usage: operator [FLAGS] VERB [ARGUMENTS] [FLAGS]

  pending                what is recorded and not on the bus yet
  parked list            what is parked, and waits for a person
  parked show NAME       one of these
  parked replay NAME...  publish what is parked; --all for all but conflicts
  parked settle NAME...  note that they need no replay, and why
  event ID               what became of one eventId
  key ID                 one of the service's keys as it is cached; --drop
  certificates           which client certificates are accepted, and for how long
  prepare-deploy [ARGS]  before cdk deploy ARGS: turn termination protection off for a
                         stack whose first creation failed, and for no other

operator VERB --help says more of each. Flags of all:

  --stack NAME  the CloudFormation stack (default Payhook)
  --local       what make run or make up has started, and no AWS account
  --json        for scripts: one document, or one a line where there are many

In AWS it uses the credentials and the region of the usual variables: AWS_PROFILE,
or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; AWS_REGION; AWS_ENDPOINT_URL.

` + exits

const exits = `Exit status:
  0    done; nothing here needs a person
  1    something needs a person, was not accepted, or is not there
  2    it was called wrongly, or not allowed to change anything; nothing was done
  3    AWS could not be reached, or refused
  130  ended with Ctrl-C
`

const (
	exitPerson      = 1
	exitUsage       = 2
	exitAWS         = 3
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends it at once
	p := &program{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		terminal: isatty.IsTerminal(os.Stdin.Fd()), now: time.Now, connect: connect,
	}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// program is one call of the command, with the world that it is in.
type program struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // a person is at in
	now      func() time.Time
	connect  func(context.Context, target) (*deployment, error)
}

// usageError says what was wrong with the call.
type usageError string

func (e usageError) Error() string { return string(e) }

// errPerson: all was said already, and it needs a person.
var errPerson = errors.New("this needs a person")

func (p *program) run(ctx context.Context, args []string) int {
	err := p.dispatch(ctx, args)
	var wrong usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errPerson):
		return exitPerson
	case errors.As(err, &wrong):
		fmt.Fprintln(p.err, "operator:", wrong)
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintln(p.err, "operator: ended on request")
		return exitInterrupted
	}
	fmt.Fprintln(p.err, "operator:", err)
	return exitAWS
}

// options are the flags of all verbs.
type options struct {
	target
	json bool

	oldest, examine int           // pending
	overdue         time.Duration // pending

	filter  filter // parked list, parked replay
	long    bool   // parked list
	payload bool   // parked show
	all     bool   // parked replay
	version string // parked replay
	because string // parked settle
	yes     bool   // parked replay, parked settle
	drop    bool   // key
	days    int    // certificates
}

func (o *options) register(f *flag.FlagSet) {
	f.StringVar(&o.stack, "stack", o.stack, "")
	f.BoolVar(&o.local, "local", o.local, "")
	f.BoolVar(&o.json, "json", o.json, "")
}

// verb is one thing that the program can do.
type verb struct {
	usage string
	flags func(p *program, o *options, f *flag.FlagSet)
	// names is what its arguments are; "" for none, with "..." for several.
	names string
	run   func(p *program, ctx context.Context, o *options, names []string) error
}

var verbs = map[string]verb{
	"pending":       {pendingUsage, pendingFlags, "", (*program).pending},
	"parked list":   {listUsage, listFlags, "", (*program).parkedList},
	"parked show":   {showUsage, showFlags, "NAME", (*program).parkedShow},
	"parked replay": {replayUsage, replayFlags, "NAME...", (*program).parkedReplay},
	"parked settle": {settleUsage, settleFlags, "NAME...", (*program).parkedSettle},
	"event":         {eventUsage, nil, "ID", (*program).event},
	"key":           {keyUsage, keyFlags, "ID", (*program).key},
	"certificates":  {certificatesUsage, certificatesFlags, "", (*program).certificates},
}

func (p *program) dispatch(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "prepare-deploy" {
		// What follows are arguments of the CDK CLI.
		return creation.Prepare(ctx, args[1:], p.err)
	}
	var o options
	f := newFlags()
	o.register(f)
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.out, usage)
		return nil
	} else if err != nil {
		return usageError(err.Error() + "; --help lists the flags")
	}
	args = f.Args()
	if len(args) == 0 || args[0] == "help" {
		if len(args) == 0 {
			fmt.Fprint(p.err, usage)
			return usageError("a verb is missing")
		}
		fmt.Fprint(p.out, usage)
		return nil
	}
	name, args := args[0], args[1:]
	if name == "parked" {
		if len(args) == 0 || strings.HasPrefix(args[0], "-") {
			if len(args) > 0 && isHelp(args[0]) {
				fmt.Fprint(p.out, listUsage, "\n", showUsage, "\n", replayUsage, "\n", settleUsage, "\n", exits)
				return nil
			}
			return usageError("parked list, parked show NAME, parked replay NAME... or parked settle NAME...")
		}
		name, args = name+" "+args[0], args[1:]
	}
	v, ok := verbs[name]
	if !ok {
		return usageError(fmt.Sprintf("no verb %q; --help lists them", name))
	}
	f = newFlags()
	o.register(f)
	if v.flags != nil {
		v.flags(p, &o, f)
	}
	var names []string
	for {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(p.out, v.usage, "\n", exits)
			return nil
		} else if err != nil {
			return usageError(fmt.Sprintf("%s; operator %s --help lists the flags", err, name))
		}
		if f.NArg() == 0 {
			break
		}
		names, args = append(names, f.Arg(0)), f.Args()[1:]
	}
	switch {
	case v.names == "" && len(names) > 0:
		return usageError(fmt.Sprintf("%s takes no argument, but %q was given", name, names[0]))
	case v.names != "" && v.names != "NAME..." && len(names) != 1:
		return usageError(fmt.Sprintf("%s takes one %s, but %d were given", name, v.names, len(names)))
	}
	return v.run(p, ctx, &o, names)
}

func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

// newFlags returns flags that leave all talking to the caller.
func newFlags() *flag.FlagSet {
	f := flag.NewFlagSet("operator", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}
