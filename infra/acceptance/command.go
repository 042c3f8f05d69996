package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
	"payhook.example/shared/settings"
)

const long = `Deploys Payhook, a simulated payment service and a consumer under names of one run
(PayhookAcceptance-ID), does the checks of "payhook local run" and those that only AWS
can show, writes a report, and removes everything again, also after Ctrl-C. --cleanup
removes what killed runs left.

In an account of AWS, it takes about an hour. By AWS's prices, it costs less than one US
dollar. The account and region must be bootstrapped for the CDK. The permissions are in
infra/acceptance/policy.json. The simulated payment service has a public URL; the private
keys that sign webhooks do not leave this machine.

With --local, it starts an emulator and deploys into that. What the emulator cannot show
is reported as not shown.

For client certificates, give a domain name and its hosted zone.

The report is written as report.md and report.json to --report, a folder.

Status 1: a result is wrong, or the run failed.

With --json, the content of report.json; with --cleanup, one document: removed (the ids
of runs).`

type flags struct {
	keep, cleanup, yes bool
	folder             string
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
				return cli.Usage("acceptance deploys its own stacks: it takes no --stack")
			}
			if err := f.check(t.Local); err != nil {
				return cli.Usage("%w", err)
			}
			return f.run(cmd.Context(), p, *t)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.keep, "keep", false, "keep what was deployed; --cleanup removes it later")
	flags.BoolVar(&f.cleanup, "cleanup", false, "remove what runs have left, and do nothing else")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.StringVar(&f.folder, "report", "", "`folder` for the report (default .local/acceptance/ID)")
	flags.FuncP("setting", "c", "a setting of Payhook other than its default, `KEY=VALUE`; may be repeated", f.addSetting)
	return cmd
}

// chosen are the settings that a run chooses.
var chosen = []*settings.Setting{settings.BaseURL, settings.AuthURL, settings.StackName,
	settings.EventBusName, settings.Truststore, settings.ClientCertPins, settings.ClientCertSubjects,
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

// check returns an error if flags contradict each other.
func (f *flags) check(emulated bool) error {
	domain, mtls := f.settings[settings.DomainName.Key] != "", scenario.UsesMTLS(f.settings)
	switch {
	case emulated && (domain || mtls):
		return errors.New("domainName and client certificates are for an account: the emulator serves no domain " +
			"names, and make run shows client certificates")
	case emulated && f.keep:
		return errors.New("--keep is for an account: the emulator ends with the run")
	case mtls && !domain:
		return errors.New("client certificates need domainName and hostedZoneId")
	case domain && f.settings[settings.HostedZoneID.Key] == "":
		return errors.New("domainName needs hostedZoneId, so that the name can be resolved")
	}
	return nil
}

func (f *flags) run(ctx context.Context, p *cli.Program, t deployment.Target) error {
	top, err := local.ProjectTop()
	if err != nil {
		return cli.Usage("%w", err)
	}
	state, progress := filepath.Join(top, ".local", "acceptance"), emulator.NewProgress(p.Err)
	if t.Local {
		release, err := emulator.Prepare(ctx, top, filepath.Join(state, "emulator"), progress)
		if err != nil {
			return err
		}
		defer release()
		if f.cleanup { // a run ends with its emulator, and Prepare has ended one that was left
			return printRemoved(p, nil)
		}
		e, err := emulator.Start(ctx, top, filepath.Join(state, "emulator"), nil)
		if err != nil {
			return err
		}
		defer e.Stop()
		return f.show(ctx, p, top, state, Emulated(top, e), progress)
	}
	to, err := account(ctx, t)
	if err != nil {
		return cli.Unreachable(err)
	}
	if f.cleanup {
		return cli.Unreachable(f.removeAll(ctx, p, to, progress))
	}
	if !f.yes {
		if err := p.Confirm(ctx, fmt.Sprintf("Payhook is deployed to %s under new names, and removed again. "+
			"It takes about an hour and, by AWS's prices, less than one US dollar. The identity needs "+
			"the permissions of infra/acceptance/policy.json. Go on?", to.Name)); err != nil {
			return err
		}
	}
	if _, err := emulator.FindTools(); err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	if err := emulator.Install(ctx, top, progress, filepath.Join(state, "install.log")); err != nil {
		return err
	}
	return f.show(ctx, p, top, state, to, progress)
}

// quick are settings with which redrive does not wait long.
var quick = map[string]string{
	settings.WebhookTimeout.Key: "4s", settings.RedriveTimeout.Key: "5s", settings.RedriveGrace.Key: "1s",
}

// show does a run and writes its report.
func (f *flags) show(ctx context.Context, p *cli.Program, top, state string, to Target,
	progress *emulator.Progress) error {
	r := &Run{ID: newRunID(), Target: to, Values: f.settings, Keep: f.keep, Progress: progress}
	r.CDK = &emulator.CDK{Top: top, State: filepath.Join(state, r.ID), Environment: to.Environment}
	for key, value := range quick {
		if _, given := f.settings[key]; !given && to.Endpoint != "" {
			f.settings[key] = value
		}
	}
	r.Say("run %s in %s", r.ID, to.Name)
	report, runErr := r.Do(ctx)
	folder := f.folder
	if folder == "" {
		folder = r.CDK.State
	}
	if err := report.Write(folder); err != nil {
		return errors.Join(runErr, err)
	}
	var err error
	if p.JSON {
		err = p.PrintJSON(report)
	} else {
		err = scenario.NewReport(report.Sections...).Print(p.Out, p.Width(), false)
		fmt.Fprintf(p.Out, "\nThe report is %s and report.json beside it.\n", filepath.Join(folder, "report.md"))
	}
	if runErr == nil && err == nil && !report.Right {
		return cli.ErrAttention
	}
	return errors.Join(runErr, err)
}

// removeAll is the command with --cleanup for an account.
func (f *flags) removeAll(ctx context.Context, p *cli.Program, to Target, progress *emulator.Progress) error {
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
	for _, id := range runs {
		if err := Cleanup(ctx, to, id, progress); err != nil {
			return err
		}
	}
	return printRemoved(p, runs)
}

func printRemoved(p *cli.Program, runs []string) error {
	if p.JSON {
		return p.PrintJSON(map[string][]string{"removed": runs})
	}
	text := "Nothing of a run was left."
	if len(runs) > 0 {
		text = "Removed: the runs " + strings.Join(runs, ", ") + "."
	}
	_, err := fmt.Fprintln(p.Out, text)
	return err
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
	to := Target{AWS: cfg, Account: aws.ToString(caller.Account),
		Environment: append(os.Environ(), "AWS_REGION="+cfg.Region, "AWS_DEFAULT_REGION="+cfg.Region)}
	to.Name = "account " + to.Account + ", " + cfg.Region
	if t.Profile != "" {
		to.Environment = append(to.Environment, "AWS_PROFILE="+t.Profile)
	}
	if cfg.BaseEndpoint != nil {
		to.Endpoint, to.Name = strings.TrimRight(*cfg.BaseEndpoint, "/"), "an emulator at "+*cfg.BaseEndpoint
		to.Lacks = emulatorLacks
	}
	return to, nil
}

// Emulated returns an emulator as a target.
func Emulated(top string, e *emulator.Emulator) Target {
	return Target{Name: "MiniStack, an emulator of AWS on this machine", AWS: e.AWS, Account: emulator.Account,
		Endpoint: e.Endpoint, Environment: e.CDK(top).Environment, Lacks: emulatorLacks}
}

// version is the commit from which this program was built.
func version() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
