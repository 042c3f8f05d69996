package intake_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
)

// attempt delivers a payload to a function that has two seconds.
func (d *far) attempt(payload []byte) intake.Result {
	return d.receive(d.within(2*time.Second), d.signed(payload))
}

// small returns events that take few bytes.
func small(n int) (events [][]byte) {
	for i := range n {
		events = append(events, fmt.Appendf(nil,
			`{"eventName":"A.B","eventId":"e0000000-0000-4000-8000-%012x",`+
				`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%d}}`, i, i))
	}
	return events
}

func large(n int) (events [][]byte) {
	for i := range n {
		events = append(events, fmt.Appendf(nil,
			`{"eventName":"A.B","eventId":"e1000000-0000-4000-8000-%012x",`+
				`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%d,"note":"%s"}}`,
			i, i, strings.Repeat("x", 2000)))
	}
	return events
}

// A function may be stopped by its time in the middle of a delivery. The sender
// repeats it, and every attempt has to get further.
func TestEveryAttemptOfALargeDeliveryMakesProgress(t *testing.T) {
	shuffled := func(events [][]byte) [][]byte {
		events = slices.Clone(events)
		rand.New(rand.NewPCG(1, uint64(len(events)))).Shuffle(len(events),
			func(i, j int) { events[i], events[j] = events[j], events[i] })
		return events
	}
	changed := func(events [][]byte) (other [][]byte) {
		for _, e := range events {
			other = append(other, []byte(strings.Replace(string(e), `"amount":`, `"amount":9`, 1)))
		}
		return other
	}
	for name, test := range map[string]struct {
		before, events [][]byte
		reorder        bool          // the sender, for every attempt
		takes          time.Duration // a call; 0: 60 ms
		parallel       int           // calls at once; 0: the default
		most           int           // attempts
		outcome        intake.Outcome
	}{
		"6,000 events":               {nil, small(6000), false, 0, 0, 3, intake.Accepted},
		"in another order each time": {nil, small(6000), true, 0, 0, 3, intake.Accepted},
		"every second one was recorded before": {everySecond(small(6000)), small(6000), false, 0, 0, 2,
			intake.Accepted},
		"a few were recorded before, anywhere": {shuffled(small(6000))[:100], small(6000), false, 0, 0, 3,
			intake.Accepted},
		"all but the last were recorded before": {small(2900), small(2901), false, 0, 0, 1, intake.Accepted},
		"many are in conflict":                  {changed(small(2900)), small(5000), false, 0, 0, 2, intake.Conflict},
		"large events among them": {nil, slices.Concat(large(400), small(3000)), true, 0, 0, 5,
			intake.Accepted},
		"large events only":        {nil, large(1000), false, 0, 0, 4, intake.Accepted},
		"a call takes 600 ms":      {nil, small(6000), false, 600 * time.Millisecond, 0, 5, intake.Accepted},
		"the same, reordered":      {nil, small(6000), true, 600 * time.Millisecond, 0, 4, intake.Accepted},
		"the same, all recorded":   {small(1000), small(1000), false, 600 * time.Millisecond, 0, 1, intake.Accepted},
		"a call takes 200 ms":      {nil, small(2000), false, 200 * time.Millisecond, 4, 5, intake.Accepted},
		"the first round is quick": {nil, small(2000), false, 180 * time.Millisecond, 4, 4, intake.Accepted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFar(t)
				d.takes, d.parallel = cmp.Or(test.takes, 60*time.Millisecond), test.parallel
				id := uuid.New().String()
				for some := range slices.Chunk(test.before, 2500) {
					if r := d.attempt(paymenttest.RawDelivery(id, some...)); r.Outcome != intake.Accepted {
						t.Fatalf("%+v", r)
					}
				}
				recorded := len(d.table.Items())
				for attempt := 1; ; attempt++ {
					events := test.events
					if test.reorder && attempt > 1 {
						events = shuffled(events[:len(events)-attempt])
						events = append(events, test.events[len(test.events)-attempt:]...)
					}
					r := d.attempt(paymenttest.RawDelivery(id, events...))
					now := len(d.table.Items())
					t.Logf("attempt %d: %s, %d recorded, %d duplicates, %d not recorded", attempt, r.Outcome,
						r.Recorded, r.Duplicates, r.Unrecorded)
					if r.Outcome == test.outcome {
						if r.Recorded+r.Duplicates+r.Conflicts != len(test.events) || attempt > test.most {
							t.Errorf("after %d attempts: %+v", attempt, r)
						}
						return
					}
					if r.Outcome != intake.OutOfTime || now <= recorded || attempt > 10 {
						t.Fatalf("attempt %d got no further than %d: %+v", attempt, now, r)
					}
					recorded = now
				}
			})
		})
	}
}

func everySecond(events [][]byte) (half [][]byte) {
	for i := 0; i < len(events); i += 2 {
		half = append(half, events[i])
	}
	return half
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
