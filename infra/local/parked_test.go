package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"payhook/infra/local/up"
	"payhook/shared/paymenttest"
	"payhook/shared/uuid"
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
	// decodes the one document that it prints.
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
		if err := json.Unmarshal(out, document); err != nil {
			t.Fatalf("operator %v: %v\n%s", args, err, out)
		}
	}

	first := paymenttest.Event()
	f.send(t, paymenttest.Delivery(first)).want(t, http.StatusOK, 1, 0)
	f.arriveOnce(t, first)
	other := first
	other.EventData.Amount = "9250.00"
	id := uuid.New()
	if a := f.send(t, paymenttest.RawDelivery(id, paymenttest.Encode(other))); a.Conflicts != 1 {
		t.Fatalf("answered %d with %d conflicts, want one", a.status, a.Conflicts)
	}

	var listed struct {
		Name, Reason string
		Replayed     bool
	}
	operator(1, &listed, "parked", "list", "--delivery", id)
	if listed.Reason != "conflict" || listed.Replayed {
		t.Errorf("listed as %+v", listed)
	}
	var replayed struct {
		Accepted bool
		Outcome  string
		Recorded int
	}
	operator(1, &replayed, "parked", "replay", listed.Name, "--yes")
	if replayed.Accepted || replayed.Outcome != "conflict" {
		t.Errorf("replayed while the first is known: %+v", replayed)
	}
	if err := f.forgetEvent(t.Context(), first.EventID); err != nil {
		t.Fatal(err)
	}
	operator(0, &replayed, "parked", "replay", listed.Name, "--yes")
	if !replayed.Accepted || replayed.Recorded != 1 {
		t.Errorf("replayed once the first is forgotten: %+v", replayed)
	}
	if _, err := f.arrivals.awaitArrival(t.Context(), patience, first.EventID, id); err != nil {
		t.Error(err)
	}
	operator(0, &listed, "parked", "list", "--delivery", id)
	if !listed.Replayed {
		t.Error("it is not listed as replayed")
	}
}
