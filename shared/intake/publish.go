package intake

import (
	"context"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
)

// failure is an event that is not known to be on the bus, and why.
type failure struct {
	item ledger.Item
	err  error
}

// publishTimeout is how long the pipeline tries to reach the bus with as many events as it sends at the same time. The
// sender waits for the answer, and a bus that does not answer must not use up the functions that record other
// deliveries. What is not on the bus by then is left to redrive.
const publishTimeout = 5 * time.Second

// publishTime returns how long a delivery tries to reach the bus with n events, if so much time is left. A quarter of
// that is kept for the marks, since an event that is on the bus without a mark is published again.
func (p *Pipeline) publishTime(n int, left time.Duration) time.Duration {
	rounds := (n + bus.AtOnce - 1) / bus.AtOnce
	return min(time.Duration(rounds)*publishTimeout, left*3/4)
}

// publish puts items on the bus, for at most the given time, and marks them. The caller
// holds them in the ledger. It returns those that are not known to be on the bus, and counts the others.
func (p *Pipeline) publish(ctx context.Context, items []ledger.Item, timeout time.Duration, r *Result) []failure {
	start := p.opts.Now()
	events := make([]bus.Event, len(items))
	for i, e := range items {
		events[i] = busEvent(e)
	}
	publishing, cancel := context.WithTimeout(ctx, timeout)
	failures := p.bus.Publish(publishing, events)
	cancel()
	var failed []failure
	published := make([]ledger.Item, 0, len(items))
	for i, e := range items {
		if failures[i] == nil {
			published = append(published, e)
		} else {
			failed = append(failed, failure{e, failures[i]})
		}
	}
	between := p.opts.Now()
	r.Steps.Publish = p.since(start)

	for _, err := range p.ledger.MarkPublished(ctx, published) {
		if err == nil {
			r.Published++
		} else {
			r.Unmarked++
		}
	}
	r.Steps.Mark = p.since(between)
	return failed
}
