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
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"payhook.example/infra/checks"
	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local"
	"payhook.example/shared/settings"
)

var shared struct {
	once     sync.Once
	emulator *local.Emulator
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
		p := local.NewProgress(os.Stdout)
		if _, shared.err = local.Prepare(t.Context(), top, state, p); shared.err == nil {
			shared.emulator, shared.err = local.StartEmulator(context.Background(), top, state, nil)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	for _, variable := range local.CDKEnvironment(top) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	t.Setenv("AWS_ENDPOINT_URL", shared.emulator.Endpoint)
	permitted(t)
	r, err := newRun(t.Context(), top, filepath.Join(top, ".local", "bin", "payhook"), deployment.Deployment{},
		map[string]string{"evidence": "1d", "tokenStore": settings.InParameter},
		local.NewProgress(&watcher{text: text, reach: reach}))
	if err != nil {
		t.Fatal(err)
	}
	r.AWS.HTTPClient, r.cdk.State = shared.emulator.AWS.HTTPClient, t.TempDir()
	return r
}

// permitted makes a new user with the documented permissions the one of the usual variables.
func permitted(t *testing.T) {
	t.Helper()
	policy, err := os.ReadFile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	// The emulator has an action for batches. On AWS, sqs:DeleteMessage is for DeleteMessageBatch as well (AWS,
	// "Amazon SQS API permissions": https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/
	// sqs-api-permissions-reference.html).
	text := strings.Replace(string(policy), `"sqs:DeleteMessage"`, `"sqs:DeleteMessage", "sqs:DeleteMessageBatch"`, 1)
	text = strings.NewReplacer("<Account>", local.Account, "<Region>", local.Region).Replace(text)
	users, name := iam.NewFromConfig(shared.emulator.AWS), "tester-"+strings.ToLower(rand.Text()[:8])
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
	t.Setenv("AWS_ACCESS_KEY_ID", aws.ToString(key.AccessKey.AccessKeyId))
	t.Setenv("AWS_SECRET_ACCESS_KEY", aws.ToString(key.AccessKey.SecretAccessKey))
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

// nothingLeft fails the test if a stack, a bucket or a parameter of a run is left.
func nothingLeft(t *testing.T, r *run) {
	t.Helper()
	if all, err := stacks(t.Context(), r.AWS, ""); err != nil || len(all) > 0 {
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
	parameters, err := ssm.NewFromConfig(shared.emulator.AWS).DescribeParameters(t.Context(),
		&ssm.DescribeParametersInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parameters.Parameters {
		if strings.Contains(aws.ToString(p.Name), prefix) {
			t.Errorf("parameter %s is left", *p.Name)
		}
	}
}

// quiet is a program that prints JSON to out.
func quiet(out io.Writer) *cli.Program { return &cli.Program{Out: out, Err: io.Discard, JSON: true} }

func TestRunIsRightAndLeavesNothing(t *testing.T) {
	r := newTestRun(t, "", nil)
	var out bytes.Buffer
	err := r.show(t.Context(), quiet(&out))
	var report checks.Report
	if err := errors.Join(err, json.Unmarshal(out.Bytes(), &report)); err != nil || !report.Right ||
		len(report.Checks) < 50 {
		var text bytes.Buffer
		report.Print(&text)
		t.Errorf("%v\n%s", err, &text)
	}
	if text, err := os.ReadFile(filepath.Join(r.cdk.State, "report.json")); err != nil ||
		!strings.Contains(string(text), r.id) {
		t.Errorf("%v\n%s", err, text)
	}
	secret := r.Sender.Key.Private.D.String()
	if text, err := json.Marshal(r.state); err != nil || strings.Contains(string(text), secret) {
		t.Errorf("%v, or the function gets the private key", err)
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
	if _, err := r.do(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	client, other := cloudformation.NewFromConfig(shared.emulator.AWS), prefix+r.id+"-Other"
	if _, err := client.CreateStack(t.Context(), &cloudformation.CreateStackInput{StackName: &other,
		TemplateBody: aws.String(`{"Resources":{"Topic":{"Type":"AWS::SNS::Topic"}}}`),
		Tags:         []types.Tag{{Key: aws.String("other"), Value: &r.id}}}); err != nil {
		t.Fatal(err)
	}
	if all, err := stacks(t.Context(), r.AWS, r.id); err != nil || len(all) != 2 ||
		*all[0].StackName != prefix+r.id {
		t.Errorf("%d stacks are left, %v", len(all), err)
	}
	if removed, err := r.remove(t.Context(), "", nil); err != nil || len(removed) != 2 {
		t.Errorf("%v, %s", err, removed)
	}
	nothingLeft(t, r)
	found, err := client.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: &other})
	if err != nil || found.Stacks[0].StackStatus != types.StackStatusCreateComplete {
		t.Errorf("a stack without the tag: %v, %v", found, err)
	}
}

func TestSettingsThatCannotBeDeployedAreRejected(t *testing.T) {
	for text, want := range map[string]bool{ // accepted
		"stackName=x": false, "baseUrl=https://a": false, "nothing=1": false, "x": false, "successStatus=202": true,
		"domainName=a.example": false, "domainName=a.example hostedZoneId=Z": true,
		"evidence=1d compliance": false, "evidence=1d governance scopes=a b keysAuth=bearer": true,
	} {
		values := map[string]string{}
		if err := errors.Join(settings.AddPairs(values, text, settings.Except(chosen...)),
			checkSettings(values)); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
