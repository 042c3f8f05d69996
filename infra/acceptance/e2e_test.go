package acceptance

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/shared/settings"
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
	top, err := deployment.Top()
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
	r := newRun(top, permitted(t, emulated(top, shared.emulator.Endpoint, shared.emulator.AWS)), map[string]string{},
		emulator.NewProgress(&watcher{text: text, reach: reach}))
	r.CDK.State = t.TempDir()
	return r
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
	users, name := iam.NewFromConfig(to.AWS), "tester-"+strings.ToLower(rand.Text()[:8])
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
	buckets, err := (&deployment.Deployment{AWS: shared.emulator.AWS}).S3().ListBuckets(t.Context(),
		&s3.ListBucketsInput{})
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
	r.Values[settings.Evidence.Key] = "1d"
	report, err := r.Do(t.Context())
	if err != nil || !report.Right || len(report.Parts) != 12 {
		var text bytes.Buffer
		report.print(&text)
		t.Errorf("%v\n%s", err, &text)
	}
	nothingLeft(t, r.Target)
	// The emulator deletes also what a stack of AWS retains.
	templates, err := filepath.Glob(filepath.Join(r.CDK.State, "*.out", "*.template.json"))
	if err != nil || len(templates) != 4 {
		t.Errorf("the templates are %q, %v", templates, err)
	}
	for _, name := range templates {
		text, err := os.ReadFile(name)
		if err != nil || regexp.MustCompile(`"DeletionPolicy":\s*"[^D]|Protect\w+":\s*true`).Match(text) {
			t.Errorf("%s keeps something, %v", name, err)
		}
	}
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
	if runs, err := Runs(t.Context(), r.Target); err != nil || len(runs) != 1 || len(runs[r.ID]) != 2 {
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
