package operate

import (
	"strings"
	"testing"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/parking"
)

// A rejected webhook is listed and shown, its payload only on request.
func TestRejectedWebhookIsListedAndShown(t *testing.T) {
	w := newWorld(t)
	_, none := w.expect(cli.StatusFailed, "captured", "list")
	w.contains(none, "captureRejected is off or has ended")
	var names []string
	for i, payload := range []string{`{"a":"secret"}`, strings.Repeat("x", parking.MaxCapturedPayload+1)} {
		name, err := w.store.Capture(t.Context(), parking.Captured{ReceivedAt: noon.Add(time.Duration(i) * time.Second),
			RequestID: "request-1", Outcome: "key-unknown", Method: "POST", Path: "/", RawQuery: "a=b",
			Headers: map[string]string{"X-Key": "k\x1b"}, Payload: []byte(payload), Settings: map[string]string{}})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	out, _ := w.expect(0, "captured", "list")
	if lines := strings.Split(out, "\n"); len(lines) != 3 || !strings.Contains(lines[0], "key-unknown  "+names[0]) ||
		!strings.Contains(lines[1], names[1]) {
		t.Errorf("%s", out)
	}
	out, _ = w.expect(0, "captured", "list", "--json")
	if want := `{"name":"` + names[0] + `","receivedAt":"`; !strings.HasPrefix(out, want) ||
		strings.Count(out, "\n") != 2 {
		t.Errorf("%s", out)
	}
	for _, flag := range []string{"--json=false", "--json"} {
		out, _ = w.expect(0, "captured", "show", names[0], flag)
		w.contains(out, "request-1")
		for _, text := range []string{"secret", "eyJ", "\x1b"} {
			if strings.Contains(out, text) {
				t.Errorf("%s shows %q: %s", flag, text, out)
			}
		}
	}
	if out, _ = w.expect(0, "captured", "show", names[0], "--payload"); out != `{"a":"secret"}` {
		t.Errorf("%s", out)
	}
	out, _ = w.expect(0, "captured", "show", names[0], "--payload", "--json")
	w.contains(out, `"payload":"eyJhIjoic2VjcmV0In0="`)
	_, said := w.expect(cli.StatusUnreachable, "captured", "show", names[1], "--payload")
	w.contains(said, "it has 262145 bytes")
	_, said = w.expect(cli.StatusFailed, "captured", "show", "none")
	w.contains(said, "no rejected webhook of this name")
}
