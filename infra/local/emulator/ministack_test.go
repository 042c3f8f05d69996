package emulator

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cloudformationtypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cloudwatchtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	cloudwatchlogstypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	secretsmanagertypes "github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
)

// The tests of this file show what the patches of the folder ministack correct. They share
// one emulator in which nothing is deployed: PAYHOOK_E2E=ministack runs them alone.

const waitTimeout = time.Minute // for what must happen

var shared struct {
	once     sync.Once
	emulator *Emulator
	err      error
}

func TestMain(m *testing.M) {
	status := m.Run()
	if shared.emulator != nil {
		shared.emulator.Stop()
	}
	os.Exit(status)
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
			shared.emulator, shared.err = Start(context.Background(), top(t), state, nil)
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
	folder, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// as returns the configuration of a new user with a permission on a resource.
func as(t *testing.T, config aws.Config, action, resource string) aws.Config {
	t.Helper()
	users, name := iam.NewFromConfig(config), "user-"+uuid.New().String()
	_, err := users.CreateUser(t.Context(), &iam.CreateUserInput{UserName: &name})
	if err == nil {
		_, err = users.PutUserPolicy(t.Context(), &iam.PutUserPolicyInput{UserName: &name, PolicyName: &name,
			PolicyDocument: aws.String(fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow",`+
				`"Action":%q,"Resource":%q}]}`, action, resource))})
	}
	if err != nil {
		t.Fatal(err)
	}
	made, err := users.CreateAccessKey(t.Context(), &iam.CreateAccessKeyInput{UserName: &name})
	if err != nil {
		t.Fatal(err)
	}
	config.Credentials = credentials.NewStaticCredentialsProvider(*made.AccessKey.AccessKeyId,
		*made.AccessKey.SecretAccessKey, "")
	return config
}

// newTable creates a table with the key id.
func newTable(t *testing.T, client *dynamodb.Client) string {
	t.Helper()
	name := "table-" + uuid.New().String()
	if _, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: dynamodbtypes.BillingModePayPerRequest,
		AttributeDefinitions: []dynamodbtypes.AttributeDefinition{{AttributeName: aws.String("id"),
			AttributeType: dynamodbtypes.ScalarAttributeTypeS}},
		KeySchema: []dynamodbtypes.KeySchemaElement{{AttributeName: aws.String("id"),
			KeyType: dynamodbtypes.KeyTypeHash}},
	}); err != nil {
		t.Fatal(err)
	}
	return name
}

// recorder is a function that writes the text of each event into a file of the
// folder OUT, named after the time and the request. It waits until there is a file
// HOLD, if that is set, and answers "{}", or a string so that the answer has
// ANSWER_BYTES bytes.
const recorder = `#!/usr/bin/env python3
import os, time, urllib.request
api = "http://" + os.environ["AWS_LAMBDA_RUNTIME_API"] + "/2018-06-01/runtime/invocation/"
while True:
    with urllib.request.urlopen(api + "next") as event:
        request, text = event.headers["Lambda-Runtime-Aws-Request-Id"], event.read()
    path = os.path.join(os.environ["OUT"], "%020d-%s" % (time.time_ns(), request))
    with open(path + ".part", "wb") as file:
        file.write(text)
    os.rename(path + ".part", path)
    while "HOLD" in os.environ and not os.path.exists(os.environ["HOLD"]):
        time.sleep(0.01)
    answer = os.environ.get("ANSWER_BYTES")
    body = b'"' + b"x" * (int(answer) - 2) + b'"' if answer else b"{}"
    urllib.request.urlopen(urllib.request.Request(api + request + "/response", body, method="POST")).close()
`

// lambdaLimit is the size in bytes of the smallest event that Lambda rejects.
const lambdaLimit = 6 << 20

// recorderCode returns the recorder as the archive that Lambda takes.
func recorderCode(t *testing.T) []byte {
	t.Helper()
	var code bytes.Buffer
	archive := zip.NewWriter(&code)
	header := &zip.FileHeader{Name: "bootstrap"}
	header.SetMode(0o755)
	file, err := archive.CreateHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte(recorder)); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return code.Bytes()
}

// newRecorder deploys the recorder and returns its ARN and the folder in which it
// writes.
func newRecorder(t *testing.T, config aws.Config, variables map[string]string) (arn, folder string) {
	t.Helper()
	name, folder := "recorder-"+uuid.New().String(), t.TempDir()
	role, err := iam.NewFromConfig(config).CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: &name,
		AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
			`"Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"OUT": folder}
	maps.Copy(environment, variables)
	out, err := lambda.NewFromConfig(config).CreateFunction(t.Context(), &lambda.CreateFunctionInput{
		FunctionName: &name, Role: role.Role.Arn, Runtime: lambdatypes.RuntimeProvidedal2023,
		Handler: aws.String("bootstrap"),
		Timeout: aws.Int32(30), Environment: &lambdatypes.Environment{Variables: environment},
		Code: &lambdatypes.FunctionCode{ZipFile: recorderCode(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return *out.FunctionArn, folder
}

// recorded waits for n events of a recorder and returns what it has written, the
// first one first.
func recorded(t *testing.T, folder string, n int) [][]byte {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); ; {
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		var events [][]byte
		for _, file := range files {
			if filepath.Ext(file) == "" {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, text)
			}
		}
		if len(events) >= n {
			return events
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events arrived at the function, want %d", len(events), n)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestEventArrivesByteForByte(t *testing.T) {
	config := emulated(t)
	ctx, name := t.Context(), "delivery-"+uuid.New().String()
	var details []string
	for i, amount := range []string{"1234567890.10", "1E3", "1e+03", "0.00", "-0", "123456789012345678",
		"0.100000000000000000001", "1e-7", "12345678901234567890.5"} {
		details = append(details, fmt.Sprintf(`{"n":%d, "eventData":{"amount":%s},`+"\n\t"+
			`"text":"\u00fcü\/\ud83d\ude00<>&","none":{"none":[null,{"none":null}]} }`, i, amount))
	}
	slices.Sort(details)
	events, functions := eventbridge.NewFromConfig(config), lambda.NewFromConfig(config)
	if _, err := events.CreateEventBus(ctx, &eventbridge.CreateEventBusInput{Name: &name}); err != nil {
		t.Fatal(err)
	}
	queueARN := "arn:aws:sqs:" + Region + ":" + Account + ":" + name
	queue, err := sqs.NewFromConfig(config).CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name,
		Attributes: map[string]string{"Policy": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
			`"Principal":{"Service":"events.amazonaws.com"},"Action":"sqs:SendMessage",` +
			`"Resource":"` + queueARN + `"}]}`}})
	if err != nil {
		t.Fatal(err)
	}
	function, folder := newRecorder(t, config, nil)
	for target, arn := range map[string]string{"queue": queueARN, "function": function} {
		rule, err := events.PutRule(ctx, &eventbridge.PutRuleInput{Name: &target, EventBusName: &name,
			EventPattern: aws.String(`{"source":["payhook.test"]}`)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: &target, EventBusName: &name,
			Targets: []eventbridgetypes.Target{{Id: aws.String("target"), Arn: &arn}}}); err != nil {
			t.Fatal(err)
		}
		if target == "function" {
			if _, err := functions.AddPermission(ctx, &lambda.AddPermissionInput{FunctionName: &function,
				StatementId: aws.String("rule"), Action: aws.String("lambda:InvokeFunction"),
				Principal: aws.String("events.amazonaws.com"), SourceArn: rule.RuleArn}); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := time.Date(2026, 1, 31, 12, 0, 0, 999e6, time.UTC)
	for i := range details {
		out, err := events.PutEvents(ctx,
			&eventbridge.PutEventsInput{Entries: []eventbridgetypes.PutEventsRequestEntry{{
				EventBusName: &name, Source: aws.String("payhook.test"), DetailType: aws.String("Test"),
				Detail: &details[i], Time: &at,
			}}})
		if err != nil || out.FailedEntryCount > 0 {
			t.Fatalf("%s: %+v, %v", details[i], out, err)
		}
	}
	var bodies [][]byte
	for deadline := time.Now().Add(waitTimeout); len(bodies) < len(details) && time.Now().Before(deadline); {
		out, err := sqs.NewFromConfig(config).ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl,
			MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			bodies = append(bodies, []byte(*m.Body))
		}
	}
	for where, bodies := range map[string][][]byte{"queue": bodies, "function": recorded(t, folder, len(details))} {
		var got []string
		for _, body := range bodies {
			var e struct {
				Time   string
				Detail json.RawMessage
			}
			if err := json.Unmarshal(body, &e); err != nil || e.Time != "2026-01-31T12:00:00Z" {
				t.Fatalf("%s: %v: %s", where, err, body)
			}
			got = append(got, string(e.Detail))
		}
		slices.Sort(got)
		if diff := cmp.Diff(details, got); diff != "" {
			t.Errorf("%s (-published +arrived):\n%s", where, diff)
		}
	}
}

func TestTooLargeInvocationIsRejected(t *testing.T) {
	config := emulated(t)
	client := lambda.NewFromConfig(config)
	function, folder := newRecorder(t, config, nil)
	event := func(size int) []byte { return []byte(`"` + strings.Repeat("x", size-2) + `"`) }
	invocations := 0
	for _, test := range []struct {
		kind     lambdatypes.InvocationType
		size     int
		rejected bool
	}{
		{lambdatypes.InvocationTypeRequestResponse, lambdaLimit - 1, false},
		{lambdatypes.InvocationTypeRequestResponse, lambdaLimit, true},
		{lambdatypes.InvocationTypeEvent, 1<<20 - 1, false},
		{lambdatypes.InvocationTypeEvent, 1 << 20, true},
	} {
		_, err := client.Invoke(t.Context(),
			&lambda.InvokeInput{FunctionName: &function, InvocationType: test.kind, Payload: event(test.size)})
		if !test.rejected {
			invocations++
			if err != nil {
				t.Errorf("%s, %d bytes: %v", test.kind, test.size, err)
			}
			continue
		}
		response, ok := errors.AsType[*awshttp.ResponseError](err)
		if !is[*lambdatypes.RequestTooLargeException](err) || !ok ||
			response.HTTPStatusCode() != http.StatusRequestEntityTooLarge {
			t.Errorf("%s, %d bytes: error = %v, want RequestTooLargeException, status 413", test.kind, test.size, err)
		}
	}
	if events := recorded(t, folder, invocations); len(events) != invocations {
		t.Errorf("the function ran %d times, want %d", len(events), invocations)
	}
}

func TestTooLargeAnswerIsAnError(t *testing.T) {
	config := emulated(t)
	for _, test := range []struct {
		size    int
		problem string
	}{{6 << 20, ""}, {6<<20 + 1, "Function.ResponseSizeTooLarge"}} {
		function, _ := newRecorder(t, config, map[string]string{"ANSWER_BYTES": strconv.Itoa(test.size)})
		out, err := lambda.NewFromConfig(config).Invoke(t.Context(),
			&lambda.InvokeInput{FunctionName: &function, Payload: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ ErrorType string }
		if out.FunctionError != nil {
			if err := json.Unmarshal(out.Payload, &answer); err != nil {
				t.Fatal(err)
			}
		}
		if answer.ErrorType != test.problem {
			t.Errorf("%d bytes: %q, want %q", test.size, answer.ErrorType, test.problem)
		}
	}
}

// A body of a function URL is a part of the event, as text or in base64, whose size is limited.
func TestFunctionURLRejectsTooLargeEvent(t *testing.T) {
	config := emulated(t)
	function, folder := newRecorder(t, config, nil)
	functions := lambda.NewFromConfig(config)
	out, err := functions.CreateFunctionUrlConfig(t.Context(), &lambda.CreateFunctionUrlConfigInput{
		FunctionName: &function, AuthType: lambdatypes.FunctionUrlAuthTypeNone,
	})
	if err == nil {
		_, err = functions.AddPermission(t.Context(), &lambda.AddPermissionInput{
			FunctionName: &function, StatementId: aws.String("url"), Action: aws.String("lambda:InvokeFunctionUrl"),
			Principal: aws.String("*"), FunctionUrlAuthType: lambdatypes.FunctionUrlAuthTypeNone,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, test := range []struct {
		contentType string
		room        int // bytes of the body of the largest event, if the rest of the event were empty
		encoded     func(int) int
	}{
		{"application/json; charset=utf-8", lambdaLimit - 1, func(n int) int { return n }},
		{"application/octet-stream", (lambdaLimit - 1) / 4 * 3, base64.StdEncoding.EncodedLen},
	} {
		post := func(size int) int {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				FunctionURL(*config.BaseEndpoint, *out.FunctionUrl), strings.NewReader(strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", test.contentType)
			resp, err := Direct.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return resp.StatusCode
		}
		if status := post(test.room - 5000); status != http.StatusOK {
			t.Errorf("%s: answered %d", test.contentType, status)
			continue
		}
		ran++
		events := recorded(t, folder, ran)
		var event struct {
			Body            string
			IsBase64Encoded bool
		}
		if err := json.Unmarshal(events[len(events)-1], &event); err != nil ||
			len(event.Body) != test.encoded(test.room-5000) {
			t.Errorf("%s: the body has %d bytes, base64: %t, %v", test.contentType, len(event.Body),
				event.IsBase64Encoded, err)
		}
		if status := post(test.room); status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: a body that does not fit is answered %d", test.contentType, status)
		}
	}
	if events := recorded(t, folder, ran); len(events) != ran {
		t.Errorf("the function ran %d times, want %d", len(events), ran)
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
	if _, err := client.UpdateSecret(t.Context(),
		&secretsmanager.UpdateSecretInput{SecretId: &name,
			SecretString: aws.String("100")}); !is[*secretsmanagertypes.LimitExceededException](err) {
		t.Errorf("UpdateSecret of version 101: error = %v, want LimitExceededException", err)
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

func TestSecretValueHasAtMost65536Bytes(t *testing.T) {
	client := secretsmanager.NewFromConfig(emulated(t))
	name := "secret-" + uuid.New().String()
	if _, err := client.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: &name}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, id, value string
		rejected        bool
	}{
		{"65,536 bytes", uuid.New().String(), strings.Repeat("ü", 32768), false},
		{"65,537 bytes", uuid.New().String(), strings.Repeat("ü", 32768) + "x", true},
		{"no byte", uuid.New().String(), "", true},
		{"a token of 32 characters", strings.Repeat("x", 32), "x", false},
		{"a token of 31 characters", strings.Repeat("x", 31), "x", true},
		{"a token of 65 characters", strings.Repeat("x", 65), "x", true},
	} {
		_, err := client.PutSecretValue(t.Context(),
			&secretsmanager.PutSecretValueInput{SecretId: &name, ClientRequestToken: &test.id,
				SecretString: &test.value})
		if test.rejected != is[*secretsmanagertypes.InvalidParameterException](err) || !test.rejected && err != nil {
			t.Errorf("%s: error = %v, want InvalidParameterException: %t", test.name, err, test.rejected)
		}
	}
}

// is reports whether an error is one of a type.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func TestBatchGetItemReturnsPartOfLargeResult(t *testing.T) {
	client := dynamodb.NewFromConfig(emulated(t))
	table := func(items, size int) (name string, keys []map[string]dynamodbtypes.AttributeValue) {
		t.Helper()
		name = newTable(t, client)
		for i := range items {
			key := &dynamodbtypes.AttributeValueMemberS{Value: fmt.Sprintf("%03d", i)}
			keys = append(keys, map[string]dynamodbtypes.AttributeValue{"id": key})
			rest := &dynamodbtypes.AttributeValueMemberB{Value: bytes.Repeat([]byte("x"),
				size-len("id")-len(key.Value)-len("rest"))}
			if _, err := client.PutItem(t.Context(),
				&dynamodb.PutItemInput{TableName: &name,
					Item: map[string]dynamodbtypes.AttributeValue{"id": key, "rest": rest}}); err != nil {
				t.Fatal(err)
			}
		}
		return name, keys
	}
	get := func(requests map[string]dynamodbtypes.KeysAndAttributes) (*dynamodb.BatchGetItemOutput, error) {
		return client.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: requests})
	}
	large, largeKeys := table(5, 300<<10)
	small, smallKeys := table(96, 1000)

	// Of 300 KB each, three items make up less than 1 MB.
	out, err := get(map[string]dynamodbtypes.KeysAndAttributes{large: {Keys: largeKeys}, small: {Keys: smallKeys[:95]}})
	if err != nil {
		t.Fatal(err)
	}
	if got, left := len(out.Responses[large]), len(out.UnprocessedKeys[large].Keys); got != 3 || left != 2 {
		t.Errorf("of 5 large items, %d are returned and %d are left, want 3 and 2", got, left)
	}
	if got, left := len(out.Responses[small]), len(out.UnprocessedKeys[small].Keys); got != 95 || left != 0 {
		t.Errorf("of 95 small items, %d are returned and %d are left, want all", got, left)
	}
	rest, err := get(out.UnprocessedKeys)
	if err != nil {
		t.Fatal(err)
	}
	if got, left := len(rest.Responses[large]), len(rest.UnprocessedKeys); got != 2 || left != 0 {
		t.Errorf("of 2 large items, %d are returned and %d are left, want both", got, left)
	}

	_, err = get(map[string]dynamodbtypes.KeysAndAttributes{large: {Keys: largeKeys}, small: {Keys: smallKeys}})
	if api, ok := errors.AsType[smithy.APIError](err); !ok || api.ErrorCode() != "ValidationException" {
		t.Errorf("101 items: error = %v, want ValidationException", err)
	}
}

func TestReservedConcurrencyHoldsForAllVersions(t *testing.T) {
	config := emulated(t)
	name, folder := "reserved-"+uuid.New().String(), t.TempDir()
	release := filepath.Join(t.TempDir(), "release")
	objects := s3.NewFromConfig(config, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := objects.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
	if _, err := objects.PutObject(t.Context(),
		&s3.PutObjectInput{Bucket: &name, Key: aws.String("code.zip"),
			Body: bytes.NewReader(recorderCode(t))}); err != nil {
		t.Fatal(err)
	}
	template := fmt.Sprintf(`{"Resources":{
			"Role":{"Type":"AWS::IAM::Role","Properties":{"AssumeRolePolicyDocument":{"Version":"2012-10-17",
				"Statement":[{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},
				"Action":"sts:AssumeRole"}]}}},
			"Function":{"Type":"AWS::Lambda::Function","Properties":{
				"FunctionName":%[1]q,"Role":{"Fn::GetAtt":["Role","Arn"]},
				"Runtime":"provided.al2023","Handler":"bootstrap","Timeout":60,
				"Code":{"S3Bucket":%[1]q,"S3Key":"code.zip"},
				"Environment":{"Variables":{"OUT":%[2]q,"HOLD":%[3]q}},"ReservedConcurrentExecutions":2}},
			"Version":{"Type":"AWS::Lambda::Version","Properties":{"FunctionName":{"Ref":"Function"}}}}}`,
		name, folder, release)
	stacks := cloudformation.NewFromConfig(config)
	if _, err := stacks.CreateStack(t.Context(), &cloudformation.CreateStackInput{
		StackName: &name, TemplateBody: &template,
		Capabilities: []cloudformationtypes.Capability{cloudformationtypes.CapabilityCapabilityIam},
	}); err != nil {
		t.Fatal(err)
	}
	if err := cloudformation.NewStackCreateCompleteWaiter(stacks,
		func(o *cloudformation.StackCreateCompleteWaiterOptions) {
			o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second
		}).Wait(t.Context(), &cloudformation.DescribeStacksInput{StackName: &name}, waitTimeout); err != nil {
		t.Fatal(err)
	}

	client := lambda.NewFromConfig(config, func(o *lambda.Options) { o.RetryMaxAttempts = 1 })
	invoke := func(version string) error {
		_, err := client.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &name, Qualifier: &version})
		return err
	}
	running := make(chan error, 2)
	for _, version := range []string{"$LATEST", "1"} {
		go func() { running <- invoke(version) }()
	}
	recorded(t, folder, 2) // both hold
	for _, version := range []string{"$LATEST", "1"} {
		if err := invoke(version); !is[*lambdatypes.TooManyRequestsException](err) {
			t.Errorf("a third invocation, of version %s: error = %v, want TooManyRequestsException", version, err)
		}
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-running; err != nil {
			t.Error(err)
		}
	}
}

func TestPageOfALogIsLimited(t *testing.T) {
	client := cloudwatchlogs.NewFromConfig(emulated(t))
	group, stream := "group-"+uuid.New().String(), "stream"
	if _, err := client.CreateLogGroup(t.Context(),
		&cloudwatchlogs.CreateLogGroupInput{LogGroupName: &group}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateLogStream(t.Context(),
		&cloudwatchlogs.CreateLogStreamInput{LogGroupName: &group, LogStreamName: &stream}); err != nil {
		t.Fatal(err)
	}
	const batches, each = 3, 5000 // three pages by their number, more by their size
	now := time.Now().UnixMilli()
	for range batches {
		events := make([]cloudwatchlogstypes.InputLogEvent, each)
		for i := range events {
			events[i] = cloudwatchlogstypes.InputLogEvent{Timestamp: &now,
				Message: aws.String(strings.Repeat("x", 100))}
		}
		if _, err := client.PutLogEvents(t.Context(), &cloudwatchlogs.PutLogEventsInput{LogGroupName: &group,
			LogStreamName: &stream, LogEvents: events}); err != nil {
			t.Fatal(err)
		}
	}
	pages, ids := 0, map[string]bool{}
	for all := cloudwatchlogs.NewFilterLogEventsPaginator(client,
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
		t.Errorf("%d events with an id of their own in %d pages, want %d in 2", len(ids), pages, batches*each)
	}
}

func TestLogLineBecomesMetricAndRaisesAlarms(t *testing.T) {
	config := emulated(t)
	logs, metrics := cloudwatchlogs.NewFromConfig(config), cloudwatch.NewFromConfig(config)
	group, stream := "group-"+uuid.New().String(), "stream"
	if _, err := logs.CreateLogGroup(t.Context(),
		&cloudwatchlogs.CreateLogGroupInput{LogGroupName: &group}); err != nil {
		t.Fatal(err)
	}
	if _, err := logs.CreateLogStream(t.Context(),
		&cloudwatchlogs.CreateLogStreamInput{LogGroupName: &group, LogStreamName: &stream}); err != nil {
		t.Fatal(err)
	}
	// write writes a line with a metric of a function.
	write := func(function string, age time.Duration, value string) {
		t.Helper()
		at := time.Now().Add(-age).UnixMilli()
		line := fmt.Sprintf(`{"_aws":{"Timestamp":%d,"CloudWatchMetrics":[{"Namespace":"Test",`+
			`"Dimensions":[["FunctionName"]],"Metrics":[{"Name":"Failed","Unit":"Count"},{"Name":"Absent"}]}]},`+
			`"FunctionName":%q,"Failed":%s}`, at, function, value)
		if _, err := logs.PutLogEvents(t.Context(), &cloudwatchlogs.PutLogEventsInput{LogGroupName: &group,
			LogStreamName: &stream, LogEvents: []cloudwatchlogstypes.InputLogEvent{
				{Timestamp: &at, Message: &line}, {Timestamp: &at, Message: aws.String(`{"_aws":1}`)},
				{Timestamp: &at, Message: aws.String(`text with "_aws"`)}}}); err != nil {
			t.Fatal(err)
		}
	}
	dimension := func(function string) []cloudwatchtypes.Dimension {
		return []cloudwatchtypes.Dimension{{Name: aws.String("FunctionName"), Value: &function}}
	}
	for name, missing := range map[string]string{"silent": "notBreaching", "must-run": "breaching",
		"unknown": "missing", "one": "notBreaching", "two-of-three": "notBreaching"} {
		in := &cloudwatch.PutMetricAlarmInput{AlarmName: &name, Namespace: aws.String("Test"),
			MetricName: aws.String("Failed"), Dimensions: dimension(name), Period: aws.Int32(60),
			Statistic: cloudwatchtypes.StatisticSum, Threshold: aws.Float64(2), EvaluationPeriods: aws.Int32(1),
			ComparisonOperator: cloudwatchtypes.ComparisonOperatorGreaterThanOrEqualToThreshold,
			TreatMissingData:   &missing}
		if name == "two-of-three" {
			in.EvaluationPeriods, in.DatapointsToAlarm = aws.Int32(3), aws.Int32(2)
		}
		if _, err := metrics.PutMetricAlarm(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	states := func() map[string]cloudwatchtypes.StateValue {
		t.Helper()
		out, err := metrics.DescribeAlarms(t.Context(), &cloudwatch.DescribeAlarmsInput{})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]cloudwatchtypes.StateValue{}
		for _, a := range out.MetricAlarms {
			found[aws.ToString(a.AlarmName)] = a.StateValue
		}
		return found
	}
	const ok, raised = cloudwatchtypes.StateValueOk, cloudwatchtypes.StateValueAlarm
	if diff := cmp.Diff(map[string]cloudwatchtypes.StateValue{"silent": ok, "must-run": raised,
		"unknown": cloudwatchtypes.StateValueInsufficientData, "one": ok, "two-of-three": ok}, states()); diff != "" {
		t.Errorf("without data:\n%s", diff)
	}
	write("one", time.Second, "1")
	write("one", time.Second, "1")
	write("must-run", time.Second, "0")
	write("unknown", time.Second, "[1,0.5]")
	write("two-of-three", time.Second, "2")
	write("two-of-three", 90*time.Second, "0")
	if diff := cmp.Diff(map[string]cloudwatchtypes.StateValue{"silent": ok, "must-run": ok, "unknown": ok,
		"one": raised, "two-of-three": ok}, states()); diff != "" {
		t.Errorf("after one period:\n%s", diff)
	}
	write("two-of-three", 150*time.Second, "3")
	if got := states()["two-of-three"]; got != raised {
		t.Errorf("two of three periods breach: the alarm is %s", got)
	}

	queries := []cloudwatchtypes.MetricDataQuery{}
	for id, function := range map[string]string{"one": "one", "unknown": "unknown", "other": "other"} {
		queries = append(queries, cloudwatchtypes.MetricDataQuery{Id: &id, MetricStat: &cloudwatchtypes.MetricStat{
			Metric: &cloudwatchtypes.Metric{Namespace: aws.String("Test"), MetricName: aws.String("Failed"),
				Dimensions: dimension(function)},
			Period: aws.Int32(300), Stat: aws.String("Sum"),
		}})
	}
	out, err := metrics.GetMetricData(t.Context(), &cloudwatch.GetMetricDataInput{MetricDataQueries: queries,
		StartTime: aws.Time(time.Now().Add(-10 * time.Minute)), EndTime: aws.Time(time.Now().Add(time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, r := range out.MetricDataResults {
		for _, value := range r.Values {
			sums[aws.ToString(r.Id)] += value
		}
	}
	if diff := cmp.Diff(map[string]float64{"one": 2, "unknown": 1.5}, sums); diff != "" {
		t.Error(diff)
	}

	other := cloudwatch.NewFromConfig(as(t, config, "sqs:ListQueues", "*"))
	_, err = other.DescribeAlarms(t.Context(), &cloudwatch.DescribeAlarmsInput{})
	if err == nil || !strings.Contains(err.Error(), "is not authorized to perform: cloudwatch:DescribeAlarms") {
		t.Errorf("alarms without a permission: error = %v, want that it is denied", err)
	}
}

func TestStatementOfBatchNeedsItsPermission(t *testing.T) {
	config := emulated(t)
	name := newTable(t, dynamodb.NewFromConfig(config))
	insert := fmt.Sprintf(`INSERT INTO "%s" VALUE {'id': ?}`, name)
	update := fmt.Sprintf(`UPDATE "%s" SET "n" = ? WHERE "id" = ?`, name)
	for _, test := range []struct{ allowed, table, denied string }{
		{"dynamodb:PartiQLInsert", name, "dynamodb:PartiQLUpdate"},
		{"dynamodb:PartiQLUpdate", name, "dynamodb:PartiQLInsert"},
		{"dynamodb:BatchExecuteStatement", name, "dynamodb:PartiQLInsert"},
		{"dynamodb:PartiQL*", "other", "dynamodb:PartiQLInsert"},
		{"dynamodb:PartiQL*", name, ""},
	} {
		limited := dynamodb.NewFromConfig(as(t, config, test.allowed, "arn:aws:dynamodb:*:*:table/"+test.table))
		key := &dynamodbtypes.AttributeValueMemberS{Value: uuid.New().String()}
		_, err := limited.BatchExecuteStatement(t.Context(), &dynamodb.BatchExecuteStatementInput{
			Statements: []dynamodbtypes.BatchStatementRequest{
				{Statement: &insert, Parameters: []dynamodbtypes.AttributeValue{key}},
				{Statement: &update, Parameters: []dynamodbtypes.AttributeValue{key, key}},
			}})
		if test.denied == "" && err != nil || test.denied != "" && (err == nil || !strings.Contains(err.Error(),
			"not authorized to perform: "+test.denied)) {
			t.Errorf("%s on %s: %v", test.allowed, test.table, err)
		}
	}
}

// The services in memory, which the simulation uses, have the same results as the emulator for
// real clients.
func TestServicesInMemoryBehaveLikeTheEmulator(t *testing.T) {
	config := emulated(t)
	suite := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "./shared/awstest")
	suite.Dir = top(t)
	suite.Env = append(os.Environ(), "PAYHOOK_AWS_ENDPOINT="+*config.BaseEndpoint)
	out, err := suite.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%d cases passed", strings.Count(string(out), "--- PASS"))
}
