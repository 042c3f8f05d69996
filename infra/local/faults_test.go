package local

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"payhook.example/infra/local/scenario"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// faults chooses at random how the calls of the functions are handled.
type faults struct {
	mu     sync.Mutex
	random *rand.Rand
	calls  int
	done   map[string]int // how often each fault struck
	kill   func()         // called now and then
	every  int            // after so many calls
}

func (f *faults) decide(c call) verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !c.is("PutItem") && !c.is("UpdateItem") && !c.is("BatchExecuteStatement") && !c.is("PutEvents") &&
		!c.is("Query") && !c.is("GetItem") {
		return verdict{}
	}
	if f.calls++; f.calls%f.every == 0 {
		f.done["kill"]++
		go f.kill()
	}
	strike := func(name string, v verdict) verdict {
		f.done[name]++
		return v
	}
	switch n := f.random.IntN(100); {
	case n < 3:
		return strike("error", verdict{fail: true})
	case n < 6:
		return strike("throttle", verdict{throttle: true})
	case n < 9:
		return strike("cut before", verdict{cut: true})
	case n < 12:
		return strike("cut after", verdict{lose: true})
	case n < 15:
		return strike("delay", verdict{delay: time.Duration(f.random.IntN(200)) * time.Millisecond})
	case n < 25 && (c.is("PutEvents") || c.is("BatchExecuteStatement")):
		return strike("half taken", verdict{some: true})
	}
	return verdict{}
}

// effect is one call that took effect on one event: it was put on the bus, or
// marked as published.
type effect struct {
	marked bool
	detail string
}

// effects returns what took effect on each event, in order.
func (p *proxy) effects(t *testing.T) map[string][]effect {
	t.Helper()
	of := map[string][]effect{}
	for _, c := range p.to("") {
		if c.status != http.StatusOK {
			continue
		}
		switch {
		case c.is("PutEvents"):
			var in struct{ Entries []struct{ Detail string } }
			if err := json.Unmarshal(c.body, &in); err != nil {
				t.Fatal(err)
			}
			for _, entry := range in.Entries {
				event, err := payment.DecodeRawEvent([]byte(entry.Detail))
				if err != nil {
					t.Fatalf("on the bus, and no event: %s", entry.Detail)
				}
				of[event.EventID] = append(of[event.EventID], effect{detail: entry.Detail})
			}
		case c.is("BatchExecuteStatement"):
			var in struct {
				Statements []struct {
					Statement  string
					Parameters []struct{ S string }
				}
			}
			var out struct{ Responses []struct{ Error any } }
			if err := errors.Join(json.Unmarshal(c.body, &in), json.Unmarshal(c.answer, &out)); err != nil {
				t.Fatal(err)
			}
			for i, s := range in.Statements {
				if !strings.Contains(s.Statement, `SET "publishedAt"`) || out.Responses[i].Error != nil {
					continue
				}
				for _, p := range s.Parameters {
					if p.S != "" { // the key
						of[p.S] = append(of[p.S], effect{marked: true})
					}
				}
			}
		case c.is("UpdateItem"):
			var in struct {
				UpdateExpression         string
				ExpressionAttributeNames map[string]string
				Key                      map[string]struct{ S string }
			}
			if err := json.Unmarshal(c.body, &in); err != nil {
				t.Fatal(err)
			}
			for _, name := range in.ExpressionAttributeNames {
				if name == "publishedAt" {
					id := in.Key[names.LedgerKey].S
					of[id] = append(of[id], effect{marked: true})
				}
			}
		}
	}
	return of
}

// Thousands of events, while calls fail before and after they took effect, are
// throttled, half taken or late, and functions are killed: what was accepted
// arrives, unaltered, and twice only if a function died or lost the answer
// between the bus and the mark.
func TestFaultsUnderLoadLoseNoEvent(t *testing.T) {
	f := deployed(t)
	const deliveries, each, senders = 500, 5, 12
	seed := uint64(time.Now().UnixNano())
	chance := &faults{random: rand.New(rand.NewPCG(seed, 0)), done: map[string]int{}, every: 700, kill: func() {
		for _, pid := range f.webhookProcesses(t) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
		}
	}}
	back := f.proxy.decide(t, chance.decide)

	work := make(chan []payment.Event)
	go func() {
		defer close(work)
		for range deliveries {
			work <- paymenttest.Events(each)
		}
	}()
	var mu sync.Mutex
	sent := map[string]string{}   // by eventId: the bytes that were signed
	accepted := map[string]bool{} // by eventId: answered 2xx
	var events []payment.Event    // all that were sent
	var answered [6]atomic.Int64  // by the status' first digit; 0 for no answer
	var running sync.WaitGroup
	for sender := range senders {
		running.Go(func() {
			for some := range work {
				payload := paymenttest.Delivery(some...)
				mu.Lock()
				events = append(events, some...)
				for _, e := range some {
					sent[e.EventID] = string(paymenttest.Encode(e))
				}
				mu.Unlock()
				// Every second sender does not retry.
				for range 1 + 2*(sender%2) {
					got, err := f.service.Send(t.Context(), paymenttest.Webhook{URL: f.WebhookURL, Payload: payload})
					answered[got.Status/100].Add(1)
					if err != nil || got.Status/100 != 2 {
						continue
					}
					mu.Lock()
					for _, e := range some {
						accepted[e.EventID] = true
					}
					mu.Unlock()
					break
				}
			}
		})
	}
	running.Wait()
	back()

	// Whatever was recorded, accepted or not, is published now.
	f.drain(t)
	last := paymenttest.Event()
	f.send(t, paymenttest.Delivery(last)).want(t, http.StatusOK, 1, 0)
	of := f.proxy.effects(t)
	count := map[string]int{}
	if _, err := f.arrivals.Await(t.Context(), 2*time.Minute, func(all []scenario.Arrival) bool {
		clear(count)
		for _, a := range all {
			if a.Rule == scenario.Released {
				count[a.EventID]++
			}
		}
		for id, effects := range of {
			puts := 0
			for _, e := range effects {
				if !e.marked {
					puts++
				}
			}
			if sent[id] != "" && count[id] < puts {
				return false
			}
		}
		return count[last.EventID] > 0
	}); err != nil {
		t.Error(err)
	}

	var lost, unexpected, duplicated, unexplained, recovered int
	for _, e := range events {
		switch n := count[e.EventID]; {
		case n == 0 && accepted[e.EventID]:
			lost++
		case n > 0 && !accepted[e.EventID]:
			recovered++
		}
		if count[e.EventID] > 1 {
			duplicated++
		}
		onBus := false // and not marked since
		for _, effect := range of[e.EventID] {
			switch {
			case effect.marked:
				onBus = false
			case effect.detail != sent[e.EventID]:
				unexpected++
			default:
				// Published again. That is explained as long as the ledger did not say that it was on
				// the bus.
				onBus = true
			}
		}
		if onBus {
			unexplained++ // on the bus for good, and the ledger never said so
		}
		if marked(of[e.EventID]) {
			unexplained++
		}
	}
	t.Logf("seed %d: %d sent in %d deliveries; answered 2xx %d, 4xx %d, 5xx %d, nothing %d times", seed, len(events),
		deliveries,
		answered[2].Load(), answered[4].Load(), answered[5].Load(), answered[0].Load())
	t.Logf("faults: %v", chance.done)
	t.Logf("accepted %d, lost %d, unexpected %d, duplicated %d, recovered %d", len(accepted), lost, unexpected,
		duplicated, recovered)
	if lost+unexpected+unexplained > 0 {
		t.Errorf("lost %d, unexpected %d, unexplained %d", lost, unexpected, unexplained)
	}
	if len(accepted) < len(events)/3 || chance.done["kill"] == 0 || answered[4].Load() > 0 {
		t.Errorf("too few faults: %d of %d accepted, faults %v", len(accepted), len(events), chance.done)
	}
}

// marked reports whether an event was published after it was marked as published: an
// unexplained duplicate.
func marked(effects []effect) bool {
	done := false
	for _, e := range effects {
		if e.marked {
			done = true
		} else if done {
			return true
		}
	}
	return false
}

// drain runs the redrive function until nothing is pending. An item becomes due when no receiver
// can work on it any more.
func (f *fixture) drain(t *testing.T) {
	t.Helper()
	inspector := ledger.NewInspector(dynamodb.NewFromConfig(f.AWS), f.LedgerTable)
	for deadline := time.Now().Add(2 * waitTimeout); ; time.Sleep(200 * time.Millisecond) {
		failed := f.Invoke(t.Context(), "redrive", scenario.AsScheduled, &struct{}{})
		pending, err := inspector.Backlog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(pending) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events are still pending: %v", len(pending), failed)
		}
	}
}
