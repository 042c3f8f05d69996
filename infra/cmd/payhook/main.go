// Command payhook runs Payhook on this machine, sends webhooks to it, and operates
// it, on this machine and in AWS. policy.json has the permissions that each package of commands needs in AWS.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"payhook.example/infra/acceptance"
	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/evidence"
	"payhook.example/infra/cmd/payhook/explain"
	"payhook.example/infra/cmd/payhook/logs"
	"payhook.example/infra/cmd/payhook/operate"
	"payhook.example/infra/cmd/payhook/status"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local"
)

const long = `Runs Payhook on this machine, sends webhooks to it, and operates it.

A command works on one stack. --local chooses the local run, which is also used if it is
up and neither --stack, --profile nor --region is given. Otherwise, it is the stack
--stack in the account and region of AWS: of the flags --profile and --region, or of the
usual variables AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; AWS_REGION;
AWS_ENDPOINT_URL. If no flag chooses, standard error has the choice. If the stack has
several Payhooks, --id chooses one.

Results are written to standard output, everything else to standard error.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends it at once, except the local run
	p := cli.New()
	os.Exit(p.Run(ctx, commands(p), os.Args[1:]))
}

// commands returns the command payhook with all commands below it.
func commands(p *cli.Program) *cobra.Command {
	root, t := p.Root(long), &deployment.Deployment{}
	cli.TargetFlags(root, t)
	add := func(title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
		for _, cmd := range commands {
			cmd.GroupID = title
		}
		root.AddCommand(commands...)
	}
	add("Try it", local.Command(p, t), logs.Command(p, t))
	add("Operate it", append([]*cobra.Command{status.Command(p, t), explain.Command(p, t)},
		append(operate.Commands(p, t), evidence.Command(p, t), logs.ReconcileCommand(p, t))...)...)
	add("Deploy it", acceptance.Command(p, t))
	return root
}
