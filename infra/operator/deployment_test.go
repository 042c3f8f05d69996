package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"uuid"

	"payhook.example/infra/local/up"
)

// cloud answers as AWS does, over the real wire: with the outputs of one stack,
// an empty ledger table, and a refusal of all else.
func cloud(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		switch {
		case r.Form.Get("Action") == "DescribeStacks" && r.Form.Get("StackName") != "Payhook":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>Stack with id %s does not exist</Message></Error></ErrorResponse>`, r.Form.Get("StackName"))
		case r.Form.Get("Action") == "DescribeStacks":
			var outputs strings.Builder
			for key, value := range map[string]string{ledgerOutput: "ledger-1", keysOutput: "keys-1", parkingOutput: "parking-1", redriveOutput: "redrive-1"} {
				fmt.Fprintf(&outputs, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>`, key, value)
			}
			fmt.Fprintf(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>Payhook</StackName><StackId>arn:aws:cloudformation:eu-north-1:123456789012:stack/Payhook/1</StackId><CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus><Outputs>%s</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`, &outputs)
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
	for _, name := range []string{"AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"} {
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

func call(t *testing.T, args ...string) (out, err string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &o, err: &e, now: time.Now, connect: connect}
	status = p.run(t.Context(), args)
	return o.String(), e.String(), status
}

func TestTheStackIsFoundWithTheUsualVariables(t *testing.T) {
	machine(t)
	account(t, cloud(t).URL)
	if out, err, status := call(t, "pending"); status != 0 || out != "nothing is pending\n" || err != "" {
		t.Errorf("%d, %q, %q", status, out, err)
	}
	d, err := connect(t.Context(), target{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.name, "stack Payhook (account 123456789012, eu-north-1 at http://127.0.0.1:") {
		t.Errorf("a person would be asked about %s", d.name)
	}
	for key, want := range map[string]string{ledgerOutput: "ledger-1", keysOutput: "keys-1", parkingOutput: "parking-1", redriveOutput: "redrive-1"} {
		if got, err := d.output(key); got != want || err != nil {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
}

func TestTheLocalRunIsFoundWithoutAny(t *testing.T) {
	machine(t)
	isUp(t, cloud(t).URL)
	if out, err, status := call(t, "pending", "--local"); status != 0 || err != "" {
		t.Errorf("%d, %q, %q", status, out, err)
	}
	d, err := connect(t.Context(), target{local: true})
	if err != nil || d.name != "stack Payhook (the local run)" {
		t.Errorf("%+v, %v", d, err)
	}
}

// An account that the variables name is never mistaken for the local run.
func TestTheLocalRunIsTheLocalRunWhateverTheVariablesSay(t *testing.T) {
	machine(t)
	isUp(t, cloud(t).URL)
	account(t, "http://127.0.0.1:1")
	if _, err, status := call(t, "pending", "--local"); status != 0 {
		t.Errorf("%d, %q", status, err)
	}
	if _, _, status := call(t, "pending"); status != exitAWS {
		t.Errorf("without --local: %d", status)
	}
}

func TestAPlaceThatCannotBeReachedSaysWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		place func(t *testing.T)
		args  []string
		says  []string
	}{
		"no such stack":     {func(t *testing.T) { account(t, cloud(t).URL) }, []string{"--stack", "Other"}, []string{"no stack Other in eu-north-1", "--stack", "AWS_REGION"}},
		"nothing answers":   {func(t *testing.T) { account(t, "http://127.0.0.1:1") }, nil, []string{"can't be read", "AWS_PROFILE"}},
		"no credentials":    {func(t *testing.T) { t.Setenv("AWS_REGION", "eu-north-1") }, nil, []string{"credentials", "AWS_PROFILE"}},
		"but something up":  {func(t *testing.T) { t.Setenv("AWS_REGION", "eu-north-1"); isUp(t, "http://127.0.0.1:1") }, nil, []string{"--local takes that"}},
		"nothing up":        {func(*testing.T) {}, []string{"--local"}, []string{"make up"}},
		"up, and gone":      {func(t *testing.T) { isUp(t, "http://127.0.0.1:1"); t.Setenv("AWS_MAX_ATTEMPTS", "1") }, []string{"--local"}, []string{"does not answer", "make up"}},
		"another's profile": {func(t *testing.T) { t.Setenv("AWS_PROFILE", "nobody") }, nil, []string{"AWS configuration", "nobody"}},
	} {
		t.Run(name, func(t *testing.T) {
			machine(t)
			test.place(t)
			out, err, status := call(t, append([]string{"pending"}, test.args...)...)
			if status != exitAWS || out != "" {
				t.Errorf("%d, %q", status, out)
			}
			for _, text := range test.says {
				if !strings.Contains(err, text) {
					t.Errorf("%q is not in %s", text, err)
				}
			}
		})
	}
}

func TestWhatIsNotAllowedIsNamed(t *testing.T) {
	machine(t)
	account(t, cloud(t).URL)
	_, err, status := call(t, "key", uuid.New().String())
	if status != exitAWS || !strings.Contains(err, "DynamoDB: GetItem") || !strings.Contains(err, "AccessDeniedException") {
		t.Errorf("%d, %s", status, err)
	}
}
