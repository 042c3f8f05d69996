package local

import (
	"encoding/json"
	"net/http"
	"testing"
	"uuid"

	"payhook.example/shared/paymenttest"
)

func TestParkedDeliveriesHaveTheExpectedResults(t *testing.T) {
	f := deployed(t)
	f.wantRight(t, f.keptChecks(f.arrivals))
}

// TestAParkedDeliveryIsReplayed runs payhook as a person does.
func TestAParkedDeliveryIsReplayed(t *testing.T) {
	f := deployed(t)
	run := f.program(t)
	// payhook decodes the one document that the program prints, if there is one to
	// decode.
	payhook := func(status int, document any, args ...string) {
		t.Helper()
		out := run(status, append(args, "--local", "--json")...)
		if document == nil {
			return
		}
		if err := json.Unmarshal([]byte(out), document); err != nil {
			t.Fatalf("payhook %v: %v\n%s", args, err, out)
		}
	}

	first := paymenttest.Event()
	f.send(t, paymenttest.Delivery(first)).want(t, http.StatusOK, 1, 0)
	f.arriveOnce(t, first)
	other := first
	other.EventData.Amount = "9250.00"
	id := uuid.New().String()
	if a := f.send(t, paymenttest.RawDelivery(id, paymenttest.Encode(other))); a.Conflicts != 1 {
		t.Fatalf("answered %d with %d conflicts, want one", a.status, a.Conflicts)
	}

	var listed struct{ Name, Reason, State string }
	payhook(1, &listed, "parked", "list", "--delivery", id)
	if listed.Reason != "conflict" || listed.State != "open" {
		t.Errorf("listed as %+v", listed)
	}
	payhook(2, nil, "parked", "replay", listed.Name, "--yes")
	var replayed struct {
		Accepted bool
		Outcome  string
		Recorded int
	}
	payhook(0, &replayed, "parked", "replay", listed.Name, "--version", "parked", "--yes")
	if !replayed.Accepted || replayed.Recorded != 1 {
		t.Errorf("replayed in the parked version: %+v", replayed)
	}
	if err := f.invoke(t.Context(), "redrive", "{}", &struct{}{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.arrivals.awaitArrival(t.Context(), waitTimeout, first.EventID, id); err != nil {
		t.Error(err)
	}
	payhook(0, &listed, "parked", "list", "--delivery", id, "--state", "any")
	if listed.State != "replayed" {
		t.Errorf("listed as %+v", listed)
	}

	// The first is the one in conflict now.
	again := uuid.New().String()
	if a := f.send(t, paymenttest.RawDelivery(again, paymenttest.Encode(first))); a.Conflicts != 1 {
		t.Fatalf("answered %d with %d conflicts, want one", a.status, a.Conflicts)
	}
	payhook(1, &listed, "parked", "list", "--delivery", again)
	var settled struct{ Settled bool }
	payhook(0, &settled, "parked", "settle", listed.Name, "--reason", "the service sent it by mistake")
	var shown struct {
		State    string
		Decision struct{ By, Reason string }
	}
	payhook(0, &shown, "parked", "show", listed.Name)
	if !settled.Settled || shown.State != "settled" || shown.Decision.Reason != "the service sent it by mistake" ||
		shown.Decision.By == "" {
		t.Errorf("settled: %+v", shown)
	}
}
