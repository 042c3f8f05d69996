package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/checks"
	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local"
	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
)

const long = `Deploys Payhook, a simulated payment service and a consumer under names of one run
(PayhookAcceptance-ID), sends some 60 authentic and forged webhooks, checks what is
answered and what arrives behind which rule, reports the results, and removes everything
again, also after Ctrl-C. --cleanup removes what killed runs left.

By AWS's prices, a run in an account costs less than one US dollar. The account and
region must be bootstrapped for the CDK. The permissions are in
infra/acceptance/policy.json. The simulated payment service has a public URL; the private
keys that sign webhooks do not leave this machine.

For client certificates, give a domain name and its hosted zone.

Status 1: a result is wrong, or the run failed.

With --json, one document, which is also written to .local/acceptance/ID/report.json:
run, target, started, ended, version, settings, right, and checks (topic, what, want and
got with status, fields and arrivals, detail, right); with --cleanup, one document:
removed (the names of stacks).`

// Command returns the command acceptance.
func Command(p *cli.Program, t *deployment.Deployment) *cobra.Command {
	var clean, yes bool
	values := map[string]string{}
	cmd := &cobra.Command{
		Use: "acceptance", Short: "Show in your account that Payhook does what it promises",
		Long: long,
		Example: "  payhook acceptance --profile NAME --region eu-central-1\n" +
			"  payhook acceptance -c authentication=both -c domainName=hook.bank.example -c hostedZoneId=ID\n" +
			"  payhook acceptance --cleanup",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if t.Local || t.Stack != "" || t.ID != "" {
				return cli.Usage("acceptance deploys its own stacks to an account: it takes no --local, " +
					"no --stack and no --id")
			}
			if err := checkSettings(values); err != nil {
				return cli.Usage("%w", err)
			}
			top, err := deployment.Top()
			if err != nil {
				return cli.Usage("%w", err)
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			r, err := newRun(ctx, top, program, *t, values, local.NewProgress(p.Err))
			if err != nil {
				return cli.Unreachable(err)
			}
			ask := func(format string, args ...any) error {
				if yes {
					return nil
				}
				return p.Confirm(ctx, fmt.Sprintf(format, args...))
			}
			if clean {
				removed, err := r.remove(ctx, "", func(names []string) error {
					return ask("The stacks %s in %s are removed. Go on?", strings.Join(names, ", "), r.Name)
				})
				if err != nil {
					return cli.Unreachable(err)
				}
				return p.Show(map[string][]string{"removed": removed})
			}
			if err := ask("Payhook is deployed to %s under new names, and removed again. By AWS's prices, it "+
				"costs less than one US dollar. The identity needs the permissions of "+
				"infra/acceptance/policy.json. Go on?", r.Name); err != nil {
				return err
			}
			release, err := local.Prepare(ctx, top, filepath.Dir(r.cdk.State), r.progress)
			if err != nil {
				return err
			}
			defer release()
			return r.show(ctx, p)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&clean, "cleanup", false, "remove what killed runs have left, and do nothing else")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.FuncP("setting", "c", "a setting of Payhook other than its default, `KEY=VALUE`; may be repeated",
		func(text string) error { return settings.AddPairs(values, text, settings.Except(chosen...)) })
	return cmd
}

// chosen are the settings that a run chooses itself.
var chosen = []string{"baseUrl", "authUrl", "stackName", "eventBusName", "truststore", "clientCertPins",
	"clientCertSubjects", "revokedKeys"}

// checkSettings returns an error if settings cannot be shown.
func checkSettings(values map[string]string) error {
	switch {
	case values["domainName"] != "" && values["hostedZoneId"] == "":
		return errors.New("domainName needs hostedZoneId, so that the name can be resolved")
	case strings.HasSuffix(values["evidence"], "compliance"):
		return errors.New("in compliance mode, the evidence of the run could not be deleted")
	}
	return nil
}

// show does the run and removes everything, also after an error and after the end of ctx. It prints the report, and
// writes it to report.json in the folder of the run.
func (r *run) show(ctx context.Context, p *cli.Program) error {
	r.progress.Say("run %s in %s", r.id, r.Name)
	started := time.Now().UTC()
	report, failed := r.do(ctx)
	r.progress.Say("removing everything of the run")
	removal, stop := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer stop()
	if _, err := r.remove(removal, r.id, nil); err != nil {
		failed = errors.Join(failed,
			fmt.Errorf("not everything is removed; run payhook acceptance --cleanup: %w", err))
	}
	document := struct {
		Run      string            `json:"run"`
		Target   string            `json:"target"`
		Started  time.Time         `json:"started"`
		Ended    time.Time         `json:"ended"`
		Version  string            `json:"version"`  // of this program
		Settings map[string]string `json:"settings"` // other than the defaults
		checks.Report
	}{r.id, r.Name, started, time.Now().UTC(), payment.Version(), r.Settings, report}
	document.Right = document.Right && failed == nil
	text, err := json.MarshalIndent(document, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(r.cdk.State, "report.json"), append(text, '\n'), 0o644)
	}
	if failed = errors.Join(failed, err); p.JSON {
		err = p.PrintJSON(document)
	} else if len(report.Checks) > 0 {
		err = report.Print(p.Out)
	}
	if failed == nil && err == nil && !document.Right {
		return cli.ErrAttention
	}
	return errors.Join(failed, err)
}
