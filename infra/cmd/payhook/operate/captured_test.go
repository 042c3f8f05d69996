package operate

import (
	"strings"
	"testing"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/parking"
)

// A rejected webhook is listed and shown, its payload only on request.
func TestARejectedWebhookIsListedAndShown(t *testing.T) {
	w := newWorld(t)
	if out, said, status := w.operate("captured", "list"); status != cli.StatusFailed || out != "" ||
		!strings.Contains(said, "captureRejected is off or has ended") {
		t.Errorf("none: %d, %q, %q", status, out, said)
	}
	store := parking.NewStore(w.s3, "parking")
	var names []string
	for i, payload := range []string{`{"a":"secret"}`, strings.Repeat("x", parking.MaxCapturedPayload+1)} {
		name, err := store.Capture(t.Context(), parking.Captured{ReceivedAt: noon.Add(time.Duration(i) * time.Second),
			RequestID: "request-1", Outcome: "key-unknown", Method: "POST", Path: "/", RawQuery: "a=b",
			Headers: map[string]string{"X-Key": "k\x1b"}, Payload: []byte(payload), Settings: map[string]string{}})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	out, _, status := w.operate("captured", "list")
	if lines := strings.Split(out, "\n"); status != 0 || len(lines) != 3 || !strings.Contains(lines[0], names[0]) ||
		!strings.Contains(lines[1], names[1]) || !strings.Contains(out, "key-unknown") {
		t.Errorf("%d, %s", status, out)
	}
	out, _, status = w.operate("captured", "list", "--json")
	if want := `{"name":"` + names[0] + `","receivedAt":"`; status != 0 || !strings.HasPrefix(out, want) ||
		strings.Count(out, "\n") != 2 {
		t.Errorf("%d, %s", status, out)
	}
	for _, args := range [][]string{{}, {"--json"}} {
		out, _, status = w.operate(append([]string{"captured", "show", names[0]}, args...)...)
		if status != 0 || strings.Contains(out, "secret") || strings.Contains(out, "eyJ") ||
			strings.Contains(out, "\x1b") ||
			!strings.Contains(out, "request-1") {
			t.Errorf("%q: %d, %s", args, status, out)
		}
	}
	if out, _, status = w.operate("captured", "show", names[0], "--payload"); status != 0 || out != `{"a":"secret"}` {
		t.Errorf("%d, %s", status, out)
	}
	if out, _, status = w.operate("captured", "show", names[0], "--payload", "--json"); status != 0 ||
		!strings.Contains(out, `"payload":"eyJhIjoic2VjcmV0In0="`) {
		t.Errorf("%d, %s", status, out)
	}
	if _, said, status := w.operate("captured", "show", names[1], "--payload"); status == 0 ||
		!strings.Contains(said, "it has 262145 bytes") {
		t.Errorf("a large one: %d, %s", status, said)
	}
	if _, said, status := w.operate("captured", "show", "none"); status != cli.StatusFailed ||
		!strings.Contains(said, "no rejected webhook of this name") {
		t.Errorf("none: %d, %s", status, said)
	}
}
