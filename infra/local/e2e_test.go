package local

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/deployment"
	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// waitTimeout is how long a test waits for something that must happen. It fails after
// that.
const waitTimeout = time.Minute

// everything is what the end-to-end tests share; nil if they do not run.
var everything *fixture

type fixture struct {
	*stack
	proxy    *proxy
	arrivals *arrivals
	outputs  map[string]string // of the stack, by their names; nil for the first one
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getenv("PAYHOOK_E2E") != "1" {
		return m.Run()
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	top, err := projectTop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p := newProxy()
	defer p.Close()
	state := filepath.Join(top, ".local", "test")
	s, err := start(ctx, options{
		top: top, state: state,
		settings: map[string]string{
			// So that nothing waits long for redrive.
			settings.WebhookTimeout.Key: "4s", settings.RedriveTimeout.Key: "5s", settings.RedriveGrace.Key: "1s",
		},
		endpointFor: func(own string) (string, error) {
			p.emulator = own
			return p.URL, nil
		},
		further:  true,
		progress: newProgress(os.Stdout),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p.credentials = s.AWS.Credentials
	everything = &fixture{stack: s, proxy: p, arrivals: receive(s.AWS, s.Queues)}
	var once sync.Once
	stop := func() {
		once.Do(func() {
			everything.arrivals.stop()
			s.stop()
		})
	}
	defer stop()
	go func() {
		if <-ctx.Done(); ctx.Err() != nil {
			stop()
		}
	}()
	status := m.Run()
	stop()
	if left := processesOf(state); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes were left behind:\n%s\n", strings.Join(left, "\n"))
		return 1
	}
	if ctx.Err() != nil {
		return 130
	}
	return status
}

// deployed returns what is deployed, with the service behaving and the proxy
// forwarding everything. It skips the test if nothing is deployed.
func deployed(t *testing.T) *fixture {
	t.Helper()
	if everything == nil {
		t.Skip("an end-to-end test, which deploys everything into an emulator: make test-e2e, or PAYHOOK_E2E=1")
	}
	everything.proxy.forget()
	t.Cleanup(func() {
		if denied := everything.proxy.denied(); len(denied) > 0 {
			t.Errorf("IAM denied %q", denied)
		}
		if err := everything.service.Misbehave(paymenttest.Keys, paymenttest.Fault{}); err != nil {
			t.Error(err)
		}
	})
	return everything
}

// processesOf returns the lines that ps has of the processes out of a folder.
func processesOf(folder string) []string {
	listing, err := exec.Command("ps", "-A", "-ww", "-o", "pid=", "-o", "stat=", "-o", "command=").Output()
	if err != nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(listing)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1][0] != 'Z' &&
			strings.Contains(line, folder+string(filepath.Separator)) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// answer is the body of an answer of the webhook function, with every field that one can have.
type answer struct {
	status                          int
	header                          http.Header
	Recorded, Duplicates, Conflicts int
	Detail                          string
}

func (f *fixture) send(t *testing.T, payload []byte) answer {
	t.Helper()
	return f.sendBy(t, f.service.Sender(), payload)
}

func (f *fixture) sendBy(t *testing.T, sender paymenttest.Sender, payload []byte) answer {
	t.Helper()
	got, err := sender.Send(t.Context(), paymenttest.Webhook{URL: f.WebhookURL, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: got.Status, header: got.Header}
	if err := json.Unmarshal(got.Body, &a); err != nil {
		t.Fatalf("answered %d %q", got.Status, got.Body)
	}
	return a
}

func (a answer) want(t *testing.T, status, recorded, duplicates int) {
	t.Helper()
	if a.status != status || a.Recorded != recorded || a.Duplicates != duplicates {
		t.Fatalf("answered %d (%s) with %d recorded and %d duplicates, want %d with %d and %d",
			a.status, a.Detail, a.Recorded, a.Duplicates, status, recorded, duplicates)
	}
}

// arriveOnce fails the test unless the queue behind the rule for released payments
// receives each event exactly once.
func (f *fixture) arriveOnce(t *testing.T, events ...payment.Event) {
	t.Helper()
	count := func(all []arrival) map[string]int {
		seen := map[string]int{}
		for _, a := range all {
			if a.rule == released {
				seen[a.eventID]++
			}
		}
		return seen
	}
	if _, err := f.arrivals.await(t.Context(), waitTimeout, func(all []arrival) bool {
		seen := count(all)
		for _, e := range events {
			if seen[e.EventID] == 0 {
				return false
			}
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	// What was published before this one has arrived when it has.
	last := paymenttest.Event()
	f.send(t, paymenttest.Delivery(last)).want(t, http.StatusOK, 1, 0)
	all, err := f.arrivals.await(t.Context(), waitTimeout,
		func(all []arrival) bool { return count(all)[last.EventID] > 0 })
	if err != nil {
		t.Fatal(err)
	}
	seen := count(all)
	for _, e := range events {
		if n := seen[e.EventID]; n != 1 {
			t.Errorf("event %s arrived %d times, want once", e.EventID, n)
		}
	}
}

// redrive runs the redrive function until nothing of those events is pending.
func (f *fixture) redrive(t *testing.T, events ...payment.Event) {
	t.Helper()
	client := lambda.NewFromConfig(f.AWS)
	name := f.Functions["redrive"]
	for deadline := time.Now().Add(waitTimeout); ; {
		out, err := client.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &name})
		if err != nil {
			t.Fatal(err)
		}
		if out.FunctionError != nil {
			t.Fatalf("redrive failed: %s", out.Payload)
		}
		if len(f.pending(t, events...)) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("redrive did not publish everything; it says %s", out.Payload)
		}
		// An item becomes due when no receiver can be working on it any more.
		time.Sleep(200 * time.Millisecond)
	}
}

// pending returns the ids of those of the events that the ledger has as pending.
// It fails the test if one is not in the ledger at all.
func (f *fixture) pending(t *testing.T, events ...payment.Event) []string {
	t.Helper()
	client := dynamodb.NewFromConfig(f.AWS)
	var ids []string
	for _, e := range events {
		consistent := true
		out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{
			TableName: &f.LedgerTable, ConsistentRead: &consistent,
			Key: map[string]types.AttributeValue{names.LedgerKey: &types.AttributeValueMemberS{Value: e.EventID}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Item) == 0 {
			t.Fatalf("event %s is not in the ledger", e.EventID)
		}
		if _, ok := out.Item[names.LedgerPendingShard]; ok {
			ids = append(ids, e.EventID)
		}
	}
	return ids
}

// webhookProcesses returns the numbers of the processes that run the webhook
// function now.
func (f *fixture) webhookProcesses(t *testing.T) []int {
	t.Helper()
	name := f.Functions["webhook"]
	out, err := lambda.NewFromConfig(f.AWS).GetFunction(t.Context(), &lambda.GetFunctionInput{FunctionName: &name})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := base64.StdEncoding.DecodeString(*out.Configuration.CodeSha256)
	if err != nil {
		t.Fatal(err)
	}
	// The emulator unpacks a function into a folder that is named by its digest.
	var pids []int
	for _, line := range processesOf(f.emulator.folder) {
		if strings.Contains(line, hex.EncodeToString(digest)) {
			pid, err := strconv.Atoi(strings.Fields(line)[0])
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func (f *fixture) killWebhook(t *testing.T) {
	t.Helper()
	pids := f.webhookProcesses(t)
	if len(pids) == 0 {
		t.Fatal("no process runs the webhook function")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(waitTimeout); len(f.webhookProcesses(t)) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("a killed process does not end")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// allRight fails the test if a result is wrong.
func allRight(t *testing.T, sections ...section) {
	t.Helper()
	if r := newReport(sections, ""); !r.Right {
		var out bytes.Buffer
		r.print(&out, 0, true)
		t.Errorf("%s", &out)
	}
}

func TestEveryKindOfWebhookHasTheExpectedAnswer(t *testing.T) {
	f := deployed(t)
	rows, err := f.stack.send(t.Context(), f.arrivals, f.rows())
	if err != nil {
		t.Fatal(err)
	}
	allRight(t, section{rows: rows})
}

func TestClientCertificatesHaveTheExpectedResults(t *testing.T) {
	f := deployed(t)
	t.Cleanup(func() { f.destroyFurther(context.WithoutCancel(t.Context()), t) })
	sections, err := f.showFurther(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(sections) != len(mechanisms) {
		t.Errorf("%d mechanisms, want %d", len(sections), len(mechanisms))
	}
	allRight(t, sections...)
}

func TestNothingIsWrittenBeforeAWebhookIsFoundAuthentic(t *testing.T) {
	f := deployed(t)
	for _, flaw := range paymenttest.Flaws() {
		got, err := f.service.Send(t.Context(), paymenttest.Webhook{
			URL: f.WebhookURL, Payload: paymenttest.Delivery(paymenttest.Event()), Flaw: flaw,
		})
		if err != nil || got.Status != http.StatusUnauthorized {
			t.Errorf("%s: answered %d, %v", flaw, got.Status, err)
		}
	}
	for _, c := range f.proxy.to("") {
		if c.is("PutEvents") || c.on(f.LedgerTable) {
			t.Errorf("an unauthentic webhook led to %s", c.target)
		}
	}
}

func TestAnEventReachesTheBusByteForByte(t *testing.T) {
	f := deployed(t)
	event := func(amount, rest string) []byte {
		return fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED", "eventId":"%s",`+
			`"eventTimestamp":"2026-01-31T12:00:00.120Z","eventData":{"amount":%s%s}}`, uuid.New().String(), amount,
			rest)
	}
	events := [][]byte{
		event("1234567890.10", ""),
		event("100.00", `,"paymentCurrency":"EUR"`),
		event("1E+2", `,"unknown":{"deep":[1.0,2.50,-0.0,1e-7]}`),
		event("12345678901234567890.12345678901234567890", `,"text":"\u00fc\/ü\ud83d\ude00<>&"`),
		event("0.00", ",\n\t\"laid out\" : [ ]  "),
	}
	id := uuid.New().String()
	f.send(t, paymenttest.RawDelivery(id, events...)).want(t, http.StatusOK, len(events), 0)

	type entry struct {
		Source, DetailType, Detail, EventBusName string
		Resources                                []string
		Time                                     float64
	}
	var entries []entry
	for _, c := range f.proxy.to("PutEvents") {
		var input struct{ Entries []entry }
		if err := json.Unmarshal(c.body, &input); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, input.Entries...)
	}
	if len(entries) != len(events) {
		t.Fatalf("%d entries were sent, want %d", len(entries), len(events))
	}
	for i, e := range entries {
		if e.Detail != string(events[i]) {
			t.Errorf("detail is\n%s\nwant\n%s", e.Detail, events[i])
		}
		if e.Source != f.setting(settings.EventSource) || e.DetailType != "PAYMENT_STATUS.RELEASED" ||
			e.EventBusName != f.Bus ||
			len(e.Resources) != 1 || e.Resources[0] != id || e.Time != 1769860800.12 {
			t.Errorf("entry is %+v", e)
		}
	}

	// The queue behind the rule gets the same bytes.
	behind := func(all []arrival) (details []string) {
		for _, a := range all {
			if a.rule == released && a.deliveryID == id {
				details = append(details, string(a.detail))
			}
		}
		slices.Sort(details)
		return details
	}
	all, err := f.arrivals.await(t.Context(), waitTimeout,
		func(all []arrival) bool { return len(behind(all)) >= len(events) })
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, event := range events {
		want = append(want, string(event))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, behind(all)); diff != "" {
		t.Errorf("behind the rule (-signed +arrived):\n%s", diff)
	}
}

func TestADuplicateCostsOneFailedWriteOnly(t *testing.T) {
	f := deployed(t)
	event := paymenttest.Event()
	f.send(t, paymenttest.Delivery(event)).want(t, http.StatusOK, 1, 0)
	f.proxy.forget()
	f.send(t, paymenttest.Delivery(event)).want(t, http.StatusOK, 0, 1)
	calls := f.proxy.to("")
	if len(calls) != 1 || !calls[0].is("PutItem") || !calls[0].on(f.LedgerTable) ||
		calls[0].status != http.StatusBadRequest {
		for _, c := range calls {
			t.Logf("%s: %d", c.target, c.status)
		}
		t.Error("want one PutItem on the ledger that fails its condition")
	}
	f.arriveOnce(t, event)
}

func TestFiftyConcurrentDeliveriesHalfOfThemTwice(t *testing.T) {
	f := deployed(t)
	const different, each = 25, 3
	var events []payment.Event
	var payloads [][]byte
	for range different {
		some := paymenttest.Events(each)
		payload := paymenttest.Delivery(some...)
		events = append(events, some...)
		payloads = append(payloads, payload, payload)
	}
	rand.Shuffle(len(payloads), func(i, j int) { payloads[i], payloads[j] = payloads[j], payloads[i] })
	var recorded, duplicates atomic.Int64
	var running sync.WaitGroup
	for _, payload := range payloads {
		running.Go(func() {
			got, err := f.service.Send(t.Context(), paymenttest.Webhook{URL: f.WebhookURL, Payload: payload})
			var a answer
			if err != nil || got.Status != http.StatusOK || json.Unmarshal(got.Body, &a) != nil {
				t.Errorf("answered %d %s, %v", got.Status, got.Body, err)
			}
			recorded.Add(int64(a.Recorded))
			duplicates.Add(int64(a.Duplicates))
		})
	}
	running.Wait()
	if n, d := recorded.Load(), duplicates.Load(); n != different*each || d != different*each {
		t.Errorf("%d recorded and %d duplicates, want %d of each", n, d, different*each)
	}
	f.arriveOnce(t, events...)
}

func TestANewKeyIsUsedAtOnceAndTheOldOneStaysValid(t *testing.T) {
	f := deployed(t)
	before := f.service.Sender()
	f.sendBy(t, before, paymenttest.Delivery(paymenttest.Event())).want(t, http.StatusOK, 1, 0)
	key := f.service.Rotate()
	for range 3 {
		f.send(t, paymenttest.Delivery(paymenttest.Event())).want(t, http.StatusOK, 1, 0)
	}
	if n := f.service.KeyFetches(key.ID); n != 1 {
		t.Errorf("the new key was fetched %d times, want once", n)
	}
	f.sendBy(t, before, paymenttest.Delivery(paymenttest.Event())).want(t, http.StatusOK, 1, 0)
}

func TestAnUnknownKeyIsRequestedOnce(t *testing.T) {
	f := deployed(t)
	stranger := paymenttest.Sender{Key: paymenttest.NewKey(2048)}
	for range 3 {
		f.sendBy(t, stranger, paymenttest.Delivery(paymenttest.Event())).want(t, http.StatusUnauthorized, 0, 0)
	}
	if n := f.service.KeyFetches(stranger.Key.ID); n != 1 {
		t.Errorf("the unknown key was asked for %d times, want once", n)
	}
}

func TestAnOutageOfTheKeyServiceAffectsNewKeysOnly(t *testing.T) {
	f := deployed(t)
	f.send(t, paymenttest.Delivery(paymenttest.Event())).want(t, http.StatusOK, 1, 0)
	known := f.service.Sender()
	if err := f.service.Misbehave(paymenttest.Keys, paymenttest.Fault{Name: paymenttest.Down}); err != nil {
		t.Fatal(err)
	}
	f.sendBy(t, known, paymenttest.Delivery(paymenttest.Event())).want(t, http.StatusOK, 1, 0)

	f.service.Rotate()
	delivery := paymenttest.Delivery(paymenttest.Event())
	a := f.send(t, delivery)
	a.want(t, http.StatusServiceUnavailable, 0, 0)
	if a.header.Get("Retry-After") == "" {
		t.Error("503 came without Retry-After")
	}

	// A function that has just started finds the key that the others know.
	f.killWebhook(t)
	f.sendBy(t, known, paymenttest.Delivery(paymenttest.Event())).want(t, http.StatusOK, 1, 0)

	if err := f.service.Misbehave(paymenttest.Keys, paymenttest.Fault{}); err != nil {
		t.Fatal(err)
	}
	f.send(t, delivery).want(t, http.StatusOK, 1, 0)
}

func TestAnOutageOfTheBusDelaysEventsAndLosesNone(t *testing.T) {
	f := deployed(t)
	events := paymenttest.Events(12)
	delivery := paymenttest.Delivery(events...)
	back := f.proxy.decide(t, func(c call) verdict { return verdict{fail: c.is("PutEvents")} })
	f.send(t, delivery).want(t, http.StatusOK, len(events), 0)
	if n := len(f.pending(t, events...)); n != len(events) {
		t.Errorf("%d events are pending, want all %d", n, len(events))
	}
	// The service may send it again meanwhile.
	f.send(t, delivery).want(t, http.StatusOK, 0, len(events))

	back()
	f.redrive(t, events...)
	f.arriveOnce(t, events...)
	f.send(t, delivery).want(t, http.StatusOK, 0, len(events))
	f.redrive(t, events...)
	f.arriveOnce(t, events...)
}

func TestAFunctionKilledBetweenRecordAndPublishLosesNoEvent(t *testing.T) {
	f := deployed(t)
	events := paymenttest.Events(3)
	publishing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	back := f.proxy.decide(t, func(c call) verdict {
		if !c.is("PutEvents") {
			return verdict{}
		}
		once.Do(func() { close(publishing) })
		return verdict{hold: release}
	})
	answered := make(chan paymenttest.Answer, 1)
	go func() {
		got, _ := f.service.Send(t.Context(),
			paymenttest.Webhook{URL: f.WebhookURL, Payload: paymenttest.Delivery(events...)})
		answered <- got
	}()
	select {
	case <-publishing:
	case got := <-answered:
		t.Fatalf("answered %d %s, and nothing was published", got.Status, got.Body)
	}
	f.killWebhook(t)
	if got := <-answered; got.Status < 500 {
		t.Errorf("a killed function answered %d %s", got.Status, got.Body)
	}
	back()
	close(release)
	if n := len(f.pending(t, events...)); n != len(events) {
		t.Errorf("%d events are pending, want all %d", n, len(events))
	}
	f.redrive(t, events...)
	f.arriveOnce(t, events...)
}

func TestADeliveryIsNotAcceptedIfTheLedgerFails(t *testing.T) {
	f := deployed(t)
	events := paymenttest.Events(10)
	delivery := paymenttest.Delivery(events...)
	broken := events[9].EventID
	back := f.proxy.decide(t, func(c call) verdict {
		match := c.is("BatchExecuteStatement") && bytes.Contains(c.body, []byte(broken))
		return verdict{some: match && c.statements() > 1, fail: match && c.statements() == 1}
	})
	a := f.send(t, delivery)
	a.want(t, http.StatusServiceUnavailable, len(events)-1, 0)
	if a.header.Get("Retry-After") == "" {
		t.Error("503 came without Retry-After")
	}
	back()
	// What was recorded has been published.
	f.arriveOnce(t, events[:9]...)
	f.send(t, delivery).want(t, http.StatusOK, 1, len(events)-1)
	f.arriveOnce(t, events...)
}

func TestOutOfTimeIsAnsweredInTime(t *testing.T) {
	f := deployed(t)
	release := make(chan struct{})
	defer close(release)
	back := f.proxy.decide(t, func(c call) verdict {
		if c.is("PutItem") && c.on(f.LedgerTable) {
			return verdict{hold: release}
		}
		return verdict{}
	})
	event := paymenttest.Event()
	a := f.send(t, paymenttest.Delivery(event))
	a.want(t, http.StatusServiceUnavailable, 0, 0)
	if a.header.Get("Retry-After") == "" {
		t.Error("503 came without Retry-After")
	}
	back()
	f.send(t, paymenttest.Delivery(event)).want(t, http.StatusOK, 1, 0)
}

func TestConflictsAreNotPublishedAndDelayNothing(t *testing.T) {
	f := deployed(t)
	original, fresh := paymenttest.Event(), paymenttest.Event()
	f.send(t, paymenttest.Delivery(original)).want(t, http.StatusOK, 1, 0)
	altered := original
	altered.EventData.Amount = "9250.00"
	a := f.send(t, paymenttest.Delivery(altered, fresh))
	if a.status != http.StatusOK || a.Conflicts != 1 || a.Recorded != 1 {
		t.Errorf("answered %+v, want 200 with one conflict and one recorded", a)
	}
	f.arriveOnce(t, original, fresh)
}

// program builds payhook as make does, and returns what runs it beside the file of
// this run. It fails the test unless the exit status is status, and returns what the
// program writes.
func (f *fixture) program(t *testing.T) func(status int, args ...string) string {
	t.Helper()
	call := f.programIn(t, t.TempDir())
	return func(status int, args ...string) string {
		t.Helper()
		out, stderr, got := call(args...)
		if got != status {
			t.Errorf("payhook %v: exit status %d, want %d\n%s%s", args, got, status, out, stderr)
		}
		return out
	}
}

// programIn builds payhook in a folder as make does, and returns what runs it there, beside
// the file of this run.
func (f *fixture) programIn(t *testing.T, folder string) func(args ...string) (out, stderr string, status int) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(folder, filepath.Dir(deployment.Path)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(folder); err != nil {
		t.Fatal(err)
	}
	f.build(t, filepath.Join(folder, "payhook"))
	return func(args ...string) (out, stderr string, status int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "payhook"), args...)
		cmd.Dir = folder
		// Without --local, AWS is this emulator.
		cmd.Env = append(environmentWithout("AWS_"), "AWS_ENDPOINT_URL="+f.Endpoint, "AWS_REGION="+f.Region,
			"AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+accessKey)
		written, err := cmd.Output()
		if failure, ok := errors.AsType[*exec.ExitError](err); ok {
			stderr = string(failure.Stderr)
		} else if err != nil {
			t.Fatal(err)
		}
		return string(written), stderr, cmd.ProcessState.ExitCode()
	}
}

// build builds the program payhook.
func (f *fixture) build(t *testing.T, path string) {
	t.Helper()
	build := exec.Command("go", "build", "-o", path, "./infra/cmd/payhook")
	build.Dir = f.opts.top
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// TestSendAndInvokeWork runs the commands send and invoke.
func TestSendAndInvokeWork(t *testing.T) {
	f := deployed(t)
	payhook, folder := f.program(t), t.TempDir()
	contains := func(output string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(output, w) {
				t.Errorf("%q is missing in:\n%s", w, output)
			}
		}
	}
	send := func(status int, args ...string) string {
		t.Helper()
		return payhook(status, append([]string{"send", "--local"}, args...)...)
	}
	contains(send(0, "--count", "2", "--duplicates", "1", "--events", "2"), "1: 200", "3: 200",
		`"recorded":0,"duplicates":2`)
	contains(send(1, "--corrupt", "signature"), "1: 401")
	contains(send(0, "--age", "10m", "--expect", "401"), "1: 401")
	contains(send(0, "--pad", "6300000", "--expect", "413"), "1: 413")
	id := uuid.New().String()
	contains(send(0, "--event-id", id), "1: 200")
	contains(send(0, "--event-id", id, "--amount", "7.00"), `"conflicts":1`)
	contains(send(0, "--conflict"), "1: 200", `"conflicts":1`)
	contains(send(1, "--fault", "keys=down", "--rotate"), "1: 503")
	contains(send(0, "--fault", "keys="), "1: 200")
	contains(send(0, "--events", "500"), `"recorded":500`)

	// With a key of one's own, and the URL of the stack.
	key := f.service.Key()
	der, err := x509.MarshalPKCS8PrivateKey(key.Private)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(payhook(0, "send", "--key", file, "--key-id", key.ID, "--url", f.WebhookURL), "1: 200")
	sample := func(name string) string { return filepath.Join(f.opts.top, "events", name+".json") }
	one := sample("webhook/one-event")
	contains(payhook(0, "invoke", "--aws", "--stack", f.Stack, "webhook", "--fresh", one, "--key", file, "--key-id",
		key.ID), "200 OK", `"recorded":1`)

	samples := map[string]string{
		"one-event": "200", "several-events": "200", "base64-body": "200", "conflict": "200", "not-json": "422",
		"missing-event-id": "422", "no-events": "422", "wrong-method": "405", "empty": "400",
	}
	files, err := filepath.Glob(filepath.Join(f.opts.top, "events", "webhook", "*.json"))
	if err != nil || len(files) != len(samples) {
		t.Errorf("%d samples in events/webhook, want %d, %v", len(files), len(samples), err)
	}
	for name, want := range samples {
		output := payhook(0, "invoke", "webhook", sample("webhook/"+name), "--local")
		if !strings.HasPrefix(output, want+" ") {
			t.Errorf("%s: %s, want %s", name, output, want)
		}
		if name == "conflict" {
			contains(output, `"conflicts":1`)
		}
	}
	// Sent as a webhook, each has the same answer.
	for name, want := range samples {
		contains(send(0, "--file", sample("webhook/"+name), "--expect", want), "1: "+want+" ")
	}
	contains(payhook(0, "invoke", "webhook", one, "--fresh", "--local"), `"recorded":1`)
	contains(payhook(0, "invoke", "webhook", one, "--fresh", "--corrupt", "payload", "--local"), "401 Unauthorized")
	contains(payhook(0, "invoke", "redrive", sample("redrive/scheduled"), "--local"), `"found"`)
}
