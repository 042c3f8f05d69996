package target

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/local/up"
	"payhook.example/shared/names"
)

// cloud answers as AWS does, over the real wire: with the outputs of one stack,
// an empty ledger table, and a refusal of all else.
func cloud(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		switch {
		case r.Form.Get("Action") == "DescribeStacks" && r.Form.Get("StackName") != "Payhook":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code>
				<Message>Stack with id %s does not exist</Message></Error></ErrorResponse>`, r.Form.Get("StackName"))
		case r.Form.Get("Action") == "DescribeStacks":
			var outputs strings.Builder
			for key, value := range map[string]string{names.LedgerTableOutput: "ledger-1",
				names.KeysTableOutput: "keys-1", names.ParkingBucketOutput: "parking-1",
				names.RedriveFunctionOutput: "redrive-1"} {
				fmt.Fprintf(&outputs, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>`, key,
					value)
			}
			fmt.Fprintf(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>Payhook</StackName>
				<StackId>arn:aws:cloudformation:eu-north-1:123456789012:stack/Payhook/1</StackId>
				<CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus>
				<Outputs>%s</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`, &outputs)
		case strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".Query"):
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			fmt.Fprint(w, `{"Count":0,"Items":[]}`)
		default:
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"__type":"AccessDeniedException","message":"not authorized to perform this"}`)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// machine is a machine without any configuration of AWS, and nothing up on it.
func machine(t *testing.T) {
	for _, name := range []string{"AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("NO_PROXY", "127.0.0.1")
	t.Chdir(t.TempDir())
}

// account sets the usual variables.
func account(t *testing.T, endpoint string) {
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	t.Setenv("AWS_REGION", "eu-north-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
}

func isUp(t *testing.T, endpoint string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(up.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (up.File{Endpoint: endpoint, Region: "us-east-1", Stack: "Payhook"}).Write("."); err != nil {
		t.Fatal(err)
	}
}

// call runs a command that only connects, as the program does.
func call(t *testing.T, args ...string) (d *Deployment, stderr string, status int) {
	t.Helper()
	var out bytes.Buffer
	p := &cli.Program{In: strings.NewReader(""), Out: &out, Err: &out, Now: time.Now}
	root, meant := p.Root(""), Target{}
	meant.Register(root)
	root.AddCommand(&cobra.Command{Use: "connect", RunE: func(cmd *cobra.Command, _ []string) (err error) {
		d, err = Connect(cmd.Context(), meant)
		return cli.Unreachable(err)
	}})
	status = p.Run(t.Context(), root, append([]string{"connect"}, args...))
	return d, out.String(), status
}

func TestTheStackIsFoundWithTheUsualVariables(t *testing.T) {
	machine(t)
	account(t, cloud(t).URL)
	d, stderr, status := call(t)
	if status != 0 || stderr != "" {
		t.Fatalf("%d, %s", status, stderr)
	}
	if !strings.HasPrefix(d.Name, "stack Payhook (account 123456789012, eu-north-1 at http://127.0.0.1:") {
		t.Errorf("a person would be asked about %s", d.Name)
	}
	for key, want := range map[string]string{names.LedgerTableOutput: "ledger-1", names.KeysTableOutput: "keys-1",
		names.ParkingBucketOutput: "parking-1", names.RedriveFunctionOutput: "redrive-1"} {
		if got, err := d.Output(key); got != want || err != nil {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	if _, err := d.Output(names.TokenSecretOutput); err == nil ||
		!strings.Contains(err.Error(), "no output TokenSecret") {
		t.Error(err)
	}
}

func TestTheRegionAndTheProfileCanBeFlags(t *testing.T) {
	machine(t)
	account(t, cloud(t).URL)
	if d, stderr, status := call(t, "--region", "eu-west-3"); status != 0 || d.Config.Region != "eu-west-3" {
		t.Errorf("%d, %s", status, stderr)
	}
	if _, stderr, status := call(t, "--profile", "nobody"); status != cli.StatusUnreachable ||
		!strings.Contains(stderr, "nobody") {
		t.Errorf("%d, %s", status, stderr)
	}
	if _, stderr, status := call(t, "--profile", "nobody", "--local"); status != cli.StatusUsage {
		t.Errorf("%d, %s", status, stderr)
	}
}

func TestTheLocalRunIsFoundWithoutAny(t *testing.T) {
	machine(t)
	isUp(t, cloud(t).URL)
	if d, stderr, status := call(t, "--local"); status != 0 || d.Name != "stack Payhook (the local run)" {
		t.Errorf("%d, %s", status, stderr)
	}
}

// A server that closes a connection without an answer is asked again: the local
// run's emulator closes idle connections.
func TestTheLocalRunIsAskedAgainAfterAClosedConnection(t *testing.T) {
	machine(t)
	working := cloud(t)
	var requests atomic.Int32
	flaky := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) < 3 {
			panic(http.ErrAbortHandler)
		}
		working.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(flaky.Close)
	isUp(t, flaky.URL)
	if _, stderr, status := call(t, "--local"); status != 0 || requests.Load() != 3 {
		t.Errorf("%d after %d requests, %s", status, requests.Load(), stderr)
	}
}

func TestTheLocalRunIsTheLocalRunWhateverTheVariablesSay(t *testing.T) {
	machine(t)
	isUp(t, cloud(t).URL)
	account(t, "http://127.0.0.1:1")
	if _, stderr, status := call(t, "--local"); status != 0 {
		t.Errorf("%d, %q", status, stderr)
	}
	if _, _, status := call(t); status != cli.StatusUnreachable {
		t.Errorf("without --local: %d", status)
	}
}

func TestAPlaceThatCannotBeReachedSaysWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		place   func(t *testing.T)
		args    []string
		message []string
	}{
		"no such stack": {func(t *testing.T) { account(t, cloud(t).URL) }, []string{"--stack", "Other"},
			[]string{"no stack Other in eu-north-1", "--stack", "--region"}},
		"nothing answers": {func(t *testing.T) { account(t, "http://127.0.0.1:1") }, nil,
			[]string{"cannot be read", "AWS_PROFILE"}},
		"no credentials": {func(t *testing.T) { t.Setenv("AWS_REGION", "eu-north-1") }, nil,
			[]string{"no AWS credentials", "AWS_PROFILE"}},
		"no region": {func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID",
				"id")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		}, nil, []string{"no AWS region", "AWS_REGION"}},
		"but something up": {func(t *testing.T) {
			t.Setenv("AWS_REGION", "eu-north-1")
			isUp(t,
				"http://127.0.0.1:1")
		}, nil, []string{"--local uses it"}},
		"nothing up": {func(*testing.T) {}, []string{"--local"}, []string{"make up"}},
		"up, and gone": {func(t *testing.T) { isUp(t, "http://127.0.0.1:1"); t.Setenv("AWS_MAX_ATTEMPTS", "1") },
			[]string{"--local"}, []string{"does not answer", "make up"}},
		"another's profile": {func(t *testing.T) { t.Setenv("AWS_PROFILE", "nobody") }, nil,
			[]string{"AWS configuration", "nobody"}},
	} {
		t.Run(name, func(t *testing.T) {
			machine(t)
			test.place(t)
			_, stderr, status := call(t, test.args...)
			if status != cli.StatusUnreachable {
				t.Errorf("%d", status)
			}
			for _, text := range test.message {
				if !strings.Contains(stderr, text) {
					t.Errorf("%q is not in %s", text, stderr)
				}
			}
		})
	}
}
