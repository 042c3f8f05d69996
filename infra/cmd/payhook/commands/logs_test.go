package commands

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
)

// begin is when the log begins in these tests.
var begin = noon.Add(-time.Minute)

// webhook adds a line of the webhook function.
func (w *world) webhook(seconds int, line string) {
	w.log("webhook", time.Duration(seconds-60)*time.Second, line)
}

func (w *world) tail() *tail {
	delete(w.at.Logs, "token")
	return &tail{cloudwatchlogs.NewFromConfig(w.at.AWS), w.at.Logs, begin, map[string]time.Time{}}
}

func texts(entries []entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Text)
	}
	return strings.Join(all, " ")
}

func TestEachLogEventIsReturnedOnce(t *testing.T) {
	w := newWorld(t)
	tail := w.tail()
	w.webhook(-1, "before")
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
			w.webhook(step.seconds, text)
		}
		got, err := tail.next(t.Context())
		if err != nil || texts(got) != step.want {
			t.Errorf("got %q, %v, want %q", texts(got), err, step.want)
		}
	}
	// It does not read everything again each time, and does not remember all of it.
	if !tail.from.Equal(begin.Add(181*time.Second)) || len(tail.seen) != 4 {
		t.Errorf("the next reading begins at %s, and %d events are remembered, want 4", tail.from, len(tail.seen))
	}
}

// followed reads that many times, and calls do after each reading. It returns what is shown and said.
func (w *world) followed(readings int, do func(reading int)) (shown, said string, err error) {
	w.t.Helper()
	synctest.Test(w.t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var all []entry
		reading := 0
		err = w.tail().follow(ctx, func(text string) { said += text + "\n" }, func(entries []entry) error {
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
	w, calls := newWorld(t), map[bool]int{}
	w.log("redrive", -time.Minute, "redrive")
	for _, text := range []string{"a", "b", "c"} {
		w.webhook(0, text)
	}
	w.fails = func(call string) error {
		webhook := strings.Contains(call, "logs/webhook")
		calls[webhook]++ // the first page of the webhook function is read, and the second one is not
		if calls[webhook] < 30 && !(webhook && calls[webhook] == 1) {
			return refused("ThrottlingException")
		}
		return nil
	}
	shown, said, err := w.followed(60, func(reading int) {
		if reading%10 == 0 {
			w.webhook(3600*reading, strconv.Itoa(reading))
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
		w := newWorld(t)
		_, said, err := w.followed(3, func(int) { w.failing(code, "") })
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

func TestRoutineLinesAreLeftOut(t *testing.T) {
	w := newWorld(t)
	delete(w.logs, "token")
	w.webhook(0, "START RequestId: 1 Version: 1\n")
	w.webhook(0, outcome+"\n")
	w.webhook(0, "panic: \x1b[1m\n")
	w.webhook(0, "END RequestId: 1\n")
	w.webhook(0, "REPORT RequestId: 1\tDuration: 1 ms\n")
	w.webhook(0, "REPORT RequestId: 2\tDuration: 9 ms\tStatus: timeout\n")
	const head = "time=2026-01-31T11:59:00.000Z  function=webhook  "
	const want = head + `level=WARN  msg=webhook  outcome=signature-mismatch  status=401  ` +
		`cause="the signature does not verify"  ms.authenticate=0.5  x="a\x1b[1m"` + "\n" +
		head + `text="panic: \x1b[1m"` + "\n" +
		head + `text="REPORT RequestId: 2  Duration: 9 ms  Status: timeout"` + "\n"
	if out, stderr, status := w.operate("logs"); status != 0 || out != want || stderr != "" {
		t.Errorf("%d, %q\n%s", status, stderr, out)
	}
	if out, _, _ := w.operate("logs", "webhook", "--all"); strings.Count(out, "RequestId: 1") != 3 {
		t.Errorf("--all:\n%s", out)
	}
	const inJSON = `{"time":"2026-01-31T11:59:00.000Z","function":"webhook","text":"START RequestId: 1 Version: 1"}` +
		"\n" + `{"time":"2026-01-31T11:59:00.000Z","function":"webhook","line":` + outcome + "}\n"
	if out, stderr, status := w.operate("logs", "--json"); status != 0 || stderr != "" ||
		!strings.HasPrefix(out, inJSON) {
		t.Errorf("--json: %d, %q\n%s", status, stderr, out)
	}
	for _, args := range [][]string{{"redrive"}, {"--since", "1s"}} {
		if out, stderr, status := w.operate(append([]string{"logs"}, args...)...); status != 0 || out != "" ||
			!strings.HasPrefix(stderr, "nothing was logged") {
			t.Errorf("%q: %d, %q, %q", args, status, out, stderr)
		}
	}
}

// answered adds the line of a webhook. of are further members.
func (w *world) answered(seconds, status int, outcome, request, of string) {
	w.webhook(seconds, fmt.Sprintf(`{"level":"WARN","msg":"webhook","outcome":%q,"status":%d,"requestId":%q%s}`+"\n",
		outcome, status, request, of))
}

func TestNotAcceptedWebhooksAreListed(t *testing.T) {
	w := newWorld(t)
	delivery := func(id string) string { return `,"deliveryId":"` + id + `"` }
	w.answered(1, 401, "signature-mismatch", "r1", `,"unverifiedDeliveryId":"A","cause":"first"`)
	w.answered(2, 503, "out-of-time", "r2", delivery("b"))
	w.answered(3, 503, "key-unavailable", "r3",
		`,"keyId":"k","unverifiedDeliveryId":"a","rejected":"c","cause":"second\u001b[1m"`)
	w.answered(4, 200, "accepted", "r4", delivery("B"))  // later
	w.answered(5, 200, "accepted", "r5", delivery("a2")) // another
	w.answered(6, 200, "accepted", "r6", delivery("d"))
	w.answered(7, 422, "invalid", "r7", delivery("d")) // accepted before, and not later
	w.answered(8, 401, "signature-missing", "r8", "")
	w.answered(9, 401, "signature-missing", "r9", "")
	w.answered(10, 401, "timestamp-outside-window", "r10", `,"unverifiedDeliveryId":"e"`)
	w.answered(11, 401, "timestamp-outside-window", "r11", `,"unverifiedDeliveryId":"f"`)
	w.answered(12, 503, "out-of-time", "r15", delivery("g"))
	w.answered(12, 200, "accepted", "r12", `,"unverifiedDeliveryId":"a"`) // no proof of an id
	w.webhook(13, "REPORT RequestId: r13\tDuration: 9 ms\tStatus: timeout\n")
	w.webhook(13, "REPORT RequestId: r9\tDuration: 9 ms\tStatus: error\tError Type: Runtime.ExitError\n")
	w.webhook(13, "REPORT RequestId: r4\tDuration: 9 ms\n")
	w.webhook(14, `{"msg":"other","status":500,"requestId":"r14"}`)
	for _, line := range []string{`{"msg":"replay","outcome":"accepted","kind":"rejected","deliveryId":"e"}`,
		`{"msg":"replay","outcome":"timestamp-outside-window","deliveryId":"f"}`,
		// One event of the delivery is published. The others may not be recorded.
		`{"msg":"replay","outcome":"accepted","kind":"event","reason":"invalid","deliveryId":"g"}`} {
		w.log("redrive", -40*time.Second, line)
	}

	once := func(seconds, status int, outcome, request, delivery string) notAccepted {
		at := begin.Add(time.Duration(seconds) * time.Second)
		return notAccepted{First: at, Last: at, Count: 1, Status: status, Outcome: outcome, RequestID: request,
			DeliveryID: delivery}
	}
	twice, failed := once(3, 503, "key-unavailable", "r3", "a"), once(13, 0, "function-failed", "r13", "")
	twice.First, twice.Count, twice.Cause = begin.Add(time.Second), 2, "second\x1b[1m"
	twice.KeyID, twice.Rejected, failed.Cause = "k", "c", "timeout"
	want := []notAccepted{twice, once(7, 422, "invalid", "r7", "d"), once(8, 401, "signature-missing", "r8", ""),
		once(9, 401, "signature-missing", "r9", ""), once(11, 401, "timestamp-outside-window", "r11", "f"),
		once(12, 503, "out-of-time", "r15", "g"), failed}
	out, stderr, status := w.operate("logs", "--not-accepted", "--json")
	got := documents[notAccepted](t, out)
	if diff := cmp.Diff(want, got); diff != "" || status != cli.StatusFailed ||
		!strings.Contains(stderr, "7 webhooks were not accepted in the last 10m") {
		t.Errorf("%d, %s (-want +got)\n%s", status, stderr, diff)
	}
	out, _, status = w.operate("logs", "--not-accepted")
	if lines := strings.Split(out, "\n"); status != cli.StatusFailed || len(lines) != 9 ||
		!strings.Contains(lines[1], "2026-01-31T11:59:03.000Z (57s ago)  2      503     key") ||
		!strings.HasSuffix(lines[1], `a           r3         k      "second\x1b[1m"`) {
		t.Errorf("%d\n%s", status, out)
	}
}

func TestALogThatCannotBeReadIsNotEmpty(t *testing.T) {
	for failing := range 4 {
		w := newWorld(t)
		w.answered(1, 401, "signature-missing", "r", `,"unverifiedDeliveryId":"a"`)
		calls := 0
		w.fails = func(string) error {
			if calls++; calls <= failing {
				return nil
			}
			return refused(denied)
		}
		if out, stderr, status := w.operate("logs", "--not-accepted"); status != cli.StatusUnreachable || out != "" ||
			!strings.Contains(stderr, "AccessDenied") {
			t.Errorf("after %d readings: %d, %q, %q", failing, status, out, stderr)
		}
	}
}
