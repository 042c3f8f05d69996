package local

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
)

func envCommand(p *cli.Program) *cobra.Command {
	o := &options{}
	return &cobra.Command{
		Use:   "env",
		Short: "Print the environment of programs that use the local run",
		Long: `Prints shell commands that set the variables with which the AWS CLI and programs that
use an AWS SDK call the emulator instead of AWS, and those of the example
events/client: TOKEN_SECRET and BASE_URL. The credentials are those of the emulator,
which are not secret.

  eval "$(payhook local env)"

Status 1: nothing is up.

With --json, one document: the variables by their names.`,
		Example: "  payhook local env",
		Args:    cli.Args(),
		RunE:    local(p, o, func(context.Context) error { return printEnvironment(p, *o) }),
	}
}

// variable is an environment variable.
type variable struct{ name, value string }

// environment returns the variables of programs that use a local run. Empty ones must not be
// set, because the SDKs would use them.
func environment(run *deployment.Deployment) []variable {
	return []variable{
		{"AWS_ENDPOINT_URL", run.Endpoint},
		{"AWS_REGION", run.Region},
		{"AWS_ACCESS_KEY_ID", deployment.AccessKey},
		{"AWS_SECRET_ACCESS_KEY", deployment.AccessKey},
		{"AWS_SESSION_TOKEN", ""},
		{"AWS_PROFILE", ""},
		{"TOKEN_SECRET", run.TokenSecret},
		{"BASE_URL", run.PaymentService},
	}
}

func printEnvironment(p *cli.Program, o options) error {
	run, err := deployment.Read(o.top)
	if err != nil {
		return err
	}
	all := map[string]string{}
	for _, v := range environment(run) {
		switch {
		case p.JSON && v.value != "":
			all[v.name] = v.value
		case p.JSON:
		case v.value == "":
			fmt.Fprintf(p.Out, "unset %s\n", v.name)
		default:
			fmt.Fprintf(p.Out, "export %s=%s\n", v.name, quoted(v.value))
		}
	}
	if p.JSON {
		return p.PrintJSON(all)
	}
	return nil
}

// quoted returns a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
