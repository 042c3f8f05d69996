// Package local runs Payhook on this machine: it deploys the real stack with the real CDK
// into MiniStack, an emulator of AWS, with the stack of a consumer and a simulated payment
// service beside it.
//
// Everything that it starts ends with it: after Ctrl-C, SIGTERM, a closed terminal or a
// failed step, and at the start of the next run if it was killed. It listens on free ports
// of 127.0.0.1 only, and writes below .local of the project only.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/local/emulator"
	"payhook.example/shared/settings"
)

// Command returns the command local, with the commands that start and end the local
// run below it, and further ones that use it.
func Command(p *cli.Program, further ...*cobra.Command) *cobra.Command {
	return cli.Group("local", "Run Payhook on this machine", slices.Concat([]*cobra.Command{runCommand(p), upCommand(p),
		serveCommand(p), downCommand(p), statusCommand(p), envCommand(p)}, further,
		[]*cobra.Command{checkCommand(p), toolsCommand(p)})...)
}

const settingsHelp = `
Settings are given as "-c KEY=VALUE", as to "cdk deploy", and replace those of
cdk.json. With --auth-url, the client id and secret are read from the variables
CLIENT_ID and CLIENT_SECRET.
`

func runCommand(p *cli.Program) *cobra.Command {
	o := &options{}
	var once bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Start everything, send webhooks, show the results, stay up until Ctrl-C",
		Long: `Starts an emulator of AWS and a simulated payment service, deploys Payhook and a
consumer, sends authentic and forged webhooks, and shows what was answered and what
arrived behind which rule.
` + settingsHelp + `
Status 1: a result is not the expected one, or a step failed.

It prints a table for each topic, a summary of the topics, and each wrong result again
with what was expected.

With --json, one document: right, and for each part title and checks (right, what, got,
expected, milliseconds).`,
		Example: "  payhook local run --once\n  payhook local run -c authentication=both --wide",
		Args:    cli.Args(),
		RunE: local(p, o, func(ctx context.Context) error {
			if o.baseURL != "" {
				return cli.Usage("run needs the simulated payment service, whose keys sign: with --base-url, use " +
					"payhook local up")
			}
			if o.truststore != "" {
				return cli.Usage("run needs the client certificates of the simulated payment service: with " +
					"--truststore, use payhook local up")
			}
			return foreground(ctx, p, *o, once)
		}),
	}
	cmd.Flags().BoolVar(&once, "once", false, "end after the results")
	cmd.Flags().BoolVar(&o.wide, "wide", false,
		"show also what is expected, and milliseconds")
	o.register(cmd)
	return cmd
}

func upCommand(p *cli.Program) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start everything in the background",
		Long: `Starts everything that "payhook local run" starts, and returns when it is up. The file
.local/up.json then says where it is, and the other commands use it with --local.
` + settingsHelp + `
Status 1: a step failed.

With --json, the content of .local/up.json.`,
		Example: "  payhook local up\n  payhook local up --base-url http://127.0.0.1:8080 --auth-url " +
			"http://127.0.0.1:8080",
		Args: cli.Args(),
		RunE: local(p, o, func(ctx context.Context) error { return background(ctx, p, *o) }),
	}
	o.register(cmd)
	return cmd
}

// serve is the command that up runs in the background.
const serve = "serve"

func serveCommand(p *cli.Program) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: serve, Short: "Run by up in the background", Hidden: true, Args: cli.Args(),
		RunE: local(p, o, func(ctx context.Context) error { return serveInBackground(ctx, p, *o) }),
	}
	o.register(cmd)
	return cmd
}

func downCommand(p *cli.Program) *cobra.Command {
	o := &options{}
	return &cobra.Command{
		Use:   "down",
		Short: "End what run or up has started",
		Long: `Ends what "payhook local run" or "payhook local up" has started in this project. It is
no error if nothing is running.

With --json, one document: ended.`,
		Example: "  payhook local down",
		Args:    cli.Args(),
		RunE:    local(p, o, func(ctx context.Context) error { return down(ctx, p, *o) }),
	}
}

func statusCommand(p *cli.Program) *cobra.Command {
	o := &options{}
	return &cobra.Command{
		Use:   "status",
		Short: "Show whether everything is up, and where",
		Long: `Shows whether the local run is up, and where its parts are.

Status 1: nothing is up, or it does not answer.

With --json, one document: state (up, starting, down or broken), pid, and what
.local/up.json has.`,
		Example: "  payhook local status",
		Args:    cli.Args(),
		RunE:    local(p, o, func(ctx context.Context) error { return status(ctx, p, *o) }),
	}
}

func checkCommand(p *cli.Program) *cobra.Command {
	o := &options{}
	return &cobra.Command{
		Use:   "check",
		Short: "Check that this machine has the programs that are needed",
		Long: `Checks that Node, npm and Python are installed and new enough. Go is, since it has
built this program.

Status 1: something is missing or too old.

With --json, one document a line: program, version, note.`,
		Example: "  payhook local check",
		Args:    cli.Args(),
		RunE:    local(p, o, func(context.Context) error { return printTools(p) }),
	}
}

// printTools prints the programs that are needed.
func printTools(p *cli.Program) error {
	found, err := emulator.FindTools()
	fields := p.Fields()
	for _, t := range found {
		if p.JSON {
			if err := p.PrintJSON(t); err != nil {
				return err
			}
			continue
		}
		fields.Line(t.Program, "%s%s", t.Version, strings.TrimSuffix("; "+t.Note, "; "))
	}
	if flushed := fields.Flush(); err == nil {
		err = flushed
	}
	if err == nil && !p.JSON {
		_, err = fmt.Fprintln(p.Out, "Everything that is needed is installed.")
	}
	return err
}

func toolsCommand(p *cli.Program) *cobra.Command {
	o := &options{}
	return &cobra.Command{
		Use:   "tools",
		Short: "Install the pinned tools into the project",
		Long: `Installs MiniStack, cfn-lint and the CDK CLI, in the pinned versions, into .local/venv
and infra/node_modules. It does nothing where they are installed.

Status 1: a program that is needed is missing, or a step failed.`,
		Example: "  payhook local tools",
		Args:    cli.Args(),
		RunE: local(p, o, func(ctx context.Context) error {
			if _, err := emulator.FindTools(); err != nil {
				return err
			}
			return emulator.Install(ctx, o.top, emulator.NewProgress(p.Err),
				filepath.Join(o.top, ".local", "install.log"))
		}),
	}
}

func (o *options) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.baseURL, "base-url", "",
		"base `URL` of a payment service that runs already, instead of the simulated one")
	f.StringVar(&o.authURL, "auth-url", "", "`URL` of a token endpoint that runs already, instead of the simulated one")
	f.StringVar(&o.truststore, "truststore", "",
		"PEM `file` with the CAs of client certificates, instead of the simulated service's; with "+
			"authentication=mtls or both")
	o.given = map[string]string{}
	f.VarP(settingsValue(o.given), "setting", "c",
		"a setting other than its default, KEY=VALUE; may be repeated, or have several, separated by spaces")
	var keys []string
	for _, s := range settings.All() {
		if !slices.Contains(fixed, s.Key) {
			keys = append(keys, s.Key+"=")
		}
	}
	if err := cmd.RegisterFlagCompletionFunc("setting",
		cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)); err != nil {
		panic(err) // there is no such flag
	}
}

// args returns the flags of o.
func (o *options) args() []string {
	var args []string
	for _, flag := range [][2]string{{"--base-url", o.baseURL}, {"--auth-url", o.authURL},
		{"--truststore", o.truststore}} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	return append(args, emulator.ContextFlags(o.given)...)
}

// local returns the function of a command. The command is for this project and never for AWS.
func local(p *cli.Program, o *options, do func(context.Context) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := cli.NoTargetFlags(cmd); err != nil {
			return err
		}
		top, err := ProjectTop()
		if err != nil {
			return cli.Usage("%w", err)
		}
		o.top, o.state = top, filepath.Join(top, ".local", "run")
		if o.settings, err = serviceSettings(top); err != nil {
			return cli.Usage("%w", err)
		}
		maps.Copy(o.settings, o.given)
		if o.authURL != "" {
			// Not by flags: every process of this machine can see those.
			o.clientID, o.clientSecret = os.Getenv("CLIENT_ID"), os.Getenv("CLIENT_SECRET")
		}
		// A second Ctrl-C must not end this program before it has ended what it
		// started.
		further := make(chan os.Signal, 1)
		signal.Notify(further, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer signal.Stop(further)
		return do(cmd.Context())
	}
}

// serviceSettings returns the settings of cdk.json that say how the payment service
// behaves. The CDK app follows them, so the simulated service must, too.
func serviceSettings(top string) (map[string]string, error) {
	conf := map[string]string{}
	text, err := os.ReadFile(filepath.Join(top, "cdk.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return conf, nil
	}
	if err != nil {
		return nil, err
	}
	var file struct{ Context map[string]json.RawMessage }
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("cdk.json: %w", err)
	}
	for _, s := range []*settings.Setting{settings.SignatureHeader, settings.TimestampCarrier, settings.KeyIDCarrier,
		settings.TimestampFormat, settings.HTTPMethod, settings.KeysAuth, settings.CredentialEncoding,
		settings.TokenManagerID, settings.CaptureRejected} {
		value, ok := file.Context[s.Key]
		if !ok {
			continue
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value) // a number
		}
		conf[s.Key] = text
	}
	return conf, nil
}

// fixed are the keys of the settings that a local run chooses itself.
var fixed = []string{settings.BaseURL.Key, settings.AuthURL.Key, settings.LocalKey, settings.StackName.Key}

// settingsValue is a flag with settings, by their keys.
type settingsValue map[string]string

func (s settingsValue) Set(text string) error { return addSettings(s, text) }
func (s settingsValue) String() string        { return "" }
func (s settingsValue) Type() string          { return "KEY=VALUE" }

// addSettings reads KEY=VALUE, or several of them.
func addSettings(to map[string]string, text string) error {
	for pair := range strings.FieldsSeq(text) {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("%q must be KEY=VALUE", pair)
		}
		if slices.Contains(fixed, key) {
			return fmt.Errorf("%s is not a setting of local runs", key)
		}
		if settings.ByKey(key) == nil {
			return fmt.Errorf("%s: there is no such setting", key)
		}
		to[key] = value
	}
	return nil
}

// ProjectTop returns the folder of go.mod.
func ProjectTop() (string, error) {
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
			return "", errors.New("this folder is not in the project: change to it first")
		}
		folder = parent
	}
}
