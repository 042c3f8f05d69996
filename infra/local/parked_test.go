package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"uuid"

	"payhook.example/infra/local/up"
	"payhook.example/shared/paymenttest"
)

func TestTheTableOfWhatIsKeptAsideIsAsPromised(t *testing.T) {
	f := deployed(t)
	f.wantRight(t, f.keptChecks(f.arrivals))
}

// TestWhatIsParkedComesBackByTheOperatorsHand calls the operator's program as a
// person does.
func TestWhatIsParkedComesBackByTheOperatorsHand(t *testing.T) {
	f := deployed(t)
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, filepath.Dir(up.Path)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(folder); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", folder+"/", "./infra/operator")
	build.Dir = f.opts.top
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	// operator fails the test unless the program ends with that status, and
	// decodes the one document that it prints, if there is one to decode.
	operator := func(status int, document any, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "operator"), append(args, "--local", "--json")...)
		cmd.Dir = folder
		cmd.Env = environmentWithout("AWS_")
		out, err := cmd.Output()
		failure, failed := errors.AsType[*exec.ExitError](err)
		if err != nil && !failed || cmd.ProcessState.ExitCode() != status {
			said := ""
			if failed {
				said = string(failure.Stderr)
			}
			t.Fatalf("operator %v: %v, want status %d\n%s%s", args, err, status, out, said)
		}
		if document == nil {
			return
		}
		if err := json.Unmarshal(out, document); err != nil {
			t.Fatalf("operator %v: %v\n%s", args, err, out)
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
	operator(1, &listed, "parked", "list", "--delivery", id)
	if listed.Reason != "conflict" || listed.State != "open" {
		t.Errorf("listed as %+v", listed)
	}
	operator(2, nil, "parked", "replay", listed.Name, "--yes")
	var replayed struct {
		Accepted bool
		Outcome  string
		Recorded int
	}
	operator(0, &replayed, "parked", "replay", listed.Name, "--version", "parked")
	if !replayed.Accepted || replayed.Recorded != 1 {
		t.Errorf("replayed in the parked version: %+v", replayed)
	}
	if err := f.invoke(t.Context(), "redrive", "{}", &struct{}{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.arrivals.awaitArrival(t.Context(), patience, first.EventID, id); err != nil {
		t.Error(err)
	}
	operator(0, &listed, "parked", "list", "--delivery", id, "--state", "any")
	if listed.State != "replayed" {
		t.Errorf("listed as %+v", listed)
	}

	// The first is the one in conflict now.
	again := uuid.New().String()
	if a := f.send(t, paymenttest.RawDelivery(again, paymenttest.Encode(first))); a.Conflicts != 1 {
		t.Fatalf("answered %d with %d conflicts, want one", a.status, a.Conflicts)
	}
	operator(1, &listed, "parked", "list", "--delivery", again)
	var settled struct{ Settled bool }
	operator(0, &settled, "parked", "settle", listed.Name, "--reason", "the service sent it by mistake")
	var shown struct {
		State    string
		Decision struct{ By, Reason string }
	}
	operator(0, &shown, "parked", "show", listed.Name)
	if !settled.Settled || shown.State != "settled" || shown.Decision.Reason != "the service sent it by mistake" || shown.Decision.By == "" {
		t.Errorf("settled: %+v", shown)
	}
}
