package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/local"
	output "payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

const place = "arn:aws:events:us-east-1:1:"

// archiveOverHTTP is a stack with an archive, and what arrives behind its rules. A replay takes
// three minutes.
type archiveOverHTTP struct {
	t  *testing.T
	mu sync.Mutex
	// published are the events with the time of their publication.
	published map[string]payment.Event
	at        map[string]time.Time
	arrived   []local.Arrived
	replays   []*replayOverHTTP
	ids       int
	mistake   string // what is wrong, "" for nothing
}

type replayOverHTTP struct {
	name     string
	from, to time.Time
	rules    []string
	started  time.Time
	state    string
	last     time.Time // zero: nothing was replayed
}

// Do answers a request without a connection, so that time can be that of a synctest bubble.
func (a *archiveOverHTTP) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a.serve(w, r)
	return w.Result(), nil
}

func (a *archiveOverHTTP) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	_, operation, isJSON := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if !isJSON {
		form, err := url.ParseQuery(string(body))
		if err != nil || form.Get("Action") != "DescribeStacks" || form.Get("StackName") != "Stack" {
			a.t.Errorf("%s, %v", body, err)
		}
		fmt.Fprint(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>Stack</StackName>`+
			`<CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus><Outputs>`)
		for key, value := range map[string]string{output.EventBusNameOutput: "bus", output.ArchiveOutput: "bus",
			output.EventBusARNOutput: place + "event-bus/bus", output.LedgerTableOutput: "ledger"} {
			fmt.Fprintf(w, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>`, key, value)
		}
		fmt.Fprint(w, `</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`)
		return
	}
	var in struct {
		ReplayName, TargetArn, EventSourceArn string
		EventStartTime, EventEndTime          float64
		Destination                           struct{ FilterArns []string }
		Key                                   map[string]struct{ S string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		a.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	reject := func(code string) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"__type":%q,"message":"no"}`, code)
	}
	var out any = struct{}{}
	switch operation {
	case "DescribeArchive":
		out = map[string]any{"State": "ENABLED", "EventCount": len(a.published), "SizeBytes": 1000,
			"RetentionDays": 30}
	case "DescribeEventBus":
		statement := map[string]any{"Effect": "Deny", "Principal": "*"}
		if a.mistake == "no policy" {
			statement["Effect"] = "Allow"
		}
		policy, _ := json.Marshal(map[string]any{"Statement": []any{statement}})
		out = map[string]any{"Policy": string(policy)}
	case "ListRuleNamesByTarget":
		out = map[string]any{"RuleNames": map[string][]string{"arn:aws:sqs:us-east-1:1:Released": {"Stack-Released"},
			place + "event-bus/other": {"Stack-Other"}}[in.TargetArn]}
	case "ListRules":
		rules := []any{}
		for _, name := range []string{"Stack-Released", "Stack-Other", "Stack-Euro"} {
			rules = append(rules, map[string]any{"Name": name, "Arn": place + "rule/bus/" + name, "EventPattern": "{}",
				"State": "ENABLED"})
		}
		out = map[string]any{"Rules": rules}
	case "GetItem":
		id := in.Key["eventId"].S
		number := func(at time.Time) map[string]string { return map[string]string{"N": fmt.Sprint(at.UnixMilli())} }
		out = map[string]any{"Item": map[string]any{"eventId": map[string]string{"S": id},
			"recordedAt": number(a.at[id]), "publishedAt": number(a.at[id]),
			"eventTimestamp": number(a.published[id].EventTimestamp)}}
	case "StartReplay":
		one := &replayOverHTTP{name: in.ReplayName, from: time.Unix(int64(in.EventStartTime), 0),
			to: time.Unix(int64(in.EventEndTime), 0), started: time.Now(), state: "STARTING"}
		for _, arn := range in.Destination.FilterArns {
			one.rules = append(one.rules, strings.TrimPrefix(arn, place+"rule/bus/Stack-"))
		}
		if a.mistake == "denied" {
			one.state = "FAILED"
		}
		if a.mistake == "at once" {
			a.deliver(one)
		}
		a.replays = append(a.replays, one)
	case "ListReplays":
		all := []any{}
		for _, one := range a.replays {
			all = append(all, a.describe(one))
		}
		if a.mistake == "not listed" {
			all = all[:0]
		}
		out = map[string]any{"Replays": all}
	case "DescribeReplay", "CancelReplay":
		i := slices.IndexFunc(a.replays, func(one *replayOverHTTP) bool { return one.name == in.ReplayName })
		one := a.replays[i]
		described := a.describe(one)
		if operation == "CancelReplay" {
			if one.state != "STARTING" && one.state != "RUNNING" {
				reject("IllegalStatusException")
				return
			}
			one.state = "CANCELLED"
		}
		out = described
	default:
		a.t.Errorf("%s is not expected", operation)
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		a.t.Error(err)
	}
}

// describe returns a replay as AWS does, at this time.
func (a *archiveOverHTTP) describe(one *replayOverHTTP) map[string]any {
	if took := time.Since(one.started); one.state == "STARTING" && took >= time.Minute {
		one.state = "RUNNING"
	} else if one.state == "RUNNING" && took >= 3*time.Minute {
		a.deliver(one)
	}
	described := map[string]any{"ReplayName": one.name, "State": one.state, "EventSourceArn": place + "archive/bus",
		"EventStartTime": one.from.Unix(), "EventEndTime": one.to.Unix(), "ReplayStartTime": one.started.Unix()}
	if !one.last.IsZero() {
		described["EventLastReplayedTime"] = one.last.Unix()
	}
	if one.state == "FAILED" {
		described["StateReason"] = "not authorized"
	}
	return described
}

// deliver delivers the events of a replay to its rules.
func (a *archiveOverHTTP) deliver(one *replayOverHTTP) {
	one.state = "COMPLETED"
	rules := one.rules
	if a.mistake == "all rules" {
		rules = []string{"Released", "Euro"}
	}
	for _, e := range a.published {
		end := e.EventTimestamp.Before(one.to) || a.mistake == "the end" && e.EventTimestamp.Equal(one.to)
		if e.EventTimestamp.Before(one.from) || !end ||
			a.mistake == "one missing" && e.EventTimestamp.Equal(one.from) {
			continue
		}
		one.last = e.EventTimestamp
		for _, rule := range rules {
			a.arrive(e, rule, one.name)
		}
	}
}

// arrive lets an event arrive behind a rule, and behind the bus that this sends it to.
func (a *archiveOverHTTP) arrive(e payment.Event, rule, replayName string) {
	a.ids++
	one := local.Arrived{Rule: strings.ToLower(rule), EventID: e.EventID, DeliveryID: "D",
		Detail: paymenttest.Encode(e), ID: fmt.Sprint(a.ids), ReplayName: replayName}
	if rule == "Other" {
		if !e.EventData.Returns.HasReturnDetails {
			return
		}
		one.Rule = local.OtherBus
	}
	if a.mistake == "another detail" && replayName != "" {
		one.Detail = append(one.Detail, ' ')
	}
	if a.mistake == "no replay-name" {
		one.ReplayName = ""
	}
	a.arrived = append(a.arrived, one)
}

// publish publishes an event to all rules.
func (a *archiveOverHTTP) publish(_ context.Context, e payment.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.published[e.EventID], a.at[e.EventID] = e, time.Now()
	for _, rule := range []string{"Released", "Euro", "Other"} {
		a.arrive(e, rule, "")
	}
	return nil
}

func (a *archiveOverHTTP) Await(ctx context.Context, timeout time.Duration,
	enough func([]local.Arrived) bool) ([]local.Arrived, error) {
	for deadline := time.Now().Add(timeout); ; {
		a.mu.Lock()
		all := slices.Clone(a.arrived)
		a.mu.Unlock()
		if enough(all) {
			return all, nil
		}
		if time.Now().After(deadline) {
			return all, local.ErrNotArrived
		}
		if err := smithytime.SleepWithContext(ctx, time.Second); err != nil {
			return all, err
		}
	}
}

// replayRows returns the rows of an archive in which one thing is wrong, by the beginnings of what
// they show.
func replayRows(t *testing.T, mistake string) map[string]Row {
	t.Helper()
	rows := map[string]Row{}
	synctest.Test(t, func(t *testing.T) {
		a := &archiveOverHTTP{t: t, published: map[string]payment.Event{}, at: map[string]time.Time{},
			mistake: mistake}
		cfg := aws.Config{Region: "us-east-1", HTTPClient: a,
			Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}
		r := &replays{aws: cfg, client: eventbridge.NewFromConfig(cfg), stack: "Stack", bus: "bus", archive: "bus",
			queue: "arn:aws:sqs:us-east-1:1:Released", otherBus: place + "event-bus/other", in: a, send: a.publish,
			now: time.Now, pause: smithytime.SleepWithContext}
		for i, c := range r.checks() {
			name := []string{"publish", "count", "two minutes", "detail", "id", "policy", "one minute", "late",
				"forwarded", "cancel", "list", "nothing else"}[i]
			rows[name] = c.show(t.Context(), nil)
		}
	})
	return rows
}

func TestReplayedEventsAreThoseThatWereAskedFor(t *testing.T) {
	rows := replayRows(t, "")
	for name, actual := range map[string]string{
		"publish": "8 of 8 arrived", "count": "ENABLED, 8 events of 1000 bytes, kept for 30 days",
		"two minutes": "COMPLETED; 5 of 5 arrive, 0 twice, 0 others", "detail": "5 of 5 are the same",
		"id":         "the id of the first delivery for 0 of 5",
		"policy":     "1 statements that deny; the replay was not denied",
		"one minute": "COMPLETED; 3 of 3 arrive, 0 twice, 0 others",
		"late":       "COMPLETED; 1 of 1 arrive, 0 twice, 0 others",
		"forwarded":  "COMPLETED, delivered to the other bus; with replay-name: true",
		"cancel":     "cancelled while STARTING; CANCELLED after ",
		"list":       "5 of 5 are listed, of 5; watch shows COMPLETED",
	} {
		row, status := rows[name], Passed
		if slices.Contains([]string{"count", "id", "late", "forwarded", "cancel"}, name) {
			status = Measured
		}
		if row.Status != status || !strings.HasPrefix(row.Actual, actual) {
			t.Errorf("%s: %+v", name, row)
		}
	}
	if row := rows["nothing else"]; row.Status != Passed || row.Actual != "0 of 10 replayed events" {
		t.Errorf("%+v", row)
	}
}

// What AWS could do in another way is in the row about it.
func TestAReplayIsPassedOnlyIfItIsRight(t *testing.T) {
	for mistake, wrong := range map[string]map[string]string{
		"one missing": {"two minutes": "COMPLETED; 4 of 5 arrive", "one minute": "COMPLETED; 2 of 3 arrive"},
		"the end":     {"two minutes": "5 of 5 arrive, 0 twice, 1 others", "nothing else": " released"},
		"all rules": {"two minutes": "5 of 5 arrive, 0 twice, 5 others",
			"nothing else": "15 of 24 replayed events euro, released"},
		"no replay-name": {"two minutes": "COMPLETED; 0 of 5 arrive", "nothing else": "0 of 0"},
		"another detail": {"detail": "0 of 5 are the same"},
		"denied": {"two minutes": "FAILED: not authorized, no event was replayed; 0 of 5",
			"policy": "1 statements that deny; the replay was not right"},
		"no policy":  {"policy": "0 statements that deny; the replay was not denied"},
		"not listed": {"list": "0 of "},
	} {
		rows := replayRows(t, mistake)
		for name, text := range wrong {
			if row := rows[name]; row.Status != Wrong || !strings.Contains(row.Actual, text) {
				t.Errorf("%s: %s: %+v", mistake, name, row)
			}
		}
		if publish := rows["publish"]; publish.Status != Passed {
			t.Errorf("%s: %+v", mistake, publish)
		}
	}
}

func TestAReplayThatEndsBeforeItIsCancelledIsMeasured(t *testing.T) {
	rows := replayRows(t, "at once")
	if row := rows["cancel"]; row.Status != Measured || row.Actual != "COMPLETED before it could be cancelled" {
		t.Errorf("%+v", row)
	}
	if row := rows["list"]; row.Status != Passed {
		t.Errorf("%+v", row)
	}
}

func TestSettingsTakeRowsFromAnAccount(t *testing.T) {
	for text, want := range map[string][]local.Need{
		"": {MTLS}, "archiveRetention=off": {Archive, MTLS}, "protectBus=false": {MTLS, BusPolicies},
		"archiveRetention=90d protectBus=true authentication=both": nil,
	} {
		conf := map[string]string{}
		for field := range strings.FieldsSeq(text) {
			key, value, _ := strings.Cut(field, "=")
			conf[key] = value
		}
		lacks := lacksOf(conf)
		if len(lacks) != len(want) {
			t.Errorf("%q: %v", text, lacks)
		}
		for _, need := range want {
			if lacks[need] == "" {
				t.Errorf("%q: %v", text, lacks)
			}
		}
	}
}
