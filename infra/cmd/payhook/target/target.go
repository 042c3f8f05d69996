// Package target finds the deployment that a command is for: a stack in AWS, or
// the local run.
package target

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/local/up"
	"payhook.example/shared/settings"
)

// Target is which deployment is meant. The zero value is the stack with the
// default name, in the account and region of the usual AWS variables.
type Target struct {
	Local           bool   // the local run, and no AWS account
	Stack           string // "": that of the local run, or the default name
	Region, Profile string // "": those of the AWS variables
	// AWS is the account and region of a program that knows them; nil: those of the AWS
	// variables.
	AWS *aws.Config
}

// Register adds the flags that choose the target to all commands below root.
func (t *Target) Register(root *cobra.Command) {
	f := root.PersistentFlags()
	f.BoolVar(&t.Local, "local", false,
		"use the local run, which \"payhook local up\" or \"payhook local run\" started")
	f.StringVar(&t.Stack, "stack", "", "`name` of the CloudFormation stack (default "+settings.StackName.Default+")")
	f.StringVar(&t.Region, "region", "", "AWS `region`, instead of AWS_REGION")
	f.StringVar(&t.Profile, "profile", "", "`name` of the AWS profile, instead of AWS_PROFILE")
	before := root.PersistentPreRun
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if before != nil {
			before(cmd, args)
		}
		return t.check()
	}
}

// NotChosen returns an error of usage if a flag chooses the target of a command that is
// always for this machine.
func NotChosen(cmd *cobra.Command) error {
	for _, name := range []string{"local", "stack", "region", "profile"} {
		if f := cmd.Flag(name); f != nil && f.Changed {
			return cli.Usage("%s is always for this machine: it takes no --%s", cmd.CommandPath(), name)
		}
	}
	return nil
}

// check returns an error of usage if the flags contradict each other.
func (t Target) check() error {
	if t.Local && (t.Region != "" || t.Profile != "") {
		return cli.Usage("--region and --profile are for AWS: they cannot be used with --local")
	}
	return nil
}

// Deployment is one stack.
type Deployment struct {
	Name   string // for people: which stack, and where
	Stack  string
	Config aws.Config
	Local  *up.File // nil in AWS

	outputs map[string]string
}

// Output returns the value of an output of the stack, such as
// [payhook.example/shared/names.LedgerTableOutput].
func (d *Deployment) Output(key string) (string, error) {
	return Output(d.Stack, d.outputs, key)
}

// Output returns the value of an output of a stack, or an error that says what to
// do if it is missing.
func Output(stack string, outputs map[string]string, key string) (string, error) {
	if value := outputs[key]; value != "" {
		return value, nil
	}
	return "", fmt.Errorf("stack %s has no output %s: it is older than this program, or not a stack of Payhook; "+
		"deploy it again, or name another stack with --stack", stack, key)
}

// Outputs returns all outputs of the stack by their names.
func (d *Deployment) Outputs() map[string]string { return d.outputs }

// Connect finds the deployment and reads the outputs of its stack.
func Connect(ctx context.Context, t Target) (*Deployment, error) {
	cfg, run, err := configOf(ctx, t)
	if err != nil {
		return nil, err
	}
	place := cfg.Region
	switch {
	case run != nil:
		place = "the local run"
	case cfg.BaseEndpoint != nil:
		place += " at " + *cfg.BaseEndpoint
	}
	if t.Stack == "" && run != nil {
		t.Stack = run.Stack
	}
	if t.Stack == "" {
		t.Stack = settings.StackName.Default
	}
	found, err := cloudformation.NewFromConfig(cfg).DescribeStacks(ctx,
		&cloudformation.DescribeStacksInput{StackName: &t.Stack})
	if err != nil || len(found.Stacks) == 0 {
		return nil, noStack(t, place, err)
	}
	d := &Deployment{Stack: t.Stack, Config: cfg, Local: run, outputs: map[string]string{}}
	for _, output := range found.Stacks[0].Outputs {
		d.outputs[aws.ToString(output.OutputKey)] = aws.ToString(output.OutputValue)
	}
	// arn:aws:cloudformation:REGION:ACCOUNT:stack/...
	if id := strings.Split(aws.ToString(found.Stacks[0].StackId), ":"); run == nil && len(id) > 5 {
		place = "account " + id[4] + ", " + place
	}
	d.Name = "stack " + t.Stack + " (" + place + ")"
	return d, nil
}

// Config returns the configuration of the SDK for the account and region that are meant,
// whatever Local is.
func Config(ctx context.Context, t Target) (aws.Config, error) {
	t.Local = false
	cfg, _, err := configOf(ctx, t)
	return cfg, err
}

const credentialsHint = "credentials come from --profile or AWS_PROFILE, or from AWS_ACCESS_KEY_ID and " +
	"AWS_SECRET_ACCESS_KEY"

// configOf returns the configuration of the SDK, and the file of the local run if
// that is meant.
func configOf(ctx context.Context, t Target) (aws.Config, *up.File, error) {
	if t.Local {
		run, err := up.Read(".")
		if err != nil {
			return aws.Config{}, nil, err
		}
		return run.AWSConfig(), &run, nil
	}
	if t.AWS != nil {
		return *t.AWS, nil, nil
	}
	var options []func(*config.LoadOptions) error
	if t.Region != "" {
		options = append(options, config.WithRegion(t.Region))
	}
	if t.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(t.Profile))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return cfg, nil, fmt.Errorf("AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return cfg, nil, errors.New("no AWS region is set: use --region, AWS_REGION or the region of a profile" +
			localHint())
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return cfg, nil, fmt.Errorf("no AWS credentials: %w\n%s%s", err, credentialsHint, localHint())
	}
	return cfg, nil, nil
}

// localHint names --local if there is a local run.
func localHint() string {
	if _, err := up.Read("."); err != nil {
		return ""
	}
	return "; a local run is up on this machine: --local uses it"
}

// noStack says what to do if the stack cannot be read.
func noStack(t Target, place string, err error) error {
	api, answered := errors.AsType[smithy.APIError](err)
	switch {
	case err == nil, answered && api.ErrorCode() == "ValidationError" &&
		strings.Contains(api.ErrorMessage(), "does not exist"):
		return fmt.Errorf("there is no stack %s in %s: choose another with --stack, --region or --profile", t.Stack,
			place)
	case t.Local:
		return fmt.Errorf("the local run does not answer (%w): end it with make down, and start it again with make up",
			err)
	}
	return fmt.Errorf("stack %s cannot be read: %w\n%s, the region from --region or AWS_REGION%s", t.Stack, err,
		credentialsHint, localHint())
}
