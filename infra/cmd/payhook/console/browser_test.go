package console

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/listen"
)

const (
	delivery1 = "7b33013b-de5e-407b-9c0f-d542a2fdaae9"
	delivery2 = "5c0e7f8e-63dd-4c4e-9a5f-5e0a8f3b2c11"
	event1    = "c268f721-2d16-45e1-9a84-3473ff8b678a"
	event2    = "e2835100-9619-463b-8f96-2855ccab5242"
	captured  = "rejected/2026/01/31/12/20260131T120001.000Z-signature-mismatch-A.json"
	parkedAs  = "conflict/2026/01/31/12/20260131T120000.000Z-unknown-5c0e7f8e.json"
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
	p := &tab{t, ctx}
	if err := chromedp.Do(ctx); errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no Chromium: install the package chromium to test the page in a browser")
	} else if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
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

// shows waits until the page shows texts.
func (p *tab) shows(texts ...string) {
	p.Helper()
	for _, text := range texts {
		p.until(fmt.Sprintf("document.body.innerText.includes(%q)", text))
	}
}

// open opens a page with a width in pixels.
func (p *tab) open(url string, width int64) {
	p.Helper()
	p.do(chromedp.EmulateViewport(width, 900), chromedp.Navigate(url))
}

// click clicks on the element that an expression returns, once it is visible and nothing
// covers it. The script clicks, because the page can move before a click with the mouse.
func (p *tab) click(element string) {
	p.Helper()
	p.until(`(() => {
		const element = ` + element + `;
		if (!element) return false;
		element.scrollIntoView({block: "center", behavior: "instant"});
		const box = element.getBoundingClientRect();
		const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
		if (!element.contains(top)) return false;
		element.click();
		return true;
	})()`)
}

// clickButton clicks on the button with a text.
func (p *tab) clickButton(text string) {
	p.Helper()
	p.click(fmt.Sprintf(`[...document.querySelectorAll("button")].find((e) => e.textContent.trim() === %q)`, text))
}

// fill fills the feed with one delivery of each kind.
func fill(t *testing.T, f *feed) {
	t.Helper()
	for _, w := range []listen.Webhook{
		{Type: "webhook", Time: "2026-01-31T12:00:00.000Z", Status: 200, Outcome: "accepted", DeliveryID: delivery1,
			Events: 2, IDs: map[string][]string{"published": {event1}, "pending": {event2}},
			MS: map[string]float64{"record": 4.2, "publish": 7}},
		{Type: "webhook", Time: "2026-01-31T12:00:01.000Z", Status: 401, Outcome: "signature-mismatch",
			Cause: "signature: does not verify", Captured: captured},
		{Type: "webhook", Time: "2026-01-31T12:00:02.000Z", Status: 200, Outcome: "accepted", DeliveryID: delivery2,
			Events: 1, IDs: map[string][]string{"conflict": {event1}}, Parked: parkedAs,
			MS: map[string]float64{"record": 3}},
	} {
		if err := f.show(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.show(listen.Event{EventID: event1, DeliveryID: delivery1, Name: "PAYMENT_STATUS.RELEASED",
		Event: []byte(`{"detail":{"amount":9250.00}}`)}); err != nil {
		t.Fatal(err)
	}
}

func TestPageShowsDeliveriesAndResultsOfItsButtons(t *testing.T) {
	p := newTab(t)
	s := newTestServer(t)
	fill(t, s.actor.feed)
	p.open(s.URL, 1400)
	p.shows("Connected", "signature: does not verify", "pending, left to redrive",
		"parked, in conflict with a recorded event", "PAYMENT_STATUS.RELEASED", "11 ms")
	p.until(`document.getElementById("state").innerText.replace(/\s+/g, " ") ===
		"✓ token valid for 4m ✓ alarms none of 9 is raised ! token runs late"`)
	p.until(`document.querySelectorAll("#deliveries > li").length === 3`)

	click := func(text, want string) {
		t.Helper()
		s.answer(text+" was done", true)
		p.clickButton(text)
		p.shows(text + " was done")
		if got := s.lastCall(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	click("Send", "local send --events 1 --amount 1250.00 --currency USD")
	p.evaluate(`(() => {
		document.getElementById("events").value = "7";
		document.getElementById("amount").value = "99.50";
		document.getElementById("currency").value = "EUR";
	})()`)
	click("Send with two amounts (conflict)", "local send --events 7 --amount 99.50 --currency EUR --conflict")
	p.evaluate(`document.getElementById("flaw").value = "wrong-key"`)
	click("Send a forged webhook", "local send --corrupt wrong-key --expect 401,503")
	click("Rotate the key and send", "local send --rotate")
	// What stops a service asks first.
	s.answer("it is stopped", true)
	p.clickButton("Stop key service")
	p.until(`document.getElementById("ask").open && document.activeElement.textContent === "Cancel"`)
	p.clickButton("Cancel")
	p.until(`!document.getElementById("ask").open`)
	p.clickButton("Stop key service")
	p.click(`document.getElementById("ask-yes")`)
	p.shows("it is stopped")
	if calls, _ := s.done(); !slices.Equal(calls, []string{"local fault keys down"}) {
		t.Errorf("%q", calls)
	}
	click("Start key service", "local fault keys none")
	p.clickButton("Stop event bus")
	p.click(`document.getElementById("ask-yes")`)
	p.shows("Start event bus")
	if _, stopped := s.done(); !stopped {
		t.Error("the bus was not stopped")
	}
	// What somebody else does is shown, too.
	s.fault("token", "slow:10s")
	p.clickButton("Start event bus")
	p.shows("fails: slow:10s", "Start token endpoint", "Stop event bus")
	// A rejection is explained below it.
	s.answer("the captured webhook x\nit was forged", false)
	p.clickButton("Explain")
	p.until(`document.querySelector("#deliveries > .wait pre")?.innerText === "it was forged"`)
	if got := s.lastCall(); got != "explain --local --captured "+captured {
		t.Errorf("%q", got)
	}
	// An event that is opened shows what is in it, and stays open.
	p.click(`[...document.querySelectorAll("summary")].find((e) => e.innerText.includes("PAYMENT_STATUS"))`)
	p.shows("Rules that match: Euro, Released", `"amount": 9250.00`, "state of "+event1)
	// A conflict is decided in a dialog, which shows both versions. To publish the second takes
	// one more step.
	s.answer("name x\njwk y\n\nevent 1\n  FIRST VERSION  PARKED VERSION\namount  not available  9250.00\n", true)
	p.clickButton("Compare and decide …")
	p.shows("not available  9250.00")
	if got := s.lastCall(); got != "parked show --local -- "+parkedAs {
		t.Errorf("%q", got)
	}
	p.until(`!document.body.innerText.includes("jwk y") && document.getElementById("conflict").open &&
		document.activeElement.textContent === "Decide later" &&
		document.getElementById("conflict-parked").disabled`)
	p.click(`document.getElementById("conflict-sure")`)
	s.answer("the parked version was published", true)
	p.click(`document.getElementById("conflict-parked")`)
	p.until(`![...document.querySelectorAll("button")].some((e) => e.textContent.startsWith("Compare")) &&
		!document.getElementById("conflict").open &&
		document.getElementById("deliveries").innerText.includes("replayed")`)
	if got, want := s.lastCall(), "replay --local --version parked --yes -- "+parkedAs; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.answer("not accepted", false)
	p.clickButton("Send")
	p.shows("failed, or not as expected", "not accepted")

	// What was pending arrives later, below its webhook. What has the focus keeps it.
	p.evaluate(`document.querySelector("#deliveries details[open] summary").focus()`)
	if err := s.actor.feed.show(listen.Event{EventID: event2, DeliveryID: delivery1}); err != nil {
		t.Fatal(err)
	}
	p.shows("published later, by redrive", `"amount": 9250.00`)
	p.until(`document.activeElement === document.querySelector("#deliveries details[open] summary")`)
	p.until(`document.querySelectorAll("#deliveries > li").length === 3`)

	// The keyboard reaches every button and uses it.
	s.answer("by keyboard", true)
	p.evaluate(`document.querySelector("button[data-do=repeat]").focus()`)
	p.do(chromedp.KeyEvent("\r"))
	p.shows("by keyboard")
	if got := s.lastCall(); got != "local send --events 7 --amount 99.50 --currency EUR --duplicates 1" {
		t.Errorf("the keyboard: %q", got)
	}

	// The filter hides what does not have its text, also of what arrives later.
	p.evaluate(`(() => {
		const filter = document.getElementById("filter");
		filter.value = " Mismatch";
		filter.dispatchEvent(new Event("input"));
	})()`)
	p.shows("1 of 3")
	if err := s.actor.feed.show(listen.Webhook{Status: 200, Outcome: "accepted"}); err != nil {
		t.Fatal(err)
	}
	p.shows("1 of 4")
	p.until(`document.querySelectorAll("#deliveries > :not([hidden])").length === 1`)
	// What is cleared does not come back when the page is loaded again.
	p.clickButton("Clear")
	p.shows("No delivery yet.")
	p.open(s.URL, 1400)
	p.shows("Connected", "No delivery yet.")
}

// A rejection does not look like a failure, and nothing lies over the page on a small screen.
func TestSmallScreenAndRejections(t *testing.T) {
	p := newTab(t)
	s := newTestServer(t)
	s.answer(strings.Repeat("long ", 200), true)
	fill(t, s.actor.feed)
	if err := s.actor.feed.show(listen.Webhook{Time: cli.Stamp(time.Now()), Status: 503,
		Outcome: "key-unavailable", Captured: captured}); err != nil {
		t.Fatal(err)
	}
	p.open(s.URL, 390)
	p.shows("key-unavailable")
	p.until(`document.querySelectorAll("#deliveries > .bad").length === 1`)
	p.clickButton("Send")
	p.click(`document.querySelector("#deliveries .row > button")`)
	p.click(`document.querySelector("#deliveries summary")`)
	p.shows("long long", `"amount": 9250.00`)
	p.until(`document.querySelectorAll("#deliveries output pre").length > 0`)
	if text := p.evaluate(`[...document.body.querySelectorAll("*")].filter((e) => {
		const box = e.getBoundingClientRect();
		return ["fixed", "sticky"].includes(getComputedStyle(e).position) ||
			box.right > innerWidth && !e.closest("pre");
	}).map((e) => e.outerHTML).join("\n")`); text != "" {
		t.Errorf("over the page, or too wide:\n%s", text)
	}
}

func TestHostileDataIsShownAsText(t *testing.T) {
	p := newTab(t)
	s := newTestServer(t)
	const hostile = `<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>`
	if err := s.actor.feed.show(listen.Webhook{Time: "2026-01-31T12:00:00.000Z", Status: 401, Outcome: hostile + "1",
		Cause: "kid: " + hostile + "2", DeliveryID: hostile + "3", Events: 1, Parked: "conflict/" + hostile + "4",
		IDs: map[string][]string{"published": {hostile + "5"}, hostile + "6": {"x"}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.actor.feed.show(listen.Event{EventID: hostile + "5", DeliveryID: hostile + "3",
		Name: hostile + "7"}); err != nil {
		t.Fatal(err)
	}
	if err := s.actor.feed.show(listen.Event{EventID: hostile + "9", DeliveryID: hostile + "3"}); err != nil {
		t.Fatal(err)
	}
	s.actor.feed.note(hostile + "n")
	s.answer(hostile+"o", true)
	p.open(s.URL, 1400)
	p.shows("Connected")
	p.click(`document.querySelector("button[data-do=rotate]")`)
	for _, mark := range []string{"1", "2", "3", "4", "5", "6", "7", "9", "n", "o"} {
		p.shows(hostile + mark)
	}
	if p.evaluate(`"hacked" in window || document.scripts.length !== 1 ||
		document.querySelector("body img") !== null`).(bool) {
		t.Error("data became elements of the page")
	}
	// The policy of the page does not let a script make elements of text either.
	if !p.evaluate(`(() => {
		try { document.body.innerHTML = "<p>"; return false } catch { return true }
	})()`).(bool) {
		t.Error("innerHTML works")
	}
}

func TestPageShowsEverythingOnceAfterALostConnection(t *testing.T) {
	p := newTab(t)
	s := newTestServer(t)
	fill(t, s.actor.feed)
	p.open(s.URL, 1400)
	p.shows("signature-mismatch")
	s.CloseClientConnections()
	if err := s.actor.feed.show(listen.Webhook{Status: 200, DeliveryID: "meanwhile"}); err != nil {
		t.Fatal(err)
	}
	p.shows("delivery meanwhile", "Connected")
	if n := p.evaluate(`document.querySelectorAll("#deliveries > li").length`).(float64); n != 4 {
		t.Errorf("%v deliveries are shown, want each of 4 once", n)
	}
}
