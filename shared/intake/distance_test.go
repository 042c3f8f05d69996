package intake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
)

// far is a world whose calls of the ledger take a while, and its uploads ten times as long.
type far struct {
	*world
	takes, bus   time.Duration
	calls, reads atomic.Int64 // of ledger and bus; of the ledger
}

func newFar(t *testing.T) *far {
	f := &far{world: newVirtualWorld(t), takes: 10 * time.Millisecond}
	f.opts.ClaimBytes = 1500
	f.table.Fails = func(ctx context.Context, call, key string) error {
		switch {
		case key != "": // an item of a call
			return nil
		case call == "get":
			f.reads.Add(1)
		}
		f.calls.Add(1)
		return sleep(ctx, f.takes)
	}
	f.world.bus.Fails = func(ctx context.Context, _, _ string) error {
		f.calls.Add(1)
		return sleep(ctx, f.bus)
	}
	f.claims.Fails = func(ctx context.Context, _, _ string) error { return sleep(ctx, 10*f.takes) }
	return f
}

// The times are virtual: those of calls alone.
func TestTenThousandEventsOfADeliveryTakeLessThanASecondOfCalls(t *testing.T) {
	serviceKey()
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t)
		f.bus = f.takes
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
			got := f.receive(f.within(30*time.Second), f.signed(payload))
			took := time.Since(start)
			if got.Outcome != intake.Accepted || got.Recorded+got.Duplicates != 10_000 ||
				n == 0 && got.Published != 10_000 {
				t.Errorf("%+v", got)
			}
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
	}{
		"every event":         {2000, 4 * time.Second, 2000, 16040 * time.Millisecond},
		"a bus that is stuck": {500, time.Hour, 0, 5 * time.Second},
		"too many events":     {3000, 4500 * time.Millisecond, 2000, (29*time.Second - 30*time.Millisecond) * 3 / 4},
	} {
		t.Run(name, func(t *testing.T) {
			serviceKey()
			synctest.Test(t, func(t *testing.T) {
				f := newFar(t)
				f.bus = f.takes + test.busy
				payload := paymenttest.RawDelivery(uuid.New().String(), small(test.events)...)
				got := f.receive(t.Context(), f.signed(payload))
				if got.Outcome != intake.Accepted || got.Recorded != test.events || got.Published != test.published ||
					got.Pending != test.events-test.published || got.Steps.Publish != test.took ||
					errors.Is(got.PublishErr, context.DeadlineExceeded) != (got.Pending > 0) {
					t.Errorf("%v of %+v", got.PublishErr, got)
				}
			})
		})
	}
}

func TestABacklogOfTenThousandIsPublishedInOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t)
		f.bus = f.takes
		f.pend(10_000)
		f.calls.Store(0)
		start := time.Now()
		r := f.run(20, 55*time.Second)
		took := time.Since(start)
		if r.Published != 10_000 || r.Left || r.Err != nil {
			t.Errorf("%+v", r)
		}
		// 8 leases, 20 of PutEvents and 8 marks for each 200, and the queries.
		if n := f.calls.Load(); n > 50*36+1000 || took > 5*time.Second {
			t.Errorf("%d calls in %v", n, took)
		}
	})
}
