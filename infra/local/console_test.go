package local

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
)

// TestConsoleShowsWhatItsButtonsDo runs payhook local console on what is deployed, and does
// what its page does.
func TestConsoleShowsWhatItsButtonsDo(t *testing.T) {
	f := deployed(t)
	folder := t.TempDir()
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
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitTimeout)
	defer cancel()
	call := func(method, path, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method, where.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	stream := call(http.MethodGet, "stream", "")
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	lines.Buffer(nil, 1<<20)
	var messages []string // since the last action
	// await returns the first message since the last action that has all words.
	await := func(words ...string) string {
		t.Helper()
		for i := 0; ; i++ {
			for i == len(messages) {
				if !lines.Scan() {
					t.Fatalf("%q is not among %q: %v\n%s", words, messages, lines.Err(), &stderr)
				}
				if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					messages = append(messages, text)
				}
			}
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(messages[i], word) }) {
				return messages[i]
			}
		}
	}
	// do does what a button does, and waits for the result.
	do := func(action string, right bool) {
		t.Helper()
		messages = nil
		answer := call(http.MethodPost, "do", action)
		answer.Body.Close()
		if answer.StatusCode != http.StatusNoContent {
			t.Fatalf("%s: answered %d", action, answer.StatusCode)
		}
		if result := await(`"command":`); strings.Contains(result, `"right":true`) != right {
			t.Fatalf("%s: %s", action, result)
		}
	}
	await("ready: the rule and the queue")
	do(`{"do":"send","events":1}`, true)
	await(`"type":"webhook"`, `"outcome":"accepted"`)
	await(`"type":"event"`)
	do(`{"do":"send","events":5}`, true)
	await(`"events":5`)
	do(`{"do":"forge","flaw":"signature"}`, true)
	await("signature-mismatch")
	do(`{"do":"repeat"}`, true)
	await(`"duplicate":[`)

	// A stopped key service: a new key cannot be fetched.
	do(`{"do":"stop","service":"keys"}`, true)
	do(`{"do":"rotate"}`, false)
	await(`"status":503`)
	do(`{"do":"start","service":"keys"}`, true)
	// A stopped bus: the event is left to redrive, and arrives once the bus is there.
	do(`{"do":"stop","service":"bus"}`, true)
	do(`{"do":"send","events":1}`, true)
	await(`"pending":[`)
	do(`{"do":"start","service":"bus"}`, true)
	f.drain(t)
	f.proxy.forget() // of the calls that were denied
	await(`"type":"event"`)
	// A conflict is parked, and the page replays it.
	do(`{"do":"conflict"}`, true)
	var w struct{ Parked string }
	if err := json.Unmarshal([]byte(await(`"conflict":[`)), &w); err != nil {
		t.Fatal(err)
	}
	do(fmt.Sprintf(`{"do":"replay","name":%q,"version":"parked"}`, w.Parked), true)
	await(`"type":"event"`)

	// Ctrl-C starts what is stopped, and ends everything.
	do(`{"do":"stop","service":"token"}`, true)
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
