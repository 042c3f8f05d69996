package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// cloudWatch is a log group of CloudWatch Logs, and the outputs of a stack, over a real
// connection. A page has two events, and each third page is empty.
type cloudWatch struct {
	*httptest.Server

	mu     sync.Mutex
	events []event
	pages  int
	starts []int64 // of the readings
	// fail, if set, answers a request itself, by the number of pages before it.
	fail func(w http.ResponseWriter, page int) bool
}

type event struct {
	ID        string `json:"eventId"`
	Timestamp int64  `json:"timestamp"`
	Message   string `json:"message"`
}

func newCloudWatch(t *testing.T) *cloudWatch {
	c := &cloudWatch{}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// add adds a log event, at so many seconds after noon.
func (c *cloudWatch) add(seconds int, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := noon.Add(time.Duration(seconds) * time.Second).UnixMilli()
	c.events = append(c.events, event{strconv.Itoa(len(c.events)), at, message})
	slices.SortStableFunc(c.events, func(a, b event) int { return int(a.Timestamp - b.Timestamp) })
}

func (c *cloudWatch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".FilterLogEvents") {
		var outputs strings.Builder
		for _, g := range groups {
			fmt.Fprintf(&outputs, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>`, g.output,
				"/"+g.function)
		}
		fmt.Fprint(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member>`+
			`<StackName>Payhook</StackName><CreationTime>2026-01-31T12:00:00Z</CreationTime>`+
			`<StackStatus>CREATE_COMPLETE</StackStatus><Outputs>`+outputs.String()+`</Outputs>`+
			`</member></Stacks></DescribeStacksResult></DescribeStacksResponse>`)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
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

func (c *cloudWatch) tail(from time.Time) *Tail {
	client := cloudwatchlogs.NewFromConfig(aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{},
		BaseEndpoint: &c.URL, RetryMaxAttempts: 1})
	return NewTail(client, "webhook", "/webhook", "", from)
}

func texts(entries []Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Text)
	}
	return strings.Join(all, " ")
}

func TestEachLogEventIsReturnedOnce(t *testing.T) {
	c := newCloudWatch(t)
	tail := c.tail(noon)
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
		got, err := tail.Next(t.Context())
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

func TestAReadingThatFailsGoesOnWhereItWas(t *testing.T) {
	c := newCloudWatch(t)
	tail := c.tail(noon)
	for _, text := range []string{"a", "b", "c", "d"} {
		c.add(0, text)
	}
	c.fail = func(w http.ResponseWriter, page int) bool {
		if page == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return page == 1
	}
	got, err := tail.Next(t.Context())
	if err == nil || texts(got) != "a b" {
		t.Errorf("got %q, %v, want an error after a and b", texts(got), err)
	}
	if got, err = tail.Next(t.Context()); err != nil || texts(got) != "c d" {
		t.Errorf("got %q, %v, want c and d", texts(got), err)
	}
}

// follow reads until the log has been read so many times. do is called before each
// reading except the first, in place of waiting.
func follow(t *testing.T, c *cloudWatch, times int, do func(reading int, clock *time.Time)) (shown, stderr string,
	err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	clock, reading := noon, 0
	var all []Entry
	var notes strings.Builder
	f := &Follower{Tails: []*Tail{c.tail(noon)}, Every: time.Second, Now: func() time.Time { return clock },
		Wait: func(ctx context.Context, d time.Duration) error {
			if reading++; reading == times {
				cancel()
				return ctx.Err()
			}
			clock = clock.Add(d)
			do(reading, &clock)
			return nil
		},
		Say: func(format string, args ...any) { fmt.Fprintf(&notes, format+"\n", args...) },
	}
	err = f.Follow(ctx, func(entries []Entry) error {
		all = append(all, entries...)
		return nil
	})
	return texts(all), notes.String(), err
}

func TestNothingIsMissedWhileTheComputerSleeps(t *testing.T) {
	c := newCloudWatch(t)
	c.add(0, "a")
	shown, stderr, err := follow(t, c, 4, func(reading int, clock *time.Time) {
		switch reading {
		case 1:
			c.add(1, "b")
		case 2:
			for i := range 9 {
				c.add(3600*(i+1), strconv.Itoa(i))
			}
			*clock = clock.Add(9 * time.Hour)
		case 3:
			c.add(9*3600+10, "c")
		}
	})
	if err != nil || shown != "a b 0 1 2 3 4 5 6 7 8 c" {
		t.Errorf("shown %q, %v", shown, err)
	}
	if strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "the log was not read for 9h") {
		t.Errorf("said %q", stderr)
	}
}

func TestNothingIsMissedWhileAWSCannotBeReached(t *testing.T) {
	c := newCloudWatch(t)
	c.add(0, "a")
	shown, stderr, err := follow(t, c, 60, func(reading int, _ *time.Time) {
		c.mu.Lock()
		c.fail = nil
		if reading < 50 {
			c.fail = func(http.ResponseWriter, int) bool { panic(http.ErrAbortHandler) }
		}
		c.mu.Unlock()
		if reading%10 == 0 {
			c.add(reading, strconv.Itoa(reading))
		}
	})
	if err != nil || shown != "a 10 20 30 40 50" {
		t.Errorf("shown %q, %v", shown, err)
	}
	if strings.Count(stderr, "trying again") != 1 || strings.Count(stderr, "the log was not read for 50s") != 1 {
		t.Errorf("said %q", stderr)
	}
}

func TestACallThatAWSRejectsEndsTheReading(t *testing.T) {
	for code, rejects := range map[string]bool{"AccessDeniedException": true, "ResourceNotFoundException": true,
		"ThrottlingException": false} {
		c := newCloudWatch(t)
		c.add(0, "a")
		_, _, err := follow(t, c, 3, func(int, *time.Time) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fail = func(w http.ResponseWriter, _ int) bool {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"__type":%q,"message":"no"}`, code)
				return true
			}
		})
		if rejects && (err == nil || !strings.Contains(err.Error(), code)) || !rejects && err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
}

const outcome = `{"time":"2026-01-31T12:00:00.1Z","level":"WARN","msg":"webhook","outcome":"signature-mismatch",` +
	`"status":401,"cause":"signature: does not verify","keyId":"","ms":{"authenticate":0.5,"record":0},` +
	`"Recorded":0,"ok":false,"list":[],"FunctionName":"f","_aws":{"Timestamp":1},"requestId":"r","x":"a\u001b[1m"}`

// call runs payhook logs against c.
func call(t *testing.T, c *cloudWatch, person bool, args ...string) (out, stderr string, status int) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.Mkdir(filepath.Dir(deployment.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (&deployment.Deployment{Endpoint: c.URL, Region: "us-east-1", Stack: "Payhook"}).Write("."); err != nil {
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

func TestAPersonSeesWhatMatters(t *testing.T) {
	c := newCloudWatch(t)
	c.add(0, "START RequestId: 1 Version: 1\n")
	c.add(0, outcome+"\n")
	c.add(0, "panic: \x1b[1m\n")
	c.add(0, "END RequestId: 1\n")
	c.add(0, "REPORT RequestId: 1\tDuration: 1 ms\n")
	c.add(0, "REPORT RequestId: 2\tDuration: 9 ms\tStatus: timeout\n")
	const want = `2026-01-31T12:00:00.000Z  webhook  WARN   webhook  outcome=signature-mismatch  status=401
    cause="signature: does not verify"  ms.authenticate=0.5  x="a\x1b[1m"
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

func TestAProgramSeesEverythingAsJSON(t *testing.T) {
	c := newCloudWatch(t)
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

func TestWrongUsage(t *testing.T) {
	c := newCloudWatch(t)
	for args, want := range map[string]string{
		"wehook":      `function "wehook": must be one of webhook, redrive, token`,
		"--since=-1m": "--since must not be negative",
	} {
		if _, stderr, status := call(t, c, true, args); status != cli.StatusUsage || stderr != "payhook: "+want+"\n" {
			t.Errorf("%s: %d, %q", args, status, stderr)
		}
	}
}
