// Package creation lets cdk deploy repeat the creation of a stack that failed.
//
// The CDK CLI deletes a stack whose creation was rolled back, and creates it again.
// It turns termination protection on before the creation begins, so that it cannot
// delete what failed. This package turns the protection of such a stack off, and
// guarantees that it changes nothing else: a stack that was ever created stays
// protected.
//
// Only the statuses ROLLBACK_COMPLETE and ROLLBACK_FAILED say that a stack was never
// created (AWS, "Stack status codes" in the CloudFormation User Guide). In
// CREATE_FAILED, resources are kept because somebody disabled the rollback, and the
// next deployment goes on with them; a stack in REVIEW_IN_PROGRESS is created by the
// next deployment. Neither is deleted, so neither needs this.
package creation

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/smithy-go"

	"payhook.example/shared/settings"
)

// API is what of CloudFormation is used.
type API interface {
	DescribeStacks(context.Context, *cloudformation.DescribeStacksInput,
		...func(*cloudformation.Options)) (*cloudformation.DescribeStacksOutput, error)
	UpdateTerminationProtection(context.Context, *cloudformation.UpdateTerminationProtectionInput,
		...func(*cloudformation.Options)) (*cloudformation.UpdateTerminationProtectionOutput, error)
	cloudformation.ListStackResourcesAPIClient
}

// neverCreated are the statuses of a stack whose creation failed and was rolled back.
var neverCreated = []types.StackStatus{types.StackStatusRollbackComplete, types.StackStatusRollbackFailed}

// Unprotected is what AllowRetry has done.
type Unprotected struct {
	Stack  string // its ARN; "" if nothing was changed
	Status types.StackStatus
	// Left are the resources that the stack no longer deletes, as TYPE NAME. They
	// were made by the creation that failed.
	Left []string
}

// AllowRetry turns termination protection off for a stack that was never created. It
// does nothing if there is no such stack, if it is not protected, or if it has any
// other status.
func AllowRetry(ctx context.Context, api API, stack string) (Unprotected, error) {
	found, err := api.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &stack})
	if refused, ok := errors.AsType[smithy.APIError](err); ok && refused.ErrorCode() == "ValidationError" &&
		strings.Contains(refused.ErrorMessage(), "does not exist") {
		return Unprotected{}, nil
	}
	if err != nil {
		return Unprotected{}, err
	}
	if len(found.Stacks) != 1 {
		return Unprotected{}, fmt.Errorf("creation: CloudFormation described %d stacks", len(found.Stacks))
	}
	s := found.Stacks[0]
	if !aws.ToBool(s.EnableTerminationProtection) || !slices.Contains(neverCreated, s.StackStatus) {
		return Unprotected{}, nil
	}
	u := Unprotected{Stack: aws.ToString(s.StackId), Status: s.StackStatus}
	for pages := cloudformation.NewListStackResourcesPaginator(api,
		&cloudformation.ListStackResourcesInput{StackName: s.StackId}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return Unprotected{}, err
		}
		for _, r := range page.StackResourceSummaries {
			if r.ResourceStatus == types.ResourceStatusDeleteSkipped && aws.ToString(r.PhysicalResourceId) != "" {
				u.Left = append(u.Left, aws.ToString(r.ResourceType)+" "+*r.PhysicalResourceId)
			}
		}
	}
	// By its ARN: a stack that somebody creates meanwhile under the name has another.
	_, err = api.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{
		StackName: s.StackId, EnableTerminationProtection: aws.Bool(false),
	})
	if err != nil {
		return Unprotected{}, err
	}
	return u, nil
}

// Prepare does what must precede cdk deploy in the current folder. args are those of
// cdk deploy. It says on out what it has done. Whoever deploys need not be allowed
// more than the CDK CLI, which has roles of its own: a call that AWS refuses is
// reported on out, and is no error.
func Prepare(ctx context.Context, args []string, out io.Writer) error {
	t, err := targetOf(args, "cdk.json")
	if err != nil {
		return err
	}
	var options []func(*config.LoadOptions) error
	if t.profile != "" {
		options = append(options, config.WithSharedConfigProfile(t.profile))
	}
	if t.region != "" {
		options = append(options, config.WithRegion(t.region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	var done Unprotected
	if err == nil {
		done, err = AllowRetry(ctx, cloudformation.NewFromConfig(cfg), t.stack)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case err != nil:
		fmt.Fprintf(out, "It is not known whether an earlier creation of the stack %s failed: %v\n", t.stack, err)
	case done.Stack != "":
		fmt.Fprintf(out, "The creation of the stack %s had failed (%s). Its termination protection is off now, so "+
			"that cdk deploy can delete and create it.\n", t.stack, done.Status)
		for _, left := range done.Left {
			fmt.Fprintf(out, "What remains of the failed creation, and is not used again: %s\n", left)
		}
	}
	return nil
}

// target is what cdk deploy will deploy, and where.
type target struct{ stack, profile, region string }

// targetOf reads the target from the arguments of cdk deploy and from the context in
// the file cdk.json, which may be missing.
func targetOf(args []string, file string) (target, error) {
	var cdk struct {
		Context map[string]any `json:"context"`
		Profile string         `json:"profile"`
		Region  string         `json:"region"`
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return target{}, err
	}
	if err == nil {
		if err := json.Unmarshal(text, &cdk); err != nil {
			return target{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	t := target{stack: settings.StackName.Default, profile: cdk.Profile, region: cdk.Region}
	if name, ok := cdk.Context[settings.StackName.Key].(string); ok {
		t.stack = name
	}
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&t.profile, "profile", t.profile, "")
	f.StringVar(&t.region, "region", t.region, "")
	readContext := func(pair string) error {
		if key, value, ok := strings.Cut(pair, "="); ok && key == settings.StackName.Key {
			t.stack = value
		}
		return nil
	}
	f.Func("c", "", readContext)
	f.Func("context", "", readContext)
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "-") || f.Lookup(name) == nil {
			continue // it is none of ours
		}
		of := args[i : i+1]
		if !joined && i+1 < len(args) {
			i++
			of = []string{of[0], args[i]}
		}
		if err := f.Parse(of); err != nil {
			return target{}, err
		}
	}
	return t, nil
}
