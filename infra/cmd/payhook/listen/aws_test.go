package listen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"payhook.example/shared/names"
)

// cloud is what of AWS the command uses, over a real connection: a bus with rules, queues,
// the log of the webhook function, and the outputs of the stack.
type cloud struct {
	*httptest.Server

	mu     sync.Mutex
	rules  map[string]*rule
	queues map[string]*queue
	lines  []logEvent
	calls  map[string]int // by the name of the operation
	// fail, if set, is the answer to an operation instead: a code of AWS, "" for none.
	fail func(operation string) string
	// matches says whether an event matches a pattern.
	matches func(pattern, event string) bool
}

type rule struct {
	Name, Arn, EventPattern, State, EventBusName string
	ManagedBy                                    string `json:",omitempty"`
	tags                                         map[string]string
	target                                       string
}

type queue struct {
	attributes, tags map[string]string
	messages         []string
	received         int // of messages
	deleted          int
}

type logEvent struct {
	ID        string `json:"eventId"`
	Timestamp int64  `json:"timestamp"`
	Message   string `json:"message"`
}

func newCloud(t *testing.T) *cloud {
	c := &cloud{rules: map[string]*rule{}, queues: map[string]*queue{}, calls: map[string]int{},
		matches: func(string, string) bool { return false }}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // which macOS uses
	return c
}

// addRule adds a rule of the bus.
func (c *cloud) addRule(name, pattern string, tags map[string]string) *rule {
	r := &rule{Name: name, Arn: "arn:aws:events:us-east-1:123456789012:rule/payhook/" + name, EventPattern: pattern,
		State: "ENABLED", EventBusName: "payhook", tags: tags}
	c.rules[name] = r
	return r
}

// publish puts an event into the queues behind all rules.
func (c *cloud) publish(body string) {
	for _, q := range c.queues {
		q.messages = append(q.messages, body)
	}
}

// log adds a line to the log of the webhook function.
func (c *cloud) log(at time.Time, line string) {
	c.lines = append(c.lines, logEvent{strconv.Itoa(len(c.lines)), at.UnixMilli(), line})
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// An answer before the whole request was read can make the client close the
	// connection.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	_, operation, isJSON := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if !isJSON {
		r.ParseForm()
		operation = r.Form.Get("Action")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[operation]++
	if c.fail != nil {
		if code := c.fail(operation); code != "" {
			w.Header().Set("Content-Type", "application/x-amz-json-1.1")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"__type":%q,"message":"no, because of a reason"}`, code)
			return
		}
	}
	switch operation {
	case "DescribeStacks":
		fmt.Fprintf(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member>`+
			`<StackName>Payhook</StackName><CreationTime>2026-01-31T12:00:00Z</CreationTime>`+
			`<StackStatus>CREATE_COMPLETE</StackStatus><Outputs>`+
			`<member><OutputKey>%s</OutputKey><OutputValue>payhook</OutputValue></member>`+
			`<member><OutputKey>%s</OutputKey><OutputValue>/webhook</OutputValue></member></Outputs>`+
			`</member></Stacks></DescribeStacksResult></DescribeStacksResponse>`, names.EventBusNameOutput,
			names.WebhookLogsOutput)
		return
	case "GetCallerIdentity":
		fmt.Fprint(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/me`+
			`</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`)
		return
	}
	var in struct {
		Name, NamePrefix, Rule, ResourceARN, EventPattern, Event, QueueName string
		QueueURL                                                            string `json:"QueueUrl"`
		Tags                                                                json.RawMessage
		TagsOfQueue                                                         map[string]string `json:"tags"`
		Attributes                                                          map[string]string
		Targets                                                             []struct{ Arn string }
		Entries                                                             []struct{ ID string }
		StartTime                                                           int64
	}
	if err := json.Unmarshal(body, &in); err != nil {
		panic(err)
	}
	reject := func(code string) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"__type":%q,"message":"there is none"}`, code)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	name := in.QueueName + in.QueueURL[strings.LastIndex(in.QueueURL, "/")+1:]
	q := c.queues[name]
	if q == nil && slices.Contains([]string{"GetQueueUrl", "ReceiveMessage", "DeleteMessageBatch", "DeleteQueue"},
		operation) {
		reject("com.amazonaws.sqs#QueueDoesNotExist")
		return
	}
	var out any = struct{}{}
	switch operation {
	case "FilterLogEvents":
		from := slices.IndexFunc(c.lines, func(e logEvent) bool { return e.Timestamp >= in.StartTime })
		if from >= 0 {
			out = map[string]any{"events": c.lines[from:]}
		}
	case "ListRules":
		var found []*rule
		for _, name := range slices.Sorted(maps.Keys(c.rules)) {
			if strings.HasPrefix(name, in.NamePrefix) {
				found = append(found, c.rules[name])
			}
		}
		out = map[string]any{"Rules": found}
	case "ListTagsForResource":
		var tags []map[string]string
		for key, value := range c.rules[in.ResourceARN[strings.LastIndex(in.ResourceARN, "/")+1:]].tags {
			tags = append(tags, map[string]string{"Key": key, "Value": value})
		}
		out = map[string]any{"Tags": tags}
	case "PutRule":
		var list []struct{ Key, Value string }
		if err := json.Unmarshal(in.Tags, &list); err != nil {
			panic(err)
		}
		tags := map[string]string{}
		for _, tag := range list {
			tags[tag.Key] = tag.Value
		}
		out = map[string]string{"RuleArn": c.addRule(in.Name, in.EventPattern, tags).Arn}
	case "PutTargets":
		c.rules[in.Rule].target = in.Targets[0].Arn
	case "RemoveTargets":
		if c.rules[in.Rule] == nil {
			reject("ResourceNotFoundException")
			return
		}
		c.rules[in.Rule].target = ""
	case "DeleteRule":
		if r := c.rules[in.Name]; r != nil && r.target != "" {
			reject("ValidationException") // a rule with targets cannot be deleted
			return
		}
		delete(c.rules, in.Name)
	case "TestEventPattern":
		out = map[string]bool{"Result": c.matches(in.EventPattern, in.Event)}
	case "CreateQueue":
		c.queues[name] = &queue{attributes: in.Attributes, tags: in.TagsOfQueue}
		out = map[string]string{"QueueUrl": c.URL + "/123456789012/" + name}
	case "GetQueueUrl":
		out = map[string]string{"QueueUrl": c.URL + "/123456789012/" + name}
	case "ReceiveMessage":
		var messages []map[string]string
		for ; q.received < len(q.messages); q.received++ {
			messages = append(messages, map[string]string{"MessageId": "m", "ReceiptHandle": "r",
				"Body": q.messages[q.received]})
		}
		if messages == nil {
			c.mu.Unlock()
			time.Sleep(5 * time.Millisecond) // a real queue would wait longer
			c.mu.Lock()
		}
		out = map[string]any{"Messages": messages}
	case "DeleteMessageBatch":
		q.deleted += len(in.Entries)
	case "DeleteQueue":
		delete(c.queues, name)
	default:
		panic(operation)
	}
	json.NewEncoder(w).Encode(out)
}
