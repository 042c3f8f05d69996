package logs

import (
	"encoding/json/v2"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
)

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
		`,"keyId":"k","unverifiedDeliveryId":"a","captured":"c","cause":"second\u001b[1m"`)
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
	at := noon.Add(20 * time.Second).UnixMilli()
	c.replays = []event{{"1", at, `{"msg":"replay","outcome":"accepted","kind":"rejected","deliveryId":"e"}`},
		{"2", at, `{"msg":"replay","outcome":"timestamp-outside-window","deliveryId":"f"}`},
		// One event of the delivery is published. The others may not be recorded.
		{"3", at, `{"msg":"replay","outcome":"accepted","kind":"event","reason":"invalid","deliveryId":"g"}`}}

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
	out, stderr, status := call(t, c, false, "--not-accepted", "--json")
	var got []notAccepted
	for line := range strings.Lines(out) {
		var n notAccepted
		if err := json.Unmarshal([]byte(line), &n, json.RejectUnknownMembers(true)); err != nil {
			t.Fatal(err)
		}
		n.First, n.Last = n.First.UTC(), n.Last.UTC()
		got = append(got, n)
	}
	if diff := cmp.Diff(want, got); diff != "" || status != cli.StatusFailed ||
		!strings.Contains(stderr, "7 webhooks were not accepted in the last 10m") {
		t.Errorf("%d, %s (-want +got)\n%s", status, stderr, diff)
	}
	out, _, status = call(t, c, true, "--not-accepted")
	if lines := strings.Split(out, "\n"); status != cli.StatusFailed || len(lines) != 9 ||
		!strings.Contains(lines[1], "2026-01-31T12:00:01.000Z  2026-01-31T12:00:03.000Z  2      503     key") ||
		!strings.Contains(lines[1], `"second\x1b[1m"`) || !strings.Contains(lines[3], "request r8") {
		t.Errorf("%d\n%s", status, out)
	}
}

// Without a deliveryId that could have been accepted later, the accepted webhooks are not read.
func TestOnlyWhatIsNeededIsRead(t *testing.T) {
	c := &cloudWatch{}
	for second := range 2 {
		c.answer(second, 200+201*second, "outcome", "r", "")
		c.starts = nil
		_, _, status := call(t, c, true, "--not-accepted")
		if status != second || len(c.starts) != 2 {
			t.Errorf("%d: exit status %d, %d readings", second, status, len(c.starts))
		}
	}
}

func TestALogThatCannotBeReadIsNotEmpty(t *testing.T) {
	for failing := range 4 {
		c := &cloudWatch{}
		c.answer(1, 401, "signature-missing", "r", `,"unverifiedDeliveryId":"a"`)
		readings := 0
		c.fail = func(w http.ResponseWriter, _ int) bool {
			if readings++; readings <= failing {
				return false
			}
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"__type":"AccessDeniedException","message":"no"}`)
			return true
		}
		if out, stderr, status := call(t, c, true, "--not-accepted"); status != cli.StatusUnreachable || out != "" ||
			!strings.Contains(stderr, "AccessDenied") {
			t.Errorf("after %d readings: %d, %q, %q", failing, status, out, stderr)
		}
	}
}
