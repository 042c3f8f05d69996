package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"payhook.example/shared/settings"
)

// Named reports whether the place is that of the local run, or one in AWS.
func (d *Stack) Named() bool {
	return d.Local || d.StackName != "" || d.Region != "" || d.Profile != ""
}

// Flags returns the flags of the program that choose the place, each with a space before it.
func (d *Stack) Flags() (flags string) {
	if d.Local {
		flags = " --local"
	}
	for _, f := range [][2]string{{"stack", d.StackName}, {"id", d.ID}, {"region", d.Region}, {"profile", d.Profile}} {
		if f[1] != "" {
			flags += " --" + f[0] + " " + Quote(f[1])
		}
	}
	return flags
}

// plain matches a word that no POSIX shell changes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quote returns a text as one word of a POSIX shell.
func Quote(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Connect finds the stack at a place and reads its outputs. Errors say what to do.
func Connect(ctx context.Context, t Stack) (*Stack, error) {
	d, place, err := Find(ctx, t)
	if err != nil {
		return nil, err
	}
	own, local := d.StackName, d.WebhookURL // the emulator's URLs are for the emulator
	d.StackName = cmp.Or(t.StackName, d.StackName, settings.ByKey("stackName").Default)
	out, err := cloudformation.NewFromConfig(d.AWS).DescribeStacks(ctx,
		&cloudformation.DescribeStacksInput{StackName: &d.StackName})
	if err != nil || len(out.Stacks) == 0 {
		return nil, noStack(d, place, err)
	}
	d.Status = string(out.Stacks[0].StackStatus)
	outputs := map[string]string{}
	for _, output := range out.Stacks[0].Outputs {
		outputs[aws.ToString(output.OutputKey)] = aws.ToString(output.OutputValue)
	}
	if err := d.SetOutputs(outputs, t.ID); err != nil {
		return nil, err
	}
	deployed := d.WebhookURL
	switch {
	case d.Local && d.StackName == own:
		d.WebhookURL = local
	case d.Local:
		d.WebhookURL = FunctionURL(d.Endpoint, d.WebhookURL)
	default:
		// arn:aws:cloudformation:REGION:ACCOUNT:stack/...
		if id := strings.Split(aws.ToString(out.Stacks[0].StackId), ":"); len(id) > 5 {
			place = "account " + id[4] + ", " + place
		}
	}
	for _, o := range out.Stacks[0].Outputs {
		shown := Output{aws.ToString(o.OutputKey), aws.ToString(o.OutputValue), aws.ToString(o.Description)}
		if shown.Value == deployed {
			shown.Value = d.WebhookURL
		}
		d.Outputs = append(d.Outputs, shown)
	}
	slices.SortFunc(d.Outputs, func(a, b Output) int { return strings.Compare(a.Name, b.Name) })
	d.Name = "stack " + d.StackName + " (" + place + ")"
	if d.FullName != d.StackName {
		d.Name = d.FullName + " in " + d.Name
	}
	return d, nil
}

const credentialsHint = "credentials come from --profile or AWS_PROFILE, or from AWS_ACCESS_KEY_ID and " +
	"AWS_SECRET_ACCESS_KEY; --local uses the local run instead"

// Find returns where the stack is, without what its outputs name, and the place for people. A profile can ask for an
// MFA code: t.Ask gets it, once for each time the role is assumed.
func Find(ctx context.Context, t Stack) (d *Stack, place string, err error) {
	if t.Local {
		d, err = Running(ctx)
		return d, "the local run", err
	}
	// The SDK's warnings, such as that a connection was closed, are not the user's. "" has no effect.
	cfg, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}), config.WithRegion(t.Region),
		config.WithSharedConfigProfile(t.Profile), config.WithAPIOptions([]func(*middleware.Stack) error{endSilence}),
		config.WithAssumeRoleCredentialOptions(func(o *stscreds.AssumeRoleOptions) {
			if o.SerialNumber != nil && t.Ask != nil {
				o.TokenProvider = func() (string, error) { return t.Ask("MFA code of " + *o.SerialNumber + ":") }
				o.Duration = cmp.Or(o.Duration, time.Hour) // every role allows it, and a code is valid once
			}
		}))
	if err != nil {
		return nil, "", fmt.Errorf("AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return nil, "", errors.New("no AWS region is set: use --region, AWS_REGION or the region of a profile, or " +
			"--local for the local run")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return nil, "", fmt.Errorf("no AWS credentials: %w\n%s", err, cmp.Or(logIn(cfg), credentialsHint))
	}
	t.AWS, t.Region, t.Endpoint = cfg, cfg.Region, aws.ToString(cfg.BaseEndpoint)
	if place = t.Region; t.Endpoint != "" {
		place += " at " + t.Endpoint
	}
	return &t, place, nil
}

// logIn says how to log in again if the credentials are those of a session of a person; "" if they are not.
func logIn(cfg aws.Config) string {
	for _, source := range cfg.ConfigSources {
		shared, _ := source.(config.SharedConfig)
		for p := &shared; p != nil; p = p.Source {
			switch {
			case p.SSOSessionName+p.SSOStartURL != "":
				return "if the session has expired: aws sso login --profile " + Quote(p.Profile)
			case p.LoginSession != "":
				return "if the session has expired: aws login --profile " + Quote(p.Profile)
			}
		}
	}
	return ""
}

// noStack says what to do if the stack cannot be read.
func noStack(d *Stack, place string, err error) error {
	api, answered := errors.AsType[smithy.APIError](err)
	switch {
	case err == nil, answered && api.ErrorCode() == "ValidationError" &&
		strings.Contains(api.ErrorMessage(), "does not exist"):
		return fmt.Errorf("there is no stack %s in %s: choose another with --stack, --region or --profile", d.StackName,
			place)
	case d.Local:
		return fmt.Errorf("the local run does not answer (%w): end it with make down, and start it again with make up",
			err)
	}
	return fmt.Errorf("stack %s cannot be read: %w\n%s, the region from --region or AWS_REGION", d.StackName, err,
		credentialsHint)
}
