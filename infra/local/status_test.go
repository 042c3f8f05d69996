package local

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/token"
)

// TestStatusShowsWhatNeedsAttention runs payhook status on another stack: healthy
// after a delivery, then with each problem that it is for.
func TestStatusShowsWhatNeedsAttention(t *testing.T) {
	f := deployed(t).deploySecond(t, "PayhookStatus", nil)
	run := f.program(t)
	type line struct{ Name, State, Text string }
	// status returns the lines that are not ok, by their names.
	status := func(want int) map[string]line {
		t.Helper()
		var shown struct {
			Healthy bool
			Checks  []line
		}
		if err := json.Unmarshal([]byte(run(want, "status", "--local", "--json")), &shown); err != nil {
			t.Fatal(err)
		}
		bad := map[string]line{}
		for _, l := range shown.Checks {
			if l.State != "ok" {
				bad[l.Name] = l
			}
		}
		if len(shown.Checks) != 8 || shown.Healthy != (len(bad) == 0) || shown.Healthy != (want == 0) {
			t.Errorf("%+v", shown)
		}
		return bad
	}
	// needs fails the test unless exactly these lines need attention.
	needs := func(what string, names ...string) {
		t.Helper()
		bad := status(cli.StatusFailed)
		if got := slices.Sorted(maps.Keys(bad)); !slices.Equal(got, names) {
			t.Errorf("%s: %+v, want that %q need attention", what, bad, names)
		}
	}
	runs := func() {
		t.Helper()
		if _, err := f.RunToken(t.Context(), scenario.RefreshNow); err != nil {
			t.Fatal(err)
		}
		if err := f.Invoke(t.Context(), "redrive", "{}", &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}

	misbehave := func(fault paymenttest.Fault) {
		t.Helper()
		if err := f.service.Misbehave(paymenttest.Token, fault); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.firstRuns(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bad := status(0); len(bad) > 0 {
		t.Errorf("when it is up: %+v", bad)
	}
	f.send(t, paymenttest.Delivery(paymenttest.Events(3)...)).want(t, http.StatusOK, 3, 0)
	got, err := f.service.Send(t.Context(), paymenttest.Webhook{URL: f.WebhookURL,
		Payload: paymenttest.Delivery(paymenttest.Event()), Flaw: paymenttest.SignatureChanged})
	if err != nil || got.Status != http.StatusUnauthorized {
		t.Fatalf("answered %d, %v", got.Status, err)
	}
	if bad := status(0); len(bad) > 0 {
		t.Errorf("after a delivery and a forged one: %+v", bad)
	}

	// A run of the schedule may publish it meanwhile.
	for deadline := time.Now().Add(waitTimeout); ; {
		if _, err := f.pendingEvent(t.Context(), time.Now().Add(-5*time.Minute), false); err != nil {
			t.Fatal(err)
		}
		if bad := status(cli.StatusFailed); bad["pending"].State == "attention" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("an overdue event needs no attention")
		}
	}
	f.drain(t)
	if bad := status(0); len(bad) > 0 {
		t.Errorf("after redrive has published it: %+v", bad)
	}

	invalid, id := paymenttest.Event(), uuid.New().String()
	invalid.EventName = "RELEASED"
	if a := f.send(t, paymenttest.RawDelivery(id, paymenttest.Encode(invalid))); a.status !=
		http.StatusUnprocessableEntity {
		t.Fatalf("answered %d", a.status)
	}
	needs("a parked delivery", "alarms", "parked")
	name, _, err := f.ParkedDelivery(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	run(0, "parked", "settle", name, "--reason", "a test", "--local")
	needs("it is settled", "alarms") // for five minutes

	if err := f.service.Misbehave(paymenttest.Keys, paymenttest.Down); err != nil {
		t.Fatal(err)
	}
	f.service.Rotate()
	if a := f.send(t, paymenttest.Delivery(paymenttest.Event())); a.status != http.StatusServiceUnavailable {
		t.Fatalf("answered %d", a.status)
	}
	needs("an answer of 503", "alarms", "webhooks")
	if err := f.service.Misbehave(paymenttest.Keys, ""); err != nil {
		t.Fatal(err)
	}

	// Last: several short tokens raise an alarm for an hour.
	f.service.SetTokenLifetime(2 * time.Minute)
	runs()
	tokenNeeds := func(what string, attention bool) {
		t.Helper()
		if bad := status(cli.StatusFailed); (bad["token"].State == "attention") != attention {
			t.Errorf("%s: %+v", what, bad["token"])
		}
	}
	tokenNeeds("a token of two minutes", true)
	misbehave(paymenttest.Down)
	if run, err := f.RunToken(t.Context(), scenario.RefreshNow); err != nil || run.Outcome != token.Failed {
		t.Fatalf("the token function says %+v, %v", run, err)
	}
	tokenNeeds("the token endpoint is down", true)
	// The local run is of use without a token: it goes on, and says why there is none.
	var said strings.Builder
	without, own := *f.stack, *f.Deployment
	without.Deployment, without.Progress = &own, emulator.NewProgress(&said)
	own.TokenSecret = "missing"
	if err := without.firstRuns(t.Context()); err != nil ||
		!strings.Contains(said.String(), "no access token is stored: ") {
		t.Errorf("%v: %s", err, &said)
	}
	misbehave("")
	f.service.SetTokenLifetime(paymenttest.DefaultTokenLifetime)
	runs()
	tokenNeeds("a new token", false)
}
