package replay

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

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/target"
	"payhook.example/infra/local/up"
	"payhook.example/shared/names"
)

var now = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

const (
	somewhere = "arn:aws:events:us-east-1:123456789012:"
	eventID   = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"
	// name is that of a replay that is started now.
	name = "payhook-20260131T120000"
)

// cloud is what of AWS the command uses, over a real connection.
type cloud struct {
	mu      sync.Mutex
	outputs map[string]string
	rules   []map[string]any
	item    map[string]any // of the ledger; nil: none
	archive map[string]any // nil: none
	replays []*stored
	started []map[string]any
	// states are the answers to further requests for the progress of a replay.
	states []map[string]any
	// fail, if set, is the answer to an operation instead: a code of AWS, "" for none.
	fail  func(operation string) string
	calls []string
}

// stored is a replay as AWS describes it.
type stored map[string]any

func newCloud() *cloud {
	rule := func(name, pattern, state string) map[string]any {
		return map[string]any{"Name": name, "Arn": somewhere + "rule/payhook/" + name, "EventPattern": pattern,
			"State": state}
	}
	managed := rule("Events-Archive-payhook", `{"replay-name":[{"exists":false}]}`, "ENABLED")
	managed["ManagedBy"] = "prod.vhs.events.aws.internal"
	return &cloud{
		outputs: map[string]string{names.EventBusNameOutput: "payhook", names.ArchiveOutput: "payhook",
			names.EventBusARNOutput: somewhere + "event-bus/payhook", names.LedgerTableOutput: "ledger-1"},
		rules: []map[string]any{rule("released", `{"source":["payhook"]}`, "ENABLED"), managed,
			rule("off", `{"source":["payhook"]}`, "DISABLED"), rule("euro", `{"source":["payhook"]}`, "ENABLED"),
			rule("payhook-listen-1", `{"source":[{"prefix":""}]}`, "ENABLED")},
		archive: map[string]any{"RetentionDays": 30, "CreationTime": now.AddDate(-1, 0, 0).Unix()},
		states:  []map[string]any{{"State": "COMPLETED", "EventLastReplayedTime": now.Add(-2 * time.Hour).Unix()}},
	}
}

// published is the ledger's item of an event.
func published(eventTimestamp, publishedAt time.Time) map[string]any {
	milliseconds := func(at time.Time) map[string]string {
		return map[string]string{"N": fmt.Sprint(at.UnixMilli())}
	}
	return map[string]any{"eventId": map[string]string{"S": eventID}, "recordedAt": milliseconds(publishedAt),
		"publishedAt": milliseconds(publishedAt), "eventTimestamp": milliseconds(eventTimestamp)}
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, operation, isJSON := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if !isJSON {
		r.ParseForm()
		operation = r.Form.Get("Action")
	}
	c.calls = append(c.calls, operation)
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	reject := func(code string) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"__type":%q,"message":"no, because of a reason"}`, code)
	}
	if c.fail != nil {
		if code := c.fail(operation); code != "" {
			reject(code)
			return
		}
	}
	if operation == "DescribeStacks" {
		w.Header().Set("Content-Type", "text/xml")
		fmt.Fprint(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>Payhook</StackName>`+
			`<CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus><Outputs>`)
		for key, value := range c.outputs {
			fmt.Fprintf(w, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>`, key, value)
		}
		fmt.Fprint(w, `</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`)
		return
	}
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		panic(err)
	}
	find := func() stored {
		i := slices.IndexFunc(c.replays, func(s *stored) bool { return (*s)["ReplayName"] == in["ReplayName"] })
		if i < 0 {
			reject("ResourceNotFoundException")
			return nil
		}
		return *c.replays[i]
	}
	var out any = struct{}{}
	switch operation {
	case "GetItem":
		out = map[string]any{"Item": c.item}
	case "ListRules":
		out = map[string]any{"Rules": c.rules}
	case "DescribeArchive":
		if c.archive == nil {
			reject("ResourceNotFoundException")
			return
		}
		out = c.archive
	case "StartReplay":
		c.started = append(c.started, in)
		c.replays = append(c.replays, &stored{"ReplayName": in["ReplayName"], "EventSourceArn": in["EventSourceArn"],
			"EventStartTime": in["EventStartTime"], "EventEndTime": in["EventEndTime"],
			"Destination": in["Destination"], "State": "STARTING", "ReplayStartTime": now.Unix()})
		out = map[string]any{"State": "STARTING"}
	case "DescribeReplay":
		s := find()
		if s == nil {
			return
		}
		if len(c.states) > 0 {
			maps.Copy(s, c.states[0])
			c.states = c.states[1:]
		}
		out = s
	case "CancelReplay":
		s := find()
		if s == nil {
			return
		}
		if s["State"] == "COMPLETED" {
			reject("IllegalStatusException")
			return
		}
		s["State"] = "CANCELLING"
	case "ListReplays":
		if in["EventSourceArn"] != somewhere+"archive/payhook" {
			panic(in)
		}
		// One a page.
		next := 0
		fmt.Sscan(fmt.Sprint(in["NextToken"]), &next)
		page := map[string]any{"Replays": c.replays[next:min(next+1, len(c.replays))]}
		if next+1 < len(c.replays) {
			page["NextToken"] = fmt.Sprint(next + 1)
		}
		out = page
	default:
		panic(operation)
	}
	json.NewEncoder(w).Encode(out)
}

func (c *cloud) count(operation string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if call == operation {
			n++
		}
	}
	return n
}

// world is one run of the command.
type world struct {
	*cloud
	answer string // of the person; "" if nobody is there
	pause  func(context.Context) error
	pauses int
}

func newWorld(t *testing.T) *world {
	w := &world{cloud: newCloud()}
	w.pause = func(context.Context) error {
		if w.pauses++; w.pauses > 50 {
			t.Error("it waits without end")
			return errors.New("too long")
		}
		return nil
	}
	server := httptest.NewServer(w.cloud)
	t.Cleanup(server.Close)
	for key, value := range map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_CONFIG_FILE": "/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_PROFILE": "", "AWS_MAX_ATTEMPTS": "1"} {
		t.Setenv(key, value)
	}
	t.Chdir(t.TempDir())
	return w
}

func (w *world) run(ctx context.Context, args ...string) (out, stderr string, status int) {
	var o, e bytes.Buffer
	p := &cli.Program{In: strings.NewReader(w.answer + "\n"), Out: &o, Err: &e, Terminal: w.answer != "",
		Now: func() time.Time { return now }}
	var meant target.Target
	root := p.Root("")
	meant.Register(root)
	root.AddCommand((&program{p, &meant, w.pause}).command())
	status = p.Run(ctx, root, append([]string{"replay"}, args...))
	return o.String(), e.String(), status
}

// expect runs the command, and fails the test if its status is another.
func (w *world) expect(t *testing.T, status int, args ...string) (out, stderr string) {
	t.Helper()
	out, stderr, got := w.run(t.Context(), args...)
	if got != status {
		t.Errorf("%v: status %d, want %d\n%s%s", args, got, status, out, stderr)
	}
	return out, stderr
}

// holds fails the test if a text does not contain all parts.
func holds(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it lacks %q:\n%s", part, text)
		}
	}
}

var anHour = []string{"--from", "2026-01-31T10:00:00Z", "--to", "2026-01-31T11:00:00Z"}

func with(args []string, more ...string) []string { return append(slices.Clone(args), more...) }

func TestAReplayIsStartedAndFollowed(t *testing.T) {
	w := newWorld(t)
	w.states = []map[string]any{
		{"State": "STARTING"}, {"State": "STARTING"},
		{"State": "RUNNING", "EventLastReplayedTime": now.Add(-90 * time.Minute).Unix()},
		{"State": "COMPLETED", "EventLastReplayedTime": now.Add(-61 * time.Minute).Unix()},
	}
	w.answer = "y"
	out, stderr := w.expect(t, 0, with(anHour, "--rule", "euro", "--rule", "released", "--rule", "euro")...)
	want := []map[string]any{{
		"ReplayName": name, "EventSourceArn": somewhere + "archive/payhook",
		"Description":    "Started by payhook replay",
		"EventStartTime": float64(now.Add(-2 * time.Hour).Unix()),
		"EventEndTime":   float64(now.Add(-time.Hour).Unix()),
		"Destination": map[string]any{"Arn": somewhere + "event-bus/payhook",
			"FilterArns": []any{somewhere + "rule/payhook/euro", somewhere + "rule/payhook/released"}},
	}}
	if diff := cmp.Diff(want, w.started); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	holds(t, stderr, "from 2026-01-31T10:00:00.000Z to before 2026-01-31T11:00:00.000Z (1h)", "rules   euro",
		"        released", "Start the replay? [y/N]",
		"STARTING, no event was replayed yet\nRUNNING, events up to 2026-01-31T10:30:00.000Z were replayed (50%")
	if want := name + "  COMPLETED, events up to 2026-01-31T10:59:00.000Z were replayed\n"; out != want {
		t.Errorf("got %q", out)
	}
	if w.pauses != 3 {
		t.Errorf("%d pauses", w.pauses)
	}
}

func TestNothingIsStartedWithoutConfirmation(t *testing.T) {
	for _, answer := range []string{"", "n", "no", "maybe"} {
		w := newWorld(t)
		w.answer = answer
		w.expect(t, cli.StatusUsage, with(anHour, "--rule", "euro")...)
		if len(w.started) > 0 {
			t.Errorf("%q: %v", answer, w.started)
		}
	}
	w := newWorld(t)
	w.expect(t, 0, with(anHour, "--rule", "euro", "--yes")...)
	if len(w.started) != 1 {
		t.Errorf("with --yes: %v", w.started)
	}
}

// A rule that is left out gets nothing, so the request always names rules.
func TestAllRulesAreThoseThatDeliverToConsumers(t *testing.T) {
	w := newWorld(t)
	w.expect(t, 0, with(anHour, "--all-rules", "--yes")...)
	got := w.started[0]["Destination"].(map[string]any)["FilterArns"]
	want := []any{somewhere + "rule/payhook/released", somewhere + "rule/payhook/euro"}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	w.rules = w.rules[1:3]
	_, stderr := w.expect(t, cli.StatusUsage, with(anHour, "--all-rules", "--yes")...)
	holds(t, stderr, "no enabled rule")
}

func TestARuleThatDeliversNothingIsRejected(t *testing.T) {
	for rule, want := range map[string]string{
		"other": `the bus has no rule "other"; it has released, off, euro, payhook-listen-1`,
		"off":   "the rule off is disabled",
		// It fills the archive.
		"Events-Archive-payhook": "the bus has no rule",
	} {
		w := newWorld(t)
		_, stderr := w.expect(t, cli.StatusUsage, with(anHour, "--rule", "euro", "--rule", rule, "--yes")...)
		holds(t, stderr, want)
		if len(w.started) > 0 {
			t.Errorf("%s: %v", rule, w.started)
		}
	}
	// The rule of payhook listen shows what is replayed to nobody else.
	w := newWorld(t)
	w.expect(t, 0, with(anHour, "--rule", "payhook-listen-1", "--yes")...)
}

func TestWrongFlagsStartNothing(t *testing.T) {
	for args, want := range map[string]string{
		"--rule euro":                              "--from and --to, or --event",
		"--from 3h --rule euro":                    "--from and --to, or --event",
		"--to 3h --rule euro":                      "--from and --to, or --event",
		"--from 3h --to 2h":                        "--rule must say",
		"--from 3h --to 2h --rule a --all-rules":   "--all-rules cannot be used with --rule",
		"--from 2h --to 3h --rule euro":            "--from must be before --to",
		"--from 2h --to 2h --rule euro":            "--from must be before --to",
		"--from 2h --to 0s --rule euro":            "--to must not be after 2026-01-31T11:50:00.000Z, which is 10m ago",
		"--from 2h --to 599s --rule euro":          "--to must not be after",
		"--event x --rule euro":                    "must be a UUID",
		"--from x --rule euro":                     "must be a time such as",
		"--event " + eventID:                       "--rule must say",
		"--event " + eventID + " --to 2h --rule a": "--event takes its time from the ledger",
	} {
		w := newWorld(t)
		_, stderr := w.expect(t, cli.StatusUsage, with(strings.Fields(args), "--yes")...)
		holds(t, stderr, want)
		if len(w.calls) > 0 {
			t.Errorf("%s: %q", args, w.calls)
		}
	}
	w := newWorld(t)
	w.expect(t, 0, "--from", "2h", "--to", "10m", "--rule", "euro", "--yes")
}

// EventBridge has whole seconds: the ones at both ends are included.
func TestTimesAreWidenedToWholeSeconds(t *testing.T) {
	w := newWorld(t)
	w.expect(t, 0, "--from", "2026-01-31T10:00:00.900Z", "--to", "2026-01-31T10:00:01.001Z", "--rule", "euro", "--yes")
	if from, to := w.started[0]["EventStartTime"], w.started[0]["EventEndTime"]; from != float64(now.Add(
		-2*time.Hour).Unix()) || to != float64(now.Add(-2*time.Hour+2*time.Second).Unix()) {
		t.Errorf("%v to %v", from, to)
	}
}

func TestAnEventIsReplayedWithItsMinute(t *testing.T) {
	w := newWorld(t)
	at := time.Date(2026, 1, 31, 8, 15, 59, 999e6, time.UTC)
	w.item = published(at, now.Add(-10*time.Minute))
	_, stderr := w.expect(t, 0, "--event", eventID, "--rule", "euro", "--yes")
	from := time.Date(2026, 1, 31, 8, 15, 0, 0, time.UTC)
	if s := w.started[0]; s["EventStartTime"] != float64(from.Unix()) ||
		s["EventEndTime"] != float64(from.Add(time.Minute).Unix()) {
		t.Errorf("%v to %v", s["EventStartTime"], s["EventEndTime"])
	}
	holds(t, stderr, "cannot replay one event alone")
}

func TestAnEventThatIsNotInTheArchiveIsRejected(t *testing.T) {
	pending := published(now, now.Add(-time.Hour))
	delete(pending, "publishedAt")
	old := published(now, now.Add(-time.Hour))
	delete(old, "eventTimestamp")
	for want, item := range map[string]map[string]any{
		"the ledger does not know the event":                     nil,
		"was not published yet":                                  pending,
		"it was published by an older version":                   old,
		"was published 9m59s ago: AWS takes up to 10m to put it": published(now, now.Add(-599*time.Second)),
		"Replay it after 2026-01-31T12:09:00.000Z":               published(now, now.Add(-time.Minute)),
	} {
		w := newWorld(t)
		w.item = item
		_, stderr := w.expect(t, cli.StatusUsage, "--event", eventID, "--rule", "euro", "--yes")
		holds(t, stderr, want)
		if len(w.started) > 0 {
			t.Errorf("%s: %v", want, w.started)
		}
	}
}

func TestAStackWithoutAnArchiveIsExplained(t *testing.T) {
	w := newWorld(t)
	delete(w.outputs, names.ArchiveOutput)
	_, stderr := w.expect(t, cli.StatusUsage, with(anHour, "--rule", "euro", "--yes")...)
	holds(t, stderr, "has no archive: archiveRetention is off, or the stack is older")

	w = newWorld(t)
	w.archive = nil
	_, stderr = w.expect(t, cli.StatusUsage, with(anHour, "--rule", "euro", "--yes")...)
	holds(t, stderr, "the archive payhook does not exist any more")

	w = newWorld(t)
	if err := os.Mkdir(filepath.Dir(up.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (up.File{Endpoint: os.Getenv("AWS_ENDPOINT_URL"), Region: "us-east-1", Stack: "Payhook"}).
		Write("."); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{with(anHour, "--rule", "euro", "--yes"), {"list"}, {"watch", name},
		{"cancel", name}} {
		_, stderr = w.expect(t, cli.StatusUsage, with(args, "--local")...)
		holds(t, stderr, "the emulator of the local run has no archive")
	}
}

func TestWhatTheArchiveLacksIsSaid(t *testing.T) {
	w := newWorld(t)
	_, stderr := w.expect(t, 0, "--from", "31d", "--to", "1d", "--rule", "euro", "--yes")
	holds(t, stderr, "the archive keeps events for 30 days: older ones are not replayed")
	if strings.Contains(stderr, "was created") {
		t.Error(stderr)
	}
	w = newWorld(t)
	w.archive["CreationTime"] = now.Add(-time.Hour).Unix()
	_, stderr = w.expect(t, 0, "--from", "2h", "--to", "30m", "--rule", "euro", "--yes")
	holds(t, stderr, "the archive was created at 2026-01-31T11:00:00.000Z")
	if strings.Contains(stderr, "older ones") {
		t.Error(stderr)
	}
}

// AWS completes a replay of a time without events, and then knows no time of a last one.
func TestAReplayWithoutEventsNeedsAttention(t *testing.T) {
	for want, state := range map[string]map[string]any{
		"COMPLETED, but no event was replayed: the archive has none of this time": {"State": "COMPLETED"},
		"FAILED, no event was replayed: because": {
			"State": "FAILED", "StateReason": "because",
		},
		"CANCELLED, events up to 2026-01-31T10:00:00.000Z were replayed": {
			"State": "CANCELLED", "EventLastReplayedTime": now.Add(-2 * time.Hour).Unix(),
		},
	} {
		w := newWorld(t)
		w.states = []map[string]any{state}
		out, _ := w.expect(t, cli.StatusFailed, with(anHour, "--rule", "euro", "--yes")...)
		holds(t, out, name+"  "+want)
	}
}

func TestTheResultIsADocument(t *testing.T) {
	w := newWorld(t)
	out, _ := w.expect(t, 0, with(anHour, "--rule", "euro", "--yes", "--json")...)
	var got replay
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := replay{Name: name, State: "COMPLETED", Archive: "payhook", From: now.Add(-2 * time.Hour),
		To: now.Add(-time.Hour), Rules: []string{"euro"}, LastReplayed: now.Add(-2 * time.Hour), Started: now}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestCtrlCSaysHowToGoOn(t *testing.T) {
	w := newWorld(t)
	w.states = []map[string]any{{"State": "RUNNING"}}
	ctx, cancel := context.WithCancel(t.Context())
	w.pause = func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	}
	_, stderr, status := w.run(ctx, with(anHour, "--rule", "euro", "--yes")...)
	if status != cli.StatusInterrupted || w.count("CancelReplay") > 0 {
		t.Errorf("status %d, %q", status, w.calls)
	}
	holds(t, stderr, "payhook replay watch "+name, "payhook replay cancel "+name)
}

func TestAnErrorOfAWSSaysWhatToDo(t *testing.T) {
	for operation, codes := range map[string]map[string]string{
		"StartReplay": {"LimitExceededException": "at most 10 replays", "ResourceAlreadyExistsException": "same second",
			"AccessDeniedException": "because of a reason"},
		"DescribeReplay":  {"AccessDeniedException": "the replay goes on in AWS"},
		"DescribeArchive": {"AccessDeniedException": "because of a reason"},
		"ListRules":       {"AccessDeniedException": "because of a reason"},
		"GetItem":         {"AccessDeniedException": "because of a reason"},
		"DescribeStacks":  {"AccessDenied": "cannot be read"},
	} {
		for code, want := range codes {
			w := newWorld(t)
			w.fail = func(o string) string {
				if o == operation {
					return code
				}
				return ""
			}
			args := with(anHour, "--rule", "euro", "--yes")
			if operation == "GetItem" {
				args = []string{"--event", eventID, "--rule", "euro", "--yes"}
			}
			_, stderr := w.expect(t, cli.StatusUnreachable, args...)
			holds(t, stderr, want)
		}
	}
}

func TestALostAnswerSaysThatTheReplayMayRun(t *testing.T) {
	w := newWorld(t)
	w.fail = func(o string) string {
		if o == "StartReplay" {
			panic(http.ErrAbortHandler)
		}
		return ""
	}
	_, stderr := w.expect(t, cli.StatusUnreachable, with(anHour, "--rule", "euro", "--yes")...)
	holds(t, stderr, "it is not known whether the replay "+name+" was started")
}

// What was just started may be unknown to AWS for a moment.
func TestAReplayMayBeUnknownForAMoment(t *testing.T) {
	w := newWorld(t)
	unknown := 0
	w.fail = func(o string) string {
		if o == "DescribeReplay" {
			if unknown++; unknown <= unknownFor {
				return "ResourceNotFoundException"
			}
		}
		return ""
	}
	w.expect(t, 0, with(anHour, "--rule", "euro", "--yes")...)
	w = newWorld(t)
	w.fail = func(o string) string {
		if o == "DescribeReplay" {
			return "ResourceNotFoundException"
		}
		return ""
	}
	w.expect(t, cli.StatusUnreachable, with(anHour, "--rule", "euro", "--yes")...)
}

func (w *world) add(name, archive, state string, started time.Time) {
	w.replays = append(w.replays, &stored{"ReplayName": name, "EventSourceArn": somewhere + "archive/" + archive,
		"State": state, "EventStartTime": now.Add(-2 * time.Hour).Unix(), "EventEndTime": now.Add(-time.Hour).Unix(),
		"ReplayStartTime": started.Unix()})
}

func TestReplaysAreListedTheLatestFirst(t *testing.T) {
	w := newWorld(t)
	_, stderr := w.expect(t, 0, "list")
	holds(t, stderr, "the archive payhook has no replays")
	w.add("payhook-a", "payhook", "COMPLETED", now.Add(-3*time.Hour))
	w.add("payhook-b", "payhook", "RUNNING", now.Add(-time.Minute))
	w.add("payhook-c", "payhook", "FAILED", now.Add(-2*time.Hour))
	out, _ := w.expect(t, 0, "list")
	b, c, a := strings.Index(out, "payhook-b  RUNNING"), strings.Index(out, "payhook-c  FAILED"),
		strings.Index(out, "payhook-a  COMPLETED")
	if b < 0 || c < b || a < c || w.count("ListReplays") != 4 {
		t.Errorf("%d requests\n%s", w.count("ListReplays"), out)
	}
	out, _ = w.expect(t, 0, "list", "--json")
	if n := strings.Count(out, "\n"); n != 3 || !strings.Contains(out, `{"name":"payhook-b","state":"RUNNING"`) {
		t.Error(out)
	}
}

func TestAReplayIsWatchedAndCancelled(t *testing.T) {
	w := newWorld(t)
	w.states = nil
	w.add(name, "payhook", "RUNNING", now)
	out, _ := w.expect(t, 0, "cancel", name)
	holds(t, out, name+"  CANCELLING, no event was replayed yet")
	w.states = []map[string]any{{}, {}, {"State": "CANCELLED"}}
	out, _ = w.expect(t, cli.StatusFailed, "watch", name)
	holds(t, out, name+"  CANCELLED, no event was replayed")

	w = newWorld(t)
	w.states = nil
	w.add(name, "payhook", "COMPLETED", now)
	_, stderr := w.expect(t, cli.StatusFailed, "cancel", name)
	holds(t, stderr, "it does not run any more")
}

// A mistake must not end what others do.
func TestReplaysOfOtherArchivesAreLeftAlone(t *testing.T) {
	for _, command := range []string{"cancel", "watch"} {
		w := newWorld(t)
		w.add("theirs", "orders", "RUNNING", now)
		for _, name := range []string{"theirs", "nobodys"} {
			_, stderr := w.expect(t, cli.StatusUsage, command, name)
			holds(t, stderr, "the archive payhook has no replay")
		}
		if w.count("CancelReplay") > 0 {
			t.Error("it was cancelled")
		}
	}
}
