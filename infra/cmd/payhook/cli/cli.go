// Package cli has what all commands of payhook share: where they read and write, the flag --json, and the exit status.
//
// It guarantees one convention: results go to standard output, everything else to standard error; an error that is
// found before a command starts to work ends with the status [StatusUsage].
package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"payhook.example/infra/stack"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// The exit statuses of all commands.
const (
	StatusFailed      = 1
	StatusUsage       = 2
	StatusUnreachable = 3
	StatusInterrupted = 130
)

// ExitStatuses documents the exit statuses. It is part of every help text.
const ExitStatuses = `Exit status:
  0    success; nothing needs attention
  1    failed, or something needs attention
  2    wrong usage, or not confirmed; nothing was done
  3    AWS or another service could not be reached, or denied the request
  130  interrupted with Ctrl-C
`

// Program is one run of the program, with its streams. It is not safe for concurrent use.
type Program struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // a person can answer questions at In
	Screen   bool // Out is a terminal
	Now      func() time.Time

	JSON bool   // the flag --json
	Name string // as the user called it; "": payhook

	Target stack.Stack  // which one is meant, as the flags say
	Stack  *stack.Stack // the one that is meant; nil: AWS is asked

	started bool // a command has started to work
}

// New returns a program that uses the streams of the process.
func New() *Program {
	return &Program{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: term.IsTerminal(int(os.Stdin.Fd())),
		Screen: term.IsTerminal(int(os.Stdout.Fd())), Now: time.Now, Name: os.Args[0]}
}

// output is where the program writes, without what controls a terminal. It keeps the first error, so that commands need
// not look at each.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(text []byte) (int, error) { return len(text), o.exactly(printable(text)) }

func (o *output) exactly(text []byte) error {
	_, err := o.Writer.Write(text)
	o.err = cmp.Or(o.err, err)
	return err
}

// WritePayload writes bytes that anybody can have sent. A terminal gets them without what controls it.
func (p *Program) WritePayload(payload []byte) error {
	if o, ok := p.Out.(*output); ok && !p.Screen {
		return o.exactly(payload)
	}
	_, err := p.Out.Write(payload)
	return err
}

// Root returns the command payhook, without commands below it. Its flags set JSON and Target.
func (p *Program) Root() *cobra.Command {
	p.Out, p.Err, p.Target.Ask = &output{Writer: p.Out}, &output{Writer: p.Err}, p.ask
	root := &cobra.Command{
		Use: "payhook", Short: "Run, use and operate Payhook",
		Version:       payment.Version() + " (" + runtime.Version() + ")",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			p.started = true
			if p.Target.Local && (p.Target.Region != "" || p.Target.Profile != "") {
				return Usage("--region and --profile are for AWS: they cannot be used with --local")
			}
			return nil
		},
		RunE: group,
	}
	f, t := root.PersistentFlags(), &p.Target
	f.BoolVar(&t.Local, "local", false, "use the local run, which \"payhook local up\" started, and never AWS")
	f.StringVar(&t.StackName, "stack", "",
		"`name` of the CloudFormation stack (default "+settings.ByKey("stackName").Default+")")
	f.StringVar(&t.ID, "id", "", "`id` of the Payhook in the stack, if the stack has several")
	f.StringVar(&t.Region, "region", "", "AWS `region`, instead of AWS_REGION")
	f.StringVar(&t.Profile, "profile", "", "`name` of the AWS profile, instead of AWS_PROFILE")
	f.BoolVar(&p.JSON, "json", false, "print JSON: one document, or one a line where there are several")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage("%w; %s --help lists the flags", err, cmd.CommandPath())
	})
	root.SetHelpTemplate(root.HelpTemplate() + "\n" + ExitStatuses)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	return root
}

// Commands are listed as they are added: the first to use comes first.
func init() { cobra.EnableCommandSorting = false }

// Group returns a command that only has other commands below it.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: group}
	cmd.AddCommand(commands...)
	return cmd
}

// AddHelp adds the descriptions and examples in text files to the commands below root. A file has the name of its
// command below payhook, with hyphens.
func AddHelp(root *cobra.Command, texts fs.FS) {
	files, _ := fs.Glob(texts, "*.txt")
	for _, file := range files {
		name := strings.ReplaceAll(strings.TrimSuffix(file, ".txt"), "-", " ")
		cmd, _, err := root.Find(strings.Fields(strings.TrimPrefix(name, root.Name())))
		if err != nil || !strings.HasSuffix(cmd.CommandPath(), name) {
			panic(file + ": there is no such command")
		}
		text, _ := fs.ReadFile(texts, file)
		description, examples, _ := strings.Cut(string(text), "\nExamples:\n")
		cmd.Long, cmd.Example = strings.TrimSpace(description), strings.TrimRight(examples, "\n")
	}
}

// group is what a command does that only has other commands below it.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), cmd.UsageString())
		return Usage("%s needs a command", cmd.CommandPath())
	}
	similar := ""
	cmd.SuggestionsMinimumDistance = 2
	if found := cmd.SuggestionsFor(args[0]); len(found) > 0 {
		similar = "; did you mean " + strings.Join(found, " or ") + "?"
	}
	return Usage("unknown command %q for %q%s", args[0], cmd.CommandPath(), similar)
}

// Run runs the command that args name below root, prints its error, and returns the exit status.
func (p *Program) Run(ctx context.Context, root *cobra.Command, args []string) int {
	// Without it, cobra answers an unknown command in its own way.
	root.Args = cobra.ArbitraryArgs
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if o, ok := p.Out.(*output); ok && o.err != nil {
		fmt.Fprintln(p.Err, "payhook: the output cannot be written:", o.err)
		return StatusFailed
	}
	if err == nil {
		return 0
	}
	if errors.Is(err, ErrAttention) {
		return StatusFailed
	}
	status := StatusFailed
	if known, ok := errors.AsType[*statusError](err); ok {
		status = known.status
	}
	switch {
	case !p.started:
		status = StatusUsage
	case ctx.Err() != nil && status != StatusUsage:
		fmt.Fprintln(p.Err, "payhook: interrupted")
		return StatusInterrupted
	}
	fmt.Fprintln(p.Err, "payhook:", lambdaruntime.Cause(err))
	return status
}

// ErrAttention ends the program with [StatusFailed] and without a message: the
// command has printed what needs attention.
var ErrAttention = errors.New("something needs attention")

type statusError struct {
	error
	status int
}

func (e *statusError) Unwrap() error { return e.error }

// Usage returns an error that ends the program with [StatusUsage]. It may be used only if nothing was done.
func Usage(format string, args ...any) error {
	return &statusError{fmt.Errorf(format, args...), StatusUsage}
}

// Failed makes err one that ends the program with [StatusFailed], as no service is the cause.
func Failed(err error) error { return &statusError{err, StatusFailed} }

// Unreachable makes err one that ends the program with [StatusUnreachable], unless it is known to have another cause:
// an error of usage, [ErrAttention], one of [Failed], or what is stored is damaged. It returns nil for nil.
func Unreachable(err error) error {
	_, known := errors.AsType[*statusError](err)
	if known || err == nil || errors.Is(err, ErrAttention) || errors.Is(err, proof.ErrDamaged) {
		return err
	}
	return &statusError{err, StatusUnreachable}
}

// Confirm asks the person at the terminal. It returns an error of usage unless the answer is yes, or if nobody is
// there; with the flag --yes, a command does not call it.
func (p *Program) Confirm(ctx context.Context, question string) error {
	if !p.Terminal {
		return Usage("%s Nobody is at a terminal to answer: --yes answers yes. Nothing was done", question)
	}
	fmt.Fprint(p.Err, question, " [y/N] ")
	answer := make(chan string, 1)
	go func() {
		text, _ := p.line()
		answer <- strings.ToLower(text)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(p.Err, "\nnothing was done")
		return ctx.Err()
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
		return Usage("nothing was done")
	}
}

// line returns the next line that a person types.
func (p *Program) line() (string, error) {
	text, err := bufio.NewReader(p.In).ReadString('\n')
	return strings.TrimSpace(text), err
}

// ask asks for what a profile of AWS needs, such as an MFA code.
func (p *Program) ask(question string) (string, error) {
	if !p.Terminal {
		return "", errors.New("nobody is at a terminal to answer \"" + question + "\": set the variables that \"aws " +
			"configure export-credentials --format env\" prints")
	}
	fmt.Fprint(p.Err, question, " ")
	return p.line()
}
