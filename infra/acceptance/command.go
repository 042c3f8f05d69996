package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
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

With --local, it deploys into the emulator of the local run. What the emulator cannot
show is reported as not shown.

For client certificates, give a domain name and its hosted zone.

The report is written as report.txt and report.json to --report, a folder.

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
		Example: "  payhook acceptance --profile NAME --region eu-central-1\n" +
			"  payhook acceptance -c authentication=both -c domainName=hook.bank.example -c hostedZoneId=ID\n" +
			"  payhook acceptance --cleanup",
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.Stack != "" || t.ID != "" {
				return cli.Usage("acceptance deploys its own stacks: it takes no --stack and no --id")
			}
			if err := p.Choose(cmd.Context(), t); err != nil {
				return cli.Unreachable(err)
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
	flags.FuncP("setting", "c", "a setting of Payhook other than its default, `KEY=VALUE`; may be repeated",
		f.addSetting)
	return cmd
}

// chosen are the settings that a run chooses.
var chosen = []*settings.Setting{settings.BaseURL, settings.AuthURL, settings.StackName,
	settings.EventBusName, settings.Truststore, settings.ClientCertPins, settings.ClientCertSubjects,
	settings.RevokedKeys}

func (f *flags) addSetting(text string) error {
	key, value, ok := strings.Cut(text, "=")
	named := func(s *settings.Setting) bool { return s.Key == key }
	switch {
	case !ok:
		return errors.New("must be KEY=VALUE")
	case slices.ContainsFunc(chosen, named):
		return fmt.Errorf("%s is chosen by the run", key)
	case !slices.ContainsFunc(settings.All(), named):
		return fmt.Errorf("%s: %s", key, settings.Unknown(key, settings.All()))
	}
	f.settings[key] = value
	return nil
}

// check returns an error if settings cannot be shown in the target.
func (f *flags) check(emulated bool) error {
	domain := f.settings[settings.DomainName.Key] != ""
	switch {
	case emulated && domain:
		return errors.New("domainName is for an account: the emulator serves no domain names, and make run shows " +
			"client certificates")
	case domain && f.settings[settings.HostedZoneID.Key] == "":
		return errors.New("domainName needs hostedZoneId, so that the name can be resolved")
	case f.settings[settings.EvidenceLock.Key] == settings.Compliance:
		return errors.New("with evidenceLock=compliance, the evidence of the run could not be deleted")
	}
	return nil
}

func (f *flags) run(ctx context.Context, p *cli.Program, t deployment.Target) error {
	top, err := deployment.Top()
	if err != nil {
		return cli.Usage("%w", err)
	}
	to, err := target(ctx, top, t)
	if err != nil {
		return cli.Unreachable(err)
	}
	progress, state := emulator.NewProgress(p.Err), filepath.Join(top, ".local", "acceptance")
	if f.cleanup {
		return cli.Unreachable(f.removeAll(ctx, p, to, progress))
	}
	if !f.yes && to.Endpoint == "" {
		if err := p.Confirm(ctx, fmt.Sprintf("Payhook is deployed to %s under new names, and removed again. "+
			"It takes about an hour and, by AWS's prices, less than one US dollar. The identity needs "+
			"the permissions of infra/acceptance/policy.json. Go on?", to.Name)); err != nil {
			return err
		}
	}
	release, err := emulator.Prepare(ctx, top, state, progress)
	if err != nil {
		return err
	}
	defer release()
	r := newRun(top, to, f.settings, progress)
	r.Keep = f.keep
	progress.Say("run %s in %s", r.ID, to.Name)
	report, runErr := r.Do(ctx)
	if f.folder == "" {
		f.folder = r.CDK.State
	}
	if err := report.write(f.folder); err != nil {
		return errors.Join(runErr, err)
	}
	if p.JSON {
		err = p.PrintJSON(report)
	} else {
		err = report.Print(p.Out, false)
		fmt.Fprintf(p.Out, "\nThe report is %s and report.json beside it.\n", filepath.Join(f.folder, "report.txt"))
	}
	if runErr == nil && err == nil && !report.Right {
		return cli.ErrAttention
	}
	return errors.Join(runErr, err)
}

// removeAll is the command with --cleanup.
func (f *flags) removeAll(ctx context.Context, p *cli.Program, to Target, progress *emulator.Progress) error {
	all, err := Runs(ctx, to)
	if err != nil {
		return err
	}
	runs := slices.Sorted(maps.Keys(all))
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
	return p.Print(map[string][]string{"removed": runs})
}

// target returns the account and region of the usual AWS variables, or the emulator of the local run.
func target(ctx context.Context, top string, t deployment.Target) (Target, error) {
	if t.Local {
		run, err := deployment.Read(top)
		if err != nil {
			return Target{}, err
		}
		return emulated(top, run.Endpoint, run.AWS), nil
	}
	cfg, err := deployment.Config(ctx, t)
	if err != nil {
		return Target{}, err
	}
	caller, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return Target{}, fmt.Errorf("the account is not known: %w", err)
	}
	to := Target{AWS: cfg, Account: aws.ToString(caller.Account), Endpoint: aws.ToString(cfg.BaseEndpoint),
		Environment: append(os.Environ(), "AWS_REGION="+cfg.Region, "AWS_DEFAULT_REGION="+cfg.Region)}
	to.Name, to.Partition = "account "+to.Account+", "+cfg.Region, strings.Split(aws.ToString(caller.Arn), ":")[1]
	if t.Profile != "" {
		to.Environment = append(to.Environment, "AWS_PROFILE="+t.Profile)
	}
	return to, nil
}

// emulated returns an emulator as a target.
func emulated(top, endpoint string, config aws.Config) Target {
	return Target{Name: "MiniStack, an emulator of AWS on this machine", AWS: config, Account: emulator.Account,
		Partition: "aws",
		Endpoint:  endpoint, Environment: append(emulator.Environment(top), "AWS_ENDPOINT_URL="+endpoint)}
}

// Report is the report of a run. It is right if everything was done and no result is wrong.
type Report struct {
	Run      string            `json:"run"`
	Target   string            `json:"target"`
	Started  time.Time         `json:"started"`
	Ended    time.Time         `json:"ended"`
	Version  string            `json:"version"`  // of this program, with its commit
	Settings map[string]string `json:"settings"` // other than the defaults
	scenario.Report
	// Failure is the error that ended the run early.
	Failure string `json:"failure,omitempty"`
}

// conclude sets the end and whether the report is right; err is that of the run.
func (r *Report) conclude(err error) {
	r.Ended = time.Now().UTC()
	r.Right = err == nil && len(r.Parts) > 0 && scenario.NewReport(r.Parts...).Right
	if err != nil {
		r.Failure = err.Error()
	}
}

// write writes the report as report.txt and report.json to a folder.
func (r Report) write(folder string) error {
	document, err := json.MarshalIndent(r, "", "  ")
	var text bytes.Buffer
	err = errors.Join(err, r.print(&text), os.MkdirAll(folder, 0o755))
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "report.txt"), text.Bytes(), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "report.json"), append(document, '\n'), 0o644)
	}
	return err
}

// print prints the report for people.
func (r Report) print(out io.Writer) error {
	result := "as expected"
	if !r.Right {
		result = "not as expected"
	}
	fmt.Fprintf(out, "Payhook: acceptance run %s in %s, %s to %s\nversion %s, settings %v\nresult: %s. %s\n\n"+
		"A result without an expected value was measured. One with the mark - was not shown.\n", r.Run, r.Target,
		r.Started.Format(time.RFC3339), r.Ended.Format(time.RFC3339), r.Version, r.Settings, result, r.Failure)
	return r.Print(out, true)
}
