package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local"
	"payhook.example/shared/settings"
)

const long = `Deploys Payhook, a simulated payment service and a consumer under names of one run
(PayhookAcceptance-ID), sends authentic and forged webhooks, compares what is answered
and what arrives with what must, writes a report, and removes everything again, also
after Ctrl-C. --cleanup finds and removes, by its tag, what a run left that was killed.

In an account of AWS, it takes about three hours: alarms are raised and must return to
OK. By AWS's prices, it costs less than one US dollar; neither was measured. The account
and region must be bootstrapped for the CDK. infra/acceptance/policy.json has the
permissions that are needed. The simulated payment service has a public URL; the private
keys that sign webhooks do not leave this machine.

With --local, it starts an emulator of its own and deploys into that. What the emulator
cannot show is reported as not shown.

For client certificates, give a domain name and the hosted zone of it. --bench FILE puts
the times that go run ./infra/bench -json measured on a machine beside those of the run.

The report is written as report.md and report.json to --report, a folder.

Status 1: a row is wrong, or the run failed.

With --json, the content of report.json; with --cleanup, one document: removed (the ids
of runs), left (ARNs), and scheduled (keys, with the day of their deletion).`

type flags struct {
	keep, cleanup, yes bool
	folder, bench      string
	settings           map[string]string
}

// Command returns the command acceptance.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	f := flags{settings: map[string]string{}}
	cmd := &cobra.Command{
		Use: "acceptance", Short: "Show in your account, or on an emulator, that Payhook does what it promises",
		Long: long,
		Example: "  payhook acceptance --local\n  payhook acceptance --profile NAME --region eu-central-1\n" +
			"  payhook acceptance -c authentication=both -c domainName=hook.bank.example -c hostedZoneId=ID\n" +
			"  payhook acceptance --cleanup",
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.Stack != "" {
				return cli.Usage("acceptance deploys stacks of its own: it takes no --stack")
			}
			return f.run(cmd.Context(), p, *t)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.keep, "keep", false, "keep what was deployed; --cleanup removes it later")
	flags.BoolVar(&f.cleanup, "cleanup", false, "remove what runs have left, and do nothing else")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.StringVar(&f.folder, "report", "", "`folder` for the report (default .local/acceptance/ID)")
	flags.StringVar(&f.bench, "bench", "", "`file` with the output of go run ./infra/bench -json, to compare with")
	cli.FuncVar(flags, "setting", "KEY=VALUE", "a setting of Payhook other than its default; may be repeated",
		func(text string) error { return f.addSetting(text) })
	flags.Lookup("setting").Shorthand = "c"
	return cmd
}

// chosen are the settings that a run chooses itself.
var chosen = []*settings.Setting{settings.BaseURL, settings.AuthURL, settings.Local, settings.StackName,
	settings.EventBusName, settings.Tags, settings.Truststore, settings.ClientCertPins, settings.ClientCertSubjects,
	settings.RevokedSerials}

func (f *flags) addSetting(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("must be KEY=VALUE")
	}
	named := func(s *settings.Setting) bool { return s.Key == key }
	if slices.ContainsFunc(chosen, named) {
		return fmt.Errorf("%s is chosen by the run", key)
	}
	if !slices.ContainsFunc(settings.All(), named) {
		return fmt.Errorf("%s: there is no such setting", key)
	}
	f.settings[key] = value
	return nil
}

// checkEndpoint returns an error if the endpoint that the settings ask for cannot be deployed.
func (f *flags) checkEndpoint(emulated bool) error {
	domain, mtls := f.settings[settings.DomainName.Key] != "", usesMTLS(f.settings)
	switch {
	case emulated && (domain || mtls):
		return errors.New("domainName and client certificates are for an account: the emulator serves no domain " +
			"names, and make run shows client certificates")
	case mtls && !domain:
		return errors.New("client certificates need domainName and hostedZoneId")
	case domain && f.settings[settings.HostedZoneID.Key] == "":
		return errors.New("domainName needs hostedZoneId, so that the name can be resolved")
	}
	return nil
}

// usesMTLS reports whether webhooks need a client certificate.
func usesMTLS(conf map[string]string) bool {
	return settingOr(conf, settings.Authentication) != settings.BySignature
}

// lacksOf returns what an account lacks with these settings.
func lacksOf(conf map[string]string) map[local.Need]string {
	lacks := map[local.Need]string{}
	if !usesMTLS(conf) {
		lacks[MTLS] = "it needs -c authentication=both -c domainName=NAME -c hostedZoneId=ID"
	}
	if settingOr(conf, settings.ProtectBus) == "false" {
		lacks[BusPolicies] = "the setting " + settings.ProtectBus.Key + " is false"
	}
	return lacks
}

func (f *flags) run(ctx context.Context, p *cli.Program, t deployment.Target) error {
	top, err := local.ProjectTop()
	if err != nil {
		return cli.Usage("%w", err)
	}
	state := filepath.Join(top, ".local", "acceptance")
	if t.Local {
		if err := f.checkEndpoint(true); err != nil {
			return cli.Usage("%w", err)
		}
		return f.runLocal(ctx, p, top, state)
	}
	to, err := account(ctx, t)
	if err != nil {
		return cli.Unreachable(err)
	}
	if f.cleanup {
		return cli.Unreachable(f.removeAll(ctx, p, to))
	}
	if err := f.checkEndpoint(to.emulated()); err != nil {
		return cli.Usage("%w", err)
	}
	if !to.emulated() {
		to.Lacks = lacksOf(f.settings)
	}
	if !f.yes {
		if err := p.Confirm(ctx, fmt.Sprintf("Payhook is deployed to %s under new names, and removed again. "+
			"It takes about three hours and, by AWS's prices, less than one US dollar. The identity needs "+
			"the permissions of infra/acceptance/policy.json. Go on?", to.Name)); err != nil {
			return err
		}
	}
	if err := local.InstallTools(ctx, top, state, p.Err); err != nil {
		return err
	}
	return f.show(ctx, p, top, state, to)
}

// runLocal is the command with --local.
func (f *flags) runLocal(ctx context.Context, p *cli.Program, top, state string) error {
	folder := filepath.Join(state, "emulator")
	if f.cleanup {
		// Everything that a run deploys into its emulator ends with the emulator.
		if local.EndLeftovers(folder) {
			fmt.Fprintln(p.Err, "an emulator that a run had left behind has ended")
		}
		return printRemoved(p, removed{})
	}
	if f.keep {
		return cli.Usage("--keep is for an account: the emulator ends with the run")
	}
	emulator, err := local.StartEmulator(ctx, top, folder, p.Err)
	if err != nil {
		return err
	}
	defer emulator.Stop()
	for key, value := range quick {
		if _, given := f.settings[key]; !given {
			f.settings[key] = value
		}
	}
	return f.show(ctx, p, top, state, Emulated(emulator))
}

// quick are settings with which redrive does not wait long.
var quick = map[string]string{
	settings.WebhookTimeout.Key: "4s", settings.RedriveTimeout.Key: "5s", settings.RedriveGrace.Key: "1s",
}

// show does a run and writes its report.
func (f *flags) show(ctx context.Context, p *cli.Program, top, state string, to Target) (err error) {
	r := New(to, Options{Top: top, Settings: maps.Clone(f.settings), Keep: f.keep, Version: version(), Out: p.Err})
	if f.bench != "" {
		if r.opts.bench, err = readBench(f.bench); err != nil {
			return cli.Usage("%w", err)
		}
	}
	r.opts.State = filepath.Join(state, r.ID)
	r.say("run %s in %s", r.ID, to.Name)
	report, runErr := r.Do(ctx)
	report.Conclude(runErr)
	folder := f.folder
	if folder == "" {
		folder = r.opts.State
	}
	if err := report.WriteFiles(folder); err != nil {
		return errors.Join(runErr, err)
	}
	if p.JSON {
		if err := p.PrintJSON(report); err != nil {
			return err
		}
	} else {
		report.print(p)
		fmt.Fprintf(p.Out, "\nThe report is %s and report.json beside it.\n", filepath.Join(folder, "report.md"))
	}
	if runErr == nil && !report.Right {
		return cli.ErrAttention
	}
	return runErr
}

// print prints the rows.
func (r Report) print(p *cli.Program) {
	for _, s := range r.Sections {
		fmt.Fprintf(p.Out, "\n%s\n\n", s.Title)
		out := p.Table()
		for _, row := range s.Rows {
			text := row.Actual
			switch row.Status {
			case Wrong:
				text += "; expected: " + row.Expected
			case NotShown:
				text = row.Reason
			}
			mark := string(row.Status)
			if row.Status == Wrong {
				mark = "WRONG"
			}
			fmt.Fprintf(out, "%s\t%s\t%s\n", mark, row.What, cli.Plain(text))
		}
		out.Flush()
	}
	fmt.Fprintf(p.Out, "\n%d passed, %d wrong, %d measured, %d not shown.\n", r.Counts[Passed], r.Counts[Wrong],
		r.Counts[Measured], r.Counts[NotShown])
}

type removed struct {
	Removed []string `json:"removed"`
	Removal
}

// removeAll is the command with --cleanup.
func (f *flags) removeAll(ctx context.Context, p *cli.Program, to Target) error {
	runs, err := Runs(ctx, to)
	if err != nil {
		return err
	}
	if len(runs) > 0 && !f.yes {
		if err := p.Confirm(ctx, fmt.Sprintf("Everything of the runs %s in %s is removed. Go on?",
			strings.Join(runs, ", "), to.Name)); err != nil {
			return err
		}
	}
	done := removed{}
	start := time.Now()
	for _, id := range runs {
		after, err := Cleanup(ctx, to, id, func(format string, args ...any) {
			fmt.Fprintf(p.Err, "[%6.1fs] %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		})
		if err != nil {
			return err
		}
		done.Removed = append(done.Removed, id)
		done.Left, done.Scheduled = append(done.Left, after.Left...), append(done.Scheduled, after.Scheduled...)
	}
	return printRemoved(p, done)
}

func printRemoved(p *cli.Program, done removed) error {
	if p.JSON {
		if err := p.PrintJSON(done); err != nil {
			return err
		}
	} else if len(done.Removed) == 0 {
		fmt.Fprintln(p.Out, "Nothing of a run was left.")
	} else {
		fmt.Fprintf(p.Out, "Removed: the runs %s.\n", strings.Join(done.Removed, ", "))
	}
	if len(done.Scheduled) > 0 && !p.JSON {
		fmt.Fprintf(p.Out, "AWS deletes later:\n%s\n", strings.Join(done.Scheduled, "\n"))
	}
	if len(done.Left) > 0 {
		fmt.Fprintf(p.Err, "left, remove by hand:\n%s\n", strings.Join(done.Left, "\n"))
		return cli.ErrAttention
	}
	return nil
}

// account returns the account and region of the usual AWS variables.
func account(ctx context.Context, t deployment.Target) (Target, error) {
	cfg, err := deployment.Config(ctx, t)
	if err != nil {
		return Target{}, err
	}
	caller, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return Target{}, fmt.Errorf("the account is not known: %w", err)
	}
	to := Target{
		AWS: cfg, Account: aws.ToString(caller.Account),
		Environment: append(os.Environ(), "AWS_REGION="+cfg.Region, "AWS_DEFAULT_REGION="+cfg.Region),
		Lacks:       map[local.Need]string{},
		Client:      &http.Client{Timeout: time.Minute},
	}
	to.Name = "account " + to.Account + ", " + cfg.Region
	if t.Profile != "" {
		to.Environment = append(to.Environment, "AWS_PROFILE="+t.Profile)
	}
	if cfg.BaseEndpoint != nil {
		to.Endpoint, to.Name, to.Lacks = strings.TrimRight(*cfg.BaseEndpoint, "/"), "an emulator at "+*cfg.BaseEndpoint,
			emulatorLacks
	}
	return to, nil
}

// version is the commit from which this program was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, changed := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", with changes"
		}
	}
	return revision + changed
}
