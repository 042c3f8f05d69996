package cli

import (
	"github.com/spf13/cobra"

	"payhook.example/infra/deployment"
	"payhook.example/shared/settings"
)

// TargetFlags adds the flags that choose the deployment to all commands below root.
func TargetFlags(root *cobra.Command, t *deployment.Target) {
	f := root.PersistentFlags()
	f.BoolVar(&t.Local, "local", false,
		"use the local run, which \"payhook local up\" or \"payhook local run\" started")
	f.StringVar(&t.Stack, "stack", "", "`name` of the CloudFormation stack (default "+settings.StackName.Default+")")
	f.StringVar(&t.ID, "id", "", "`id` of the Payhook in the stack, if the stack has several")
	f.StringVar(&t.Region, "region", "", "AWS `region`, instead of AWS_REGION")
	f.StringVar(&t.Profile, "profile", "", "`name` of the AWS profile, instead of AWS_PROFILE")
	before := root.PersistentPreRun
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if before != nil {
			before(cmd, args)
		}
		if t.Local && (t.Region != "" || t.Profile != "") {
			return Usage("--region and --profile are for AWS: they cannot be used with --local")
		}
		return nil
	}
}

// NoTargetFlags returns an error of usage if a flag chooses the deployment of a command
// that is always for this machine.
func NoTargetFlags(cmd *cobra.Command) error {
	for _, name := range []string{"local", "stack", "id", "region", "profile"} {
		if f := cmd.Flag(name); f != nil && f.Changed {
			return Usage("%s is always for this machine: it takes no --%s", cmd.CommandPath(), name)
		}
	}
	return nil
}
