package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"

	"payhook.example/infra/checks"
	"payhook.example/infra/deployment"
	"payhook.example/shared/settings"
)

// removeTimeout is how long the removal of everything may take.
const removeTimeout = 45 * time.Minute

// remove deletes the stacks with the tag of a run, or of all runs if id is "", and all their resources, and returns
// their names. It can be repeated: as long as a resource is left, its stack is left. The latest is deleted first,
// because the consumer's rules are on Payhook's bus. If ask is not nil, it is called with the names before.
func (r *run) remove(ctx context.Context, id string, ask func([]string) error) (removed []string, err error) {
	all, err := stacks(ctx, r.AWS, id)
	if err != nil {
		return nil, err
	}
	removed = []string{}
	for _, s := range all {
		removed = append(removed, aws.ToString(s.StackName))
	}
	if ask != nil && len(all) > 0 {
		err = ask(removed)
	}
	for i, s := range all {
		if err == nil {
			err = r.progress.Step("deleting stack "+removed[i], func() error {
				err := deleteStack(ctx, r.AWS, aws.ToString(s.StackId))
				for _, output := range s.Outputs {
					if err == nil && aws.ToString(output.OutputKey) == settings.TokenParameterOutput {
						err = deleteParameter(ctx, r.AWS, aws.ToString(output.OutputValue))
					}
				}
				return err
			})
		}
	}
	return removed, err
}

// stacks returns the stacks with the tag of a run, or of any run if id is "". The latest comes first.
func stacks(ctx context.Context, cfg aws.Config, id string) (found []types.Stack, err error) {
	pages := cloudformation.NewDescribeStacksPaginator(cloudformation.NewFromConfig(cfg),
		&cloudformation.DescribeStacksInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Stacks {
			if slices.ContainsFunc(s.Tags, func(t types.Tag) bool {
				return aws.ToString(t.Key) == RunTag && (id == "" || aws.ToString(t.Value) == id)
			}) && s.StackStatus != types.StackStatusDeleteComplete {
				found = append(found, s)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b types.Stack) int { return b.CreationTime.Compare(*a.CreationTime) })
	return found, nil
}

// deleteStack deletes a stack. Before that, it empties its buckets, because CloudFormation deletes only empty ones.
func deleteStack(ctx context.Context, cfg aws.Config, id string) error {
	client := cloudformation.NewFromConfig(cfg)
	// CloudFormation does not delete a stack that it changes, as after an interrupted deployment.
	if err := checks.Poll(ctx, removeTimeout, time.Second, func() (bool, error) {
		out, err := client.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &id})
		if err != nil {
			return false, err
		}
		status := out.Stacks[0].StackStatus
		return !strings.HasSuffix(string(status), "_IN_PROGRESS") || status == types.StackStatusReviewInProgress, nil
	}); err != nil {
		return err
	}
	buckets, err := deployment.Resources(ctx, client, id, "AWS::S3::Bucket")
	if err != nil {
		return err
	}
	for _, bucket := range buckets {
		if err := deleteBucket(ctx, (&deployment.Deployment{AWS: cfg}).S3(), bucket); err != nil {
			return fmt.Errorf("%s: %w", bucket, err)
		}
	}
	// Without a role, CloudFormation uses the one with which the stack was created.
	if _, err := client.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &id}); err != nil {
		return err
	}
	quickly := func(o *cloudformation.StackDeleteCompleteWaiterOptions) {
		o.MinDelay, o.MaxDelay = time.Second, 10*time.Second
	}
	return cloudformation.NewStackDeleteCompleteWaiter(client, quickly).Wait(ctx,
		&cloudformation.DescribeStacksInput{StackName: &id}, removeTimeout)
}

// deleteBucket deletes a bucket, which may be gone, with all versions of all objects, also those that are locked as
// evidence. S3 writes access logs until the bucket is gone, so CloudFormation might find one.
func deleteBucket(ctx context.Context, client *s3.Client, name string) error {
	pages := s3.NewListObjectVersionsPaginator(client, &s3.ListObjectVersionsInput{Bucket: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "NoSuchBucket" {
			return nil
		}
		if err != nil {
			return err
		}
		in := &s3.DeleteObjectsInput{Bucket: &name, Delete: &s3types.Delete{Quiet: aws.Bool(true)}}
		for _, v := range page.Versions {
			in.Delete.Objects = append(in.Delete.Objects, s3types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			in.Delete.Objects = append(in.Delete.Objects, s3types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		if len(in.Delete.Objects) == 0 {
			continue
		}
		out, err := client.DeleteObjects(ctx, in)
		if err == nil && len(out.Errors) > 0 { // S3 rejects this parameter for a bucket without Object Lock
			in.BypassGovernanceRetention = aws.Bool(true)
			out, err = client.DeleteObjects(ctx, in)
		}
		if err == nil && len(out.Errors) > 0 {
			err = fmt.Errorf("%s: %s", aws.ToString(out.Errors[0].Key), aws.ToString(out.Errors[0].Message))
		}
		if err != nil {
			return err
		}
	}
	_, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
	return err
}

// deleteParameter deletes the parameter with the access token, if there is one. The token function made it, so
// CloudFormation does not delete it.
func deleteParameter(ctx context.Context, cfg aws.Config, name string) error {
	_, err := ssm.NewFromConfig(cfg).DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: &name})
	if _, ok := errors.AsType[*ssmtypes.ParameterNotFound](err); ok {
		return nil
	}
	return err
}
