package listen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/logs"
	"payhook.example/infra/deployment"
	"payhook.example/shared/awsenv"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// run is one run of the command. Its output goes to a person, unless --json is given.
type run struct {
	mu        sync.Mutex
	out, said bytes.Buffer
	end       context.CancelFunc
	// endAt ends the run when both outputs together have all of it.
	endAt []string
}

type stream struct {
	r  *run
	to *bytes.Buffer
}

func (s stream) Write(p []byte) (int, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	n, err := s.to.Write(p)
	all := s.r.out.String() + s.r.said.String()
	if !slices.ContainsFunc(s.r.endAt, func(text string) bool { return !strings.Contains(all, text) }) {
		s.r.end()
	}
	return n, err
}

// listen runs the command against c until what it writes contains all words of endAt.
func listen(t *testing.T, c *cloud, endAt string, args ...string) (out, said string, status int) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.Mkdir(filepath.Dir(deployment.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (&deployment.Deployment{Endpoint: c.URL, Region: "us-east-1", Stack: "Payhook"}).Write("."); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := &run{end: cancel, endAt: append(strings.Fields(endAt), "ready")}
	p := &cli.Program{Out: stream{r, &r.out}, Err: stream{r, &r.said}, Now: time.Now, Reader: true}
	var meant deployment.Target
	root := p.Root("")
	cli.TargetFlags(root, &meant)
	root.AddCommand(Command(p, &meant))
	status = p.Run(ctx, root, append([]string{"listen", "--local"}, args...))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("it does not write %q:\n%s%s", endAt, &r.out, &r.said)
	}
	return r.out.String(), r.said.String(), status
}

// envelope is an event as EventBridge hands it on.
func envelope(id, deliveryID, eventID string) string {
	return fmt.Sprintf(`{"version":"0","id":%q,"detail-type":"PAYMENT_STATUS.RELEASED","source":"payhook",`+
		`"account":"1","time":"2026-01-31T12:00:00Z","region":"us-east-1","resources":[%q],`+
		`"detail":{"eventId":%q,"amount":1.00}}`, id, deliveryID, eventID)
}

// whenReady calls do once, as soon as a queue that exists is polled.
func (c *cloud) whenReady(do func()) {
	once := false
	c.fail = func(operation string) string {
		if operation == "ReceiveMessage" && !once && len(c.queues) > 0 {
			once = true
			do()
		}
		return ""
	}
}

const delivered = `{"msg":"webhook","outcome":"accepted","status":200,"deliveryId":"d1",` +
	`"ids":{"published":["e1","e2"],"duplicate":["e3"]},"ms":{"record":12,"publish":4},"Parked":0,"Published":2}`

func TestAWebhookIsShownWithItsEventsAndTheirRules(t *testing.T) {
	c := newCloud(t)
	c.addRule("released", `{"a":["1"]}`, nil)
	c.addRule("euro", `{"b":["1"]}`, nil)
	c.addRule("off", `{"c":["1"]}`, nil).State = "DISABLED"
	c.addRule("managed", `{"d":["1"]}`, nil).ManagedBy = "archive"
	c.matches = func(pattern, event string) bool {
		return pattern != `{"b":["1"]}` || strings.Contains(event, `"e2"`)
	}
	c.whenReady(func() {
		c.publish(envelope("1", "d1", "e1"))
		c.publish(envelope("2", "d1", "e2"))
		c.publish(envelope("2", "d1", "e2")) // delivered twice
		c.log(time.Now().Add(time.Second), `START RequestId: 1`)
		c.log(time.Now().Add(time.Second), delivered)
		c.log(time.Now().Add(2*time.Second), `{"msg":"webhook","outcome":"signature-mismatch","status":401,`+
			`"cause":"signature: does not verify"}`)
	})
	out, said, status := listen(t, c, "401 euro,")
	if status != 0 || !strings.Contains(said, "ready: ") || !strings.Contains(said, "removed the rule and the queue") {
		t.Errorf("%d, %s", status, said)
	}
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if len(line) > 24 && line[4] == '-' {
			lines[i] = line[24:]
		}
	}
	// A webhook without events does not wait for those before.
	want := []string{`  200  accepted  3 events  delivery d1
    16 ms: record 12, publish 4
    e3  duplicate, not published again
    e1  published  PAYMENT_STATUS.RELEASED  matches released
    e2  published  PAYMENT_STATUS.RELEASED  matches euro,  released
`, `  401  signature-mismatch
    cause: signature: does not verify
    less than 1 ms
`}
	if got := strings.Join(lines, "\n"); got != want[0]+want[1] && got != want[1]+want[0] {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(c.queues) != 0 || len(c.rules) != 4 {
		t.Errorf("left behind: %d queues, %d rules", len(c.queues), len(c.rules)-4)
	}
}

func TestAProgramGetsALineForEachWebhookAndEvent(t *testing.T) {
	c := newCloud(t)
	event := envelope("1", "d1", "e1")
	c.log(time.Now().Add(-time.Minute), delivered)
	c.whenReady(func() { c.publish(event) })
	out, _, _ := listen(t, c, `"event" "webhook"`, "--json", "--since", "1h")
	var found []string
	for line := range strings.Lines(out) {
		var one struct {
			Type, DeliveryID, EventID, Name string
			Status                          int
			IDs                             map[string][]string
			MS                              map[string]float64
			Rules                           []string
			Event                           json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		found = append(found, one.Type)
		switch one.Type {
		case "webhook":
			if one.Status != 200 || one.DeliveryID != "d1" || len(one.IDs["published"]) != 2 ||
				one.MS["record"] != 12 {
				t.Errorf("got %s", line)
			}
		case "event":
			if string(one.Event) != event || one.EventID != "e1" || one.DeliveryID != "d1" || one.Rules == nil {
				t.Errorf("got %s", line)
			}
		}
	}
	if slices.Sort(found); !slices.Equal(found, []string{"event", "webhook"}) {
		t.Errorf("got %s", out)
	}
}

// made returns what makes temporary rules in c.
func (c *cloud) made(now time.Time) *temporary {
	cfg := aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, BaseEndpoint: &c.URL,
		RetryMaxAttempts: 1, HTTPClient: awsenv.NewConnections(1).Once()}
	return &temporary{events: eventbridge.NewFromConfig(cfg), queues: sqs.NewFromConfig(cfg), bus: "payhook",
		pattern: everything, owner: tagValue("me, on a computer"), now: func() time.Time { return now },
		locks: lockFolder()}
}

func TestOnlyItsRuleCanSendToAQueue(t *testing.T) {
	c := newCloud(t)
	l, err := c.made(noon).create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, q := c.rules[l.name], c.queues[l.name]
	const tags = "map[expires:2026-02-07T12:00:00Z owner:me_ on a computer program:payhook listen]"
	if fmt.Sprint(r.tags) != tags || fmt.Sprint(q.tags) != tags {
		t.Errorf("the tags are %v and %v", r.tags, q.tags)
	}
	if want := "arn:aws:sqs:us-east-1:123456789012:" + l.name; r.target != want || r.EventPattern != everything {
		t.Errorf("the target of %s is %s", r.EventPattern, r.target)
	}
	policy := q.attributes["Policy"]
	for _, part := range []string{`"Effect":"Deny"`, `"ArnEquals":{"aws:SourceArn":"` + r.Arn + `"}`,
		`"ArnNotEquals":{"aws:SourceArn":"` + r.Arn + `"}`, `"Service":"events.amazonaws.com"`} {
		if !strings.Contains(policy, part) {
			t.Errorf("no %s in %s", part, policy)
		}
	}
	if q.attributes["SqsManagedSseEnabled"] != "true" || q.attributes["MessageRetentionPeriod"] != "86400" {
		t.Errorf("the attributes are %v", q.attributes)
	}
}

func TestNothingIsLeftOfAStartThatFails(t *testing.T) {
	for _, denied := range []string{"PutRule", "CreateQueue", "PutTargets"} {
		c := newCloud(t)
		c.fail = func(operation string) string {
			if operation == denied {
				return "AccessDeniedException"
			}
			return ""
		}
		_, said, status := listen(t, c, "")
		if status != cli.StatusUnreachable || !strings.Contains(said, "AccessDeniedException") {
			t.Errorf("%s: %d, %s", denied, status, said)
		}
		if len(c.rules) != 0 || len(c.queues) != 0 {
			t.Errorf("%s: left behind: %v, %v", denied, c.rules, c.queues)
		}
		if left, err := os.ReadDir(lockFolder()); err != nil || len(left) != 0 {
			t.Errorf("%s: left behind: %v, %v", denied, left, err)
		}
	}
}

// What a crash leaves behind is removed at the next start on the same computer, and what
// anybody left behind a week later. What runs, and what somebody else made, is not.
func TestWhatACrashLeftBehindIsRemoved(t *testing.T) {
	c := newCloud(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	made := c.made(noon)
	var all []*listener
	for range 4 {
		l, err := made.create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	crashed, running, elsewhere, expired := all[0], all[1], all[2], all[3]
	crashed.lock.Close()
	for _, l := range []*listener{elsewhere, expired} { // made on another computer
		l.lock.Close()
		os.Remove(l.lock.Name())
	}
	c.rules[expired.name].tags[expiresTag] = noon.Add(-time.Second).Format(time.RFC3339)
	c.addRule(Prefix+"of-somebody", everything, map[string]string{expiresTag: "2020-01-01T00:00:00Z"})
	// It crashed after the rule was made, and before the queue was.
	c.addRule(Prefix+"half", everything, map[string]string{programTag: program, ownerTag: "me",
		expiresTag: "2020-01-01T00:00:00Z"})

	var said strings.Builder
	if err := made.removeLeftovers(t.Context(), func(format string, args ...any) {
		fmt.Fprintf(&said, format+"\n", args...)
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{elsewhere.name, Prefix + "of-somebody", running.name}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(c.rules)); !slices.Equal(got, want) {
		t.Errorf("there are the rules %q, want %q", got, want)
	}
	if len(c.queues) != 2 || c.queues[elsewhere.name] == nil || c.queues[running.name] == nil {
		t.Errorf("there are the queues %v", c.queues)
	}
	if strings.Count(said.String(), "which me") != 3 {
		t.Errorf("said %s", &said)
	}
}

func TestAQueueThatSomebodyRemovedIsReplaced(t *testing.T) {
	c := newCloud(t)
	s := &session{made: c.made(noon), now: time.Now, wait: smithytime.SleepWithContext, ids: map[string]bool{}}
	s.matcher = newMatcher(s.made.events, "payhook", time.Now)
	var said strings.Builder
	s.say = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	l, err := s.made.create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := l.name
	delete(c.queues, first)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.whenReady(func() { c.publish(envelope("1", "d1", "e1")) })
	if err := s.receive(ctx, &l, func(Event) error {
		cancel()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if l.name == first || c.rules[first] != nil || c.rules[l.name] == nil || !strings.Contains(said.String(),
		"may be missing here") {
		t.Errorf("%s, %v, %s", l.name, c.rules, &said)
	}
}

func TestAPatternIsCheckedByEventBridge(t *testing.T) {
	folder := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(folder, "pattern.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, want := range map[string]string{
		`{"a":`:      "pattern.json is no event pattern: unexpected end of JSON input",
		`{"a": "b"}`: "pattern.json is no event pattern: no, because of a reason",
	} {
		c := newCloud(t)
		c.fail = func(operation string) string {
			if operation == "TestEventPattern" {
				return "InvalidEventPatternException"
			}
			return ""
		}
		if _, said, status := listen(t, c, "", "--pattern", file(text)); status != cli.StatusUsage ||
			!strings.Contains(said, want) || len(c.rules) > 0 || c.calls["PutRule"] > 0 {
			t.Errorf("%s: %d, %s", text, status, said)
		}
	}
	c := newCloud(t)
	pattern := ""
	c.whenReady(func() {
		for _, r := range c.rules {
			pattern = r.EventPattern
		}
		c.publish(envelope("1", "d1", "the-event"))
	})
	listen(t, c, "the-event", "--json", "--pattern", file(`{ "detail-type": [ "<a>" ] }`))
	if pattern != `{"detail-type":["<a>"]}` {
		t.Errorf("the pattern of the rule is %s", pattern)
	}
	if _, said, status := listen(t, newCloud(t), "", "--pattern", "nowhere"); status != cli.StatusUsage {
		t.Errorf("%d, %s", status, said)
	}
}

func noWait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func TestAnEventIsForwardedUntilItIsTaken(t *testing.T) {
	for answers, want := range map[string]forwarded{
		"204":                 {Status: 204, Attempts: 1},
		"500 503 200":         {Status: 200, Attempts: 3},
		"302 400 404 500 200": {Status: 500, Attempts: 4},
	} {
		var bodies []string
		codes := strings.Fields(answers)
		program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body bytes.Buffer
			body.ReadFrom(r.Body)
			bodies = append(bodies, body.String()+r.Header.Get("Content-Type")+r.URL.Path)
			code := 0
			fmt.Sscan(codes[len(bodies)-1], &code)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		}))
		f, err := newForwarder(program.URL+"/events", false, noWait)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.post(t.Context(), []byte("{}")); got != want {
			t.Errorf("%s: got %+v, want %+v", answers, got, want)
		}
		for _, body := range bodies {
			if body != "{}application/json/events" {
				t.Errorf("%s: posted %s", answers, body)
			}
		}
		program.Close()
		if got := f.post(t.Context(), []byte("{}")); got.text() !=
			"not forwarded: no program listens there (4 attempts)" {
			t.Errorf("nothing there: %s", got.text())
		}
	}
}

func TestEventsStayOnThisComputerUnlessAFlagAllowsIt(t *testing.T) {
	for _, to := range []string{"http://192.0.2.1:80", "http://program.example", "https://[2001:db8::1]/x",
		"http://localhost.example", "ftp://127.0.0.1", "127.0.0.1:80", ""} {
		if _, err := newForwarder(to, false, noWait); err == nil {
			t.Errorf("%q is allowed", to)
		}
	}
	for _, to := range []string{"http://127.0.0.1:1", "http://localhost:1/x", "http://[::1]:1"} {
		if _, err := newForwarder(to, false, noWait); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	if _, err := newForwarder("http://program.example", true, noWait); err != nil {
		t.Error(err)
	}
	// A name may resolve to anything.
	f, err := newForwarder("http://localhost:1", false, noWait)
	if err != nil {
		t.Fatal(err)
	}
	f.url = "http://192.0.2.1:1"
	if got := f.post(t.Context(), nil); !strings.Contains(got.Error, "not on this computer") {
		t.Errorf("got %+v", got)
	}
}

func TestADuplicateDeliveryIsForwardedOnce(t *testing.T) {
	var mu sync.Mutex
	posts := 0
	program := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		posts++
	}))
	defer program.Close()
	c := newCloud(t)
	c.whenReady(func() {
		for _, id := range []string{"1", "1", "2"} {
			c.publish(envelope(id, "d", "e"+id))
		}
	})
	out, _, _ := listen(t, c, `"e2"`, "--json", "--forward", program.URL)
	if posts != 2 || strings.Count(out, `"forward":{"status":200,"attempts":1}`) != 2 {
		t.Errorf("%d posts\n%s", posts, out)
	}
}

func TestItIsSaidIfTheRulesAreNotKnown(t *testing.T) {
	c := newCloud(t)
	clock := noon
	m := newMatcher(c.made(noon).events, "payhook", func() time.Time { return clock })
	for i := range testsAtOnce {
		c.addRule(fmt.Sprint("rule", i), fmt.Sprint(i), nil)
	}
	c.addRule("same", "0", nil) // the same pattern is compared once
	c.matches = func(pattern, _ string) bool { return pattern == "0" }
	if got, err := m.match(t.Context(), "{}"); err != nil || fmt.Sprint(got) != "[rule0 same]" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := m.match(t.Context(), "{}"); !errors.Is(err, errTooFast) || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
	clock = clock.Add(time.Minute)
	c.fail = func(string) string { return "AccessDeniedException" }
	if got, err := m.match(t.Context(), "{}"); err == nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
	a := Event{Unknown: errTooFast.Error()}
	if text := strings.Join(a.words(), " "); !strings.Contains(text, "rules not known: more than 20") {
		t.Errorf("got %s", text)
	}
}

func TestAPersonIsNotShownThousandsOfEvents(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, width: 100}
	for i := range 1000 {
		a, _, err := readEvent(envelope(fmt.Sprint(i), "d", fmt.Sprint("e", i)), noon)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.addEvent(a, noon); err != nil {
			t.Fatal(err)
		}
	}
	// The webhook's line comes later.
	w, ok := readWebhook(logs.Entry{Time: noon, Text: `{"msg":"webhook","status":200,"outcome":"accepted",` +
		`"deliveryId":"d","events":10000,"ids":{"published":["e1"]},"idsLeftOut":9999}`})
	if !ok || s.addWebhook(w, noon) != nil || out.Len() > 0 {
		t.Fatalf("%t, %s", ok, &out)
	}
	if err := s.showDue(noon.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 2+maxShown+1 ||
		!strings.HasSuffix(got, "    and 980 more events; --json shows all\n") ||
		!strings.HasPrefix(got, "2026-01-31T12:00:00.000Z  200  accepted  10000 events  delivery d\n") {
		t.Error(got)
	}
	// An event without a webhook, as of a run of redrive, is shown by itself.
	out.Reset()
	a, _, _ := readEvent(envelope("x", "d2", "e"), noon)
	a.Rules = []string{}
	if err := errors.Join(s.addEvent(a, noon), s.showDue(noon.Add(time.Minute))); err != nil || out.String() !=
		"2026-01-31T12:00:00.000Z  event  e  published  PAYMENT_STATUS.RELEASED  matches no rule  delivery d2\n" {
		t.Errorf("%v, %s", err, &out)
	}
}
