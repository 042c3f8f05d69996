package local

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// TestExerciseOfTheDocumentWorks does what a new user does, with the commands of the
// document: the service carries the proof elsewhere than the settings say. Each line that
// the document shows must be written.
func TestExerciseOfTheDocumentWorks(t *testing.T) {
	const name = "PayhookFirst"
	f := deployed(t).deploySecond(t, name, map[string]string{settings.CaptureRejected.Key: "1h"})
	folder := t.TempDir()
	payhook := f.programIn(t, folder)
	status := func(want int, args ...string) string {
		t.Helper()
		out, stderr, got := payhook(args...)
		if got != want {
			t.Errorf("payhook %v: exit status %d, want %d\n%s%s", args, got, want, out, stderr)
		}
		return out
	}
	status(1, "explain", "--last", "--local")

	deployments, sent, written := 0, 0, ""
	for _, line := range exercise(t) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		_, text, _ := strings.Cut(command, `"`)
		words := strings.Fields(strings.TrimSuffix(text, `"`))
		switch {
		case !isCommand:
			if !strings.Contains(withoutNumbers(written), withoutNumbers(line)) {
				t.Errorf("the document shows %q, and this was written:\n%s", line, written)
			}
			continue
		case command == "make up":
			continue
		case strings.HasPrefix(command, "make send ARGS="):
			words = append([]string{"send", "--local"}, words...)
			sent++
		case strings.HasPrefix(command, "make payhook ARGS="):
		case strings.HasPrefix(command, "make down && make up SETTINGS="):
			conf := map[string]string{settings.CaptureRejected.Key: settings.Off}
			for _, pair := range words {
				if err := addSettings(conf, pair); err != nil {
					t.Fatal(err)
				}
			}
			f.checkCaptured(t, status, conf)
			s := f.with(t, conf)
			s.synthesizeAndDeploy(t.Context(), t)
			if err := s.Write(folder); err != nil {
				t.Fatal(err)
			}
			deployments++
			continue
		default:
			t.Fatalf("this test does not know %q", command)
		}
		out, stderr, got := payhook(words...)
		if want := map[bool]int{true: 1}[words[0] == "send" && deployments == 0]; got != want {
			t.Fatalf("payhook %v: exit status %d, want %d\n%s%s", words, got, want, out, stderr)
		}
		written = out + stderr
	}
	if deployments != 1 || sent != 2 {
		t.Fatalf("%d deployments and %d webhooks, want 1 and 2", deployments, sent)
	}

	// Nothing is captured any more.
	forged, err := f.service.Send(t.Context(), paymenttest.Webhook{URL: f.WebhookURL,
		Payload: paymenttest.Delivery(paymenttest.Event()), Flaw: paymenttest.SignatureChanged})
	if err != nil || forged.Status != http.StatusUnauthorized {
		t.Fatalf("%d, %v", forged.Status, err)
	}
	if out := status(0, "captured", "list", "--local", "--json"); strings.Count(out, "\n") != 1 {
		t.Errorf("captured after the setting was removed: %s", out)
	}
}

// checkCaptured fails the test unless one webhook was captured that verifies with these
// settings, and that is shown without its content.
func (f *fixture) checkCaptured(t *testing.T, status func(int, ...string) string, conf map[string]string) {
	t.Helper()
	var listed struct{ Name, Outcome string }
	out := status(0, "captured", "list", "--stack", f.Stack, "--json")
	if err := json.Unmarshal([]byte(out), &listed); err != nil || listed.Outcome != "signature-missing" {
		t.Fatalf("%v: %s", err, out)
	}
	if out := status(0, "captured", "show", listed.Name, "--stack", f.Stack); strings.Contains(out, "eventId") ||
		!strings.Contains(out, "headers.x-svc-signature") {
		t.Errorf("shown as %s", out)
	}
	var report struct {
		Verdict  string
		Settings map[string]string
	}
	out = status(0, "explain", "--captured", listed.Name, "--stack", f.Stack, "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{settings.CaptureRejected.Key: settings.Off}
	maps.Copy(found, report.Settings)
	if diff := cmp.Diff(conf, found); diff != "" || report.Verdict != "settings" {
		t.Fatalf("%s\n%s", out, diff)
	}
}

// exercise returns the lines of the exercise in the document of payhook.
func exercise(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "cmd", "payhook", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "#### Practise it\n")
	_, block, _ := strings.Cut(section, "```console\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("there is no exercise")
	}
	return strings.Split(strings.TrimSpace(block), "\n")
}

var (
	uuids        = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	milliseconds = regexp.MustCompile(`in [0-9]+ ms`)
)

// withoutNumbers returns a text without what differs from run to run.
func withoutNumbers(text string) string {
	return strings.Join(strings.Fields(milliseconds.ReplaceAllString(uuids.ReplaceAllString(text, "ID"), "in N ms")),
		" ")
}
