package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"payhook.example/shared/paymenttest"
)

// tab is a page of headless Chromium.
type tab struct {
	*testing.T
	ctx context.Context
}

// newTab returns an empty page, or skips the test where there is no Chromium.
func newTab(t *testing.T) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(t.Context())
	t.Cleanup(end)
	if err := chromedp.Do(ctx); errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no Chromium: install the package chromium to test the page in a browser")
	} else if err != nil {
		t.Fatal(err)
	}
	return &tab{t, ctx}
}

// open opens a page with a size in pixels.
func (p *tab) open(url string, width, height int64) {
	p.Helper()
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(width, height), chromedp.Navigate(url)); err != nil {
		p.Fatal(err)
	}
}

// evaluate returns the value of a JavaScript expression.
func (p *tab) evaluate(expression string) any {
	p.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[any](expression))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits until a JavaScript expression is true.
func (p *tab) until(expression string) {
	p.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Poll[chromedp.Void](expression,
		chromedp.WithPollingInterval(20*time.Millisecond))); err != nil {
		p.Fatalf("%s: %v\n%v", expression, err, p.evaluate("document.body.innerText"))
	}
}

// press clicks on the first visible button with a text, and waits until what is next to it has another text.
func (p *tab) press(text, want string) {
	p.Helper()
	p.until(fmt.Sprintf(`(() => {
		const button = [...document.querySelectorAll("button")].find(
			(e) => e.textContent === %q && e.checkVisibility());
		globalThis.shown = button?.closest(".action").querySelector("output");
		button?.click();
		return Boolean(button);
	})()`, text))
	p.until(fmt.Sprintf("shown.textContent.includes(%q)", want))
}

// served starts the process with its page, and returns the URL.
func served(t *testing.T) (*process, string) {
	t.Helper()
	p := started(t, io.Discard)
	s := httptest.NewServer(p.handler())
	t.Cleanup(s.Close)
	p.service.simulated.SetWebhookURL(s.URL + webhookPath)
	return p, s.URL
}

func TestThePageSendsAndShowsWhatArrives(t *testing.T) {
	const hostile = "<img src=x onerror=window.hacked=1>"
	tab := newTab(t)
	for _, width := range []int64{390, 1280} {
		_, url := served(t)
		tab.open(url, width, 900)
		tab.press("Send", "accepted")
		if shown := tab.evaluate(`shown.innerText.includes("accepted")`).(bool); shown != (width == 390) {
			t.Errorf("%d: what arrived is visible next to the button: %v", width, shown)
		}
		tab.until(`document.querySelector("main").innerText.includes("published PAYMENT_STATUS.RELEASED")`)
		tab.press("Send a conflict", "parked, in conflict")
		tab.press("Keep the first content", "conflict-dismissed")
		tab.press("Send an old webhook", "timestamp-outside-window")
		tab.press("Stop the bus", "Done.")
		tab.evaluate(fmt.Sprintf(`document.getElementById("currency").value = %q`, hostile))
		tab.press("Send", "pending, left to redrive")
		tab.press("Start the bus", "Done.")
		tab.press("Run redrive", hostile)
		tab.evaluate(`for (const e of document.querySelectorAll("details")) e.open = true`)
		if text := tab.evaluate(`[...document.body.querySelectorAll("*")].filter((e) => !e.closest("pre") &&
			(e.getBoundingClientRect().right > innerWidth || e.matches(".id, button") && e.getClientRects().length > 1))
			.map((e) => e.outerHTML).join("\n")`); text != "" {
			t.Errorf("%d: too wide, or broken within a word:\n%s", width, text)
		}
		// The policy of the page does not let a script make elements of text either.
		if tab.evaluate(`"hacked" in window || document.images.length > 0 ||
			(() => { try { document.body.innerHTML = "<p>"; return true } catch { return false } })()`).(bool) {
			t.Error("data can become elements of the page")
		}
	}
}

func TestEachButtonStandsForItsLineOfCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	tab := newTab(t)
	p, url := served(t)
	tab.open(url, 1280, 900)
	tab.until(`document.getElementById("flaw").options.length > 0`)
	tab.evaluate(`document.getElementById("currency").value = "it's"; document.getElementById("fault").value = "";
		document.dispatchEvent(new Event("input"))`)
	lines := tab.evaluate(`[...document.querySelectorAll("#actions code")].map((e) => e.textContent)`).([]any)
	for _, line := range lines {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line.(string)+" -sS --fail-with-body").CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v, %s", line, err, out)
		}
	}
	if entries, _ := p.screen.feed.after(0); len(lines) != 12 || !strings.Contains(string(entries[0]), `it's`) {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

func TestAHostilePagePressesNoButton(t *testing.T) {
	tab := newTab(t)
	p, url := served(t)
	key := p.service.simulated.Key().ID
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<iframe name="f"></iframe><iframe src="%[1]s"></iframe>
			<form method="post" enctype="text/plain" target="f" action="%[1]s/control">
			<input name='{"rotate": true, "withdraw": "' value='"}'></form>`, url)
	}))
	defer hostile.Close()
	for _, from := range []string{hostile.URL, strings.Replace(hostile.URL, "127.0.0.1", "localhost", 1)} {
		tab.open(from, 1280, 900)
		tab.evaluate(fmt.Sprintf(`(async () => {
			const loaded = new Promise((done) => document.querySelector("[name=f]").onload = done);
			document.forms[0].submit();
			await loaded;
			const body = '{"rotate": true, "send": {}}', method = "POST";
			const tried = [fetch("%[1]s/control", {method, body, mode: "no-cors"}), fetch("%[1]s/state"),
				fetch("%[1]s/control", {method, body}),
				fetch("%[1]s/bus", {method, body: '{"down": true}', mode: "no-cors"})];
			globalThis.got = (await Promise.allSettled(tried)).map((r) => r.status).join();
		})(), 0`, url))
		tab.until("globalThis.got")
		if got := tab.evaluate("got"); got != "rejected,rejected,rejected,rejected" {
			t.Errorf("%s reads answers: %v", from, got)
		}
		_, last := p.screen.feed.after(0)
		if last > 0 || p.service.simulated.Key().ID != key || p.stack.busDown.Load() {
			t.Errorf("%s had an effect", from)
		}
	}
}

func TestRequestsOfOtherOriginsAreRefused(t *testing.T) {
	p, url := served(t)
	for name, want := range map[string]int{"Origin: http://a.test": 403, "Sec-Fetch-Site: same-site": 403,
		"Host: a.test": 403, "Origin: " + url: 200, "Sec-Fetch-Site: same-origin": 200, "A: no browser": 200} {
		r := httptest.NewRequest(http.MethodPost, url+paymenttest.ControlPath, strings.NewReader("{}"))
		name, value, _ := strings.Cut(name, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
		w := httptest.NewRecorder()
		if p.handler().ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %s: answered %d, want %d", name, value, w.Code, want)
		}
	}
}

var update = flag.Bool("update", false, "write the picture of the page, with Chromium")

// The picture of README.md has a digest of the files of the page, since its pixels depend on the fonts of a machine.
func TestThePictureShowsThePage(t *testing.T) {
	const file = "page.png"
	digest := sha256.New()
	for _, name := range []string{"index.html", "page.css", "page.js"} {
		text, err := files.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		digest.Write(text)
	}
	source := fmt.Appendf(nil, "SHA-256 %x", digest.Sum(nil))
	if picture, err := os.ReadFile(file); err == nil && bytes.Contains(picture, source) && !*update {
		return
	} else if !*update {
		t.Fatalf("%s is older than the page: %v. Write it: go test ./functions/run -run Picture -update", file, err)
	}
	p := newTab(t)
	_, url := served(t)
	p.open(url, 1000, 600)
	for _, button := range [][2]string{{"Replace the token", "refreshed"}, {"Send", "accepted"},
		{"Send a duplicate", "duplicate"}, {"Send a forged webhook", "signature-mismatch"}} {
		p.press(button[0], button[1])
	}
	p.evaluate(`document.getElementById("actions").scrollTo(0, 0); document.activeElement.blur()`)
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	// Programs ignore what comes after the last chunk.
	if err := os.WriteFile(file, append(picture, source...), 0o644); err != nil {
		t.Fatal(err)
	}
}
