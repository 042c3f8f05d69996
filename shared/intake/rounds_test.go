package intake_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	takes, bus time.Duration
	reads      atomic.Int64 // of the ledger
}

func newFar(t *testing.T) *far {
	f := &far{world: newVirtualWorld(t), takes: 10 * time.Millisecond}
	f.opts.LargeEventBytes = 300
	f.table.Fails = func(ctx context.Context, call, key string) error {
		switch {
		case key != "": // an item of a call
			return nil
		case call == "get":
			f.reads.Add(1)
		}
		return sleep(ctx, f.takes)
	}
	f.world.bus.Fails = func(ctx context.Context, _, _ string) error { return sleep(ctx, f.bus) }
	f.largeEvents.Fails = func(ctx context.Context, _, _ string) error { return sleep(ctx, 10*f.takes) }
	return f
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
		"every event":         {1001, 4 * time.Second, 1001, 12_030 * time.Millisecond},
		"a bus that is stuck": {500, time.Hour, 0, 5 * time.Second},
		"too many events":     {2001, 4500 * time.Millisecond, 2000, 21_728 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			serviceKey()
			synctest.Test(t, func(t *testing.T) {
				f := newFar(t)
				f.bus = f.takes + test.busy
				payload := paymenttest.RawDelivery(uuid.New().String(), small(test.events)...)
				got := f.receive(t.Context(), f.signed(payload))
				if got.Outcome != intake.Accepted || got.Recorded != test.events || got.Published != test.published ||
					got.Pending != test.events-test.published || got.Steps.Publish != test.took.Milliseconds() ||
					errors.Is(got.PublishErr, context.DeadlineExceeded) != (got.Pending > 0) {
					t.Errorf("%v of %+v", got.PublishErr, got)
				}
			})
		})
	}
}

// attempt delivers a payload to a function that has two seconds.
func (d *far) attempt(payload []byte) intake.Result {
	return d.receive(d.within(2*time.Second), d.signed(payload))
}

// small returns events that take few bytes.
func small(n int) [][]byte { return numbered(n, 0, "") }

// large returns other events, of which each is a claim check.
func large(n int) [][]byte { return numbered(n, 1, strings.Repeat("x", 300)) }

func numbered(n, kind int, note string) (events [][]byte) {
	for i := range n {
		events = append(events, fmt.Appendf(nil, `{"eventName":"A.B","eventId":"e%d000000-0000-4000-8000-%012x",`+
			`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%d,"note":"%s"}}`, kind, i, i, note))
	}
	return events
}

// A function may be stopped by its time in the middle of a delivery. The sender
// repeats it, in the same order or in another, and every attempt has to get further.
func TestEveryAttemptOfALargeDeliveryMakesProgress(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	shuffled := func(events [][]byte) [][]byte {
		events = slices.Clone(events)
		r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		return events
	}
	changed := func(events [][]byte) (other [][]byte) {
		for _, e := range events {
			other = append(other, bytes.Replace(e, []byte(`"amount":`), []byte(`"amount":9`), 1))
		}
		return other
	}
	for name, test := range map[string]struct {
		before, events [][]byte
		order          func([][]byte) [][]byte // of each attempt; nil: the same
		takes          time.Duration           // a call, in milliseconds; 0: 60
		most           int                     // attempts
		want           intake.Outcome          // zero: Accepted
	}{
		"in another order each time": {events: small(300), order: shuffled, most: 3},
		"a few were recorded before": {before: shuffled(small(300))[:20], events: small(300), most: 3},
		"many are in conflict":       {before: changed(small(145)), events: small(250), most: 2, want: intake.Conflict},
		"large events among them":    {events: slices.Concat(large(400), small(150)), order: shuffled, most: 5},
		"a call takes 600 ms":        {events: small(300), takes: 600, most: 5},
		"the first round is quick":   {events: small(1000), takes: 180, most: 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newFar(t)
			// 50 events are written at once, and 600 are read.
			d.takes, d.parallel = cmp.Or(test.takes, 60)*time.Millisecond, 2
			id := uuid.New().String()
			for some := range slices.Chunk(test.before, 125) {
				if r := d.attempt(paymenttest.RawDelivery(id, some...)); r.Outcome != intake.Accepted {
					t.Fatalf("%s: %+v", name, r)
				}
			}
			recorded := len(d.table.Items())
			for attempt := 1; ; attempt++ {
				if test.order != nil {
					test.events = test.order(test.events)
				}
				r := d.attempt(paymenttest.RawDelivery(id, test.events...))
				now := len(d.table.Items())
				if r.Outcome == cmp.Or(test.want, intake.Accepted) {
					if r.Recorded+r.Duplicates+r.Conflicts != len(test.events) || attempt > test.most {
						t.Errorf("%s: after %d attempts: %+v", name, attempt, r)
					}
					return
				}
				if r.Outcome != intake.OutOfTime || now <= recorded {
					t.Fatalf("%s: attempt %d got no further than %d: %+v", name, attempt, now, r)
				}
				recorded = now
			}
		})
	}
}

// An item whose window has passed does not keep its event from being recorded, whether it
// is found by writing, or by reading as for large events.
func TestAnItemWhoseWindowHasPassedIsNotSkipped(t *testing.T) {
	for name, events := range map[string][][]byte{"small": small(400), "large": large(4)} {
		synctest.Test(t, func(t *testing.T) {
			d := newFar(t)
			d.takes = 60 * time.Millisecond
			d.attempt(paymenttest.RawDelivery(uuid.New().String(), events[1:]...))
			time.Sleep(time.Hour)
			d.attempt(paymenttest.RawDelivery(uuid.New().String(), events[:1]...))
			time.Sleep(window - time.Minute)
			r := d.attempt(paymenttest.RawDelivery(uuid.New().String(), events...))
			if r.Outcome != intake.Accepted || r.Recorded != len(events)-1 || r.Duplicates != 1 ||
				d.reads.Load() == 0 {
				t.Errorf("%s, %d reads: %+v", name, d.reads.Load(), r)
			}
		})
	}
}

// What the ledger has of large events is read for at most half of the time that is left.
func TestReadingTheLedgerTakesHalfOfTheTime(t *testing.T) {
	serviceKey()
	synctest.Test(t, func(t *testing.T) {
		w := newFar(t)
		w.takes = 0
		w.table.Fails = func(ctx context.Context, call, _ string) error {
			if call == "get" {
				return sleep(ctx, time.Hour)
			}
			return nil
		}
		start := time.Now()
		_, r := w.send(large(2)...)
		if took := time.Since(start); took != 29500*time.Millisecond || r.Recorded != 2 {
			t.Errorf("after %s: %+v", took, r)
		}
	})
}
