package console

import (
	"testing"

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
	p := newTab(t)
	s := newTestServer(t)
	fill(t, s.actor.feed)
	p.open(s.URL, 1400)
	p.shows("Connected", "signature: does not verify", "pending, left to redrive",
		"parked, in conflict with a recorded event", "PAYMENT_STATUS.RELEASED", "11 ms")
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
	click("Send one event", "send --local --events 1")
	p.evaluate(`document.getElementById("events").value = "7"`)
	click("Send several", "send --local --events 7")
	p.evaluate(`document.getElementById("flaw").value = "wrong-key"`)
	click("Send a forged webhook", "send --local --corrupt wrong-key --expect 401")
	click("Rotate the key and send one event", "send --local --rotate")
	click("Stop key service", "send --local --count 0 --fault keys=down")
	click("Start key service", "send --local --count 0 --fault keys=")
	p.clickButton("Stop event bus")
	p.shows("Start event bus")
	if _, stopped := s.done(); !stopped {
		t.Error("the bus was not stopped")
	}
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
	p.until(`document.querySelector("button[data-replay]") === null &&
		!document.getElementById("conflict").open &&
		document.getElementById("deliveries").innerText.includes("replayed")`)
	if got, want := s.lastCall(), "parked replay --local --version parked --yes -- "+parkedAs; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.answer("not accepted", false)
	p.clickButton("Send one event")
	p.shows("failed, or not as expected", "not accepted")

	// What was pending arrives later, below its webhook.
	if err := s.actor.feed.Event(listen.Event{EventID: event2, DeliveryID: delivery1}); err != nil {
		t.Fatal(err)
	}
	p.shows("published later, by redrive")
	p.until(`document.querySelectorAll("#deliveries > li").length === 3`)

	// The keyboard reaches every button and uses it.
	s.answer("by keyboard", true)
	p.evaluate(`document.querySelector("button[data-do=repeat]").focus()`)
	p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "Enter", "text": "\r"})
	p.shows("by keyboard")
	if got := s.lastCall(); got != "send --local --duplicates 1" {
		t.Errorf("the keyboard: %q", got)
	}
}

func TestHostileDataIsShownAsText(t *testing.T) {
	p := newTab(t)
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
	p.open(s.URL, 1400)
	p.shows("Connected")
	p.click(`document.querySelector("button[data-do=rotate]")`)
	for _, mark := range []string{"1", "2", "3", "-conflict-4", "5", "6", "7", "9", "n", "o"} {
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
	if err := s.actor.feed.Webhook(listen.Webhook{Status: 200, DeliveryID: "meanwhile"}); err != nil {
		t.Fatal(err)
	}
	p.shows("delivery meanwhile", "Connected")
	if n := p.evaluate(`document.querySelectorAll("#deliveries > li").length`).(float64); n != 4 {
		t.Errorf("%v deliveries are shown, want each of 4 once", n)
	}
}
