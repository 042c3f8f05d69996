package console

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"payhook.example/infra/cmd/payhook/listen"
)

const (
	delivery1 = "7b33013b-de5e-407b-9c0f-d542a2fdaae9"
	delivery2 = "5c0e7f8e-63dd-4c4e-9a5f-5e0a8f3b2c11"
	event1    = "c268f721-2d16-45e1-9a84-3473ff8b678a"
	event2    = "e2835100-9619-463b-8f96-2855ccab5242"
	parkedAs  = "2026/01/31/12/20260131T120000.000Z-conflict-5c0e7f8e.json"
)

// fill fills the feed with one delivery of each kind.
func fill(t *testing.T, f *feed) {
	t.Helper()
	for _, w := range []listen.Webhook{
		{Type: "webhook", Time: "2026-01-31T12:00:00.000Z", Status: 200, Outcome: "accepted", DeliveryID: delivery1,
			Events: 2, IDs: map[string][]string{"published": {event1}, "pending": {event2}},
			MS: map[string]float64{"record": 4.2, "publish": 7}},
		{Type: "webhook", Time: "2026-01-31T12:00:01.000Z", Status: 401, Outcome: "signature-mismatch",
			Cause: "signature: does not verify"},
		{Type: "webhook", Time: "2026-01-31T12:00:02.000Z", Status: 200, Outcome: "accepted", DeliveryID: delivery2,
			Events: 1, IDs: map[string][]string{"conflict": {event1}}, Parked: parkedAs,
			MS: map[string]float64{"record": 3}},
	} {
		if err := f.Webhook(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Event(listen.Event{EventID: event1, DeliveryID: delivery1,
		Name: "PAYMENT_STATUS.RELEASED"}); err != nil {
		t.Fatal(err)
	}
}

func TestPageShowsDeliveriesAndResultsOfItsButtons(t *testing.T) {
	ctx := newBrowser(t)
	s := newTestServer(t)
	fill(t, s.actor.feed)
	browse(ctx, t, chromedp.EmulateViewport(1400, 900), chromedp.Navigate(s.URL), shows("Connected"),
		shows("signature: does not verify"), shows("pending, left to redrive"),
		shows("parked, in conflict with a recorded event"),
		shows("PAYMENT_STATUS.RELEASED"), shows("11 ms"),
		until(`document.querySelectorAll("#deliveries > li").length === 3`))

	click := func(text, want string) {
		t.Helper()
		s.answer(text+" was done", true)
		browse(ctx, t, chromedp.Click(chromedp.Search(fmt.Sprintf(`//button[normalize-space()=%q]`, text))),
			shows(text+" was done"))
		if got := s.lastCall(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	click("Send one event", "send --local --events 1")
	browse(ctx, t, chromedp.SetValue(chromedp.CSS("#events"), "7"))
	click("Send several", "send --local --events 7")
	browse(ctx, t, chromedp.SetValue(chromedp.CSS("#flaw"), "wrong-key"))
	click("Send a forged webhook", "send --local --corrupt wrong-key --expect 401")
	click("Rotate the key and send one event", "send --local --rotate")
	click("Stop key service", "send --local --count 0 --fault keys=down")
	click("Start key service", "send --local --count 0 --fault keys=")
	browse(ctx, t, chromedp.Click(chromedp.Search(`//button[normalize-space()="Stop event bus"]`)),
		shows("Start event bus"))
	if _, stopped := s.done(); !stopped {
		t.Error("the bus was not stopped")
	}
	// A conflict is decided in a dialog, which shows both versions. To publish the second takes
	// one more step.
	s.answer("name x\njwk y\n\nevent 1\n  FIRST VERSION  PARKED VERSION\namount  not available  9250.00\n", true)
	browse(ctx, t, chromedp.Click(chromedp.Search(`//button[normalize-space()="Compare and decide …"]`)),
		shows("not available  9250.00"))
	if got := s.lastCall(); got != "parked show --local -- "+parkedAs {
		t.Errorf("%q", got)
	}
	browse(ctx, t, until(`!document.body.innerText.includes("jwk y") && document.getElementById("conflict").open &&
		document.activeElement.textContent === "Decide later" &&
		document.getElementById("conflict-parked").disabled`))
	browse(ctx, t, chromedp.Click(chromedp.CSS("#conflict-sure")))
	s.answer("the parked version was published", true)
	browse(ctx, t, chromedp.Click(chromedp.CSS("#conflict-parked")),
		until(`document.querySelector("button[data-replay]") === null &&
		!document.getElementById("conflict").open &&
		document.getElementById("deliveries").innerText.includes("replayed")`))
	if got, want := s.lastCall(), "parked replay --local --version parked --yes -- "+parkedAs; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.answer("not accepted", false)
	browse(ctx, t, chromedp.Click(chromedp.Search(`//button[normalize-space()="Send one event"]`)),
		shows("failed, or not as expected"), shows("not accepted"))

	// What was pending arrives later, below its webhook.
	if err := s.actor.feed.Event(listen.Event{EventID: event2, DeliveryID: delivery1}); err != nil {
		t.Fatal(err)
	}
	browse(ctx, t, shows("published later, by redrive"),
		until(`document.querySelectorAll("#deliveries > li").length === 3`))

	// The keyboard reaches every button and uses it.
	s.answer("by keyboard", true)
	browse(ctx, t, chromedp.Focus(chromedp.CSS(`button[data-do="repeat"]`)), chromedp.KeyEvent(kb.Enter),
		shows("by keyboard"))
	if got := s.lastCall(); got != "send --local --duplicates 1" {
		t.Errorf("the keyboard: %q", got)
	}
}

func TestPageFitsNarrowAndWideScreens(t *testing.T) {
	ctx := newBrowser(t)
	s := newTestServer(t)
	fill(t, s.actor.feed)
	for _, width := range []int64{360, 768, 1400} {
		browse(ctx, t, chromedp.EmulateViewport(width, 800), chromedp.Navigate(s.URL), shows("Connected"),
			shows("PAYMENT_STATUS.RELEASED"))
		if wide := evaluate[[]string](ctx, t, `[...document.querySelectorAll("body *")].filter((e) =>
			!e.matches(".skip") && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML)`); len(wide) > 0 {
			t.Errorf("%d pixels: wider than the screen: %q", width, wide)
		}
	}
	unnamed := evaluate[[]string](ctx, t, `[...document.querySelectorAll("button, input, select")].filter((e) =>
		!e.textContent.trim() && e.labels.length === 0 || e.matches("input, select") && e.labels.length === 0)
		.map((e) => e.outerHTML)`)
	if len(unnamed) > 0 {
		t.Errorf("without a label: %q", unnamed)
	}
}

func TestHostileDataIsShownAsText(t *testing.T) {
	ctx := newBrowser(t)
	s := newTestServer(t)
	const hostile = `<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>`
	if err := s.actor.feed.Webhook(listen.Webhook{Time: "2026-01-31T12:00:00.000Z", Status: 401, Outcome: hostile + "1",
		Cause: "kid: " + hostile + "2", DeliveryID: hostile + "3", Events: 1, Parked: hostile + "-conflict-4",
		IDs: map[string][]string{"published": {hostile + "5"}, hostile + "6": {"x"}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.actor.feed.Event(listen.Event{EventID: hostile + "5", DeliveryID: hostile + "3",
		Name: hostile + "7"}); err != nil {
		t.Fatal(err)
	}
	if err := s.actor.feed.Event(listen.Event{EventID: hostile + "9", DeliveryID: hostile + "3"}); err != nil {
		t.Fatal(err)
	}
	s.actor.feed.note(hostile + "n")
	s.answer(hostile+"o", true)
	browse(ctx, t, chromedp.Navigate(s.URL), shows("Connected"),
		chromedp.Click(chromedp.CSS(`button[data-do="rotate"]`)))
	for _, mark := range []string{"1", "2", "3", "-conflict-4", "5", "6", "7", "9", "n", "o"} {
		browse(ctx, t, shows(hostile+mark))
	}
	if evaluate[bool](ctx, t, `"hacked" in window || document.scripts.length !== 1 ||
		document.querySelector("body img") !== null`) {
		t.Error("data became elements of the page")
	}
	// The policy of the page does not let a script make elements of text either.
	if !evaluate[bool](ctx, t, `(() => {
		try { document.body.innerHTML = "<p>"; return false } catch { return true }
	})()`) {
		t.Error("innerHTML works")
	}
}

func TestPageShowsEverythingOnceAfterALostConnection(t *testing.T) {
	ctx := newBrowser(t)
	s := newTestServer(t)
	fill(t, s.actor.feed)
	browse(ctx, t, chromedp.Navigate(s.URL), shows("signature-mismatch"))
	s.CloseClientConnections()
	if err := s.actor.feed.Webhook(listen.Webhook{Status: 200, DeliveryID: "meanwhile"}); err != nil {
		t.Fatal(err)
	}
	browse(ctx, t, shows("delivery meanwhile"), shows("Connected"))
	if n := evaluate[int](ctx, t, `document.querySelectorAll("#deliveries > li").length`); n != 4 {
		t.Errorf("%d deliveries are shown, want each of 4 once", n)
	}
}
