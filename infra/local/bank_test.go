package local

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"payhook.example/infra/checks"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// An app of another module has two Payhooks in one stack, with default settings. Both work, and
// the program finds each by its id.
func (f *fixture) testBank(t *testing.T) {
	m := *f.machine
	m.options.settings, m.end = nil, nil
	if err := m.startService(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.stop)
	outputs := m.deployBank(t)

	for _, id := range []string{"Payments", "Reports"} {
		s, err := m.newStack(map[string]string{"stackName": "Bank"})
		if err == nil {
			err = m.ready(t.Context(), s, outputs, id)
		}
		if err != nil {
			t.Fatal(err)
		}
		m.main = s
		if err := m.firstToken(t.Context()); err != nil {
			t.Errorf("%s has no token: %v", id, err)
		}
		if id == "Payments" {
			s.Arrivals = checks.NewArrivals(f.Stack.AWS, map[string]string{checks.Released: outputs["Queue"]})
			(&fixture{Subject: s, machine: &m}).deliver(t)
		}
		if err := s.Invoke(t.Context(), "redrive", checks.AsScheduled, &struct{}{}); err != nil {
			t.Error(err)
		}
		var shown []byte
		if err := checks.Poll(t.Context(), waitTimeout, time.Second, func() (bool, error) {
			shown, err = f.program(s)(t.Context(), "status", "--id", id).CombinedOutput()
			return err == nil, nil // also metrics have arrived
		}); err != nil || !bytes.HasPrefix(shown, []byte("Bank_"+id+" in stack Bank ")) {
			t.Errorf("%s: %v\n%s", id, err, shown)
		}
	}
	if shown, err := f.program(m.main)(t.Context(), "status").CombinedOutput(); err == nil ||
		!strings.Contains(string(shown), "choose one with --id: Payments, Reports") {
		t.Errorf("without --id: %v\n%s", err, shown)
	}
	if denied := f.proxy.denied(); len(denied) > 0 {
		t.Errorf("IAM denied %q", denied)
	}
}

// deliver sends a webhook, whose events must reach the rule of the app byte for byte.
func (f *fixture) deliver(t *testing.T) {
	var sent [][]byte
	var ids []string
	for _, amount := range []string{"1234567890.10", "1E3", "1e+03", "0.00", "-0", "123456789012345678",
		"0.100000000000000000001", "1e-7", "12345678901234567890.5"} {
		event := paymenttest.Event()
		event.EventTimestamp = event.EventTimestamp.Add(-time.Hour) // the event on the bus has this time
		text := paymenttest.Encode(event)
		sent = append(sent, fmt.Appendf(text[:len(text)-1], ` ,"note":%s,`+"\n\t"+
			`"text":"\u00fcü\/\ud83d\ude00<>&","none":{"none":[null,{"none":null}]} }`, amount))
		ids = append(ids, event.EventID)
	}
	payload := paymenttest.RawDelivery(uuid.New().String(), sent...)
	if a, err := f.send(t.Context(), payload, http.StatusOK); err != nil || a.Recorded != len(sent) {
		t.Fatalf("%+v, %v", a, err)
	}
	arrived := f.awaitReleased(t, ids...)
	for i, want := range sent {
		if got := arrived[ids[i]]; !bytes.Equal(got, want) {
			t.Errorf("%s arrived, sent %s", got, want)
		}
	}
}

// deployBank deploys the app in a module outside the repository, and returns the outputs.
func (m *machine) deployBank(t *testing.T) map[string]string {
	t.Helper()
	folder := t.TempDir()
	example, err := os.ReadFile(filepath.Join(m.options.top, "infra", "payhook", "example_test.go"))
	if err == nil {
		main := strings.NewReplacer("package payhook_test", "package main", "func ExampleNew", "func main",
			"https://api.payments.example", m.service.URL, "https://auth.payments.example", m.service.URL)
		err = os.WriteFile(filepath.Join(folder, "main.go"), []byte(main.Replace(string(example))), 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "cdk.json"), []byte(`{"app":"go run ."}`), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cdk := *m.cdk
	cdk.Environment = append(slices.Clip(cdk.Environment), "GOWORK=off")
	for _, args := range []string{"mod init bank.example/app", "mod edit -require=payhook.example@v0.0.0",
		"mod edit -replace=payhook.example=" + m.options.top, "mod tidy"} {
		cmd := exec.CommandContext(t.Context(), "go", strings.Fields(args)...)
		cmd.Dir, cmd.Env = folder, cdk.Environment
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args, err, out)
		}
	}
	var stacks map[string]map[string]string
	assembly, err := cdk.Synth(t.Context(), folder, "bank.out", map[string]string{settings.LocalKey: "true"})
	if err == nil {
		stacks, err = cdk.Deploy(t.Context(), assembly, nil, "Bank")
	}
	if err != nil {
		t.Fatal(err)
	}
	return stacks["Bank"]
}
