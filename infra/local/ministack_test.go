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

// newFunction creates a function whose program is a script.
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
	header := &zip.FileHeader{Name: "bootstrap"}
	header.SetMode(0o755)
	file, err := archive.CreateHeader(header)
	if err == nil {
		_, err = io.WriteString(file, program)
	}
	if err = errors.Join(err, archive.Close()); err != nil {
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

func TestLogLineBecomesMetricAndRaisesAlarms(t *testing.T) {
	config := emulated(t)
	metrics, logs := cloudwatch.NewFromConfig(config), cloudwatchlogs.NewFromConfig(config)
	log := "log-" + uuid.New().String()
	_, err := logs.CreateLogGroup(t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &log})
	if err == nil {
		_, err = logs.CreateLogStream(t.Context(),
			&cloudwatchlogs.CreateLogStreamInput{LogGroupName: &log, LogStreamName: &log})
	}
	if err != nil {
		t.Fatal(err)
	}
	// write writes a line with a metric of a function.
	write := func(function string, age time.Duration, value string) {
		t.Helper()
		at := time.Now().Add(-age).UnixMilli()
		line := fmt.Sprintf(`{"_aws":{"Timestamp":%d,"CloudWatchMetrics":[{"Namespace":"Test",`+
			`"Dimensions":[["FunctionName"]],"Metrics":[{"Name":"Failed","Unit":"Count"},{"Name":"Absent"}]}]},`+
			`"FunctionName":%q,"Failed":%s}`, at, function, value)
		for _, text := range []string{line, `{"_aws":1}`, `text with "_aws"`} {
			if _, err := logs.PutLogEvents(t.Context(), &cloudwatchlogs.PutLogEventsInput{LogGroupName: &log,
				LogStreamName: &log,
				LogEvents:     []cloudwatchlogstypes.InputLogEvent{{Timestamp: &at, Message: &text}}}); err != nil {
				t.Fatal(err)
			}
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
