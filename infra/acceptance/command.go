package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

const long = `Deploys Payhook, a simulated payment service and a consumer under names of one run
(PayhookAcceptance-ID), does the checks of "payhook local run", reports the results, and
removes everything again, also after Ctrl-C. --cleanup removes what killed runs left.

By AWS's prices, a run in an account costs less than one US dollar. The account and
region must be bootstrapped for the CDK. The permissions are in
infra/acceptance/policy.json. The simulated payment service has a public URL; the private
keys that sign webhooks do not leave this machine.

With --local, it deploys into the emulator of the local run.

For client certificates, give a domain name and its hosted zone.

Status 1: a result is wrong, or the run failed.

With --json, one document, which is also written to .local/acceptance/ID/report.json:
run, target, started, ended, version, settings, right and parts, as of "payhook local
run"; with --cleanup, one document: removed (the names of stacks).`

// Command returns the command acceptance.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	var keep, clean, yes bool
	values := map[string]string{}
	cmd := &cobra.Command{
		Use: "acceptance", Short: "Show in your account, or on an emulator, that Payhook does what it promises",
		Long: long,
		Example: "  payhook acceptance --profile NAME --region eu-central-1\n" +
			"  payhook acceptance -c authentication=both -c domainName=hook.bank.example -c hostedZoneId=ID\n" +
			"  payhook acceptance --cleanup",
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if t.Stack != "" || t.ID != "" {
				return cli.Usage("acceptance deploys its own stacks: it takes no --stack and no --id")
			}
			if err := p.Choose(ctx, t); err != nil {
				return cli.Unreachable(err)
			}
			if err := checkSettings(values, t.Local); err != nil {
				return cli.Usage("%w", err)
			}
			top, err := deployment.Top()
			if err != nil {
				return cli.Usage("%w", err)
			}
			to, err := findTarget(ctx, top, *t)
			if err != nil {
				return cli.Unreachable(err)
			}
			ask := func(format string, args ...any) error {
				if yes || to.endpoint != "" {
					return nil
				}
				return p.Confirm(ctx, fmt.Sprintf(format, args...))
			}
			progress := emulator.NewProgress(p.Err)
			if clean {
				return cli.Unreachable(removeAll(ctx, p, to, progress, ask))
			}
			if err := ask("Payhook is deployed to %s under new names, and removed again. By AWS's prices, it "+
				"costs less than one US dollar. The identity needs the permissions of "+
				"infra/acceptance/policy.json. Go on?",
				to.name); err != nil {
				return err
			}
			release, err := emulator.Prepare(ctx, top, filepath.Join(top, ".local", "acceptance"), progress)
			if err != nil {
				return err
			}
			defer release()
			return show(ctx, p, newRun(top, to, values, progress), keep)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&keep, "keep", false, "keep what was deployed; --cleanup removes it later")
	flags.BoolVar(&clean, "cleanup", false, "remove what runs have left, and do nothing else")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.FuncP("setting", "c", "a setting of Payhook other than its default, `KEY=VALUE`; may be repeated",
		func(text string) error { return cli.AddSettings(values, text, known()) })
	return cmd
}

// known returns the settings that a run does not choose.
func known() []*settings.Setting {
	chosen := []string{"baseUrl", "authUrl", "stackName", "eventBusName", "truststore", "clientCertPins",
		"clientCertSubjects", "revokedKeys"}
	return slices.DeleteFunc(settings.All(), func(s *settings.Setting) bool { return slices.Contains(chosen, s.Key) })
}

// checkSettings returns an error if settings cannot be shown.
func checkSettings(values map[string]string, emulated bool) error {
	domain := values["domainName"] != ""
	switch {
	case emulated && domain:
		return errors.New("domainName is for an account: the emulator serves no domain names, and make run shows " +
			"client certificates")
	case domain && values["hostedZoneId"] == "":
		return errors.New("domainName needs hostedZoneId, so that the name can be resolved")
	case values["evidenceLock"] == settings.Compliance:
		return errors.New("with evidenceLock=compliance, the evidence of the run could not be deleted")
	}
	return nil
}

// show does a run, and removes everything unless keep is true, also after an error and after the end of ctx. It
// prints the report, and writes it to report.json in the folder of the run.
func show(ctx context.Context, p *cli.Program, r *run, keep bool) error {
	r.progress.Say("run %s in %s", r.id, r.target.name)
	started := time.Now().UTC()
	report, failed := r.do(ctx)
	if !keep {
		r.progress.Say("removing everything of the run")
		removal, stop := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer stop()
		all, err := stacks(removal, r.target.aws, r.id)
		if err == nil {
			err = cleanup(removal, r.target.aws, all, r.progress)
		}
		if err != nil {
			failed = errors.Join(failed,
				fmt.Errorf("not everything is removed; run payhook acceptance --cleanup: %w", err))
		}
	}
	document := struct {
		Run      string            `json:"run"`
		Target   string            `json:"target"`
		Started  time.Time         `json:"started"`
		Ended    time.Time         `json:"ended"`
		Version  string            `json:"version"`  // of this program
		Settings map[string]string `json:"settings"` // other than the defaults
		scenario.Report
	}{r.id, r.target.name, started, time.Now().UTC(), names.Version(), r.values, report}
	document.Right = document.Right && failed == nil
	text, err := json.MarshalIndent(document, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(r.cdk.State, "report.json"), append(text, '\n'), 0o644)
	}
	if failed = errors.Join(failed, err); p.JSON {
		err = p.PrintJSON(document)
	} else if len(report.Parts) > 0 {
		err = report.Print(p.Out)
	}
	if failed == nil && err == nil && !document.Right {
		return cli.ErrAttention
	}
	return errors.Join(failed, err)
}

// removeAll is the command with --cleanup.
func removeAll(ctx context.Context, p *cli.Program, to target, progress *emulator.Progress,
	ask func(string, ...any) error) error {
	all, err := stacks(ctx, to.aws, "")
	if err != nil {
		return err
	}
	removed := []string{}
	for _, s := range all {
		removed = append(removed, aws.ToString(s.StackName))
	}
	if len(all) > 0 {
		err = ask("The stacks %s in %s are removed. Go on?", strings.Join(removed, ", "), to.name)
	}
	if err == nil {
		err = cleanup(ctx, to.aws, all, progress)
	}
	if err != nil {
		return err
	}
	return p.Print(map[string][]string{"removed": removed})
}

// findTarget returns the account and region of the usual AWS variables, or the emulator of the local run.
func findTarget(ctx context.Context, top string, t deployment.Target) (target, error) {
	if t.Local {
		run, err := deployment.Read(top)
		if err != nil {
			return target{}, err
		}
		return emulated(top, run.Endpoint, run.AWS), nil
	}
	cfg, err := deployment.Config(ctx, t)
	if err != nil {
		return target{}, err
	}
	caller, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return target{}, fmt.Errorf("the account is not known: %w", err)
	}
	to := target{aws: cfg, account: aws.ToString(caller.Account), endpoint: aws.ToString(cfg.BaseEndpoint),
		environment: append(os.Environ(), "AWS_REGION="+cfg.Region, "AWS_DEFAULT_REGION="+cfg.Region)}
	to.name, to.partition = "account "+to.account+", "+cfg.Region, strings.Split(aws.ToString(caller.Arn), ":")[1]
	if t.Profile != "" {
		to.environment = append(to.environment, "AWS_PROFILE="+t.Profile)
	}
	return to, nil
}

// emulated returns an emulator as a target.
func emulated(top, endpoint string, config aws.Config) target {
	return target{name: "MiniStack, an emulator of AWS on this machine", aws: config, account: emulator.Account,
		partition: "aws", endpoint: endpoint,
		environment: append(emulator.Environment(top), "AWS_ENDPOINT_URL="+endpoint)}
}
