package local

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cloudwatchtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	cloudwatchlogstypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	secretsmanagertypes "github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/google/go-cmp/cmp"
)

// The tests of this file show what the patches of the folder ministack correct. They share
// one emulator in which nothing is deployed: PAYHOOK_E2E=ministack runs them alone.

var shared struct {
	once     sync.Once
	emulator *Emulator
	err      error
}

// emulated returns the configuration of clients of the emulator.
func emulated(t *testing.T) aws.Config {
	t.Helper()
	if os.Getenv("PAYHOOK_E2E") == "" {
		t.Skip("an end-to-end test, which needs an emulator: make test-e2e, or PAYHOOK_E2E=ministack")
	}
	shared.once.Do(func() {
		state, p := filepath.Join(top(t), ".local", "ministack-test"), NewProgress(os.Stdout)
		if _, shared.err = Prepare(t.Context(), top(t), state, p); shared.err == nil {
			shared.emulator, shared.err = StartEmulator(context.Background(), top(t), state, nil)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.emulator.AWS
}

// top is the folder of go.mod.
func top(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// lambdaLimit is the size in bytes of the smallest event that Lambda rejects.
const lambdaLimit = 6 << 20

// newFunction creates a function whose program is a script, or that has none for "".
func newFunction(t *testing.T, program string) (client *lambda.Client, name string) {
	t.Helper()
	config := emulated(t)
	name = "function-" + uuid.New().String()
	role, err := iam.NewFromConfig(config).CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: &name,
		AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
			`"Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var code bytes.Buffer
	archive := zip.NewWriter(&code)
	if program != "" {
		header := &zip.FileHeader{Name: "bootstrap"}
		header.SetMode(0o755)
		file, err := archive.CreateHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(file, program); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	client = lambda.NewFromConfig(config)
	if _, err := client.CreateFunction(t.Context(), &lambda.CreateFunctionInput{
		FunctionName: &name, Role: role.Role.Arn, Runtime: lambdatypes.RuntimeProvidedal2023,
		Handler: aws.String("bootstrap"), Code: &lambdatypes.FunctionCode{ZipFile: code.Bytes()},
	}); err != nil {
		t.Fatal(err)
	}
	return client, name
}

// The end-to-end tests show the limit of function URLs.
func TestTooLargeInvocationIsRejected(t *testing.T) {
	client, name := newFunction(t, "") // it fails if it runs
	for kind, limit := range map[lambdatypes.InvocationType]int{
		lambdatypes.InvocationTypeRequestResponse: lambdaLimit, lambdatypes.InvocationTypeEvent: 1 << 20} {
		for _, size := range []int{limit - 1, limit} {
			_, err := client.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &name, InvocationType: kind,
				Payload: []byte(`"` + strings.Repeat("x", size-2) + `"`)})
			if rejected := is[*lambdatypes.RequestTooLargeException](err); rejected != (size == limit) ||
				!rejected && err != nil {
				t.Errorf("%s, %d bytes: error = %v", kind, size, err)
			}
		}
	}
}

func TestSecretHasAtMost100Versions(t *testing.T) {
	client := secretsmanager.NewFromConfig(emulated(t))
	name := "secret-" + uuid.New().String()
	if _, err := client.CreateSecret(t.Context(),
		&secretsmanager.CreateSecretInput{Name: &name, SecretString: aws.String("0")}); err != nil {
		t.Fatal(err)
	}
	put := func(id, value string) error {
		_, err := client.PutSecretValue(t.Context(),
			&secretsmanager.PutSecretValueInput{SecretId: &name, ClientRequestToken: &id, SecretString: &value})
		return err
	}
	var last string
	for i := 1; i < 100; i++ {
		last = uuid.New().String()
		if err := put(last, strconv.Itoa(i)); err != nil {
			t.Fatalf("version %d: %v", i+1, err)
		}
	}
	if err := put(uuid.New().String(), "100"); !is[*secretsmanagertypes.LimitExceededException](err) {
		t.Errorf("PutSecretValue of version 101: error = %v, want LimitExceededException", err)
	}
	if err := put(last, "99"); err != nil {
		t.Errorf("the same value for a version that exists: %v", err)
	}
	if err := put(last, "other"); !is[*secretsmanagertypes.ResourceExistsException](err) {
		t.Errorf("another value for a version that exists: error = %v, want ResourceExistsException", err)
	}
	for label, want := range map[string]string{"AWSCURRENT": "99", "AWSPREVIOUS": "98"} {
		got, err := client.GetSecretValue(t.Context(),
			&secretsmanager.GetSecretValueInput{SecretId: &name, VersionStage: &label})
		if err != nil || *got.SecretString != want {
			t.Errorf("%s is %v, %v, want %s", label, got, err, want)
		}
	}
}

// is reports whether an error is one of a type.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// newLog returns a new log group with a stream of the same name, and what writes to it.
func newLog(t *testing.T, config aws.Config) (name string, write func(...cloudwatchlogstypes.InputLogEvent)) {
	t.Helper()
	client := cloudwatchlogs.NewFromConfig(config)
	name = "log-" + uuid.New().String()
	_, err := client.CreateLogGroup(t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &name})
	if err == nil {
		_, err = client.CreateLogStream(t.Context(),
			&cloudwatchlogs.CreateLogStreamInput{LogGroupName: &name, LogStreamName: &name})
	}
	if err != nil {
		t.Fatal(err)
	}
	return name, func(events ...cloudwatchlogstypes.InputLogEvent) {
		t.Helper()
		if _, err := client.PutLogEvents(t.Context(), &cloudwatchlogs.PutLogEventsInput{LogGroupName: &name,
			LogStreamName: &name, LogEvents: events}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPageOfALogIsLimited(t *testing.T) {
	config := emulated(t)
	group, write := newLog(t, config)
	const batches, each = 3, 5000 // three pages by their number, more by their size
	event := cloudwatchlogstypes.InputLogEvent{Timestamp: aws.Int64(time.Now().UnixMilli()),
		Message: aws.String(strings.Repeat("x", 100))}
	for range batches {
		write(slices.Repeat([]cloudwatchlogstypes.InputLogEvent{event}, each)...)
	}
	pages, ids := 0, map[string]bool{}
	for all := cloudwatchlogs.NewFilterLogEventsPaginator(cloudwatchlogs.NewFromConfig(config),
		&cloudwatchlogs.FilterLogEventsInput{LogGroupName: &group}); all.HasMorePages(); pages++ {
		page, err := all.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(page.Events); n > 10_000 || n*126 > 1<<20 {
			t.Errorf("a page has %d events", n)
		}
		for _, e := range page.Events {
			ids[aws.ToString(e.EventId)] = true
		}
	}
	if pages != 2 || len(ids) != batches*each {
		t.Errorf("%d events with different ids in %d pages, want %d in 2", len(ids), pages, batches*each)
	}
}

func TestLogLineBecomesMetricAndRaisesAlarms(t *testing.T) {
	config := emulated(t)
	metrics := cloudwatch.NewFromConfig(config)
	_, put := newLog(t, config)
	// write writes a line with a metric of a function.
	write := func(function string, age time.Duration, value string) {
		t.Helper()
		at := time.Now().Add(-age).UnixMilli()
		line := fmt.Sprintf(`{"_aws":{"Timestamp":%d,"CloudWatchMetrics":[{"Namespace":"Test",`+
			`"Dimensions":[["FunctionName"]],"Metrics":[{"Name":"Failed","Unit":"Count"},{"Name":"Absent"}]}]},`+
			`"FunctionName":%q,"Failed":%s}`, at, function, value)
		for _, text := range []string{line, `{"_aws":1}`, `text with "_aws"`} {
			put(cloudwatchlogstypes.InputLogEvent{Timestamp: &at, Message: &text})
		}
	}
	for name, missing := range map[string]string{"must-run": "breaching", "unknown": "missing", "one": "notBreaching",
		"two-of-three": "notBreaching"} {
		in := &cloudwatch.PutMetricAlarmInput{AlarmName: &name, Namespace: aws.String("Test"),
			MetricName: aws.String("Failed"), Period: aws.Int32(60),
			Dimensions: []cloudwatchtypes.Dimension{{Name: aws.String("FunctionName"), Value: &name}},
			Statistic:  cloudwatchtypes.StatisticSum, Threshold: aws.Float64(2), EvaluationPeriods: aws.Int32(1),
			ComparisonOperator: cloudwatchtypes.ComparisonOperatorGreaterThanOrEqualToThreshold,
			TreatMissingData:   &missing}
		if name == "two-of-three" {
			in.EvaluationPeriods, in.DatapointsToAlarm = aws.Int32(3), aws.Int32(2)
		}
		if _, err := metrics.PutMetricAlarm(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	states := func(when string, want map[string]cloudwatchtypes.StateValue) {
		t.Helper()
		out, err := metrics.DescribeAlarms(t.Context(), &cloudwatch.DescribeAlarmsInput{})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]cloudwatchtypes.StateValue{}
		for _, a := range out.MetricAlarms {
			found[aws.ToString(a.AlarmName)] = a.StateValue
		}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	const ok, raised = cloudwatchtypes.StateValueOk, cloudwatchtypes.StateValueAlarm
	states("without data", map[string]cloudwatchtypes.StateValue{"must-run": raised,
		"unknown": cloudwatchtypes.StateValueInsufficientData, "one": ok, "two-of-three": ok})
	write("one", time.Second, "1")
	write("one", time.Second, "1")
	write("must-run", time.Second, "0")
	write("unknown", time.Second, "[1,0.5]")
	write("two-of-three", time.Second, "2")
	states("after one period", map[string]cloudwatchtypes.StateValue{"must-run": ok, "unknown": ok, "one": raised,
		"two-of-three": ok})
	write("two-of-three", 150*time.Second, "3")
	states("two of three periods breach", map[string]cloudwatchtypes.StateValue{"must-run": ok, "unknown": ok,
		"one": raised, "two-of-three": raised})
	out, err := metrics.GetMetricStatistics(t.Context(), &cloudwatch.GetMetricStatisticsInput{
		Namespace: aws.String("Test"), MetricName: aws.String("Failed"), Period: aws.Int32(3600),
		Dimensions: []cloudwatchtypes.Dimension{{Name: aws.String("FunctionName"), Value: aws.String("unknown")}},
		StartTime:  aws.Time(time.Now().Add(-time.Hour)), EndTime: aws.Time(time.Now().Add(time.Hour)),
		Statistics: []cloudwatchtypes.Statistic{cloudwatchtypes.StatisticSum}})
	if err != nil || len(out.Datapoints) != 1 || *out.Datapoints[0].Sum != 1.5 {
		t.Errorf("%+v, %v, want the sum 1.5", out, err)
	}
}
