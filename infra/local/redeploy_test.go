package local

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// with returns a stack with other settings that shares everything with f. It is not deployed.
func (f *fixture) with(t *testing.T, values map[string]string) *fixture {
	t.Helper()
	all := maps.Clone(f.Settings)
	maps.Copy(all, values)
	s, err := f.machine.newStack(all)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{stack: s, machine: f.machine, service: f.service, proxy: f.proxy, arrivals: f.arrivals}
}

// synthesizeAndDeploy does what cdk deploy does, with the settings of the stack. It returns the
// assembly.
func (f *fixture) synthesizeAndDeploy(ctx context.Context, t *testing.T) string {
	t.Helper()
	assembly, err := f.machine.cdk.Synth(ctx, f.machine.opts.top, f.Stack+".out", f.machine.context(f.Settings))
	if err == nil {
		err = f.deploy(ctx, assembly)
	}
	if err != nil {
		t.Fatal(err)
	}
	return assembly
}

// Two versions are deployed while webhooks arrive, the second as the first was.
// The status of an answer shows which of them gave it.
func TestDeploymentLosesNoWebhook(t *testing.T) {
	f := deployed(t)
	var (
		mu       sync.Mutex
		events   []payment.Event
		answers  = map[int]int{} // by status
		failures atomic.Int64
	)
	send := func(event payment.Event) int {
		got, err := f.service.Send(t.Context(),
			paymenttest.Webhook{URL: f.WebhookURL, Payload: paymenttest.Delivery(event)})
		if err != nil || got.Status/100 != 2 {
			t.Errorf("answered %d %s, %v", got.Status, got.Body, err)
			failures.Add(1)
		}
		mu.Lock()
		defer mu.Unlock()
		events = append(events, event)
		answers[got.Status]++
		return got.Status
	}
	deployed := make(chan struct{})
	var senders sync.WaitGroup
	for range 3 {
		senders.Go(func() {
			for failures.Load() < 10 {
				select {
				case <-deployed:
					return
				default:
					send(paymenttest.Event())
				}
			}
		})
	}
	stop := sync.OnceFunc(func() {
		close(deployed)
		senders.Wait()
	})
	defer stop()

	for _, version := range []struct {
		settings map[string]string
		status   int
	}{
		{map[string]string{settings.SuccessStatus.Key: "202", settings.KeyMissBudget.Key: "61",
			settings.RedriveAttempts.Key: "21"}, http.StatusAccepted},
		{nil, http.StatusOK},
	} {
		f.with(t, version.settings).synthesizeAndDeploy(t.Context(), t)
		if got := send(paymenttest.Event()); got != version.status {
			t.Errorf("once it is deployed, a webhook is answered %d, want %d", got, version.status)
		}
	}
	stop()
	t.Logf("%d events, answered %v", len(events), answers)
	if len(answers) != 2 || answers[http.StatusOK] == 0 || answers[http.StatusAccepted] == 0 {
		t.Errorf("answered %v, want 200 and 202", answers)
	}
	f.arriveOnce(t, events...)
}

// Two stacks have one ledger and the same buckets, and each its own bus. Redrive of each
// publishes what is pending for its bus. What a deleted stack left is moved to the bus of
// the other, and a stack that is deployed again knows what was published.
func TestTwoStacksShareALedger(t *testing.T) {
	f := deployed(t)
	beside := f.with(t, map[string]string{
		settings.StackName.Key: "PayhookSecond",
		// Left out, since the emulator has no CodeDeploy.
		settings.DeploymentStrategy.Key: settings.Canary,
		settings.LedgerTable.Key:        f.LedgerTable, settings.ClaimBucket.Key: f.ClaimBucket,
		settings.ParkingBucket.Key: f.ParkingBucket,
	})
	delivery, invalid := paymenttest.Delivery(paymenttest.Event()), []byte(`{"authentic":"and of no use"}`)

	assembly := beside.synthesizeAndDeploy(t.Context(), t)
	destroy := func(ctx context.Context) {
		if err := f.machine.cdk.Destroy(ctx, assembly, "Payhook"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { destroy(context.WithoutCancel(t.Context())) })
	if beside.Bus != "payhooksecond" || beside.Bus == f.Bus || beside.LedgerTable != f.LedgerTable {
		t.Fatalf("the bus is %s and the ledger %s", beside.Bus, beside.LedgerTable)
	}
	beside.send(t, delivery).want(t, http.StatusOK, 1, 0)
	if a := beside.send(t, invalid); a.status != http.StatusUnprocessableEntity {
		t.Errorf("what is of no use is answered %d", a.status)
	}

	// pendingIn leaves an event to redrive, and returns it when it is due.
	inspector := ledger.NewInspector(dynamodb.NewFromConfig(f.AWS), f.LedgerTable)
	pendingIn := func(stack *fixture) payment.Event {
		t.Helper()
		event := paymenttest.Event()
		back := f.proxy.decide(t, func(c call) verdict { return verdict{fail: c.is("PutEvents")} })
		stack.send(t, paymenttest.Delivery(event)).want(t, http.StatusOK, 1, 0)
		back()
		item, _, err := inspector.Find(t.Context(), event.EventID)
		if err != nil || item.Bus() != stack.Bus {
			t.Fatalf("%+v, %v", item, err)
		}
		time.Sleep(time.Until(item.Due))
		return event
	}
	ofFirst := pendingIn(f)
	beside.redrive(t)
	if len(f.pending(t, ofFirst)) != 1 {
		t.Error("redrive of the second stack took the event of the first")
	}
	f.redrive(t, ofFirst)
	f.arriveOnce(t, ofFirst)

	ofSecond := pendingIn(beside)
	destroy(t.Context())
	f.redrive(t)
	payhook := f.program(t)
	out := payhook(0, "pending", "move", "--local", "--json", "--from", beside.Bus, "--yes")
	if !strings.Contains(out, `"pending":1,"moved":1`) {
		t.Errorf("moved: %s", out)
	}
	f.redrive(t, ofSecond)
	f.arriveOnce(t, ofFirst, ofSecond)

	beside.synthesizeAndDeploy(t.Context(), t)
	beside.send(t, delivery).want(t, http.StatusOK, 0, 1)
	if out := payhook(1, "parked", "list", "--local"); !strings.Contains(out, "invalid") {
		t.Errorf("what was parked is gone: %s", out)
	}
}
