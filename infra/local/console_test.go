package local

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"payhook.example/infra/cmd/payhook/console/browser"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
)

// TestTheConsoleShowsWhatItsButtonsDo runs payhook local console on what is deployed, and
// uses its page in a browser.
func TestTheConsoleShowsWhatItsButtonsDo(t *testing.T) {
	f := deployed(t)
	ctx := browser.New(t)
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, filepath.Dir(deployment.Path)), 0o700); err != nil {
		t.Fatal(err)
	}
	file := *f.Deployment
	file.Simulated, file.PaymentService = true, f.service.URL
	if err := file.Write(folder); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "payhook")
	f.build(t, program)
	cmd := exec.CommandContext(t.Context(), program, "local", "console", "--json", "--since", "1s")
	cmd.Dir = folder
	cmd.Env = append(emulator.EnvironmentWithout("AWS_"), "HOME="+folder, "XDG_CACHE_HOME="+folder)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var where struct{ URL string }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &where)
	}
	if err != nil {
		t.Fatalf("%v: %q\n%s", err, line, &stderr)
	}
	// count waits for so many deliveries with a text.
	count := func(text string, n int) chromedp.Action[chromedp.Void] {
		return browser.Until(fmt.Sprintf(`[...document.querySelectorAll("#deliveries > li")].filter(
			(e) => e.innerText.includes(%q)).length >= %d`, text, n))
	}
	click := func(text string) chromedp.Action[chromedp.Void] {
		return chromedp.Click(chromedp.Search(fmt.Sprintf(`//button[normalize-space()=%q]`, text)))
	}
	browser.Do(ctx, t, chromedp.EmulateViewport(1400, 900), chromedp.Navigate(where.URL), browser.Shows("Connected"),
		browser.Shows("ready: the rule and the queue"),
		click("Send one event"), count("published", 1), count("accepted", 1),
		click("Send several"), count("5 events", 1),
		click("Send a forged webhook"), count("signature-mismatch", 1),
		click("Send one twice (duplicate)"), count("duplicate, not published again", 1),
		click("Rotate the key and send one event"), browser.Shows("send --local --rotate"))

	// A stopped key service: a new key cannot be fetched.
	browser.Do(ctx, t, click("Stop key service"), browser.Shows("Start key service"),
		click("Rotate the key and send one event"), count("503", 1),
		click("Start key service"), browser.Shows("Stop key service"))
	// A stopped bus: the event is left to redrive, and arrives once the bus is there.
	browser.Do(ctx, t, click("Stop event bus"), browser.Shows("Start event bus"),
		click("Send one event"), count("pending, left to redrive", 1),
		click("Start event bus"), browser.Shows("Stop event bus"))
	if err := f.runRedriveAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.proxy.forget() // of the calls that were denied
	browser.Do(ctx, t, count("published later, by redrive", 1))
	// A conflict is parked, and the page replays it.
	browser.Do(ctx, t, click("Send one eventId with two contents (conflict)"),
		count("parked, in conflict with a recorded event", 1), click("Replay: publish the parked version"),
		browser.Shows("accepted"), browser.Shows("--version parked"))
	browser.Screenshot(ctx, t, "real")

	// Ctrl-C starts what is stopped, and ends everything.
	browser.Do(ctx, t, click("Stop token endpoint"), browser.Shows("Start token endpoint"))
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v\n%s", err, &stderr)
		}
	case <-time.After(waitTimeout):
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		t.Fatalf("it does not end: %v\n%s", <-ended, &stderr)
	}
	f.refreshWorks(t)
}

// refreshWorks fails the test unless the token endpoint answers.
func (f *fixture) refreshWorks(t *testing.T) {
	t.Helper()
	if run, err := f.RunToken(t.Context(), scenario.RefreshNow); err != nil || run.Cause != "" {
		t.Errorf("the token function says %+v, %v", run, err)
	}
}
