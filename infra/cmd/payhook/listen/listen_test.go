package listen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
)

// cloud is a bus with rules, queues, and the log of the webhook function, in memory. It is
// for tests in a bubble.
type cloud struct {
	mu     sync.Mutex
	rules  map[string]*rule
	queues map[string]*queue
	lines  []logEvent
	calls  []string // the operations
	// fail, if set, returns the error code of an operation; "" for none.
	fail func(operation string) string
}

type rule struct{ Name, Arn, EventPattern, Description, target string }

type queue struct {
	attributes map[string]string
	messages   []string // that are not deleted
}

type logEvent struct {
	ID        string `json:"eventId"`
	Timestamp int64  `json:"timestamp"`
	Message   string `json:"message"`
}

func newCloud() *cloud { return &cloud{rules: map[string]*rule{}, queues: map[string]*queue{}} }

func (c *cloud) deployment() *deployment.Deployment {
	return &deployment.Deployment{Name: "stack Payhook (a test)", Bus: "payhook",
		Logs: map[string]string{"webhook": "/webhook"},
		AWS: aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: c,
			Retryer: func() aws.Retryer { return aws.NopRetryer{} }}}
}

// publish puts an event into all queues.
func (c *cloud) publish(body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.queues {
		q.messages = append(q.messages, body)
	}
}

func (c *cloud) log(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, logEvent{strconv.Itoa(len(c.lines)), time.Now().UnixMilli(), line})
}

func (c *cloud) addRule(name, text string) {
	c.rules[name] = &rule{Name: name, Arn: "arn:aws:events:us-east-1:123456789012:rule/payhook/" + name,
		Description: text}
}

// Do implements [aws.HTTPClient].
func (c *cloud) Do(r *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var in input
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, operation)
	var out any
	code := ""
	if c.fail != nil {
		code = c.fail(operation)
	}
	if code == "" {
		out, code = c.answer(r.Context(), operation, in)
	}
	w := httptest.NewRecorder()
	if code != "" {
		w.WriteHeader(http.StatusBadRequest)
		out = map[string]string{"__type": code, "message": "because of a reason"}
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return nil, err
	}
	return w.Result(), r.Context().Err()
}

// input is what of all requests is used.
type input struct {
	Name, Description, NamePrefix, Rule, EventPattern, QueueName string
	QueueURL                                                     string `json:"QueueUrl"`
	Attributes                                                   map[string]string
	Targets                                                      []struct{ Arn string }
	ReceiptHandle                                                string
	StartTime                                                    int64
}

func (c *cloud) answer(ctx context.Context, operation string, in input) (out any, code string) {
	name := in.QueueName + in.QueueURL[strings.LastIndex(in.QueueURL, "/")+1:]
	q := c.queues[name]
	if q == nil && slices.Contains([]string{"GetQueueUrl", "ReceiveMessage", "DeleteMessage", "DeleteQueue"},
		operation) {
		return nil, "com.amazonaws.sqs#QueueDoesNotExist"
	}
	if operation == "FilterLogEvents" {
		return map[string]any{"events": slices.DeleteFunc(slices.Clone(c.lines), func(e logEvent) bool {
			return e.Timestamp < in.StartTime
		})}, ""
	}
	if strings.Contains(operation, "Rule") || strings.Contains(operation, "Targets") {
		return c.answerOfRules(operation, in)
	}
	switch operation {
	case "CreateQueue", "GetQueueUrl":
		if q == nil {
			c.queues[name] = &queue{attributes: in.Attributes}
		}
		return map[string]string{"QueueUrl": "https://sqs.us-east-1.amazonaws.com/123456789012/" + name}, ""
	case "ReceiveMessage":
		if len(q.messages) == 0 {
			c.mu.Unlock()
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			c.mu.Lock()
		}
		var messages []map[string]string
		for _, body := range q.messages {
			messages = append(messages, map[string]string{"MessageId": "m", "ReceiptHandle": body, "Body": body})
		}
		return map[string]any{"Messages": messages}, ""
	case "DeleteMessage":
		q.messages = slices.DeleteFunc(q.messages, func(body string) bool { return body == in.ReceiptHandle })
	case "DeleteQueue":
		delete(c.queues, name)
	default:
		panic(operation)
	}
	return struct{}{}, ""
}

func (c *cloud) answerOfRules(operation string, in input) (out any, code string) {
	switch operation {
	case "ListRules":
		return map[string]any{"Rules": slices.Collect(maps.Values(c.rules))}, ""
	case "PutRule":
		c.addRule(in.Name, in.Description)
		c.rules[in.Name].EventPattern = in.EventPattern
		return map[string]string{"RuleArn": c.rules[in.Name].Arn}, ""
	case "PutTargets":
		c.rules[in.Rule].target = in.Targets[0].Arn
	case "RemoveTargets":
		if c.rules[in.Rule] == nil {
			return nil, "ResourceNotFoundException"
		}
		c.rules[in.Rule].target = ""
	case "DeleteRule":
		if r := c.rules[in.Name]; r != nil && r.target != "" {
			return nil, "ValidationException" // a rule with targets cannot be deleted
		}
		delete(c.rules, in.Name)
	default:
		panic(operation)
	}
	return struct{}{}, ""
}

// envelope is an event as EventBridge hands it on.
func envelope(id, deliveryID, eventID string) string {
	return fmt.Sprintf(`{"version":"0","id":%q,"detail-type":"PAYMENT_STATUS.RELEASED","source":"payhook",`+
		`"account":"1","time":"2026-01-31T12:00:00Z","region":"us-east-1","resources":[%q],`+
		`"detail":{"eventId":%q,"amount":1.00}}`, id, deliveryID, eventID)
}

// listening is a run of follow in a bubble.
type listening struct {
	out, said bytes.Buffer
	end       func() error // ends it
}

// start starts follow and returns when it waits.
func (c *cloud) start(t *testing.T, asJSON bool, forward *forwarder) *listening {
	t.Helper()
	l := &listening{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	p := &cli.Program{Out: &l.out}
	go func() {
		ended <- Follow(ctx, c.deployment(), time.Minute, Everything, forward,
			func(text string) { fmt.Fprintln(&l.said, text) }, func(m fmt.Stringer) error {
				if asJSON {
					return p.PrintJSON(m)
				}
				_, err := fmt.Fprintln(&l.out, m)
				return err
			})
	}()
	l.end = func() error {
		cancel()
		return <-ended
	}
	synctest.Wait()
	return l
}

const delivered = `{"msg":"webhook","outcome":"accepted","status":200,"deliveryId":"d1",` +
	`"ids":{"published":["e1","e2"],"duplicate":["e3"]},"ms":{"record":12,"publish":4},"Parked":0,"Published":2}`

func TestPersonSeesWebhooksAndEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		l := c.start(t, false, nil)
		c.publish(envelope("1", "d1", "e1"))
		c.publish(envelope("1", "d1", "e1")) // delivered twice
		time.Sleep(1500 * time.Millisecond)
		c.log(`START RequestId: 1`)
		c.log(delivered)
		c.log(`{"msg":"webhook","outcome":"signature-mismatch","status":401,"cause":"does not verify"}`)
		c.log(`{"msg":"webhook","outcome":"accepted","status":200,"deliveryId":"d2","events":900,"idsLeftOut":900}`)
		time.Sleep(3 * time.Second)
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
		const at = "2000-01-01T00:00:01.000Z  event e1  PAYMENT_STATUS.RELEASED  delivery d1\n"
		const want = at + `2000-01-01T00:00:01.500Z  200  accepted  3 events  delivery d1  16 ms: record 12, publish 4
    e3  duplicate, not published again
2000-01-01T00:00:01.500Z  401  signature-mismatch  cause: does not verify  less than 1 ms
2000-01-01T00:00:01.500Z  200  accepted  900 events  delivery d2  less than 1 ms
    and 900 more events, whose ids are not logged
`
		if got := l.out.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if said := l.said.String(); strings.Count(said, "\n") != 2 || !strings.HasPrefix(said, "ready: ") ||
			!strings.Contains(said, "removed the rule and the queue payhook-listen-") {
			t.Errorf("said %s", said)
		}
		if len(c.queues) != 0 || len(c.rules) != 0 {
			t.Errorf("left behind: %v, %v", c.queues, c.rules)
		}
	})
}

func TestProgramGetsOneLineOfJSONEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.log(delivered) // before the start
		l := c.start(t, true, nil)
		time.Sleep(1500 * time.Millisecond) // between two polls
		c.publish(envelope("1", "d1", "e1"))
		time.Sleep(2 * time.Second)
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
		want := `{"type":"webhook","time":"2000-01-01T00:00:00.000Z","status":200,"outcome":"accepted",` +
			`"deliveryId":"d1","events":3,` +
			`"ids":{"duplicate":["e3"],"published":["e1","e2"]},"ms":{"publish":4,"record":12}}` + "\n" +
			`{"type":"event","time":"2000-01-01T00:00:02.000Z","eventId":"e1","name":"PAYMENT_STATUS.RELEASED",` +
			`"deliveryId":"d1","event":` + envelope("1", "d1", "e1") + "}\n"
		if got := l.out.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func TestOnlyTheRuleCanSendToItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		l := c.start(t, false, nil)
		for name, r := range c.rules {
			q := c.queues[name]
			if want := "arn:aws:sqs:us-east-1:123456789012:" + name; r.target != want || r.EventPattern != Everything {
				t.Errorf("the target of %s is %s", r.EventPattern, r.target)
			}
			for _, part := range []string{`"Effect":"Deny"`, `"ArnEquals":{"aws:SourceArn":"` + r.Arn + `"}`,
				`"ArnNotEquals":{"aws:SourceArn":"` + r.Arn + `"}`, `"Service":"events.amazonaws.com"`} {
				if !strings.Contains(q.attributes["Policy"], part) {
					t.Errorf("no %s in %s", part, q.attributes["Policy"])
				}
			}
			if q.attributes["SqsManagedSseEnabled"] != "true" || q.attributes["MessageRetentionPeriod"] != "86400" {
				t.Errorf("the attributes are %v", q.attributes)
			}
		}
		if err := l.end(); err != nil || len(c.rules) != 0 {
			t.Errorf("%v, %v", err, c.rules)
		}
	})
}

func TestFailedStartLeavesNothing(t *testing.T) {
	for _, denied := range []string{"ListRules", "PutRule", "CreateQueue", "PutTargets", "FilterLogEvents",
		"ReceiveMessage"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud()
			c.fail = func(operation string) string {
				if operation == denied {
					return "AccessDeniedException"
				}
				return ""
			}
			if err := c.start(t, false, nil).end(); err == nil || !strings.Contains(err.Error(), denied) ||
				len(c.rules) != 0 || len(c.queues) != 0 {
				t.Errorf("%s: %v; left behind: %v, %v", denied, err, c.rules, c.queues)
			}
		})
	}
}

func TestExpiredRulesAreRemovedAtTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.addRule(Prefix+"crashed", description+time.Now().Format(time.RFC3339))
		c.rules[Prefix+"crashed"].target = "queue"
		c.queues[Prefix+"crashed"] = &queue{}
		// It crashed before the queue was made.
		c.addRule(Prefix+"half", description+time.Now().Add(-time.Hour).Format(time.RFC3339))
		c.addRule(Prefix+"running", description+time.Now().Add(time.Hour).Format(time.RFC3339))
		c.addRule(Prefix+"of-somebody", "2020-01-01T00:00:00Z")
		l := c.start(t, false, nil)
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
		want := []string{Prefix + "of-somebody", Prefix + "running"}
		if got := slices.Sorted(maps.Keys(c.rules)); !slices.Equal(got, want) || len(c.queues) != 0 {
			t.Errorf("the rules are %q, want %q; the queues are %v", got, want, c.queues)
		}
		if strings.Count(l.said.String(), "of an earlier run") != 2 {
			t.Errorf("said %s", &l.said)
		}
	})
}

func TestRemovedQueueEndsTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.fail = func(operation string) string { // a new queue is not known everywhere at once
			if operation == "ReceiveMessage" &&
				time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) < 5*time.Second {
				return "com.amazonaws.sqs#QueueDoesNotExist"
			}
			return ""
		}
		l := c.start(t, false, nil)
		time.Sleep(20 * time.Second)
		c.publish(envelope("1", "d", "e1"))
		time.Sleep(2 * time.Second)
		c.mu.Lock()
		clear(c.queues)
		c.mu.Unlock()
		time.Sleep(10 * time.Second)
		if err := l.end(); err == nil || !strings.Contains(err.Error(), "somebody removed") ||
			!strings.Contains(l.out.String(), "event e1") {
			t.Errorf("%v\n%s", err, &l.out)
		}
	})
}

func TestPatternIsReadWithoutSpaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pattern.json")
	o := &options{pattern: file}
	if _, err := o.readPattern(); err == nil {
		t.Error("there is no file")
	}
	for text, want := range map[string]string{`{"a":`: "", `{ "detail-type": [ "<a>" ] }`: `{"detail-type":["<a>"]}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := o.readPattern(); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// answers is a program that answers with these statuses, one after another.
type answers struct {
	statuses []int
	bodies   []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a.bodies = append(a.bodies, r.URL.Path+" "+r.Header.Get("Content-Type")+" "+string(body))
	status := a.statuses[0]
	a.statuses = a.statuses[1:]
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"/elsewhere"}}, Body: http.NoBody}, nil
}

func TestEventIsForwardedUntilAccepted(t *testing.T) {
	for want, statuses := range map[string][]int{
		"forwarded 204":                                  {204},
		"forwarded 200 (3 attempts)":                     {500, 503, 200},
		"forwarded 500 (4 attempts)":                     {302, 400, 404, 500, 200},
		"not forwarded: connection refused (4 attempts)": {0, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, err := newForwarder("http://127.0.0.1:1/events", false)
			if err != nil {
				t.Fatal(err)
			}
			program := &answers{statuses: statuses}
			f.client.Transport = program
			c := newCloud()
			l := c.start(t, false, f)
			c.publish(envelope("1", "d", "e"))
			c.publish(envelope("1", "d", "e")) // delivered twice
			time.Sleep(20 * time.Second)
			if err := l.end(); err != nil || !strings.HasSuffix(l.out.String(), "  "+want+"\n") {
				t.Errorf("%v, %s, want %s", err, &l.out, want)
			}
			for _, body := range program.bodies {
				if body != "/events application/json "+envelope("1", "d", "e") {
					t.Errorf("posted %s", body)
				}
			}
		})
	}
}

func TestEventsLeaveThisComputerOnlyWithTheFlag(t *testing.T) {
	for _, to := range []string{"http://192.0.2.1:80", "http://program.example", "https://[2001:db8::1]/x",
		"http://localhost.example", "ftp://127.0.0.1", "127.0.0.1:80", ""} {
		if _, err := newForwarder(to, false); err == nil {
			t.Errorf("%q is allowed", to)
		}
	}
	for _, to := range []string{"http://127.0.0.1:1", "http://localhost:1/x", "http://[::1]:1"} {
		if _, err := newForwarder(to, false); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	if _, err := newForwarder("http://program.example", true); err != nil {
		t.Error(err)
	}
}
