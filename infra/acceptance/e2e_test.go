package acceptance

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/infra/local"
	"payhook.example/infra/local/emulator"
)

var shared struct {
	once     sync.Once
	emulator *emulator.Emulator
	err      error
}

func TestMain(m *testing.M) {
	status := m.Run()
	if shared.emulator != nil {
		shared.emulator.Stop()
	}
	os.Exit(status)
}

// newTestRun returns a run in an emulator that the tests share, with the permissions of
// policy.json and no others. When its progress has a text, it calls reach.
func newTestRun(t *testing.T, text string, reach func()) *Run {
	t.Helper()
	if os.Getenv("PAYHOOK_E2E") == "" {
		t.Skip("an end-to-end test, which deploys everything into an emulator: make test-e2e, or PAYHOOK_E2E=1")
	}
	top, err := local.ProjectTop()
	if err != nil {
		t.Fatal(err)
	}
	shared.once.Do(func() {
		state := filepath.Join(top, ".local", "acceptance-test")
		p := emulator.NewProgress(os.Stdout)
		if _, shared.err = emulator.Prepare(t.Context(), top, state, p); shared.err == nil {
			shared.emulator, shared.err = emulator.Start(context.Background(), top, state, nil)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	to := permitted(t, Emulated(top, shared.emulator))
	return &Run{ID: newRunID(), Target: to, Values: maps.Clone(quick),
		CDK:      &emulator.CDK{Top: top, State: t.TempDir(), Environment: to.Environment},
		Progress: emulator.NewProgress(&watcher{text: text, reach: reach})}
}

// permitted returns the target for a new user with the documented permissions.
func permitted(t *testing.T, to Target) Target {
	t.Helper()
	policy, err := os.ReadFile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	logs := `"arn:aws:logs:<Region>:<Account>:log-group:PayhookAcceptance-*"`
	text := strings.NewReplacer(
		// The emulator has an action for batches. On AWS, sqs:DeleteMessage is for DeleteMessageBatch
		// as well (AWS, "Amazon SQS API permissions": https://docs.aws.amazon.com/AWSSimpleQueueService/
		// latest/SQSDeveloperGuide/sqs-api-permissions-reference.html).
		`"sqs:DeleteMessage"`, `"sqs:DeleteMessage", "sqs:DeleteMessageBatch"`,
		// Its CloudFormation gives log groups other names.
		logs, `[`+logs+`, "arn:aws:logs:<Region>:<Account>:log-group:/aws/cloudformation/PayhookAcceptance-*"]`,
	).Replace(string(policy))
	text = strings.NewReplacer("<Account>", to.Account, "<Region>", to.AWS.Region).Replace(text)
	users, name := iam.NewFromConfig(to.AWS), "tester-"+newRunID()
	if _, err := users.CreateUser(t.Context(), &iam.CreateUserInput{UserName: &name}); err != nil {
		t.Fatal(err)
	}
	if _, err := users.PutUserPolicy(t.Context(), &iam.PutUserPolicyInput{UserName: &name, PolicyName: &name,
		PolicyDocument: &text}); err != nil {
		t.Fatal(err)
	}
	key, err := users.CreateAccessKey(t.Context(), &iam.CreateAccessKeyInput{UserName: &name})
	if err != nil {
		t.Fatal(err)
	}
	id, secret := aws.ToString(key.AccessKey.AccessKeyId), aws.ToString(key.AccessKey.SecretAccessKey)
	to.AWS.Credentials = credentials.NewStaticCredentialsProvider(id, secret, "")
	to.Environment = append(to.Environment, "AWS_ACCESS_KEY_ID="+id, "AWS_SECRET_ACCESS_KEY="+secret)
	return to
}

// watcher writes the progress to standard output, and calls reach once.
type watcher struct {
	text  string
	reach func()
}

func (w *watcher) Write(p []byte) (int, error) {
	if w.text != "" && bytes.Contains(p, []byte(w.text)) {
		w.text = ""
		w.reach()
	}
	return os.Stdout.Write(p)
}

// nothingLeft fails the test if a stack or a bucket of a run is left.
func nothingLeft(t *testing.T, to Target) {
	t.Helper()
	if runs, err := Runs(t.Context(), to); err != nil || len(runs) > 0 {
		t.Errorf("stacks of the runs %q are left, %v", runs, err)
	}
	buckets, err := objects(shared.emulator.AWS).ListBuckets(t.Context(), &s3.ListBucketsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range buckets.Buckets {
		if strings.HasPrefix(aws.ToString(b.Name), strings.ToLower(prefix)) {
			t.Errorf("bucket %s is left", *b.Name)
		}
	}
}

func TestRunIsRightAndLeavesNothing(t *testing.T) {
	r := newTestRun(t, "", nil)
	report, err := r.Do(t.Context())
	if err != nil || !report.Right || len(report.Sections) < 6 {
		t.Errorf("%v\n%s", err, report.Markdown())
	}
	nothingLeft(t, r.Target)
}

// A killed run leaves its stacks. Cleanup removes them, and no other.
func TestCleanupRemovesOnlyWhatARunLeft(t *testing.T) {
	ctx, kill := context.WithCancel(t.Context())
	r := newTestRun(t, "deploying the consumer ...", kill)
	r.Keep = true
	if report, err := r.Do(ctx); !errors.Is(err, context.Canceled) || report.Right || report.Failure == "" {
		t.Fatalf("the error is %v", err)
	}
	stacks, other := cloudformation.NewFromConfig(shared.emulator.AWS), "Another"+r.ID
	if _, err := stacks.CreateStack(t.Context(), &cloudformation.CreateStackInput{StackName: &other,
		TemplateBody: aws.String(`{"Resources":{"Topic":{"Type":"AWS::SNS::Topic"}}}`),
		Tags:         []types.Tag{{Key: aws.String(RunTag), Value: &r.ID}}}); err != nil {
		t.Fatal(err)
	}
	if runs, err := Runs(t.Context(), r.Target); err != nil || !slices.Equal(runs, []string{r.ID}) {
		t.Errorf("the runs are %q, %v", runs, err)
	}
	if err := Cleanup(t.Context(), r.Target, r.ID, r.Progress); err != nil {
		t.Error(err)
	}
	nothingLeft(t, r.Target)
	out, err := stacks.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: &other})
	if err != nil || out.Stacks[0].StackStatus != types.StackStatusCreateComplete {
		t.Errorf("a stack of another name: %v, %v", out, err)
	}
}

// The emulator deletes what a stack of AWS retains, so this is tested without a stack.
func TestRetainedResourcesAreRemoved(t *testing.T) {
	r := newTestRun(t, "", nil)
	root, name := shared.emulator.AWS, strings.ToLower(prefix+r.ID)
	buckets, tables, ctx := objects(root), dynamodb.NewFromConfig(root), t.Context()
	_, err := buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name})
	_, err2 := buckets.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: &name,
		VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled}})
	for range 2 {
		_, err3 := buckets.PutObject(ctx, &s3.PutObjectInput{Bucket: &name, Key: aws.String("x")})
		err = errors.Join(err, err3)
	}
	_, err3 := buckets.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &name, Key: aws.String("x")})
	_, err4 := tables.CreateTable(ctx, &dynamodb.CreateTableInput{TableName: &name,
		BillingMode: dbtypes.BillingModePayPerRequest, DeletionProtectionEnabled: aws.Bool(true),
		KeySchema: []dbtypes.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: dbtypes.KeyTypeHash}},
		AttributeDefinitions: []dbtypes.AttributeDefinition{{AttributeName: aws.String("id"),
			AttributeType: dbtypes.ScalarAttributeTypeS}}})
	_, err5 := secretsmanager.NewFromConfig(root).CreateSecret(ctx,
		&secretsmanager.CreateSecretInput{Name: &name, SecretString: aws.String("x")})
	_, err6 := cloudwatchlogs.NewFromConfig(root).CreateLogGroup(ctx,
		&cloudwatchlogs.CreateLogGroupInput{LogGroupName: &name})
	key, err7 := kms.NewFromConfig(root).CreateKey(ctx, &kms.CreateKeyInput{})
	if err := errors.Join(err, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	for kind, id := range map[string]string{"AWS::S3::Bucket": name, "AWS::DynamoDB::GlobalTable": name,
		"AWS::SecretsManager::Secret": name, "AWS::Logs::LogGroup": name,
		"AWS::KMS::Key": *key.KeyMetadata.KeyId} {
		for range 2 { // as by a second cleanup
			if err := remove(ctx, Target{AWS: root}, kind, id, r.Progress); err != nil && !missing(err) {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
	_, err = buckets.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &name})
	_, err2 = tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	_, err3 = secretsmanager.NewFromConfig(root).DescribeSecret(ctx,
		&secretsmanager.DescribeSecretInput{SecretId: &name})
	for _, err := range []error{err, err2, err3} {
		if !missing(err) {
			t.Errorf("it is left: %v", err)
		}
	}
	out, err := kms.NewFromConfig(root).DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: key.KeyMetadata.KeyId})
	if err != nil || out.KeyMetadata.KeyState != kmstypes.KeyStatePendingDeletion {
		t.Errorf("the key: %+v, %v", out, err)
	}
}
