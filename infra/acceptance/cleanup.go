package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cftypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/resourcegroupstaggingapi"
	tagtypes "github.com/aws/aws-sdk-go-v2/service/resourcegroupstaggingapi/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	smtypes "github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/local"
)

// Runs returns the ids of the runs of which something is left in the target.
func Runs(ctx context.Context, t Target) ([]string, error) {
	found := map[string]bool{}
	err := eachStack(ctx, t, func(s cftypes.Stack) {
		if id := tagOf(s.Tags); isOfRun(aws.ToString(s.StackName), id) {
			found[id] = true
		}
	})
	if err != nil {
		return nil, err
	}
	left, err := tagged(ctx, t, "")
	if err != nil {
		return nil, err
	}
	for _, one := range left {
		if one.deletedAt.IsZero() {
			found[one.run] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// Removal is what remains after a cleanup.
type Removal struct {
	// Left are the ARNs of what could not be removed.
	Left []string `json:"left"`
	// Scheduled are the keys of KMS that AWS deletes on a later day, each as ARN and day.
	Scheduled []string `json:"scheduled"`
}

// Cleanup removes everything of a run: its stacks, and what these retain. It can be
// repeated. Keys of KMS are scheduled for deletion, because AWS deletes no key at once.
//
// What it removes has the tag of the run, and a name or a stack of the run. Nobody can give
// a resource the tag with the name of its stack, which CloudFormation adds (AWS, "Resource
// tag": https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-resource-tags.html).
func Cleanup(ctx context.Context, t Target, id string, say func(string, ...any)) (after Removal, err error) {
	if !runID.MatchString(id) {
		return after, fmt.Errorf("%q is not the id of a run", id)
	}
	names := stacksOf(id)
	for _, name := range []string{names.consumer, names.receiver, names.payhook, names.service} {
		if err := deleteStack(ctx, t, id, name, say); err != nil {
			return after, fmt.Errorf("stack %s: %w", name, err)
		}
	}
	retained, err := tagged(ctx, t, id)
	if err != nil {
		return after, err
	}
	// Keys last: what they encrypt is removed before.
	slices.SortStableFunc(retained, func(a, b resource) int { return isKey(a.arn) - isKey(b.arn) })
	for _, one := range retained {
		if isKey(one.arn) == 1 {
			if one.deletedAt.IsZero() {
				if one.deletedAt, err = scheduleDeletion(ctx, t, one.arn); err != nil {
					return after, fmt.Errorf("%s: %w", one.arn, err)
				}
			}
			after.Scheduled = append(after.Scheduled, one.arn+", deleted on "+one.deletedAt.Format(time.DateOnly))
			say("AWS deletes %s on %s", one.arn, one.deletedAt.Format(time.DateOnly))
			continue
		}
		gone, err := remove(ctx, t, one.arn)
		if err != nil {
			return after, fmt.Errorf("%s: %w", one.arn, err)
		}
		if !gone {
			after.Left = append(after.Left, one.arn)
			continue
		}
		say("removed %s", one.arn)
	}
	return after, nil
}

// keyWindow is the shortest time in days after which AWS deletes a key
// (https://docs.aws.amazon.com/kms/latest/cryptographic-details/key-deletion.html). There is no
// charge for a key that is scheduled for deletion (https://aws.amazon.com/kms/pricing/).
const keyWindow = 7

// isKey is 1 for the ARN of a key of KMS, otherwise 0.
func isKey(text string) int {
	if parsed, err := arn.Parse(text); err == nil && parsed.Service == "kms" &&
		strings.HasPrefix(parsed.Resource, "key/") {
		return 1
	}
	return 0
}

// scheduleDeletion lets AWS delete a key after keyWindow, and returns the time.
func scheduleDeletion(ctx context.Context, t Target, key string) (time.Time, error) {
	out, err := kms.NewFromConfig(t.AWS).ScheduleKeyDeletion(ctx,
		&kms.ScheduleKeyDeletionInput{KeyId: &key, PendingWindowInDays: aws.Int32(keyWindow)})
	if err != nil {
		return time.Time{}, err
	}
	return aws.ToTime(out.DeletionDate), nil
}

// keyOfRun reports whether a key with the tag of a run was created by the stack of that run,
// and when AWS deletes it; the zero time if that is not scheduled. The description of the key
// has the name of the stack, and does not change with tags.
func keyOfRun(ctx context.Context, t Target, key, run string) (own bool, deletedAt time.Time, err error) {
	out, err := kms.NewFromConfig(t.AWS).DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &key})
	if missing(err) {
		return false, deletedAt, nil
	}
	if err != nil {
		return false, deletedAt, err
	}
	stack, _, _ := strings.Cut(strings.TrimPrefix(aws.ToString(out.KeyMetadata.Description), "Payhook: "), ",")
	return isOfRun(stack, run), aws.ToTime(out.KeyMetadata.DeletionDate), nil
}

func tagOf(tags []cftypes.Tag) string {
	for _, tag := range tags {
		if aws.ToString(tag.Key) == RunTag {
			return aws.ToString(tag.Value)
		}
	}
	return ""
}

// isOfRun reports whether a name and the value of the tag are those of one run.
func isOfRun(name, id string) bool {
	own := strings.ToLower(prefix + id)
	name = strings.ToLower(name)
	return runID.MatchString(id) && (name == own || strings.HasPrefix(name, own+"-"))
}

func eachStack(ctx context.Context, t Target, do func(cftypes.Stack)) error {
	pages := cloudformation.NewDescribeStacksPaginator(cloudformation.NewFromConfig(t.AWS),
		&cloudformation.DescribeStacksInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, s := range page.Stacks {
			do(s)
		}
	}
	return nil
}

// deleteStack deletes a stack of the run, if there is one, and waits for its end.
func deleteStack(ctx context.Context, t Target, id, name string, say func(string, ...any)) error {
	stacks := cloudformation.NewFromConfig(t.AWS)
	var found *cftypes.Stack
	if err := eachStack(ctx, t, func(s cftypes.Stack) {
		if aws.ToString(s.StackName) == name && s.StackStatus != cftypes.StackStatusDeleteComplete {
			found = &s
		}
	}); err != nil || found == nil {
		return err
	}
	if tagOf(found.Tags) != id {
		return fmt.Errorf("it does not have the tag %s=%s", RunTag, id)
	}
	say("deleting stack %s", name)
	if status, err := settle(ctx, stacks, aws.ToString(found.StackId)); err != nil ||
		status == cftypes.StackStatusDeleteComplete {
		return err
	}
	// CloudFormation cannot delete a bucket with objects, except those that it retains.
	buckets, err := resourcesOf(ctx, stacks, name, "AWS::S3::Bucket")
	if err != nil {
		return err
	}
	tables, err := resourcesOf(ctx, stacks, name, "AWS::DynamoDB::GlobalTable")
	if err != nil {
		return err
	}
	for _, table := range tables {
		// AWS does not document that these have the tags of their stack. Without the tag, a
		// retained table would not be found.
		if err := tagTable(ctx, dynamodb.NewFromConfig(t.AWS), table, id); err != nil && !missing(err) {
			say("table %s has no tag and may be left: %v", table, err)
		}
	}
	if err := removeDenials(ctx, t, stacks, name); err != nil {
		return err
	}
	for _, bucket := range buckets {
		if err := emptyBucket(ctx, objects(t.AWS), bucket); err != nil {
			return fmt.Errorf("bucket %s: %w", bucket, err)
		}
	}
	if aws.ToBool(found.EnableTerminationProtection) {
		if _, err := stacks.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{
			StackName: &name, EnableTerminationProtection: aws.Bool(false)}); err != nil {
			return err
		}
	}
	// Without a role, CloudFormation uses the one with which the stack was created.
	if _, err := stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &name}); err != nil {
		return err
	}
	quickly := func(o *cloudformation.StackDeleteCompleteWaiterOptions) {
		o.MinDelay, o.MaxDelay = time.Second, 10*time.Second
	}
	return cloudformation.NewStackDeleteCompleteWaiter(stacks, quickly).Wait(ctx,
		&cloudformation.DescribeStacksInput{StackName: found.StackId}, removeTimeout)
}

// removeDenials removes the policies with which a run that was killed denied something to roles
// of its stack. CloudFormation cannot delete a role with a policy that it does not know (AWS,
// "DeleteRole": https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeleteRole.html).
func removeDenials(ctx context.Context, t Target, stacks *cloudformation.Client, stack string) error {
	roles, err := resourcesOf(ctx, stacks, stack, "AWS::IAM::Role")
	if err != nil {
		return err
	}
	for _, role := range roles {
		if err := allow(ctx, iam.NewFromConfig(t.AWS), role); err != nil {
			return fmt.Errorf("role %s: %w", role, err)
		}
	}
	return nil
}

// settle waits until CloudFormation has ended what an interrupted deployment had started:
// it does not delete a stack that it is changing.
func settle(ctx context.Context, stacks *cloudformation.Client, stackID string) (cftypes.StackStatus, error) {
	for {
		out, err := stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &stackID})
		if err != nil {
			return "", err
		}
		status := out.Stacks[0].StackStatus
		if !strings.HasSuffix(string(status), "_IN_PROGRESS") || status == cftypes.StackStatusReviewInProgress {
			return status, nil
		}
		if err := smithytime.SleepWithContext(ctx, time.Second); err != nil {
			return "", err
		}
	}
}

// tagTable gives a table the tag of the run.
func tagTable(ctx context.Context, db *dynamodb.Client, name, id string) error {
	found, err := db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		return err
	}
	_, err = db.TagResource(ctx, &dynamodb.TagResourceInput{ResourceArn: found.Table.TableArn,
		Tags: []dbtypes.Tag{{Key: aws.String(RunTag), Value: &id}}})
	return err
}

// resourcesOf returns the names of a stack's resources of a type.
func resourcesOf(ctx context.Context, stacks *cloudformation.Client, stack, kind string) ([]string, error) {
	var all []string
	pages := cloudformation.NewListStackResourcesPaginator(stacks,
		&cloudformation.ListStackResourcesInput{StackName: &stack})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.StackResourceSummaries {
			if aws.ToString(r.ResourceType) == kind && aws.ToString(r.PhysicalResourceId) != "" &&
				r.ResourceStatus != cftypes.ResourceStatusDeleteComplete {
				all = append(all, *r.PhysicalResourceId)
			}
		}
	}
	return all, nil
}

// stackTag is the tag with the name of the stack, which CloudFormation adds.
const stackTag = "aws:cloudformation:stack-name"

// resource is something with the tag of a run.
type resource struct {
	arn, run  string
	deletedAt time.Time // when AWS deletes it; zero if that is not scheduled
}

// tagged returns what has the tag of the run with that id, or of any run if id is empty.
// What is being deleted can be listed for a while.
func tagged(ctx context.Context, t Target, id string) ([]resource, error) {
	filter := tagtypes.TagFilter{Key: aws.String(RunTag)}
	if id != "" {
		filter.Values = []string{id}
	}
	var found []resource
	pages := resourcegroupstaggingapi.NewGetResourcesPaginator(resourcegroupstaggingapi.NewFromConfig(t.AWS),
		&resourcegroupstaggingapi.GetResourcesInput{TagFilters: []tagtypes.TagFilter{filter}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, m := range page.ResourceTagMappingList {
			tags := map[string]string{}
			for _, tag := range m.Tags {
				tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
			}
			one := resource{arn: aws.ToString(m.ResourceARN), run: tags[RunTag]}
			own := isOfRun(tags[stackTag], one.run) || isOfRun(nameOf(one.arn), one.run)
			if isKey(one.arn) == 1 {
				if own, one.deletedAt, err = keyOfRun(ctx, t, one.arn, one.run); err != nil {
					return nil, fmt.Errorf("%s: %w", one.arn, err)
				}
			}
			if own {
				found = append(found, one)
			}
		}
	}
	// An emulator does not list all kinds by tag.
	for _, list := range []func(context.Context, Target, string) ([]resource, error){logGroups, secrets} {
		more, err := list(ctx, t, id)
		if err != nil {
			return nil, err
		}
		for _, one := range more {
			if !slices.Contains(found, one) {
				found = append(found, one)
			}
		}
	}
	return found, nil
}

// secrets returns the secrets of a run.
func secrets(ctx context.Context, t Target, id string) ([]resource, error) {
	var found []resource
	pages := secretsmanager.NewListSecretsPaginator(secretsmanager.NewFromConfig(t.AWS),
		&secretsmanager.ListSecretsInput{Filters: []smtypes.Filter{{Key: smtypes.FilterNameStringTypeTagKey,
			Values: []string{RunTag}}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range page.SecretList {
			tags := map[string]string{}
			for _, tag := range s.Tags {
				tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
			}
			if run := tags[RunTag]; (id == "" || run == id) &&
				(isOfRun(aws.ToString(s.Name), run) || isOfRun(tags[stackTag], run)) {
				found = append(found, resource{arn: aws.ToString(s.ARN), run: run})
			}
		}
	}
	return found, nil
}

// logGroups returns the log groups of a run.
func logGroups(ctx context.Context, t Target, id string) ([]resource, error) {
	client := cloudwatchlogs.NewFromConfig(t.AWS)
	var found []resource
	pages := cloudwatchlogs.NewDescribeLogGroupsPaginator(client,
		&cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: aws.String(prefix + id)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, g := range page.LogGroups {
			name := strings.TrimSuffix(aws.ToString(g.Arn), ":*")
			tags, err := client.ListTagsForResource(ctx, &cloudwatchlogs.ListTagsForResourceInput{ResourceArn: &name})
			if missing(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if run := tags.Tags[RunTag]; isOfRun(aws.ToString(g.LogGroupName), run) && (id == "" || run == id) {
				found = append(found, resource{arn: name, run: run})
			}
		}
	}
	return found, nil
}

// nameOf returns the name in an ARN.
func nameOf(text string) string {
	parsed, err := arn.Parse(text)
	if err != nil {
		return ""
	}
	name := parsed.Resource
	for _, kind := range []string{"table/", "secret:", "log-group:", "function:", "stack/", "event-bus/", "rule/",
		"key/"} {
		name = strings.TrimPrefix(name, kind)
	}
	return name
}

// remove removes what a stack retains. It reports whether it is gone: other kinds of
// resources are not retained, so they are left unless they do not exist.
func remove(ctx context.Context, t Target, text string) (gone bool, err error) {
	parsed, err := arn.Parse(text)
	if err != nil {
		return false, err
	}
	name := nameOf(text)
	switch parsed.Service {
	case "dynamodb":
		err = deleteTable(ctx, dynamodb.NewFromConfig(t.AWS), name)
	case "s3":
		// S3 delivers access logs for a while.
		err = retry(ctx, time.Minute, func() error {
			if err := emptyBucket(ctx, objects(t.AWS), name); err != nil {
				return err
			}
			_, err := objects(t.AWS).DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
			return err
		}, "BucketNotEmpty")
	case "secretsmanager":
		// It could not be used under the same name for a while otherwise, and would cost
		// until then.
		_, err = secretsmanager.NewFromConfig(t.AWS).DeleteSecret(ctx, &secretsmanager.DeleteSecretInput{
			SecretId: &text, ForceDeleteWithoutRecovery: aws.Bool(true)})
	case "logs":
		_, err = cloudwatchlogs.NewFromConfig(t.AWS).DeleteLogGroup(ctx,
			&cloudwatchlogs.DeleteLogGroupInput{LogGroupName: &name})
	case "events":
		if !strings.Contains(parsed.Resource, "event-bus/") {
			return false, nil
		}
		// It is no error if there is none.
		_, err = eventbridge.NewFromConfig(t.AWS).DeleteEventBus(ctx, &eventbridge.DeleteEventBusInput{Name: &name})
	case "cloudformation":
		return true, nil // its stacks are deleted, and listed for a while
	default:
		return false, nil
	}
	if missing(err) {
		err = nil
	}
	return err == nil, err
}

// deleteTable deletes a table, which can be protected, and waits for its end.
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
	if found.Table.TableStatus != dbtypes.TableStatusDeleting {
		if err := retry(ctx, time.Minute, func() error {
			_, err := db.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name})
			return err
		}, "ResourceInUseException"); err != nil { // it is still being updated
			return err
		}
	}
	return dynamodb.NewTableNotExistsWaiter(db, func(o *dynamodb.TableNotExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = time.Second, 10*time.Second
	}).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &name}, 10*time.Minute)
}

// retry repeats do while it fails with an error of that code.
func retry(ctx context.Context, timeout time.Duration, do func() error, code string) error {
	for deadline := time.Now().Add(timeout); ; {
		err := do()
		api, ok := errors.AsType[smithy.APIError](err)
		if !ok || api.ErrorCode() != code || time.Now().After(deadline) {
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
		if missing(err) {
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
	if api, ok := errors.AsType[smithy.APIError](err); ok &&
		slices.Contains([]string{"ResourceNotFoundException", "NoSuchBucket", "NotFoundException"}, api.ErrorCode()) {
		return true
	}
	status, ok := httpStatus(err)
	return ok && status == http.StatusNotFound
}

// httpStatus returns the status of the answer that an error is about.
func httpStatus(err error) (status int, ok bool) {
	response, ok := errors.AsType[*awshttp.ResponseError](err)
	if !ok {
		return 0, false
	}
	return response.HTTPStatusCode(), true
}

// Emulated returns an emulator as a target.
func Emulated(e *local.Emulator) Target {
	lacks := maps.Clone(emulatorLacks)
	delete(lacks, Metrics) // time can pass for its CloudWatch
	return Target{Name: "MiniStack, an emulator of AWS on this machine", AWS: e.AWS, Account: "000000000000",
		Endpoint: e.Endpoint, Environment: e.Environment(), Lacks: lacks,
		Client: e.AWS.HTTPClient.(*http.Client), Pass: e.Pass}
}
