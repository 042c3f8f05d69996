package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
)

// Runs returns the stacks that have the name and the tag of a run: their ids by their names, by the
// id of the run.
func Runs(ctx context.Context, t Target) (map[string]map[string]string, error) {
	runs := map[string]map[string]string{}
	pages := cloudformation.NewDescribeStacksPaginator(cloudformation.NewFromConfig(t.AWS),
		&cloudformation.DescribeStacksInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Stacks {
			id := runID(s)
			if id == "" || s.StackStatus == types.StackStatusDeleteComplete {
				continue
			}
			if runs[id] == nil {
				runs[id] = map[string]string{}
			}
			runs[id][aws.ToString(s.StackName)] = aws.ToString(s.StackId)
		}
	}
	return runs, nil
}

// runID returns the id of the run that deployed a stack, or "" if no run did.
func runID(s types.Stack) string {
	for _, tag := range s.Tags {
		id, own := aws.ToString(tag.Value), prefix+aws.ToString(tag.Value)
		if name := aws.ToString(s.StackName); aws.ToString(tag.Key) == RunTag && id != "" &&
			(name == own || strings.HasPrefix(name, own+"-")) {
			return id
		}
	}
	return ""
}

// deletable changes the templates of an assembly so that CloudFormation deletes every resource with
// its stack, and protects none. It schedules the deletion of keys of KMS, because AWS deletes no key
// at once. The CLI uploads a template under a hash of what it was before; that of another run differs,
// because the templates have the names of their run.
func deletable(assembly string) error {
	files, err := filepath.Glob(filepath.Join(assembly, "*.json"))
	for _, file := range files {
		text, problem := os.ReadFile(file)
		if problem == nil {
			problem = os.WriteFile(file, []byte(unprotected.Replace(string(text))), 0o600)
		}
		err = errors.Join(err, problem)
	}
	return err
}

var unprotected = strings.NewReplacer(
	`"DeletionPolicy": "Retain"`, `"DeletionPolicy": "Delete"`,
	`"DeletionPolicy": "RetainExceptOnCreate"`, `"DeletionPolicy": "Delete"`,
	`"DeletionProtectionEnabled": true`, `"DeletionProtectionEnabled": false`,
	`"terminationProtection": true`, `"terminationProtection": false`, // in manifest.json
)

// Cleanup removes the stacks of a run with all their resources. It can be repeated: as long as a
// resource is left, its stack is left.
func Cleanup(ctx context.Context, t Target, id string, p *emulator.Progress) error {
	runs, err := Runs(ctx, t)
	if err != nil {
		return err
	}
	// The consumer's rules are on Payhook's bus.
	consumer, receiver, payhook, payments := stacks(id)
	for _, name := range []string{consumer, receiver, payhook, payments} {
		if stack := runs[id][name]; stack != "" {
			if err := p.Step("deleting stack "+name, func() error { return deleteStack(ctx, t, stack) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteStack deletes a stack. Before that, it deletes what would make the deletion fail.
func deleteStack(ctx context.Context, t Target, id string) error {
	stacks := cloudformation.NewFromConfig(t.AWS)
	// CloudFormation does not delete a stack that it changes, as after an interrupted deployment.
	if err := scenario.Poll(ctx, removeTimeout, time.Second, func() (bool, error) {
		out, err := stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &id})
		if err != nil {
			return false, err
		}
		status := out.Stacks[0].StackStatus
		return !strings.HasSuffix(string(status), "_IN_PROGRESS") || status == types.StackStatusReviewInProgress, nil
	}); err != nil {
		return err
	}
	pages := cloudformation.NewListStackResourcesPaginator(stacks,
		&cloudformation.ListStackResourcesInput{StackName: &id})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, r := range page.StackResourceSummaries {
			name := aws.ToString(r.PhysicalResourceId)
			if name == "" || r.ResourceStatus == types.ResourceStatusDeleteComplete {
				continue
			}
			var err error
			switch aws.ToString(r.ResourceType) {
			case "AWS::S3::Bucket":
				err = deleteBucket(ctx, (&deployment.Deployment{AWS: t.AWS}).S3(), name)
			case "AWS::IAM::Role":
				// CloudFormation cannot delete a role with the policy of deniedCheck, which a killed run
				// left (AWS, "DeleteRole":
				// https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeleteRole.html).
				err = allow(ctx, t, name)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	// Without a role, CloudFormation uses the one with which the stack was created.
	if _, err := stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &id}); err != nil {
		return err
	}
	quickly := func(o *cloudformation.StackDeleteCompleteWaiterOptions) {
		o.MinDelay, o.MaxDelay = time.Second, 10*time.Second
	}
	return cloudformation.NewStackDeleteCompleteWaiter(stacks, quickly).Wait(ctx,
		&cloudformation.DescribeStacksInput{StackName: &id}, removeTimeout)
}

// deleteBucket deletes a bucket with all versions of all objects. CloudFormation deletes only empty
// buckets, and S3 writes access logs until the bucket is gone.
func deleteBucket(ctx context.Context, buckets *s3.Client, name string) error {
	pages := s3.NewListObjectVersionsPaginator(buckets, &s3.ListObjectVersionsInput{Bucket: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if hasCode(err, "NoSuchBucket") {
			return nil
		}
		if err != nil {
			return err
		}
		var all []s3types.ObjectIdentifier
		for _, v := range page.Versions {
			all = append(all, s3types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			all = append(all, s3types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		if len(all) == 0 {
			continue
		}
		if err := deleteVersions(ctx, buckets, name, all); err != nil {
			return err
		}
	}
	_, err := buckets.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
	return err
}

// deleteVersions deletes versions of objects, also those that are locked as evidence.
func deleteVersions(ctx context.Context, buckets *s3.Client, name string, all []s3types.ObjectIdentifier) error {
	in := &s3.DeleteObjectsInput{Bucket: &name, Delete: &s3types.Delete{Objects: all, Quiet: aws.Bool(true)}}
	out, err := buckets.DeleteObjects(ctx, in)
	if err == nil && len(out.Errors) > 0 {
		in.BypassGovernanceRetention = aws.Bool(true)
		out, err = buckets.DeleteObjects(ctx, in)
	}
	if err == nil && len(out.Errors) > 0 {
		err = fmt.Errorf("%s: %s", aws.ToString(out.Errors[0].Key), aws.ToString(out.Errors[0].Message))
	}
	return err
}

func hasCode(err error, codes ...string) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode())
}
