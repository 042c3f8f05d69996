package operate

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
	"uuid"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/names"
)

// wire answers as AWS does, over a real connection: with the outputs of the stack,
// an empty ledger table, and a key, except that it denies one operation. It closes
// the connection without an answer at the first request to delete something.
func wire(t *testing.T, denied string) {
	var deletes atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		if r.Form.Get("Action") == "DescribeStacks" {
			var outputs strings.Builder
			for key, value := range map[string]string{names.LedgerTableOutput: "ledger-1",
				names.KeysTableOutput: "keys-1"} {
				fmt.Fprintf(&outputs, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>`, key,
					value)
			}
			fmt.Fprintf(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>Payhook</StackName>
				<CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus>
				<Outputs>%s</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`, &outputs)
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		switch _, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); operation {
		case denied:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"__type":"AccessDeniedException","message":"not authorized to perform this"}`)
		case "Query":
			fmt.Fprint(w, `{"Count":0,"Items":[]}`)
		case "GetItem":
			fmt.Fprint(w, `{"Item":{"keyId":{"S":"x"},"fetchedAt":{"N":"1769860800000"},
				"expiresAt":{"N":"1769864400"}}}`)
		case "DeleteItem":
			if deletes.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprint(w, `{}`)
		}
	}))
	t.Cleanup(server.Close)
	t.Chdir(t.TempDir())
	if err := os.Mkdir(filepath.Dir(deployment.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (&deployment.Deployment{Endpoint: server.URL, Region: "us-east-1",
		Stack: "Payhook"}).Write("."); err != nil {
		t.Fatal(err)
	}
}

func call(t *testing.T, args ...string) (out, stderr string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	p := &cli.Program{In: strings.NewReader(""), Out: &o, Err: &e, Now: time.Now}
	var meant deployment.Target
	root := p.Root("")
	cli.TargetFlags(root, &meant)
	root.AddCommand(Commands(p, &meant)...)
	status = p.Run(t.Context(), root, append(args, "--local"))
	return o.String(), e.String(), status
}

func TestTheCommandsWorkOverARealConnection(t *testing.T) {
	wire(t, "")
	if out, stderr, status := call(t, "pending"); status != 0 || out != "nothing is pending\n" || stderr != "" {
		t.Errorf("%d, %q, %q", status, out, stderr)
	}
}

func TestADeniedActionIsNamed(t *testing.T) {
	wire(t, "GetItem")
	_, stderr, status := call(t, "key", uuid.New().String())
	if status != cli.StatusUnreachable || !strings.Contains(stderr, "DynamoDB: GetItem") ||
		!strings.Contains(stderr, "AccessDeniedException") {
		t.Errorf("%d, %s", status, stderr)
	}
}

func TestADropIsRepeatedAfterAClosedConnection(t *testing.T) {
	wire(t, "")
	if out, stderr, status := call(t, "key", uuid.New().String(), "--drop"); status != 0 ||
		!strings.Contains(out, "dropped.") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
}
