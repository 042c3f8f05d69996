package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/local/up"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// brood starts a group of a process with a child that both ignore SIGTERM, and
// returns it once both are there.
func brood(t *testing.T, folder string) *group {
	t.Helper()
	script := filepath.Join(folder, "brood.sh")
	text := "#!/bin/sh\ntrap '' TERM\n(trap '' TERM; echo child; while :; do sleep 1; done) &\necho parent\nwait\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", script)
	cmd.Stdout = write
	g, err := startGroup(cmd)
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-g.pid, syscall.SIGKILL) })
	said := make([]byte, len("child\nparent\n"))
	for n := 0; n < len(said); {
		more, err := read.Read(said[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	return g
}

func TestStoppingAGroupEndsEveryProcessOfIt(t *testing.T) {
	for _, grace := range []time.Duration{0, 10 * time.Millisecond} {
		g := brood(t, t.TempDir())
		g.stop(grace)
		if runs(g.pid) {
			t.Errorf("grace %s: a process is left", grace)
		}
	}
}

func TestACommandEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	folder := t.TempDir()
	log := filepath.Join(folder, "log")
	ended := make(chan error, 1)
	go func() { ended <- logged(ctx, log, exec.Command("sleep", "1000")) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context canceled", err)
	}
}

func TestAFailedCommandShowsWhatItSaid(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	err := logged(t.Context(), log, exec.Command("sh", "-c", "echo for this reason; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "for this reason") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error = %v", err)
	}
	text, readErr := os.ReadFile(log)
	if readErr != nil || !strings.Contains(string(text), "for this reason") {
		t.Errorf("the log has %q, %v", text, readErr)
	}
}

func TestOneProcessAtATimeRunsThingsInAFolder(t *testing.T) {
	folder := t.TempDir()
	first, err := lockFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockFolder(folder)
	var held errLocked
	if !errors.As(err, &held) || held.pid != os.Getpid() {
		t.Errorf("a second lock: %v, want that process %d holds it", err, os.Getpid())
	}
	first.release()
	second, err := lockFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	second.release()
}

func TestWhatAKilledRunLeftBehindIsEnded(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	ours := brood(t, folder)
	if err := remember(folder, ours.pid); err != nil {
		t.Fatal(err)
	}
	if !endLeftovers(folder) || runs(ours.pid) {
		t.Error("the process is left")
	}

	// The number is another process' by now.
	others := brood(t, t.TempDir())
	if err := remember(folder, others.pid); err != nil {
		t.Fatal(err)
	}
	if endLeftovers(folder) || !runs(others.pid) {
		t.Error("a process that is not ours was ended")
	}
	if endLeftovers(folder) {
		t.Error("it is remembered still")
	}
	others.stop(0)
}

func TestVersionsAreCompared(t *testing.T) {
	for text, want := range map[string]bool{
		"v20.0.0": true, "v20.11.1\n": true, "v22.1.0": true, "Python 20.0": true,
		"v19.9.9": false, "8.0": false, "": false, "none": false,
	} {
		if got := atLeast(text, 20, 0); got != want {
			t.Errorf("%q is at least 20.0: %t, want %t", text, got, want)
		}
	}
	if atLeast("3.9.18", 3, 10) || !atLeast("Python 3.10.0", 3, 10) {
		t.Error("the minor version is not compared as a number")
	}
}

func TestWhatIsMissingIsSaidClearly(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	old := "#!/bin/sh\necho v1.2.3\n"
	if err := os.WriteFile(filepath.Join(folder, "node"), []byte(old), 0o700); err != nil {
		t.Fatal(err)
	}
	err := checkTools()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"node is too old (v1.2.3); version 20.0", "npm is not installed", "python3 is not installed; version 3.10 or newer is needed"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestSettingsAreCheckedByName(t *testing.T) {
	got := map[string]string{}
	if err := addSettings(got, " timestampTolerance=2m  keyMissBudget=100 "); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"timestampTolerance": "2m", "keyMissBudget": "100"}, got); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"timestampTolerance", "timestamptolerance=2m", "local=false", "baseUrl=http://127.0.0.1"} {
		if err := addSettings(got, text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestEveryArrivalIsAttributedToTheRowThatCausedIt(t *testing.T) {
	events := paymenttest.Events(3)
	first, second, forged := &row{webhook: deliver(events...)}, &row{webhook: deliver(events...)}, &row{webhook: raw([]byte("{"))}
	rows := []*row{first, second, forged}
	var all []arrival
	for _, e := range events {
		all = append(all, arrival{rule: released, eventID: e.EventID})
	}
	attribute(rows, append(all, arrival{rule: euro, eventID: events[0].EventID}, arrival{rule: euro, eventID: "another"}))
	if diff := cmp.Diff([]map[string]int{{released: 3, euro: 1}, {}, {}}, []map[string]int{first.arrived, second.arrived, forged.arrived}); diff != "" {
		t.Error(diff)
	}
	// A duplicate that got through shows where it was sent.
	attribute(rows, append(all, all[0], all[0]))
	if diff := cmp.Diff([]map[string]int{{released: 3}, {released: 2}}, []map[string]int{first.arrived, second.arrived}); diff != "" {
		t.Error(diff)
	}
}

func TestARowIsRightInEveryRespectOrWrong(t *testing.T) {
	make := func() *row {
		return &row{
			sent: "one", status: 200, answer: `"recorded":1`, header: "Allow", arrivals: map[string]int{released: 1}, arrived: map[string]int{released: 1},
			got: paymenttest.Answer{Status: 200, Header: http.Header{"Allow": {"POST"}, "Content-Type": {"application/json"}}, Body: []byte(`{ "recorded": 1 }`)},
		}
	}
	if !make().right() {
		t.Error("a row that is right is wrong")
	}
	for name, change := range map[string]func(*row){
		"status":      func(r *row) { r.got.Status = 202 },
		"body":        func(r *row) { r.got.Body = []byte(`{"recorded":2}`) },
		"header":      func(r *row) { r.got.Header.Del("Allow") },
		"type":        func(r *row) { r.got.Header.Set("Content-Type", "text/plain") },
		"none":        func(r *row) { r.arrived = map[string]int{} },
		"twice":       func(r *row) { r.arrived = map[string]int{released: 2} },
		"other rule":  func(r *row) { r.arrived = map[string]int{released: 1, euro: 1} },
		"unreachable": func(r *row) { r.err = errors.New("no answer") },
	} {
		r := make()
		change(r)
		if r.right() {
			t.Errorf("%s: a row that is wrong is right", name)
		}
		var out bytes.Buffer
		if wrong := printTable(&out, []*row{make(), r}); wrong != 1 || !strings.Contains(out.String(), "WRONG") {
			t.Errorf("%s: %d rows are wrong in\n%s", name, wrong, &out)
		}
	}
}

func TestRefusalsThatDifferAreWrong(t *testing.T) {
	refused := func(body string) *row {
		return &row{status: 401, arrived: map[string]int{}, got: paymenttest.Answer{
			Status: 401, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: []byte(body)}}
	}
	if wrong := printTable(&bytes.Buffer{}, []*row{refused(`{"a":1}`), refused(`{"a":2}`), refused(`{"a":1}`)}); wrong != 1 {
		t.Errorf("%d rows are wrong, want 1", wrong)
	}
}

func TestWhereThingsAreIsReadAsItWasWritten(t *testing.T) {
	top := t.TempDir()
	if _, err := up.Read(top); err == nil {
		t.Error("nothing is up, and it was read")
	}
	if err := os.Mkdir(filepath.Join(top, ".local"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := up.File{WebhookURL: "http://127.0.0.1:1/", Queues: map[string]string{released: "http://127.0.0.1:1/q"}, Simulated: true}
	if err := want.Write(top); err != nil {
		t.Fatal(err)
	}
	got, err := up.Read(top)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	up.Remove(top)
	if _, err := up.Read(top); err == nil {
		t.Error("it was read although it was removed")
	}
}

// TestMiniStackDoesNotStartWithAPatchThatDoesNotFit runs the launcher on
// packages that are named like MiniStack and differ from it.
func TestMiniStackDoesNotStartWithAPatchThatDoesNotFit(t *testing.T) {
	top, err := projectTop()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, app, says string }{
		{"a function is gone", "", "there is no function pin_request_origin"},
		{"a function has other parameters", "def pin_request_origin(origin): pass\n", "has the parameters ['origin']"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			other := filepath.Join(folder, "ministack")
			if err := os.Mkdir(other, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"__init__.py": "", "__main__.py": "print('started')\n", "app.py": test.app} {
				if err := os.WriteFile(filepath.Join(other, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// Only the patch that is looked at: the others do not fit either.
			for _, name := range []string{"start.py", "patching.py", "secure_transport.py"} {
				text, err := os.ReadFile(filepath.Join(filepath.Dir(tools{top}.ministack()), name))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command("python3", filepath.Join(folder, "start.py")).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != patchDoesNotFit {
				t.Errorf("it ends with %v, want status %d", err, patchDoesNotFit)
			}
			if text := string(out); !strings.Contains(text, "secure_transport.py") || !strings.Contains(text, test.says) || strings.Contains(text, "started") {
				t.Errorf("it says %q, want the patch's name and %q", text, test.says)
			}
		})
	}
}

func TestTheSettingsOfTheEndpointAreFilledIn(t *testing.T) {
	s := &stack{opts: options{state: t.TempDir()}}
	s.newIdentity()
	files := s.tlsFiles()
	for _, test := range []struct{ given, want map[string]string }{
		{nil, map[string]string{}},
		{map[string]string{"authentication": "signature"}, map[string]string{"authentication": "signature"}},
		{map[string]string{"authentication": "both"}, map[string]string{
			"authentication": "both", "domainName": localDomain, "certificateArn": localCertificate, "truststore": files.truststore}},
		{map[string]string{"authentication": "mtls", "domainName": "a.example", "hostedZoneId": "Z1", "truststore": "their.pem"}, map[string]string{
			"authentication": "mtls", "domainName": "a.example", "hostedZoneId": "Z1", "truststore": "their.pem"}},
		{map[string]string{"domainName": "a.example"}, map[string]string{"domainName": "a.example", "certificateArn": localCertificate}},
	} {
		got, err := s.completeSettings(test.given)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.given, diff)
		}
	}
	text, err := os.ReadFile(files.truststore)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientcert.ParseTruststore(text, time.Now()); err != nil {
		t.Errorf("the truststore is refused at synth: %v", err)
	}
	if _, err := tls.LoadX509KeyPair(files.clientCert, files.clientKey); err != nil {
		t.Error(err)
	}

	s.opts.truststore = "other.pem"
	if got, err := s.completeSettings(map[string]string{"authentication": "mtls"}); err != nil || got["truststore"] != "other.pem" {
		t.Errorf("the truststore is %q, %v, want the one that was given", got["truststore"], err)
	}
	if _, err := s.completeSettings(nil); err == nil {
		t.Error("a truststore was taken without mTLS")
	}
}
