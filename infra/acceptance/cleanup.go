package acceptance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/local/emulator"
)

// Runs returns the ids of the runs that have a stack in the target.
func Runs(ctx context.Context, t Target) ([]string, error) {
	var ids []string
	all, err := stacksOfRuns(ctx, t)
	for _, s := range all {
		ids = append(ids, runID(s))
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// stacksOfRuns returns the stacks that have the name and the tag of one run.
func stacksOfRuns(ctx context.Context, t Target) ([]types.Stack, error) {
	var all []types.Stack
	pages := cloudformation.NewDescribeStacksPaginator(cloudformation.NewFromConfig(t.AWS),
		&cloudformation.DescribeStacksInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Stacks {
			if runID(s) != "" && s.StackStatus != types.StackStatusDeleteComplete {
				all = append(all, s)
			}
		}
	}
	return all, nil
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

// Cleanup removes the stacks of a run with all their resources. It can be repeated: as long as a
// resource is left, its stack is left. Keys of KMS are scheduled for deletion, because AWS
// deletes no key at once.
func Cleanup(ctx context.Context, t Target, id string, p *emulator.Progress) error {
	all, err := stacksOfRuns(ctx, t)
	if err != nil {
		return err
	}
	// The consumer's rules are on Payhook's bus.
	r := Run{ID: id}
	consumer, receiver, payhook, service := r.stacks()
	for _, name := range []string{consumer, receiver, payhook, service} {
		for _, s := range all {
			if runID(s) != id || aws.ToString(s.StackName) != name {
				continue
			}
			if err := p.Step("deleting stack "+name, func() error {
				return deleteStack(ctx, t, aws.ToString(s.StackId), p)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteStack deletes a stack. Before that, it deletes what CloudFormation would retain, and what
// would make the deletion fail.
func deleteStack(ctx context.Context, t Target, id string, p *emulator.Progress) error {
	stacks := cloudformation.NewFromConfig(t.AWS)
	if status, err := awaitSettled(ctx, stacks, id); err != nil || status == types.StackStatusDeleteComplete {
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
			if err := remove(ctx, t, aws.ToString(r.ResourceType), name, p); err != nil && !missing(err) {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if _, err := stacks.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{
		StackName: &id, EnableTerminationProtection: aws.Bool(false)}); err != nil {
		return err
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

// awaitSettled waits until CloudFormation does not change a stack, as after an interrupted
// deployment: it does not delete a stack that it changes.
func awaitSettled(ctx context.Context, stacks *cloudformation.Client, id string) (types.StackStatus, error) {
	for {
		out, err := stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &id})
		if err != nil {
			return "", err
		}
		status := out.Stacks[0].StackStatus
		if !strings.HasSuffix(string(status), "_IN_PROGRESS") || status == types.StackStatusReviewInProgress {
			return status, nil
		}
		if err := smithytime.SleepWithContext(ctx, time.Second); err != nil {
			return "", err
		}
	}
}

// remove deletes a resource of a type that a stack retains, and what prevents the deletion of
// others. CloudFormation takes a resource that is gone for deleted.
func remove(ctx context.Context, t Target, kind, name string, p *emulator.Progress) error {
	switch kind {
	case "AWS::S3::Bucket":
		buckets := objects(t.AWS)
		if err := emptyBucket(ctx, buckets, name); err != nil {
			return err
		}
		_, err := buckets.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
		return err
	case "AWS::DynamoDB::GlobalTable", "AWS::DynamoDB::Table":
		return deleteTable(ctx, dynamodb.NewFromConfig(t.AWS), name)
	case "AWS::SecretsManager::Secret":
		_, err := secretsmanager.NewFromConfig(t.AWS).DeleteSecret(ctx, &secretsmanager.DeleteSecretInput{
			SecretId: &name, ForceDeleteWithoutRecovery: aws.Bool(true)})
		return err
	case "AWS::Logs::LogGroup":
		_, err := cloudwatchlogs.NewFromConfig(t.AWS).DeleteLogGroup(ctx,
			&cloudwatchlogs.DeleteLogGroupInput{LogGroupName: &name})
		return err
	case "AWS::IAM::Role":
		// CloudFormation cannot delete a role with a policy of [deny], which a killed run left
		// (AWS, "DeleteRole": https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeleteRole.html).
		return allow(ctx, iam.NewFromConfig(t.AWS), name)
	case "AWS::KMS::Key":
		// 7 days are the shortest time
		// (https://docs.aws.amazon.com/kms/latest/cryptographic-details/key-deletion.html).
		out, err := kms.NewFromConfig(t.AWS).ScheduleKeyDeletion(ctx,
			&kms.ScheduleKeyDeletionInput{KeyId: &name, PendingWindowInDays: aws.Int32(7)})
		if hasCode(err, "KMSInvalidStateException") { // it is scheduled already
			return nil
		}
		if err == nil {
			p.Say("AWS deletes the key %s on %s", name, aws.ToTime(out.DeletionDate).Format(time.DateOnly))
		}
		return err
	}
	return nil
}

// deleteTable deletes a table, which can be protected.
func deleteTable(ctx context.Context, db *dynamodb.Client, name string) error {
	found, err := db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		return err
	}
	if aws.ToBool(found.Table.DeletionProtectionEnabled) {
		if _, err := db.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &name,
			DeletionProtectionEnabled: aws.Bool(false)}); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(5 * time.Minute); ; {
		_, err := db.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name})
		// The update of the protection takes a while.
		if !hasCode(err, "ResourceInUseException") || time.Now().After(deadline) {
			return err
		}
		if err := smithytime.SleepWithContext(ctx, time.Second); err != nil {
			return err
		}
	}
}

// emptyBucket deletes all versions of all objects.
func emptyBucket(ctx context.Context, buckets *s3.Client, name string) error {
	pages := s3.NewListObjectVersionsPaginator(buckets, &s3.ListObjectVersionsInput{Bucket: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
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
		out, err := buckets.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &name,
			Delete: &s3types.Delete{Objects: all, Quiet: aws.Bool(true)}})
		if err != nil {
			return err
		}
		if len(out.Errors) > 0 {
			return fmt.Errorf("%s: %s", aws.ToString(out.Errors[0].Key), aws.ToString(out.Errors[0].Message))
		}
	}
	return nil
}

// missing reports whether an error says that a resource does not exist.
func missing(err error) bool {
	response, ok := errors.AsType[*awshttp.ResponseError](err)
	return hasCode(err, "ResourceNotFoundException", "NoSuchBucket", "NoSuchEntity", "NotFoundException") ||
		ok && response.HTTPStatusCode() == http.StatusNotFound
}

func hasCode(err error, codes ...string) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode())
}
