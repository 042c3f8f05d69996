package intake_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// far is a bus. Each call of it and of its table takes 10 ms and is counted.
type far struct {
	*bus.Memory
	table *awstest.DynamoDB
	busy  time.Duration // so much longer takes a call of the bus
	calls atomic.Int64
}

func (f *far) pass(ctx context.Context, more time.Duration) error {
	f.calls.Add(1)
	return smithytime.SleepWithContext(ctx, 10*time.Millisecond+more)
}

func (f *far) Put(ctx context.Context, entries []bus.Entry) ([]error, error) {
	if err := f.pass(ctx, f.busy); err != nil {
		return nil, err
	}
	return f.Memory.Put(ctx, entries)
}

// newFar returns a pipeline whose calls take 10 ms, and its receiver.
func newFar() (*far, *intake.Pipeline, *intake.Receiver) {
	s := newStack()
	f := &far{Memory: s.bus, table: s.db}
	s.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		if err := f.pass(ctx, 0); err != nil {
			return nil, err
		}
		return next(ctx, in)
	}
	p := intake.NewPipeline(ledger.New(dynamodb.NewLedger(s.db, "ledger"), ledger.Options{}),
		bus.New(f, "source", 1<<20),
		nil, s.parking, intake.Options{})
	return f, p, intake.NewReceiver(p, intake.Mechanisms{Signature: &intake.Signature{
		Scheme: paymenttest.DefaultScheme(), Keys: oneKey{}}})
}

// The times are virtual: those of calls alone.
func TestTenThousandEventsOfADeliveryTakeLessThanASecondOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, r := newFar()
		var events [][]byte
		for i := range 10_000 {
			events = append(events, fmt.Appendf(nil, `{"eventName":"A.B","eventId":"%s",`+
				`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%d,"note":"%s"}}`, uuid.New(), i,
				strings.Repeat("x", 400)))
		}
		payload := paymenttest.RawDelivery(uuid.New().String(), events...)
		if n := len(payload); n >= 6<<20 || n < 5<<20 {
			t.Fatalf("the payload has %d bytes", n)
		}
		// The second time, every event is known.
		for n, want := range []struct {
			calls int64
			took  time.Duration
		}{
			{400 + 1000 + 400, 420 * time.Millisecond}, // record, publish, mark
			{40 + 10 + 90, 20 * time.Millisecond},      // insert the first thousand, read all
		} {
			f.calls.Store(0)
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			got := r.Receive(ctx, signedAt(t, serviceKey(), payload, time.Now()))
			cancel()
			took := time.Since(start)
			if got.Outcome != intake.Accepted || got.Recorded+got.Duplicates != 10_000 ||
				n == 0 && got.Published != 10_000 {
				t.Errorf("%+v", got)
			}
			t.Logf("%d calls, %v", f.calls.Load(), took)
			if f.calls.Load() != want.calls || took > want.took {
				t.Errorf("%d calls in %v, want %d in %v", f.calls.Load(), took, want.calls, want.took)
			}
		}
	})
}

// 500 events are sent at the same time. A delivery tries for 5 seconds for each 500, and not
// after three quarters of its time.
func TestADeliveryPublishesAsLongAsItsEventsNeed(t *testing.T) {
	for name, test := range map[string]struct {
		events    int
		busy      time.Duration
		published int
		took      time.Duration // without the calls of the ledger
		cause     string
	}{
		"every event":         {2000, 4 * time.Second, 2000, 16040 * time.Millisecond, ""},
		"a bus that is stuck": {500, time.Hour, 0, 5 * time.Second, "context deadline exceeded"},
		"too many events": {3000, 4500 * time.Millisecond, 2000, (29*time.Second - 30*time.Millisecond) * 3 / 4,
			"context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			serviceKey()
			synctest.Test(t, func(t *testing.T) {
				f, _, r := newFar()
				f.busy = test.busy
				payload := paymenttest.RawDelivery(uuid.New().String(), small(test.events)...)
				got := r.Receive(t.Context(), signedAt(t, serviceKey(), payload, time.Now()))
				if got.Outcome != intake.Accepted || got.Recorded != test.events || got.Published != test.published ||
					got.Pending != test.events-test.published || got.Steps.Publish != test.took ||
					awsenv.Cause(got.PublishErr) != test.cause {
					t.Errorf("%s of %+v", awsenv.Cause(got.PublishErr), got)
				}
			})
		})
	}
}

func TestABacklogOfTenThousandIsPublishedInOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p, _ := newFar()
		var entries []ledger.Item
		for range 10_000 {
			event, err := payment.DecodeRawEvent(paymenttest.Encode(paymenttest.Event()))
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, ledger.NewItem(event, uuid.New().String(), time.Now()))
		}
		l := ledger.New(dynamodb.NewLedger(f.table, "ledger"), ledger.Options{})
		for _, r := range l.Record(t.Context(), entries, ledger.NewHolder(), time.Now()) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		f.calls.Store(0)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
		defer cancel()
		r := intake.NewRedriver(p, maxAttempts).Run(ctx)
		took := time.Since(start)
		t.Logf("%d calls, %v", f.calls.Load(), took)
		if r.Published != 10_000 || r.Left || r.Err != nil {
			t.Errorf("%+v", r)
		}
		// 8 leases, 20 of the bus and 8 marks for each 200, and the queries.
		if n := f.calls.Load(); n > 50*36+1000 || took > 5*time.Second {
			t.Errorf("%d calls in %v", n, took)
		}
	})
}
