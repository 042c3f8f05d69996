package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	smtypes "github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"payhook.example/infra/local"
)

// emulator is nil unless the end-to-end tests run.
var emulator *local.Emulator

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if os.Getenv("PAYHOOK_E2E") == "" {
		return m.Run()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	top, err := local.ProjectTop()
	if err == nil {
		emulator, err = local.StartEmulator(ctx, top, filepath.Join(top, ".local", "acceptance-test"), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer emulator.Stop()
	go func() {
		if <-ctx.Done(); ctx.Err() != nil {
			emulator.Stop()
		}
	}()
	return m.Run()
}

// newTestRun returns a run in the emulator, with the permissions of policy.json and no
// others. At the first progress that contains a text, if that is not empty, it calls reach.
func newTestRun(t *testing.T, keep bool, text string, reach func()) *Run {
	t.Helper()
	if emulator == nil {
		t.Skip("an end-to-end test, which deploys everything into an emulator: make test-e2e, or PAYHOOK_E2E=1")
	}
	top, err := local.ProjectTop()
	if err != nil {
		t.Fatal(err)
	}
	r := New(permitted(t), Options{Top: top, State: t.TempDir(), Settings: quick, Keep: keep, Version: "test",
		Out: &watcher{text: text, reach: reach}})
	return r
}

// permitted returns the emulator as somebody sees it who has the documented permissions.
func permitted(t *testing.T) Target {
	t.Helper()
	to := Emulated(emulator)
	policy, err := os.ReadFile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	bus := `"Resource": "arn:aws:events:<Region>:<Account>:event-bus/payhookacceptance-*"`
	logs := `"arn:aws:logs:<Region>:<Account>:log-group:PayhookAcceptance-*"`
	text := strings.NewReplacer(
		// The emulator has an action of its own for batches. On AWS, sqs:DeleteMessage is for
		// DeleteMessageBatch as well (AWS, "Amazon SQS API permissions": https://docs.aws.amazon.com/
		// AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-api-permissions-reference.html).
		`"sqs:DeleteMessage"`, `"sqs:DeleteMessage", "sqs:DeleteMessageBatch"`,
		// It takes the name of a bus that is created or deleted for that of a rule.
		bus, strings.Replace(bus, `"arn`, `["arn`, 1)+`,
			"arn:aws:events:<Region>:<Account>:rule/default/payhookacceptance-*"]`,
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

func TestARunOnTheEmulatorIsRightAndLeavesNothing(t *testing.T) {
	r := newTestRun(t, false, "", nil)
	report, err := r.Do(t.Context())
	report.Conclude(err)
	if err != nil || !report.Right {
		var text bytes.Buffer
		report.Markdown(&text)
		t.Fatalf("%v\n%s", err, &text)
	}
	if report.Counts[Passed] < 40 || report.Counts[NotShown] < 30 {
		t.Errorf("the rows are %v", report.Counts)
	}
	for _, s := range report.Sections {
		for _, row := range s.Rows {
			if (row.Status == NotShown) != (row.Reason != "") {
				t.Errorf("%s: %s, reason %q", row.What, row.Status, row.Reason)
			}
		}
	}
	for _, s := range report.Sections {
		if least, some := map[string]int{"Alarms": 15, "Dashboard": 10}[s.Title]; some && s.count(Passed) < least {
			t.Errorf("of %s, %d rows are passed", s.Title, s.count(Passed))
		}
	}
	nothingLeft(t, r.target)
	dashboardIsUnderstood(t, filepath.Join(r.opts.State, "payhook.out"))
}

// dashboardIsUnderstood fails the test if the dashboard of a template has a chart that a run in an
// account could not read.
func dashboardIsUnderstood(t *testing.T, assembly string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(assembly, "*.template.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the templates are %q, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Resources map[string]struct {
			Type       string
			Properties struct{ DashboardBody any }
		}
	}
	if err := json.Unmarshal(text, &template); err != nil {
		t.Fatal(err)
	}
	var charts []widget
	for _, r := range template.Resources {
		if r.Type != "AWS::CloudWatch::Dashboard" {
			continue
		}
		if charts, err = parseDashboard(flatten(r.Properties.DashboardBody)); err != nil {
			t.Fatal(err)
		}
	}
	if len(charts) < 15 {
		t.Errorf("the dashboard has %d charts", len(charts))
	}
	for _, w := range charts {
		all, err := w.allSeries()
		read := map[string]bool{"metric": len(all) > 0, "log": sourceOf.MatchString(w.Properties.Query),
			"alarm": len(w.Properties.Alarms) > 20}
		if err != nil || !read[w.Type] {
			t.Errorf("%s: %d metrics, %d alarms, query %q, %v", w.Properties.Title, len(all), len(w.Properties.Alarms),
				w.Properties.Query, err)
		}
	}
}

// flatten returns a text of a template, with X for each reference.
func flatten(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []any:
		var out strings.Builder
		for _, one := range v {
			out.WriteString(flatten(one))
		}
		return out.String()
	case map[string]any:
		if join, ok := v["Fn::Join"].([]any); ok {
			return flatten(join[1])
		}
	}
	return "X"
}

// nothingLeft fails the test if something of a run is in the target.
func nothingLeft(t *testing.T, to Target) {
	t.Helper()
	if runs, err := Runs(t.Context(), to); err != nil || len(runs) > 0 {
		t.Errorf("of the runs %q something is left, %v", runs, err)
	}
	buckets, err := objects(Emulated(emulator).AWS).ListBuckets(t.Context(), &s3.ListBucketsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range buckets.Buckets {
		if strings.HasPrefix(aws.ToString(b.Name), strings.ToLower(prefix)) {
			t.Errorf("bucket %s is left", *b.Name)
		}
	}
}

func TestAnInterruptedRunRemovesEverything(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	r := newTestRun(t, false, "deploying Payhook ...", interrupt)
	report, err := r.Do(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if report.Conclude(err); report.Right || report.Failure == "" {
		t.Error("an interrupted run is right")
	}
	nothingLeft(t, r.target)
}

func TestCleanupRemovesWhatAKilledRunLeftAndNothingElse(t *testing.T) {
	ctx, kill := context.WithCancel(t.Context())
	r := newTestRun(t, true, "deploying Payhook ...", kill)
	if _, err := r.Do(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v", err)
	}
	if runs, err := Runs(t.Context(), r.target); err != nil || !slices.Equal(runs, []string{r.ID}) {
		t.Errorf("something is left of the runs %q, %v", runs, err)
	}
	root := Emulated(emulator).AWS
	own := prefix + r.ID + "-"
	// On AWS, the stack retains these. The emulator retains nothing.
	retained := []string{
		makeTable(t, root, own+"Ledger", r.ID), makeBucket(t, root, strings.ToLower(own)+"parking", r.ID),
		makeSecret(t, root, own+"Credentials", r.ID), makeLogGroup(t, root, own+"Logs", r.ID),
		makeBus(t, root, strings.ToLower(own)+"limits", r.ID), makeKey(t, root, prefix+r.ID, r.ID),
	}
	strangers := []string{
		makeTable(t, root, "Ledger", r.ID), makeTable(t, root, own+"Other", ""),
		makeBucket(t, root, "another-bucket", r.ID), makeSecret(t, root, "another", r.ID),
		makeLogGroup(t, root, own+"Untagged", ""), makeBus(t, root, "another-bus", r.ID),
		makeKey(t, root, "Payhook", r.ID), makeKey(t, root, prefix+r.ID, ""),
	}
	for _, one := range retained {
		if !exists(t, root, one) {
			t.Fatalf("%s was not created", one)
		}
	}
	after, err := Cleanup(t.Context(), r.target, r.ID, r.say)
	if err != nil || len(after.Left) > 0 || len(after.Scheduled) != 1 {
		t.Errorf("what remains is %+v, %v", after, err)
	}
	for _, one := range retained {
		if exists(t, root, one) {
			t.Errorf("%s is left", one)
		}
	}
	for _, one := range strangers {
		if !exists(t, root, one) {
			t.Errorf("%s was removed, and is not of the run", one)
		}
	}
	nothingLeft(t, r.target)
	again, err := Cleanup(t.Context(), r.target, r.ID, r.say)
	if err != nil || !slices.Equal(again.Scheduled, after.Scheduled) {
		t.Errorf("a second cleanup: %+v, %v", again, err)
	}
}

func makeTable(t *testing.T, cfg aws.Config, name, run string) string {
	t.Helper()
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: dbtypes.BillingModePayPerRequest,
		DeletionProtectionEnabled: aws.Bool(true),
		KeySchema: []dbtypes.KeySchemaElement{{AttributeName: aws.String("id"),
			KeyType: dbtypes.KeyTypeHash}},
		AttributeDefinitions: []dbtypes.AttributeDefinition{{AttributeName: aws.String("id"),
			AttributeType: dbtypes.ScalarAttributeTypeS}}}
	if run != "" {
		in.Tags = []dbtypes.Tag{{Key: aws.String(RunTag), Value: &run}}
	}
	if _, err := dynamodb.NewFromConfig(cfg).CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return "table/" + name
}

func makeBucket(t *testing.T, cfg aws.Config, name, run string) string {
	t.Helper()
	client := objects(cfg)
	_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name})
	if err == nil {
		_, err = client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &name,
			VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled}})
	}
	if err == nil {
		_, err = client.PutBucketTagging(t.Context(), &s3.PutBucketTaggingInput{Bucket: &name,
			Tagging: &s3types.Tagging{TagSet: []s3types.Tag{{Key: aws.String(RunTag), Value: &run}}}})
	}
	for range 2 {
		if err == nil {
			_, err = client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &name, Key: aws.String("x"),
				Body: strings.NewReader("x")})
		}
	}
	if err == nil {
		_, err = client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &name, Key: aws.String("x")})
	}
	if err != nil {
		t.Fatal(err)
	}
	return "bucket/" + name
}

func makeSecret(t *testing.T, cfg aws.Config, name, run string) string {
	t.Helper()
	if _, err := secretsmanager.NewFromConfig(cfg).CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{
		Name: &name, SecretString: aws.String("x"),
		Tags: []smtypes.Tag{{Key: aws.String(RunTag), Value: &run}}}); err != nil {
		t.Fatal(err)
	}
	return "secret/" + name
}

func makeLogGroup(t *testing.T, cfg aws.Config, name, run string) string {
	t.Helper()
	in := &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &name}
	if run != "" {
		in.Tags = map[string]string{RunTag: run}
	}
	if _, err := cloudwatchlogs.NewFromConfig(cfg).CreateLogGroup(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return "logs/" + name
}

func makeBus(t *testing.T, cfg aws.Config, name, run string) string {
	t.Helper()
	if _, err := eventbridge.NewFromConfig(cfg).CreateEventBus(t.Context(), &eventbridge.CreateEventBusInput{
		Name: &name, Tags: []ebtypes.Tag{{Key: aws.String(RunTag), Value: &run}}}); err != nil {
		t.Fatal(err)
	}
	return "bus/" + name
}

// makeKey makes a key as a stack of that name does.
func makeKey(t *testing.T, cfg aws.Config, stack, run string) string {
	t.Helper()
	in := &kms.CreateKeyInput{Description: aws.String("Payhook: " + stack + ", all stored data")}
	if run != "" {
		in.Tags = []kmstypes.Tag{{TagKey: aws.String(RunTag), TagValue: &run}}
	}
	made, err := kms.NewFromConfig(cfg).CreateKey(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return "key/" + *made.KeyMetadata.KeyId
}

func exists(t *testing.T, cfg aws.Config, what string) bool {
	t.Helper()
	kind, name, _ := strings.Cut(what, "/")
	var err error
	switch kind {
	case "table":
		_, err = dynamodb.NewFromConfig(cfg).DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &name})
	case "bucket":
		_, err = objects(cfg).HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: &name})
	case "secret":
		_, err = secretsmanager.NewFromConfig(cfg).DescribeSecret(t.Context(),
			&secretsmanager.DescribeSecretInput{SecretId: &name})
	case "bus":
		_, err = eventbridge.NewFromConfig(cfg).DescribeEventBus(t.Context(),
			&eventbridge.DescribeEventBusInput{Name: &name})
	case "key":
		var out *kms.DescribeKeyOutput
		if out, err = kms.NewFromConfig(cfg).DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: &name}); err == nil {
			return out.KeyMetadata.KeyState != kmstypes.KeyStatePendingDeletion
		}
	case "logs":
		out, err := cloudwatchlogs.NewFromConfig(cfg).DescribeLogGroups(t.Context(),
			&cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: &name})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.LogGroups) > 0
	}
	if err != nil && !missing(err) {
		t.Fatal(err)
	}
	return err == nil
}
