package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/settings"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// cloudWatch is a log group of CloudWatch Logs, and the outputs of a stack. A page has two
// events, and each third page is empty. It is not safe for concurrent use.
type cloudWatch struct {
	events []event
	pages  int
	starts []int64 // of the readings
	// replays are the messages of the log group of redrive.
	replays []event
	// fail, if set, answers a request itself, by the number of pages before it.
	fail func(w http.ResponseWriter, page int) bool
}

type event struct {
	ID        string `json:"eventId"`
	Timestamp int64  `json:"timestamp"`
	Message   string `json:"message"`
}

// add adds a log event, at so many seconds after noon.
func (c *cloudWatch) add(seconds int, message string) {
	at := noon.Add(time.Duration(seconds) * time.Second).UnixMilli()
	c.events = append(c.events, event{strconv.Itoa(len(c.events)), at, message})
	slices.SortStableFunc(c.events, func(a, b event) int { return int(a.Timestamp - b.Timestamp) })
}

func (c *cloudWatch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".FilterLogEvents") {
		var outputs strings.Builder
		for _, name := range []string{settings.WebhookURLOutput, settings.EventBusNameOutput,
			settings.LedgerTableOutput, settings.KeysTableOutput, settings.ClaimBucketOutput,
			settings.ParkingBucketOutput, settings.TokenSecretOutput, settings.CredentialsSecretOutput,
			settings.WebhookFunctionOutput, settings.RedriveFunctionOutput, settings.TokenFunctionOutput,
			settings.WebhookLogsOutput, settings.RedriveLogsOutput, settings.TokenLogsOutput} {
			fmt.Fprintf(&outputs, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>`, name,
				"/"+strings.ToLower(strings.TrimSuffix(name, "Logs")))
		}
		fmt.Fprint(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member>`+
			`<StackName>Payhook</StackName><CreationTime>2026-01-31T12:00:00Z</CreationTime>`+
			`<StackStatus>CREATE_COMPLETE</StackStatus><Outputs>`+outputs.String()+`</Outputs>`+
			`</member></Stacks></DescribeStacksResult></DescribeStacksResponse>`)
		return
	}
	var in struct {
		LogGroupName, NextToken string
		StartTime               int64
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.pages++
	if c.fail != nil && c.fail(w, c.pages-1) {
		return
	}
	if in.NextToken == "" {
		c.starts = append(c.starts, in.StartTime)
	}
	var out struct {
		Events    []event `json:"events"`
		NextToken string  `json:"nextToken,omitempty"`
	}
	if in.LogGroupName == "/redrive" {
		out.Events = c.replays
	}
	skip, _ := strconv.Atoi(in.NextToken)
	from := slices.IndexFunc(c.events, func(e event) bool { return e.Timestamp >= in.StartTime })
	if from >= 0 && in.LogGroupName == "/webhook" {
		rest := c.events[from:][min(skip, len(c.events)-from):]
		n := min(len(rest), 2)
		if c.pages%3 == 0 {
			n = 0
		}
		out.Events = rest[:n]
		if n < len(rest) {
			out.NextToken = strconv.Itoa(skip + n)
		}
	}
	json.NewEncoder(w).Encode(out)
}

// Do implements [aws.HTTPClient], for tests in a bubble.
func (c *cloudWatch) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w.Result(), nil
}

func (c *cloudWatch) tail() *tail {
	client := cloudwatchlogs.NewFromConfig(aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{},
		HTTPClient: c, Retryer: func() aws.Retryer { return aws.NopRetryer{} }})
	return newTail(client, "webhook", "/webhook", noon)
}

func texts(entries []entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Text)
	}
	return strings.Join(all, " ")
}

func TestEachLogEventIsReturnedOnce(t *testing.T) {
	c := &cloudWatch{}
	tail := c.tail()
	c.add(-1, "before")
	for _, step := range []struct {
		seconds int
		add     []string
		want    string
	}{
		{0, []string{"a", "b", "c", "d", "e"}, "a b c d e"},
		{0, nil, ""},
		{0, []string{"f"}, "f"}, // at the same time as those before
		{300, []string{"g", "h"}, "g h"},
		{181, []string{"late"}, "late"}, // less than two minutes before the newest
		{300, nil, ""},
		{301, []string{"i"}, "i"},
	} {
		for _, text := range step.add {
			c.add(step.seconds, text)
		}
		got, err := read(t.Context(), tail)
		if err != nil || texts(got) != step.want {
			t.Errorf("got %q, %v, want %q", texts(got), err, step.want)
		}
	}
	// It does not read everything again each time, and does not remember all of it.
	if got, want := c.starts[len(c.starts)-1], noon.Add(180*time.Second).UnixMilli(); got != want {
		t.Errorf("the last reading begins at %d, want %d", got, want)
	}
	if len(tail.seen) != 4 {
		t.Errorf("%d events are remembered, want 4", len(tail.seen))
	}
}

// followed reads every second until the time is over, and calls do before each reading. It
// returns what is shown and said.
func followed(t *testing.T, c *cloudWatch, seconds int, do func(second int)) (shown, said string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second+time.Millisecond)
		defer cancel()
		second := 0
		var all []entry
		err = follow(ctx, time.Second, func(text string) { said += text + "\n" }, func(entries []entry) error {
			all = append(all, entries...)
			second++
			do(second)
			return nil
		}, c.tail())
		shown = texts(all)
	})
	return shown, said, err
}

func TestNothingIsMissedAfterAnOutage(t *testing.T) {
	c := &cloudWatch{}
	c.add(0, "a")
	c.add(0, "b")
	c.add(0, "c")
	c.fail = func(w http.ResponseWriter, page int) bool {
		if page > 0 && page < 50 { // the second page of the first reading fails first
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	}
	shown, said, err := followed(t, c, 60, func(second int) {
		if second%10 == 0 {
			c.add(3600*second, strconv.Itoa(second))
		}
	})
	if err != nil || shown != "a b c 10 20 30 40 50 60" {
		t.Errorf("shown %q, %v", shown, err)
	}
	if strings.Count(said, "trying again") != 1 {
		t.Errorf("said %q", said)
	}
}

func TestRejectedCallEndsTheReading(t *testing.T) {
	for code, rejects := range map[string]bool{"AccessDeniedException": true, "ResourceNotFoundException": true,
		"ThrottlingException": false} {
		c := &cloudWatch{}
		_, said, err := followed(t, c, 3, func(int) {
			c.fail = func(w http.ResponseWriter, _ int) bool {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"__type":%q,"message":"no"}`, code)
				return true
			}
		})
		if rejects && (err == nil || !strings.Contains(err.Error(), code)) || !rejects && err != nil ||
			strings.Contains(said, "trying again") == rejects {
			t.Errorf("%s: %v", code, err)
		}
	}
}

const outcome = `{"time":"2026-01-31T12:00:00.1Z","level":"WARN","msg":"webhook","outcome":"signature-mismatch",` +
	`"status":401,"cause":"signature: does not verify","keyId":"","ms":{"authenticate":0.5,"record":0},` +
	`"Recorded":0,"ok":false,"list":[],"StackName":"f","_aws":{"Timestamp":1},"requestId":"r","x":"a\u001b[1m"}`

// call runs payhook logs against c.
func call(t *testing.T, c *cloudWatch, person bool, args ...string) (out, stderr string, status int) {
	t.Helper()
	server := httptest.NewServer(c)
	defer server.Close()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("go.mod", []byte("module payhook.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &deployment.Deployment{Endpoint: server.URL, Region: "us-east-1", Stack: "Payhook"}
	if err := d.Write("."); err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	p := &cli.Program{Out: &o, Err: &e, Now: func() time.Time { return noon.Add(time.Minute) }, Reader: person}
	var meant deployment.Target
	root := p.Root("")
	cli.TargetFlags(root, &meant)
	root.AddCommand(Command(p, &meant))
	status = p.Run(t.Context(), root, append([]string{"logs", "--local"}, args...))
	return o.String(), e.String(), status
}

func TestPersonSeesNoRoutineLines(t *testing.T) {
	c := &cloudWatch{}
	c.add(0, "START RequestId: 1 Version: 1\n")
	c.add(0, outcome+"\n")
	c.add(0, "panic: \x1b[1m\n")
	c.add(0, "END RequestId: 1\n")
	c.add(0, "REPORT RequestId: 1\tDuration: 1 ms\n")
	c.add(0, "REPORT RequestId: 2\tDuration: 9 ms\tStatus: timeout\n")
	const want = `2026-01-31T12:00:00.000Z  webhook  WARN   outcome=signature-mismatch  status=401  ` +
		`cause="signature: does not verify"  ms.authenticate=0.5  x="a\x1b[1m"
2026-01-31T12:00:00.000Z  webhook  -      "panic: \x1b[1m"
2026-01-31T12:00:00.000Z  webhook  -      REPORT RequestId: 2  Duration: 9 ms  Status: timeout
`
	if out, stderr, status := call(t, c, true); status != 0 || out != want || stderr != "" {
		t.Errorf("%d, %q\n%s", status, stderr, out)
	}
	if out, _, _ := call(t, c, true, "webhook", "--all"); strings.Count(out, "RequestId: 1") != 3 {
		t.Errorf("--all:\n%s", out)
	}
	for _, args := range [][]string{{"redrive"}, {"--since", "1s"}} {
		if out, stderr, status := call(t, c, true, args...); status != 0 || out != "" ||
			!strings.HasPrefix(stderr, "nothing was logged") {
			t.Errorf("%q: %d, %q, %q", args, status, out, stderr)
		}
	}
}

func TestProgramGetsEveryLineAsJSON(t *testing.T) {
	c := &cloudWatch{}
	c.add(0, outcome+"\n")
	c.add(1, "START RequestId: 1 Version: 1\n")
	want := `{"time":"2026-01-31T12:00:00.000Z","function":"webhook","line":` + outcome + "}\n" +
		`{"time":"2026-01-31T12:00:01.000Z","function":"webhook","text":"START RequestId: 1 Version: 1"}` + "\n"
	if out, stderr, status := call(t, c, false); status != 0 || out != want || stderr != "" {
		t.Errorf("%d, %q\n%s", status, stderr, out)
	}
	if out, _, _ := call(t, c, true, "--json"); out != want {
		t.Errorf("--json at a terminal: %s", out)
	}
	if out, _, _ := call(t, c, false, "--json=false"); strings.HasPrefix(out, "{") {
		t.Errorf("--json=false: %s", out)
	}
}

func TestWrongUsageIsNamed(t *testing.T) {
	c := &cloudWatch{}
	for args, want := range map[string]string{
		"wehook":                  `invalid argument "wehook" for "payhook logs"`,
		"--since=-1m":             "--since must not be negative",
		"--not-accepted --follow": "--not-accepted takes no",
		"--not-accepted webhook":  "--not-accepted takes no",
	} {
		if _, stderr, status := call(t, c, true, strings.Fields(args)...); status != cli.StatusUsage ||
			!strings.HasPrefix(stderr, "payhook: "+want) {
			t.Errorf("%s: %d, %q", args, status, stderr)
		}
	}
}
