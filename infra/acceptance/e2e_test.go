package acceptance

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
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

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
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
func newTestRun(t *testing.T, text string, reach func()) *run {
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
	r := newRun(top, permitted(t, emulated(top, shared.emulator.Endpoint, shared.emulator.AWS)),
		map[string]string{"evidence": "1d"},
		emulator.NewProgress(&watcher{text: text, reach: reach}))
	r.cdk.State = t.TempDir()
	return r
}

// permitted returns the target for a new user with the documented permissions.
func permitted(t *testing.T, to target) target {
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
	text = strings.NewReplacer("<Account>", to.account, "<Region>", to.aws.Region).Replace(text)
	users, name := iam.NewFromConfig(to.aws), "tester-"+strings.ToLower(rand.Text()[:8])
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
	to.aws.Credentials = credentials.NewStaticCredentialsProvider(id, secret, "")
	to.environment = append(to.environment, "AWS_ACCESS_KEY_ID="+id, "AWS_SECRET_ACCESS_KEY="+secret)
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
func nothingLeft(t *testing.T, r *run) {
	t.Helper()
	if all, err := stacks(t.Context(), r.target.aws, ""); err != nil || len(all) > 0 {
		t.Errorf("%d stacks are left, %v", len(all), err)
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

// quiet is a program that prints JSON to out.
func quiet(out io.Writer) *cli.Program { return &cli.Program{Out: out, Err: io.Discard, JSON: true} }

func TestRunIsRightAndLeavesNothing(t *testing.T) {
	r := newTestRun(t, "", nil)
	var out bytes.Buffer
	err := show(t.Context(), quiet(&out), r, false)
	var report scenario.Report
	if err := errors.Join(err, json.Unmarshal(out.Bytes(), &report)); err != nil || !report.Right ||
		len(report.Parts) != 7 {
		var text bytes.Buffer
		report.Print(&text)
		t.Errorf("%v\n%s", err, &text)
	}
	if text, err := os.ReadFile(filepath.Join(r.cdk.State, "report.json")); err != nil ||
		!strings.Contains(string(text), r.id) {
		t.Errorf("%v\n%s", err, text)
	}
	nothingLeft(t, r)
	// The emulator deletes also what a stack of AWS retains.
	templates, err := filepath.Glob(filepath.Join(r.cdk.State, "*.out", "*.template.json"))
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

// A killed run leaves its stacks. A cleanup removes them, and no other.
func TestCleanupRemovesOnlyWhatARunLeft(t *testing.T) {
	ctx, kill := context.WithCancel(t.Context())
	r := newTestRun(t, "deploying the consumer ...", kill)
	var out bytes.Buffer
	if err := show(ctx, quiet(&out), r, true); !errors.Is(err, context.Canceled) ||
		!strings.Contains(out.String(), `"right":false`) {
		t.Fatalf("%v: %s", err, &out)
	}
	client, other := cloudformation.NewFromConfig(shared.emulator.AWS), prefix+r.id+"-Other"
	if _, err := client.CreateStack(t.Context(), &cloudformation.CreateStackInput{StackName: &other,
		TemplateBody: aws.String(`{"Resources":{"Topic":{"Type":"AWS::SNS::Topic"}}}`),
		Tags:         []types.Tag{{Key: aws.String("other"), Value: &r.id}}}); err != nil {
		t.Fatal(err)
	}
	if all, err := stacks(t.Context(), r.target.aws, r.id); err != nil || len(all) != 2 ||
		*all[0].StackName != prefix+r.id {
		t.Errorf("%d stacks are left, %v", len(all), err)
	}
	out.Reset()
	if err := removeAll(t.Context(), quiet(&out), r.target, r.progress,
		func(string, ...any) error { return nil }); err != nil ||
		!strings.Contains(out.String(), prefix+r.id+"-Service") {
		t.Errorf("%v, %s", err, &out)
	}
	nothingLeft(t, r)
	found, err := client.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: &other})
	if err != nil || found.Stacks[0].StackStatus != types.StackStatusCreateComplete {
		t.Errorf("a stack without the tag: %v, %v", found, err)
	}
}

func TestSettingsThatCannotBeDeployedAreRejected(t *testing.T) {
	for text, want := range map[string][3]bool{ // accepted at all, in an account, on the emulator
		"stackName=x": {}, "baseUrl=https://a": {}, "nothing=1": {}, "x": {},
		"successStatus=202":                   {true, true, true},
		"domainName=a.example":                {true, false, false},
		"domainName=a.example hostedZoneId=Z": {true, true, false},
		"evidence=1d evidenceLock=compliance": {true, false, false},
	} {
		values := map[string]string{}
		known := cli.AddSettings(values, text, known()) == nil
		got := [3]bool{known, known && checkSettings(values, false) == nil, known && checkSettings(values, true) == nil}
		if got != want {
			t.Errorf("%q: accepted: %v, want %v", text, got, want)
		}
	}
}
