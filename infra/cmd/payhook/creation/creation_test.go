package creation

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

const arn = "arn:aws:cloudformation:eu-north-1:123456789012:stack/Payhook/1"

// stack is a stack in CloudFormation, which is reached over a real connection.
type stack struct {
	name      string
	status    types.StackStatus
	protected bool
	refuses   string // an action that the caller is not allowed

	changed []string // what was asked for, other than to describe
	key     string   // the access key of the last request
}

func (s *stack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.ParseForm()
	action := r.Form.Get("Action")
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	s.key, _, _ = strings.Cut(credential, "/")
	fail := func(status int, code, message string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error>
			</ErrorResponse>`, code, message)
	}
	answer := func(result string) {
		fmt.Fprintf(w, `<%sResponse><%sResult>%s</%sResult></%sResponse>`, action, action, result, action, action)
	}
	switch name := r.Form.Get("StackName"); {
	case action == s.refuses:
		fail(http.StatusForbidden, "AccessDenied", "not authorized to perform this")
	case name != s.name && name != arn:
		fail(http.StatusBadRequest, "ValidationError", "Stack with id "+name+" does not exist")
	case action == "DescribeStacks":
		answer(fmt.Sprintf(`<Stacks><member><StackName>%s</StackName><StackId>%s</StackId>
			<CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>%s</StackStatus>
			<EnableTerminationProtection>%t</EnableTerminationProtection></member></Stacks>`,
			s.name, arn, s.status, s.protected))
	case action == "ListStackResources":
		resource := func(id, kind, physical, status string) string {
			return fmt.Sprintf(`<member><LogicalResourceId>%s</LogicalResourceId><ResourceType>%s</ResourceType>
				<PhysicalResourceId>%s</PhysicalResourceId>
				<LastUpdatedTimestamp>2026-01-31T12:00:00Z</LastUpdatedTimestamp>
				<ResourceStatus>%s</ResourceStatus></member>`, id, kind, physical, status)
		}
		if r.Form.Get("NextToken") == "" {
			answer(`<StackResourceSummaries>` +
				resource("Keys", "AWS::DynamoDB::GlobalTable", "keys-1", "DELETE_COMPLETE") +
				`</StackResourceSummaries><NextToken>2</NextToken>`)
			return
		}
		answer(`<StackResourceSummaries>` +
			resource("Ledger", "AWS::DynamoDB::GlobalTable", "ledger-1", "DELETE_SKIPPED") +
			resource("Bus", "AWS::Events::EventBus", "", "DELETE_SKIPPED") + `</StackResourceSummaries>`)
	default:
		s.changed = append(s.changed, fmt.Sprintf("%s %s %s", action, name, r.Form.Get("EnableTerminationProtection")))
		if action == "UpdateTerminationProtection" {
			s.protected = r.Form.Get("EnableTerminationProtection") == "true"
		}
		answer(`<StackId>` + arn + `</StackId>`)
	}
}

// prepare does what make deploy does with args, and returns what it says.
func prepare(t *testing.T, s *stack, args ...string) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "eu-north-1", "AWS_ACCESS_KEY_ID": "id",
		"AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_MAX_ATTEMPTS":      "1", "AWS_CONFIG_FILE": os.DevNull, "AWS_PROFILE": "", "AWS_SESSION_TOKEN": "",
		"NO_PROXY": "127.0.0.1",
	} {
		t.Setenv(name, value)
	}
	os.Unsetenv("AWS_PROFILE")
	var out bytes.Buffer
	if err := Prepare(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A stack that was ever created holds data, and stays protected.
func TestOnlyAStackThatWasNeverCreatedLosesItsProtection(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, status := range types.StackStatus("").Values() {
		for _, protected := range []bool{true, false} {
			s := &stack{name: "Payhook", status: status, protected: protected}
			stderr := prepare(t, s)
			var want []string
			if protected && (status == types.StackStatusRollbackComplete || status == types.StackStatusRollbackFailed) {
				want = []string{"UpdateTerminationProtection " + arn + " false"}
			}
			if !slices.Equal(s.changed, want) {
				t.Errorf("%s, protected %t: %q, want %q", status, protected, s.changed, want)
			}
			if (stderr != "") != (want != nil) {
				t.Errorf("%s, protected %t: stderr %q", status, protected, stderr)
			}
		}
	}
}

func TestWhatRemainsOfTheFailedCreationIsNamed(t *testing.T) {
	t.Chdir(t.TempDir())
	stderr := prepare(t, &stack{name: "Payhook", status: types.StackStatusRollbackComplete, protected: true})
	if !strings.Contains(stderr, "AWS::DynamoDB::GlobalTable ledger-1\n") || strings.Contains(stderr, "keys-1") ||
		strings.Contains(stderr, "EventBus") {
		t.Errorf("stderr: %q", stderr)
	}
}

func TestWithoutAStackThereIsNothingToDo(t *testing.T) {
	t.Chdir(t.TempDir())
	s := &stack{name: "Another", status: types.StackStatusRollbackComplete, protected: true}
	if stderr := prepare(t, s); stderr != "" || s.changed != nil {
		t.Errorf("stderr %q, protection changed for %q", stderr, s.changed)
	}
}

// The CDK CLI deploys with roles of its own.
func TestACallThatIsRefusedIsReportedAndStopsNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, action := range []string{"DescribeStacks", "ListStackResources", "UpdateTerminationProtection"} {
		s := &stack{name: "Payhook", status: types.StackStatusRollbackComplete, protected: true, refuses: action}
		if stderr := prepare(t, s); !strings.Contains(stderr, "AccessDenied") || s.changed != nil {
			t.Errorf("%s: stderr %q, protection changed for %q", action, stderr, s.changed)
		}
	}
}

func TestTheStackIsThatOfCdkDeploy(t *testing.T) {
	inFile := filepath.Join(t.TempDir(), "cdk.json")
	text := `{"app":"x","profile":"file","context":{"@aws-cdk/core:flag":true,"stackName":"InFile"}}`
	if err := os.WriteFile(inFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "cdk.json")
	for _, test := range []struct {
		file, args string
		want       target
	}{
		{none, "", target{stack: "Payhook"}},
		{none, "-c baseUrl=https://a -c stackName=B --require-approval never", target{stack: "B"}},
		{none, "--context stackName=B --context=stackName=C", target{stack: "C"}},
		{none, "--profile p --region=r -c other=stackName=B", target{"Payhook", "p", "r"}},
		{inFile, "", target{"InFile", "file", ""}},
		{inFile, "--all -c stackName=B --profile=p", target{"B", "p", ""}},
	} {
		if got, err := targetOf(strings.Fields(test.args), test.file); got != test.want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", test.args, got, err, test.want)
		}
	}
	if err := os.WriteFile(inFile, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := targetOf(nil, inFile); err == nil {
		t.Error("a cdk.json that is not JSON is taken")
	}
}

func TestTheProfileOfTheDeploymentIsUsed(t *testing.T) {
	t.Chdir(t.TempDir())
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("[profile bank]\naws_access_key_id = theirs\naws_secret_access_key = secret\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s := &stack{name: "Payhook", status: types.StackStatusCreateComplete}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "eu-north-1",
		"AWS_CONFIG_FILE": file, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "NO_PROXY": "127.0.0.1"} {
		t.Setenv(name, value)
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	var out bytes.Buffer
	if err := Prepare(t.Context(), []string{"--profile", "bank"}, &out); err != nil || s.key != "theirs" ||
		out.String() != "" {
		t.Errorf("with the key %q, %v, said %q", s.key, err, &out)
	}
}
