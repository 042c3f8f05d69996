package local

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// TestTheFirstWebhookIsExplained does what a new user does: the settings do not say
// where the service carries the timestamp and the key id.
func TestTheFirstWebhookIsExplained(t *testing.T) {
	const name = "PayhookFirst"
	wrong := map[string]string{settings.CaptureRefused.Key: "1h", settings.TimestampCarrier.Key: "header:X-Other-Time",
		settings.KeyIDCarrier.Key: "query:key"}
	f := deployed(t).deploySecond(t, name, wrong)
	payhook := f.program(t)
	// The simulated service follows the settings, and a real one does not.
	service := f.service.Sender()
	service.Scheme = paymenttest.DefaultScheme()

	payhook(1, "explain", "--last", "--stack", name)
	event := paymenttest.Event()
	f.sendBy(t, service, paymenttest.Delivery(event)).want(t, http.StatusUnauthorized, 0, 0)

	var listed struct{ Name, Outcome string }
	out := payhook(0, "refused", "list", "--stack", name, "--json")
	if err := json.Unmarshal([]byte(out), &listed); err != nil || listed.Outcome != "signature-missing" {
		t.Fatalf("%v: %s", err, out)
	}
	if out := payhook(0, "refused", "show", listed.Name, "--stack", name); strings.Contains(out, event.EventID) ||
		!strings.Contains(out, "header x-svc-signature") {
		t.Errorf("shown as %s", out)
	}
	var report struct {
		Verdict  string
		Outcome  string
		Settings []struct{ Setting, Value string }
	}
	out = payhook(0, "explain", "--last", "--stack", name, "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, s := range report.Settings {
		found[s.Setting] = s.Value
	}
	want := map[string]string{"timestampCarrier": "header:X-Svc-Timestamp", "keyIdCarrier": "header:X-Svc-Key-Id"}
	if diff := cmp.Diff(want, found); diff != "" || report.Verdict != "settings" ||
		report.Outcome != "signature-missing" {
		t.Fatalf("%s\n%s", out, diff)
	}

	found[settings.CaptureRefused.Key] = settings.Off
	f.with(found).synthesizeAndDeploy(t.Context(), t, name)
	f.sendBy(t, service, paymenttest.Delivery(event)).want(t, http.StatusOK, 1, 0)

	// Nothing is captured any more.
	forged, err := service.Send(t.Context(), paymenttest.Webhook{URL: f.WebhookURL,
		Payload: paymenttest.Delivery(event), Flaw: paymenttest.SignatureChanged})
	if err != nil || forged.Status != http.StatusUnauthorized {
		t.Fatalf("%d, %v", forged.Status, err)
	}
	if out := payhook(0, "refused", "list", "--stack", name); strings.Count(out, "\n") != 1 {
		t.Errorf("captured after the setting was removed: %s", out)
	}
}
