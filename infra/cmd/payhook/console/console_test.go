package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"payhook.example/infra/cmd/payhook/listen"
	"payhook.example/infra/cmd/payhook/send"
	"payhook.example/shared/paymenttest"
)

// testServer is the console without a local run: its commands are recorded.
type testServer struct {
	*httptest.Server
	*server

	mu     sync.Mutex
	calls  []string
	output string
	right  bool
	faults map[string]string // of services
	status string
}

func newTestServer(t *testing.T) *testServer {
	t.Helper()
	s := &testServer{right: true, faults: map[string]string{},
		status: `{"checks":[{"name":"alarms","state":"ok","text":"none of 9 is raised"},
		{"name":"token runs","state":"attention","text":"late: payhook logs token"},
		{"name":"redrive","state":"not measured","text":"no run"},
		{"name":"token","state":"ok","text":"valid for 4m, until 2026-01-31T12:04:00Z"}]}`}
	s.Server = httptest.NewUnstartedServer(nil)
	a := newActor()
	a.call = func(_ context.Context, args []string) (string, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch args[0] { // the page reads these by itself
		case "status":
			return s.status, false
		case "event":
			return "state of " + args[len(args)-1], true
		}
		s.calls = append(s.calls, strings.Join(args, " "))
		if args[1] == "fault" && s.right {
			s.faults[args[2]] = strings.TrimPrefix(args[3], send.NoFault)
		}
		return s.output, s.right
	}
	a.setBus = func(_ context.Context, stopped bool) error {
		s.fault(eventBus, map[bool]string{true: "down"}[stopped])
		return nil
	}
	a.faults = func(context.Context) (map[string]string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return maps.Clone(s.faults), nil
	}
	a.rulesFor = func(context.Context, string) ([]string, error) { return []string{"Euro", "Released"}, nil }
	s.server = newServer(s.Listener, a, "stack Payhook (a test)", true)
	s.Config.Handler = s.handler()
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// fault sets the fault of a service, as another program would.
func (s *testServer) fault(service, fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[service] = fault
}

// answer is what the next commands write.
func (s *testServer) answer(output string, right bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.output, s.right = output, right
}

// done returns the commands that ran since the last call, and whether the bus is stopped.
func (s *testServer) done() (calls []string, stopped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, s.calls = s.calls, nil
	return calls, s.faults[eventBus] != ""
}

// lastCall returns the last command since the last call; "" for none.
func (s *testServer) lastCall() string {
	calls, _ := s.done()
	return strings.Join(calls[max(0, len(calls)-1):], "")
}

// request sends a request that the page sends, changed.
func (s *testServer) request(t *testing.T, method, path, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	// A stream that should have been rejected does not end.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", s.URL)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if change != nil {
		change(r)
	}
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

const sendOne = `{"do":"send","events":1}`

func TestOnlyThePageHasEffects(t *testing.T) {
	s := newTestServer(t)
	for name, test := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"a form": {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		"another origin": {func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "http://a.test")
		}, 403},
		"another site":     {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"another port":     {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		"GET":              {func(r *http.Request) { r.Method = http.MethodGet }, 405},
		"another host":     {func(r *http.Request) { r.Host = "attacker.test" + s.hosts[0][len("127.0.0.1"):] }, 421},
		"a host's prefix":  {func(r *http.Request) { r.Host = s.hosts[0] + ".attacker.test" }, 421},
		"no port":          {func(r *http.Request) { r.Host = "127.0.0.1" }, 421},
		"an empty host":    {func(r *http.Request) { r.Host = "[::]" }, 421},
		"the page itself":  {nil, 204},
		"no fetch headers": {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Del("Origin") }, 204},
	} {
		status, text := s.request(t, http.MethodPost, "/do", sendOne, test.change)
		if status != test.status {
			t.Errorf("%s: answered %d %s, want %d", name, status, text, test.status)
		}
		if call := s.lastCall(); (call == "local send --events 1") != (test.status == 204) {
			t.Errorf("%s: the command ran: %q", name, call)
		}
	}
}

func TestOtherHostsReadNothing(t *testing.T) {
	s := newTestServer(t)
	for _, path := range []string{"/", "/stream", "/console.js"} {
		status, text := s.request(t, http.MethodGet, path, "", func(r *http.Request) { r.Host = "attacker.test" })
		if status != 421 {
			t.Errorf("%s: answered %d %s", path, status, text)
		}
	}
	answer, err := s.Client().Get(s.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'none'") ||
		strings.Contains(got, "unsafe") || strings.Contains(got, "http") {
		t.Errorf("the policy of the page is %q", got)
	}
	if got := answer.Header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("%q may read", got)
	}
}

func TestUnknownActionDoesNothing(t *testing.T) {
	s := newTestServer(t)
	for _, body := range []string{`{}`, `{"do":"exec"}`, `{"do":"send"}`,
		`{"do":"send","events":101}`, `{"do":"send","events":-1}`,
		`{"do":"forge","flaw":"list"}`, `{"do":"stop","service":"api"}`, `[]`, `{`,
		`{"do":"send","flaw":"` + strings.Repeat("x", maxAction) + `"}`} {
		if status, _ := s.request(t, http.MethodPost, "/do", body, nil); status < 400 || status > 499 {
			t.Errorf("%.60s: answered %d", body, status)
		}
	}
	if calls, _ := s.done(); len(calls) > 0 {
		t.Errorf("commands ran: %q", calls)
	}
}

func TestCommandsOfTheButtonsExist(t *testing.T) {
	t.Chdir(t.TempDir())
	asked := []action{{Do: "send", Events: 3, Amount: "1.00", Currency: "EUR"}, {Do: "repeat", Events: 1},
		{Do: "conflict", Events: 1}, {Do: "rotate"}, {Do: "explain", Name: captured},
		{Do: "stop", Service: "keys"}, {Do: "start", Service: "token"}}
	for _, flaw := range paymenttest.Flaws() {
		asked = append(asked, action{Do: "forge", Flaw: string(flaw)})
	}
	for _, a := range append(asked, action{Do: "compare", Name: parkedAs},
		action{Do: "replay", Version: "parked", Name: parkedAs}) {
		args, err := a.args()
		if err != nil {
			t.Fatal(err)
		}
		// The flags are right if the command looks for the local run.
		if output, right := payhook(t.Context(), args); right || !strings.Contains(output, "nothing is up") {
			t.Errorf("%q: %v, %s", args, right, output)
		}
	}
	// A name is not taken for a flag.
	args, err := action{Do: "replay", Name: "--all"}.args()
	if err != nil || !slices.Equal(args[len(args)-2:], []string{"--", "--all"}) {
		t.Errorf("%q, %v", args, err)
	}
}

func TestStoppedServicesAreStarted(t *testing.T) {
	s := newTestServer(t)
	for _, service := range services {
		if err := s.actor.do(t.Context(), action{Do: "stop", Service: service}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.actor.do(t.Context(), action{Do: "start", Service: "keys"}); err != nil {
		t.Fatal(err)
	}
	if _, stopped := s.done(); !stopped || fmt.Sprint(s.actor.stopped) != "map[bus:true keys:false token:true]" {
		t.Errorf("stopped: %v", s.actor.stopped)
	}
	if err := s.actor.startAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if calls, stopped := s.done(); stopped || !slices.Equal(calls, []string{"local fault token none"}) {
		t.Errorf("started: %q, bus stopped: %v", calls, stopped)
	}

	if err := s.actor.do(t.Context(), action{Do: "stop", Service: "token"}); err != nil {
		t.Fatal(err)
	}
	s.answer("no", false)
	if err := s.actor.startAll(t.Context()); err == nil {
		t.Error("no error, although a service is still stopped")
	}
}

func TestStreamHasEveryMessageInOrder(t *testing.T) {
	s := newTestServer(t)
	for i := range kept + 2 {
		if err := s.actor.feed.show(listen.Webhook{Status: i}); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := s.Client().Get(s.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	next := func() string {
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return text
			}
		}
		return ""
	}
	for i := range kept {
		if got := next(); !strings.Contains(got, fmt.Sprintf(`"status":%d,`, i+2)) {
			t.Fatalf("message %d is %s", i, got)
		}
	}
	// It waits for the next.
	if err := s.actor.do(t.Context(), action{Do: "stop", Service: eventBus}); err != nil {
		t.Fatal(err)
	}
	if got := next(); !strings.Contains(got, "stop the event bus") {
		t.Errorf("then %s", got)
	}
}

func TestContentOfAnEventIsReadSeparatelyAndKeepsItsDigits(t *testing.T) {
	s := newTestServer(t)
	if err := s.actor.feed.show(listen.Event{EventID: "e", Event: json.RawMessage(`{"amount":1250.00}`)}); err != nil {
		t.Fatal(err)
	}
	if all, _, _ := s.actor.feed.after(0); strings.Contains(string(all[0].data), "1250") {
		t.Errorf("%s", all[0].data)
	}
	read := func(id string) (known struct {
		State, Content string
		Rules          []string
	}) {
		t.Helper()
		status, text := s.request(t, http.MethodGet, "/event/"+id, "", nil)
		if err := json.Unmarshal([]byte(text), &known); err != nil {
			t.Fatalf("%d %s", status, text)
		}
		return known
	}
	if got := read("e"); got.State != "state of e" || got.Content != "{\n  \"amount\": 1250.00\n}" ||
		!slices.Equal(got.Rules, []string{"Euro", "Released"}) {
		t.Errorf("%+v", got)
	}
	if got := read("--all"); got.State != "state of --all" || got.Content != "" || got.Rules != nil {
		t.Errorf("an event that has not arrived: %+v", got)
	}
}

func TestRulesHaveShortNames(t *testing.T) {
	for name, want := range map[string]string{
		"PayhookConsumer-EuroRule8920E8CC-F285CAAE56FA7":      "Euro",
		"My-Stack-HighValuePaymentsRule747A5B76-aB3514858A35": "HighValuePayments",
		"PayhookConsumer-Everything9FC35C11-A4007B25C21C0":    "Everything",
		"payments-in-euro": "payments-in-euro",
	} {
		if got := short(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
