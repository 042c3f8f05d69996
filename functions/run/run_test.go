package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// output runs the program and returns what it prints.
func output(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), args, &out, io.Discard)
	return out.String(), err
}

func TestEveryResultIsAsExpectedWithOtherSettings(t *testing.T) {
	for given, want := range map[string]string{
		"": "All 20",
		"successStatus=204 timestampTolerance=off tokenStore=none evidence=7d compliance storeRejected=1h " +
			"allowedNetworks=203.0.113.0/24": "All 19",
		"keyEndpointAuth=bearer timestampLocation=query:ts credentialEncoding=form": "All 20",
		"keyIdLocation=static:6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60 tokenStore=parameter " +
			"archiveRetention=off signatureHeader=Sig": "All 19",
	} {
		if out, err := output(t, "--once", "--setting", given); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", given, err, out)
		}
	}
}

// tracer is a transport that a library for tracing puts in place of Go's.
type tracer struct{ http.RoundTripper }

func TestItDoesNotNeedGosDefaultTransport(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = tracer{before}
	paymenttest.NewIdentity().With(tls.Certificate{})
	if out, err := output(t, "--once"); err != nil || !strings.Contains(out, " results are as expected") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTheSettingsOfTheAppAreUsed(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Mkdir("infra", 0o700), os.WriteFile(settingsFile,
		[]byte(`{"successStatus": 202, "baseUrl": "https://a.example"}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	out, err := output(t, "--once")
	if n := strings.Count(out, " 202 "); err != nil || n != 7 {
		t.Errorf("%d answers 202, %v\n%s", n, err, out)
	}
}

func TestAResultThatIsNotExpectedIsAnError(t *testing.T) {
	all := rows
	defer func() { rows = all }()
	rows = slices.Clone(all[:2])
	rows[1].published = "2"
	out, err := output(t, "--once")
	_, wrong := errors.AsType[usageError](err)
	if err == nil || wrong || !regexp.MustCompile(`(?s)WRONG +one event +200 +accepted +1\n +expected .* 2\n`).
		MatchString(out) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAWrongCallSaysWhatIsWrong(t *testing.T) {
	t.Setenv("PAYHOOK_CLIENT_ID", "")
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "event.json")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const events = "../../events/"
	for want, args := range map[string][]string{
		`make up SETTINGS="authentication=mtls"`:                     {"--setting", "authentication=mtls"},
		`make up SETTINGS="authentication=both"`:                     {"invoke", "--setting=authentication=both"},
		"sucessStatus: no such setting; did you":                     {"--setting", "sucessStatus=200"},
		"successStatus=9 (--setting): must be a status":              {"--setting", "evidence=7d successStatus=9"},
		"logRetentionDays=8 (--setting): must be one of":             {"--setting", "logRetentionDays=8"},
		"keyMaxAge=1m (--setting): must be whole hours":              {"--setting", "keyMaxAge=1m"},
		`"xx" must be KEY=VALUE`:                                     {"--setting", "xx"},
		"baseUrl cannot be set here":                                 {"--setting", "baseUrl=https://a.example"},
		"baseUrl=ftp://a.example (--base-url): must be an https URL": {"--base-url", "ftp://a.example"},
		"PAYHOOK_CLIENT_ID is not set": {"--auth-url", "https://a.example", "--setting",
			"tokenManagerId=m"},
		"tokenManagerId: is required":          {"--auth-url", "https://a.example"},
		"--help lists the flags":               {"--post", "1"},
		"must be a URL of this machine":        {"--forward", "http://a.example/"},
		"must be a URL such as":                {"--forward", "127.0.0.1:80"},
		"--forward is for a run that":          {"--once", "--forward", "http://127.0.0.1:1/"},
		`"once" is not a flag`:                 {"once"},
		"invoke takes FUNCTION FILE...":        {"invoke", "webhoook", "x"},
		"FUNCTION=webhook EVENT=events/":       {"invoke"},
		"json: the file is empty or truncated": {"invoke", "webhook", file(`{"version": "2.0", "body": "é`[:30])},
		"json: the file is empty or":           {"invoke", "token", file("")},
		"no such file":                         {"invoke", "webhook", "x"},
		"as tokenStore is none":                {"invoke", "--setting", "tokenStore=none", "token", file("{}")},
		"this is an event of a schedule":       {"invoke", "webhook", events + "redrive/scheduled.json"},
		"this is an event of a function URL":   {"invoke", "redrive", events + "webhook/one-event.json"},
		"event of the function token":          {"invoke", "redrive", events + "token/refresh.json"},
		"event of the function redrive":        {"invoke", "token", events + "redrive/dismiss.json"},
		"nothing is parked that PARKED could":  {"invoke", "redrive", events + "redrive/dismiss.json"},
		`unknown object member name "replays"`: {"invoke", "redrive", file(`{"replays": ["a"]}`)},
		`unknown object member name "bodyy"`:   {"invoke", "webhook", file(`{"version": "2.0", "bodyy": ""}`)},
	} {
		out, err := output(t, args...)
		if _, wrong := errors.AsType[usageError](err); !wrong || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	if out, err := output(t, "--help"); !errors.Is(err, flag.ErrHelp) || !strings.Contains(out, "-base-url") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := output(t, "--version"); err != nil || !strings.HasPrefix(out, "payhook-run version ") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAFunctionThatFailsIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(file, []byte(`{"dismiss": ["a"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := output(t, "invoke", "redrive", file)
	if _, wrong := errors.AsType[usageError](err); err == nil || wrong {
		t.Error(err)
	}
}

// The samples of events/, below which the names are, with what the last invocation does: see lastOf.
var samples = []struct{ args, want string }{
	{"webhook webhook/one-event.json", "200 accepted 1"},
	{"webhook webhook/several-events.json", "200 accepted 3"},
	{"webhook webhook/base64-body.json", "200 accepted 1"},
	{"webhook webhook/one-event.json webhook/other-spelling.json", "200 accepted -"},
	{"webhook webhook/unpublishable.json", "200 accepted -"},
	{"webhook webhook/conflict.json", "200 conflict 1"},
	{"webhook webhook/empty.json", "400 payload-empty -"},
	{"webhook webhook/not-base64.json", "400 payload-encoding -"},
	{"--as-is webhook webhook/one-event.json", "401 signature-missing -"},
	{"--as-is webhook webhook/signed.json", "401 timestamp-outside-window -"},
	{"--setting allowedNetworks=203.0.113.0/24 webhook webhook/one-event.json", "403 sender-not-allowed -"},
	{"webhook webhook/wrong-method.json", "405 method-not-allowed -"},
	{"webhook webhook/missing-event-id.json", "422 invalid -"},
	{"webhook webhook/no-events.json", "422 invalid -"},
	{"webhook webhook/not-json.json", "422 invalid -"},
	{"webhook webhook/partly-invalid.json", "422 invalid 2"},
	{"redrive redrive/scheduled.json", "- - -"},
	{"webhook webhook/unpublishable.json redrive redrive/replay.json", "- unpublishable -"},
	{"webhook webhook/conflict.json redrive redrive/replay-conflict.json", "- accepted -"},
	{"webhook webhook/conflict.json redrive redrive/replay-conflict.json redrive/scheduled.json", "- - 1"},
	{"webhook webhook/conflict.json redrive redrive/dismiss.json", "- - -"},
	{"webhook webhook/conflict.json redrive redrive/dismiss.json redrive/replay-conflict.json",
		"- already-dismissed -"},
	{"token token/scheduled.json", "- refreshed a"},
	{"token token/scheduled.json token/scheduled.json", "- fresh a"},
	{"token token/refresh.json", "- refreshed a"},
}

func TestTheSamplesDoWhatTheirNamesSay(t *testing.T) {
	played := map[string]bool{}
	for _, sample := range samples {
		args := strings.Fields(sample.args)
		for i, arg := range args {
			if strings.HasSuffix(arg, ".json") {
				args[i] = filepath.Join("..", "..", "events", arg)
				played[args[i]] = true
			}
		}
		out, err := output(t, append([]string{"invoke"}, args...)...)
		if got := lastOf(t, out); err != nil || got != sample.want {
			t.Errorf("%q: %s, want %s, %v\n%s", args, got, sample.want, err, out)
		}
	}
	for _, function := range []string{"webhook", "redrive", "token"} {
		files, err := filepath.Glob("../../events/" + function + "/*.json")
		for _, file := range files {
			if !played[file] {
				t.Errorf("%s is not played", file)
			}
		}
		if err != nil || len(files) < 2 {
			t.Errorf("%s: %d samples, %v", function, len(files), err)
		}
	}
}

// lastOf returns status, outcome, and number of events of the last invocation, or "a" for a token; each "-" for none.
func lastOf(t *testing.T, out string) string {
	t.Helper()
	blocks := strings.Split(strings.TrimSpace(out), "\n\n")
	last := blocks[len(blocks)-1]
	status, published := "-", "-"
	if found := regexp.MustCompile(`(?m)^answer +(\d+) `).FindStringSubmatch(last); found != nil {
		status = found[1]
	}
	if n := strings.Count(last, "\npublished "); n > 0 {
		published = string(rune('0' + n))
	}
	if regexp.MustCompile(`\nstored +a token of \d\d characters that expires at 20`).MatchString(last) {
		published = "a"
	}
	var line struct{ Msg, Outcome string }
	for text := range strings.Lines(last) {
		if text, ok := strings.CutPrefix(text, "log "); ok {
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.Msg == "" {
				t.Error(err, text)
			}
		}
	}
	if line.Outcome == "" {
		line.Outcome = "-"
	}
	return status + " " + line.Outcome + " " + published
}

// running is the program while it is up.
type running struct {
	t     *testing.T
	lines chan string // those that it has written
	ended chan error
}

func up(t *testing.T, args ...string) *running {
	t.Helper()
	out, in := io.Pipe()
	r := &running{t, make(chan string, 1000), make(chan error, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it ends also if a line does not come
	t.Cleanup(cancel)
	go func() {
		err := run(ctx, args, in, io.Discard)
		in.Close()
		r.ended <- err
	}()
	go func() {
		defer close(r.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.lines <- lines.Text()
		}
	}()
	return r
}

// until returns what the first further line has that matches.
func (r *running) until(pattern string) string {
	r.t.Helper()
	for text := range r.lines {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(text); found != nil {
			return found[len(found)-1]
		}
	}
	r.t.Fatalf("no line has %s: %v", pattern, <-r.ended)
	return ""
}

func TestItReceivesWebhooksUntilCtrlC(t *testing.T) {
	r := up(t)
	r.until("^All ")
	hook := r.until("^webhook URL +(.+)")
	control := r.until("curl .* (http.*/control)")
	words := regexp.MustCompile(`'([^']*)'`).FindAllStringSubmatch(r.until("^  (curl -H .*)"), -1)
	r.until("Ctrl-C ends everything")
	last := len(words) - 1
	signed, err := http.NewRequest(http.MethodPost, words[last][1], strings.NewReader(words[last-1][1]))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range words[:last-1] {
		name, value, _ := strings.Cut(word[1], ": ")
		signed.Header.Set(name, value)
	}
	if resp, err := http.DefaultClient.Do(signed); err != nil || resp.Body.Close() != nil || resp.StatusCode != 200 {
		t.Errorf("the signed webhook: %v, %v", resp, err)
	}
	r.until("webhook  200 accepted")
	post := func(url, body string) int {
		t.Helper()
		resp, err := http.Post(url, "", strings.NewReader(body))
		if err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	post(control, `{"send": {}}`)
	r.until("webhook  200 accepted")
	r.until("event    PAYMENT_STATUS.RELEASED  [0-9a-f-]{36}$")
	post(control, `{"send": {"kind": "payload"}}`)
	r.until("webhook  401 signature-mismatch")
	if status := post(hook, strings.Repeat(`"`, paymenttest.InvocationBytes/2)); status != 413 { // each is escaped
		t.Errorf("%d", status)
	}
	r.until("webhook  413")
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for text := range r.lines {
		t.Error(text)
	}
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// started returns the process with settings, before it serves.
func started(t *testing.T, out io.Writer, given ...string) *process {
	t.Helper()
	p := &process{screen: screen{out: out}, given: map[string]string{}}
	if err := settings.ParsePairs(p.given, strings.Join(given, " "), settings.All()); err != nil {
		t.Fatal(err)
	}
	if err := p.start(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.service.simulated.Close)
	return p
}

func TestKeysNeedATokenIfTheSettingsSaySo(t *testing.T) {
	p := started(t, io.Discard, "keyEndpointAuth=bearer")
	resp, err := http.Get(p.service.simulated.URL + "/v1/keys/" + p.service.simulated.Key().ID)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %v, %v", resp, err)
	}
}

func TestTheScheduleOfRedrivePublishesWhatIsDue(t *testing.T) {
	var out bytes.Buffer
	p := started(t, &out)
	p.stack.busDown.Store(true)
	if err := p.invokeFiles(t.Context(), []string{"webhook", "../../events/webhook/one-event.json"}); err != nil {
		t.Fatal(err)
	}
	p.stack.busDown.Store(false)
	out.Reset()
	p.scheduled(t.Context())
	p.scheduled(t.Context()) // nothing is due, and the token is fresh
	if lines := strings.Count(out.String(), "\n"); lines != 1 || !strings.Contains(out.String(), "token    refreshed") {
		t.Errorf("before it is due:\n%s", &out)
	}
	p.stack.ledger.earlier = time.Hour
	p.scheduled(t.Context())
	if !regexp.MustCompile(`redrive .*\n\S+  event    PAYMENT_STATUS.RELEASED  e7e47000`).MatchString(out.String()) {
		t.Errorf("when it is due:\n%s", &out)
	}
}

// A real service has TLS, here with a CA of its own, and keys that nobody else has.
func TestAServiceThatIsNotSimulatedIsUsed(t *testing.T) {
	state, key := paymenttest.NewState(paymenttest.State{}), paymenttest.NewKey(2048)
	state.Publish(key)
	service := httptest.NewTLSServer(state.Handler())
	defer service.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PAYHOOK_CLIENT_ID", state.ClientID)
	t.Setenv("PAYHOOK_CLIENT_SECRET", state.ClientSecret)
	flags := []string{"--base-url", service.URL, "--auth-url", service.URL, "--setting",
		"tokenManagerId=manager-1 serviceCA=" + ca}
	r := up(t, flags...)
	r.until("^No table")
	hook := r.until("^webhook URL +(.+)")
	r.until("token    refreshed$")
	sender := paymenttest.Sender{Key: key}
	a, err := sender.Send(t.Context(), paymenttest.Webhook{URL: hook,
		Payload: paymenttest.Delivery(paymenttest.Event())})
	if err != nil || a.Status != 200 {
		t.Errorf("%d %s, %v", a.Status, a.Body, err)
	}
	r.until("webhook  200 accepted")
	out, err := output(t, slices.Concat([]string{"invoke"}, flags,
		[]string{"webhook", "../../events/webhook/one-event.json"})...)
	if err != nil || lastOf(t, out) != "401 signature-missing -" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := output(t, "--once", "--auth-url", service.URL, "--setting",
		"tokenManagerId=manager-1 serviceCA="+ca); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEachEventIsForwardedOnceInTheEnvelopeOfEventBridge(t *testing.T) {
	got := make(chan map[string]any, 10)
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var envelope map[string]any
		if err := json.NewDecoder(r.Body).Decode(&envelope); err != nil {
			t.Error(err)
		}
		got <- envelope
		http.Redirect(w, r, "https://a.example/", http.StatusTemporaryRedirect) // which is not followed
	}))
	defer program.Close()
	r := up(t, "--forward", program.URL)
	resp, err := http.Post(r.until("curl .* (http.*/control)"), "", strings.NewReader(`{"send": {}}`))
	if err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	id := r.until("event    PAYMENT_STATUS.RELEASED  (.+)")
	if answered := r.until("forward  (.+)"); answered != "307 Temporary Redirect  "+id {
		t.Errorf("%q", answered)
	}
	e := <-got
	detail, _ := e["detail"].(map[string]any)
	if e["detail-type"] != "PAYMENT_STATUS.RELEASED" || e["source"] != "payhook" || detail["eventId"] != id ||
		len(e) != 9 || len(got) > 0 {
		t.Errorf("%v, and %d more", e, len(got))
	}
}

// Ctrl-C ends a row of the table.
func TestARowEndsWithItsCaller(t *testing.T) {
	p := started(t, io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	f := p.stack.functions["token"]
	f.invoke = func(ctx context.Context, _ []byte) ([]byte, error) {
		cancel()
		return nil, ctx.Err()
	}
	p.stack.functions["token"] = f
	if _, cause := p.play(ctx, row{function: "token", event: "{}"}, nil); cause != context.Canceled.Error() {
		t.Errorf("the cause is %q", cause)
	}
}
