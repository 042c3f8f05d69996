package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"payhook.example/infra/local/up"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
)

// target is which deployment is meant.
type target struct {
	stack string // "": that of the local run, or Payhook
	local bool
}

// The outputs of the stack by which its parts are found.
const (
	ledgerOutput  = "LedgerTable"
	keysOutput    = "KeysTable"
	parkingOutput = "ParkingBucket"
	redriveOutput = "RedriveFunction"
)

// tables is what of DynamoDB is used.
type tables interface {
	ledger.InspectAPI
	keys.InspectAPI
}

// functions is what of Lambda is used.
type functions interface {
	Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
}

// deployment is one stack, and the clients of where it is.
type deployment struct {
	name    string // as a person says it: which stack, and where
	stack   string
	outputs map[string]string

	db      tables
	buckets parking.API
	lambda  functions
	sts     identity
}

// identity is what of STS is used.
type identity interface {
	GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error)
}

// caller returns the ARN of whoever calls this program, or "" if AWS does not say.
// That needs no permission (AWS, "GetCallerIdentity" in the STS API reference).
func (d *deployment) caller(ctx context.Context) string {
	out, err := d.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return ""
	}
	return aws.ToString(out.Arn)
}

// output returns the physical name of a part of the stack.
func (d *deployment) output(key string) (string, error) {
	if name := d.outputs[key]; name != "" {
		return name, nil
	}
	return "", fmt.Errorf("stack %s has no output %s: it is older than this program, or not Payhook's; deploy it again, or name another with --stack", d.stack, key)
}

func (d *deployment) ledger() (*ledger.Inspector, error) {
	table, err := d.output(ledgerOutput)
	return ledger.NewInspector(d.db, table), err
}

func (d *deployment) keys() (*keys.Inspector, error) {
	table, err := d.output(keysOutput)
	return keys.NewInspector(d.db, table), err
}

func (d *deployment) lot() (*parking.Store, error) {
	bucket, err := d.output(parkingOutput)
	return parking.NewStore(d.buckets, bucket), err
}

// connect finds the deployment that is meant.
func connect(ctx context.Context, t target) (*deployment, error) {
	cfg, place, err := configOf(ctx, &t)
	if err != nil {
		return nil, err
	}
	if t.stack == "" {
		t.stack = "Payhook"
	}
	found, err := cloudformation.NewFromConfig(cfg).DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &t.stack})
	if err != nil || len(found.Stacks) == 0 {
		return nil, noStack(t, place, err)
	}
	d := &deployment{
		stack: t.stack, outputs: map[string]string{},
		db:     dynamodb.NewFromConfig(cfg),
		lambda: lambda.NewFromConfig(cfg),
		sts:    sts.NewFromConfig(cfg),
		// The host of another endpoint seldom answers to a bucket's name as well.
		buckets: s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = cfg.BaseEndpoint != nil }),
	}
	for _, output := range found.Stacks[0].Outputs {
		d.outputs[aws.ToString(output.OutputKey)] = aws.ToString(output.OutputValue)
	}
	// arn:aws:cloudformation:REGION:ACCOUNT:stack/...
	if id := strings.Split(aws.ToString(found.Stacks[0].StackId), ":"); !t.local && len(id) > 5 {
		place = "account " + id[4] + ", " + place
	}
	d.name = "stack " + t.stack + " (" + place + ")"
	return d, nil
}

// configOf returns the configuration of the SDK, and where that is in a
// person's words.
func configOf(ctx context.Context, t *target) (aws.Config, string, error) {
	if !t.local {
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return cfg, "", fmt.Errorf("AWS configuration: %w", err)
		}
		place := cfg.Region
		if cfg.BaseEndpoint != nil {
			place += " at " + *cfg.BaseEndpoint
		}
		return cfg, place, nil
	}
	run, err := up.Read(".")
	if err != nil {
		return aws.Config{}, "", err
	}
	if t.stack == "" {
		t.stack = run.Stack
	}
	return aws.Config{
		Region:       run.Region,
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		BaseEndpoint: &run.Endpoint,
		HTTPClient:   &http.Client{Transport: &http.Transport{}}, // past any proxy
		// It is on this machine: what does not answer now is not there.
		RetryMaxAttempts: 1,
	}, "the local run", nil
}

// noStack says what to do where the stack could not be read.
func noStack(t target, place string, err error) error {
	var api smithy.APIError
	switch {
	case err == nil, errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "does not exist"):
		return fmt.Errorf("there is no stack %s in %s: name another with --stack, or another place with AWS_PROFILE or AWS_REGION", t.stack, place)
	case t.local:
		return fmt.Errorf("the local run does not answer (%w): start it anew with make up", err)
	}
	hint := "the credentials come from AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the region from AWS_REGION"
	if _, upErr := up.Read("."); upErr == nil {
		hint += "; something is up on this machine: --local takes that"
	}
	return fmt.Errorf("stack %s can't be read: %w\n%s", t.stack, err, hint)
}
