package commands

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
)

// cloudWatch has the log groups of the functions, which are named /logs/webhook and so on. A page has two events, and
// each third page is empty.
type cloudWatch struct {
	events []types.FilteredLogEvent // the stream has the name of the function
	pages  int
	starts []int64                               // of the readings
	fail   func(function string, page int) error // by the number of pages before it; nil: none fails
}

// add adds a log event of the webhook function, at so many seconds after noon.
func (c *cloudWatch) add(seconds int, message string) {
	c.log("webhook", noon.Add(time.Duration(seconds)*time.Second), message)
}

func (c *cloudWatch) log(function string, at time.Time, message string) {
	c.events = append(c.events, types.FilteredLogEvent{EventId: aws.String(uuid.New().String()),
		LogStreamName: &function, Timestamp: aws.Int64(at.UnixMilli()), Message: &message})
	slices.SortStableFunc(c.events, func(a, b types.FilteredLogEvent) int { return int(*a.Timestamp - *b.Timestamp) })
}

func (c *cloudWatch) filter(in *cloudwatchlogs.FilterLogEventsInput) (*cloudwatchlogs.FilterLogEventsOutput, error) {
	function, known := strings.CutPrefix(*in.LogGroupName, "/logs/")
	pattern, ofMessages := strings.CutPrefix(aws.ToString(in.FilterPattern), "{ $.msg = ")
	var err error
	switch {
	case !known:
		err = refused(http.StatusBadRequest, "ResourceNotFoundException")
	case ofMessages && !strings.HasPrefix(pattern, strconv.Quote(function)) &&
		!(function == "redrive" && strings.HasPrefix(pattern, `"replay"`)):
		err = refused(http.StatusBadRequest, fmt.Sprintf("%s: %s", function, pattern))
	case c.fail != nil:
		err = c.fail(function, c.pages)
	}
	if c.pages++; err != nil {
		return nil, err
	}
	if in.NextToken == nil {
		c.starts = append(c.starts, *in.StartTime)
	}
	skip, _ := strconv.Atoi(aws.ToString(in.NextToken))
	rest := slices.DeleteFunc(slices.Clone(c.events), func(e types.FilteredLogEvent) bool {
		return *e.LogStreamName != function || *e.Timestamp < *in.StartTime
	})
	rest = rest[min(skip, len(rest)):]
	n := min(len(rest), 2)
	if c.pages%3 == 0 {
		n = 0
	}
	out := &cloudwatchlogs.FilterLogEventsOutput{Events: rest[:n]}
	if n < len(rest) {
		out.NextToken = aws.String(strconv.Itoa(skip + n))
	}
	return out, nil
}

func (c *cloudWatch) tail(t *testing.T) *tail {
	w := newWorld(t)
	w.logs = c
	groups := map[string]string{"webhook": "/logs/webhook", "redrive": "/logs/redrive"}
	return &tail{cloudwatchlogs.NewFromConfig(w.at.AWS), groups, noon, map[string]time.Time{}}
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
	tail := c.tail(t)
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
		got, err := tail.next(t.Context())
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

// followed reads that many times, and calls do after each reading. It returns what is shown and said.
func followed(t *testing.T, c *cloudWatch, readings int, do func(reading int)) (shown, said string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var all []entry
		reading := 0
		err = c.tail(t).follow(ctx, func(text string) { said += text + "\n" }, func(entries []entry) error {
			all = append(all, entries...)
			if reading++; reading > readings {
				cancel()
			}
			do(reading)
			return nil
		})
		shown = texts(all)
	})
	return shown, said, err
}

func TestNothingIsMissedAfterAnOutage(t *testing.T) {
	c := &cloudWatch{}
	c.log("redrive", noon, "redrive")
	for _, text := range []string{"a", "b", "c"} {
		c.add(0, text)
	}
	c.fail = func(function string, page int) error {
		if function == "redrive" && page < 60 || page > 0 && page < 50 { // after the first page of the first reading
			return refused(http.StatusServiceUnavailable, "InternalError")
		}
		return nil
	}
	shown, said, err := followed(t, c, 60, func(reading int) {
		if reading%10 == 0 {
			c.add(3600*reading, strconv.Itoa(reading))
		}
	})
	got := strings.Fields(shown)
	slices.Sort(got)
	if want := strings.Fields("10 20 30 40 50 60 a b c redrive"); err != nil || !slices.Equal(got, want) ||
		strings.Count(said, "trying again") != 1 {
		t.Errorf("shown %q, said %q, %v", shown, said, err)
	}
}

func TestRejectedCallEndsTheReading(t *testing.T) {
	for code, rejects := range map[string]bool{"AccessDeniedException": true, "ResourceNotFoundException": true,
		"ThrottlingException": false} {
		c := &cloudWatch{}
		_, said, err := followed(t, c, 3, func(int) {
			c.fail = func(string, int) error { return refused(http.StatusBadRequest, code) }
		})
		if rejects && (err == nil || !strings.Contains(err.Error(), code)) || !rejects && err != nil ||
			strings.Contains(said, "trying again") == rejects {
			t.Errorf("%s: %v", code, err)
		}
	}
}

const outcome = `{"time":"2026-01-31T12:00:00.1Z","level":"WARN","msg":"webhook","outcome":"signature-mismatch",` +
	`"status":401,"cause":"the signature does not verify","keyId":"","ms":{"authenticate":0.5,"record":0},` +
	`"Recorded":0,"ok":false,"list":[],"none":null,"StackName":"f","_aws":{"Timestamp":1},"requestId":"r",` +
	`"x":"a\u001b[1m"}`

// callLogs runs payhook logs against c.
func callLogs(t *testing.T, c *cloudWatch, args ...string) (out, stderr string, status int) {
	t.Helper()
	w := newWorld(t)
	w.now, w.logs = noon.Add(time.Minute), c
	return w.operate(append([]string{"logs"}, args...)...)
}

func TestRoutineLinesAreLeftOut(t *testing.T) {
	c := &cloudWatch{}
	c.add(0, "START RequestId: 1 Version: 1\n")
	c.add(0, outcome+"\n")
	c.add(0, "panic: \x1b[1m\n")
	c.add(0, "END RequestId: 1\n")
	c.add(0, "REPORT RequestId: 1\tDuration: 1 ms\n")
	c.add(0, "REPORT RequestId: 2\tDuration: 9 ms\tStatus: timeout\n")
	const head = "time=2026-01-31T12:00:00.000Z  function=webhook  "
	const want = head + `level=WARN  msg=webhook  outcome=signature-mismatch  status=401  ` +
		`cause="the signature does not verify"  ms.authenticate=0.5  x="a\x1b[1m"` + "\n" +
		head + `text="panic: \x1b[1m"` + "\n" +
		head + `text="REPORT RequestId: 2  Duration: 9 ms  Status: timeout"` + "\n"
	if out, stderr, status := callLogs(t, c); status != 0 || out != want || stderr != "" {
		t.Errorf("%d, %q\n%s", status, stderr, out)
	}
	if out, _, _ := callLogs(t, c, "webhook", "--all"); strings.Count(out, "RequestId: 1") != 3 {
		t.Errorf("--all:\n%s", out)
	}
	const inJSON = `{"time":"2026-01-31T12:00:00.000Z","function":"webhook","text":"START RequestId: 1 Version: 1"}` +
		"\n" + `{"time":"2026-01-31T12:00:00.000Z","function":"webhook","line":` + outcome + "}\n"
	if out, stderr, status := callLogs(t, c, "--json"); status != 0 || !strings.HasPrefix(out, inJSON) || stderr != "" {
		t.Errorf("--json: %d, %q\n%s", status, stderr, out)
	}
	for _, args := range [][]string{{"redrive"}, {"--since", "1s"}} {
		if out, stderr, status := callLogs(t, c, args...); status != 0 || out != "" ||
			!strings.HasPrefix(stderr, "nothing was logged") {
			t.Errorf("%q: %d, %q, %q", args, status, out, stderr)
		}
	}
}

// answer adds the line of a webhook. of are further members.
func (c *cloudWatch) answer(seconds, status int, outcome, request, of string) {
	c.add(seconds, fmt.Sprintf(`{"level":"WARN","msg":"webhook","outcome":%q,"status":%d,"requestId":%q%s}`+"\n",
		outcome, status, request, of))
}

func TestNotAcceptedWebhooksAreListed(t *testing.T) {
	c := &cloudWatch{}
	delivery := func(id string) string { return `,"deliveryId":"` + id + `"` }
	c.answer(1, 401, "signature-mismatch", "r1", `,"unverifiedDeliveryId":"A","cause":"first"`)
	c.answer(2, 503, "out-of-time", "r2", delivery("b"))
	c.answer(3, 503, "key-unavailable", "r3",
		`,"keyId":"k","unverifiedDeliveryId":"a","rejected":"c","cause":"second\u001b[1m"`)
	c.answer(4, 200, "accepted", "r4", delivery("B"))  // later
	c.answer(5, 200, "accepted", "r5", delivery("a2")) // another
	c.answer(6, 200, "accepted", "r6", delivery("d"))
	c.answer(7, 422, "invalid", "r7", delivery("d")) // accepted before, and not later
	c.answer(8, 401, "signature-missing", "r8", "")
	c.answer(9, 401, "signature-missing", "r9", "")
	c.answer(10, 401, "timestamp-outside-window", "r10", `,"unverifiedDeliveryId":"e"`)
	c.answer(11, 401, "timestamp-outside-window", "r11", `,"unverifiedDeliveryId":"f"`)
	c.answer(12, 503, "out-of-time", "r15", delivery("g"))
	c.answer(12, 200, "accepted", "r12", `,"unverifiedDeliveryId":"a"`) // no proof of an id
	c.add(13, "REPORT RequestId: r13\tDuration: 9 ms\tStatus: timeout\n")
	c.add(13, "REPORT RequestId: r9\tDuration: 9 ms\tStatus: error\tError Type: Runtime.ExitError\n")
	c.add(13, "REPORT RequestId: r4\tDuration: 9 ms\n")
	c.add(14, `{"msg":"other","status":500,"requestId":"r14"}`)
	for _, line := range []string{`{"msg":"replay","outcome":"accepted","kind":"rejected","deliveryId":"e"}`,
		`{"msg":"replay","outcome":"timestamp-outside-window","deliveryId":"f"}`,
		// One event of the delivery is published. The others may not be recorded.
		`{"msg":"replay","outcome":"accepted","kind":"event","reason":"invalid","deliveryId":"g"}`} {
		c.log("redrive", noon.Add(20*time.Second), line)
	}

	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	want := []notAccepted{
		{second(1), second(3), 2, 503, "key-unavailable", "second\x1b[1m", "k", "a", "r3", "c"},
		{second(7), second(7), 1, 422, "invalid", "", "", "d", "r7", ""},
		{second(8), second(8), 1, 401, "signature-missing", "", "", "", "r8", ""},
		{second(9), second(9), 1, 401, "signature-missing", "", "", "", "r9", ""},
		{second(11), second(11), 1, 401, "timestamp-outside-window", "", "", "f", "r11", ""},
		{second(12), second(12), 1, 503, "out-of-time", "", "", "g", "r15", ""},
		{second(13), second(13), 1, 0, "function-failed", "timeout", "", "", "r13", ""},
	}
	out, stderr, status := callLogs(t, c, "--not-accepted", "--json")
	got := documents[notAccepted](t, out)
	if diff := cmp.Diff(want, got); diff != "" || status != cli.StatusFailed ||
		!strings.Contains(stderr, "7 webhooks were not accepted in the last 10m") {
		t.Errorf("%d, %s (-want +got)\n%s", status, stderr, diff)
	}
	out, _, status = callLogs(t, c, "--not-accepted")
	if lines := strings.Split(out, "\n"); status != cli.StatusFailed || len(lines) != 9 ||
		!strings.Contains(lines[1], "2026-01-31T12:00:03.000Z (57s ago)  2      503     key") ||
		!strings.HasSuffix(lines[1], `a           r3         k      "second\x1b[1m"`) {
		t.Errorf("%d\n%s", status, out)
	}
}

func TestALogThatCannotBeReadIsNotEmpty(t *testing.T) {
	for failing := range 4 {
		c := &cloudWatch{}
		c.answer(1, 401, "signature-missing", "r", `,"unverifiedDeliveryId":"a"`)
		c.fail = func(string, int) error {
			if len(c.starts) < failing {
				return nil
			}
			return refused(http.StatusBadRequest, "AccessDeniedException")
		}
		if out, stderr, status := callLogs(t, c, "--not-accepted"); status != cli.StatusUnreachable || out != "" ||
			!strings.Contains(stderr, "AccessDenied") {
			t.Errorf("after %d readings: %d, %q, %q", failing, status, out, stderr)
		}
	}
}
