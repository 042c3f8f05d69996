package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"payhook.example/infra/environments"
)

// place is where a stack is deployed.
type place struct{ account, region string }

// profile is the profile of the AWS configuration, and "" for none. The variable is read here because
// the SDK for Go prefers AWS_ACCESS_KEY_ID to it, and the CDK CLI does not.
func (c *call) profile() string {
	return cmp.Or(c.given.profile, c.environment.Profile, os.Getenv("AWS_PROFILE"), os.Getenv("AWS_DEFAULT_PROFILE"))
}

// timeout is how long the credentials, with a code that is typed, and AWS may take.
const timeout = 2 * time.Minute

// place asks AWS whose the credentials are. Its errors say what to do.
func (c *call) place(ctx context.Context) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ask := func(o *stscreds.AssumeRoleOptions) {
		o.Duration = max(o.Duration, time.Hour) // enough for a deployment
		o.TokenProvider = func() (string, error) { c.asked = true; return c.code() }
	}
	options := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{}),
		config.WithAssumeRoleCredentialOptions(ask)}
	if region := cmp.Or(c.given.region, c.environment.Region); region != "" {
		options = append(options, config.WithRegion(region))
	}
	if profile := c.profile(); profile != "" {
		options = append(options, config.WithSharedConfigProfile(profile))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if _, ok := errors.AsType[config.SharedConfigProfileNotExistError](err); ok {
		return place{}, fmt.Errorf("this machine has no AWS profile %s%s", c.profile(), c.source())
	}
	if err != nil {
		return place{}, fmt.Errorf("AWS configuration: %w", err)
	}
	var problems []error
	if cfg.Region == "" {
		problems = append(problems, fmt.Errorf("no AWS region is set: set AWS_REGION%s, or the region of the profile",
			c.or("region")))
	}
	// A provider of credentials can take seconds until it knows that there are none.
	if c.credentials, err = cfg.Credentials.Retrieve(ctx); err != nil {
		problems = append(problems, c.unusable(err))
	}
	if err := errors.Join(problems...); err != nil {
		return place{}, err
	}
	client := sts.NewFromConfig(cfg, func(o *sts.Options) { o.Retryer = retry.AddWithMaxAttempts(o.Retryer, 2) })
	who, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return place{}, c.unusable(err)
	}
	return place{aws.ToString(who.Account), cfg.Region}, nil
}

// unusable says what to do if AWS does not accept the credentials, or if there are none. The codes
// are those of "Common errors" in the STS API reference and of expired sessions.
func (c *call) unusable(err error) error {
	login := "aws sso login"
	if p := c.profile(); p != "" {
		login += " --profile " + p
	}
	api, answered := errors.AsType[smithy.APIError](err)
	_, session := errors.AsType[*ssocreds.InvalidTokenError](err)
	switch {
	case session, answered && strings.HasPrefix(api.ErrorCode(), "ExpiredToken"), answered &&
		api.ErrorCode() == "InvalidGrantException":
		return fmt.Errorf("the AWS credentials have expired: sign in again, for example with %s", login)
	case answered:
		return fmt.Errorf("AWS does not accept the credentials: %s: %s", api.ErrorCode(), api.ErrorMessage())
	}
	if operation, called := errors.AsType[*smithy.OperationError](err); called &&
		operation.Service() == sts.ServiceID {
		return fmt.Errorf("AWS does not answer: %w", err)
	}
	return fmt.Errorf("no AWS credentials: set AWS_PROFILE%s, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for "+
		"a profile with IAM Identity Center, sign in with %s", c.or("profile"), login)
}

// or names a member of the environment's file as another place for a value.
func (c *call) or(member string) string {
	if c.name == "" {
		return ""
	}
	return fmt.Sprintf(" or %q in %s/%s.json", member, environments.Folder, c.name)
}

// source says that the profile comes from the environment's file.
func (c *call) source() string {
	if c.given.profile != "" || c.environment.Profile == "" {
		return ""
	}
	return fmt.Sprintf(", which %s/%s.json names", environments.Folder, c.name)
}
