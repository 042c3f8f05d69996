package intake

import (
	"context"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
)

// publication is the result of the steps that publish and mark.
type publication struct {
	marked   int       // on the bus, and marked so
	unmarked int       // on the bus, and not marked so
	failed   []failure // not known to be on the bus

	publishTime, markTime time.Duration
}

// failure is an event that is not known to be on the bus, and why.
type failure struct {
	ledger.Item
	err error
}

// publishTimeout is how long the pipeline tries to reach the bus with as many events as it
// sends at the same time. The sender waits for the answer, and a bus that does not answer
// must not use up the functions that record other deliveries. What is not on the bus by
// then is left to redrive.
const publishTimeout = 5 * time.Second

// publishTime returns how long a delivery tries to reach the bus with n events, if so much
// time is left. A quarter of that is kept for the marks, since an event that is on the bus
// without a mark is published again.
func (p *Pipeline) publishTime(n int, left time.Duration) time.Duration {
	rounds := (n + bus.AtOnce - 1) / bus.AtOnce
	return min(time.Duration(rounds)*publishTimeout, left*3/4)
}

// publish puts entries on the bus, for at most the given time, and marks them. The caller
// holds them in the ledger.
func (p *Pipeline) publish(ctx context.Context, entries []ledger.Item, timeout time.Duration) (pub publication) {
	start := p.opts.Now()
	events := make([]bus.Event, len(entries))
	for i, e := range entries {
		events[i] = busEvent(e)
	}
	publishing, cancel := context.WithTimeout(ctx, timeout)
	failures := p.bus.Publish(publishing, events)
	cancel()
	published := make([]ledger.Item, 0, len(entries))
	for i, e := range entries {
		if failures[i] == nil {
			published = append(published, e)
		} else {
			pub.failed = append(pub.failed, failure{e, failures[i]})
		}
	}
	between := p.opts.Now()
	pub.publishTime = between.Sub(start)

	for _, err := range p.ledger.MarkPublished(ctx, published) {
		if err == nil {
			pub.marked++
		} else {
			pub.unmarked++
		}
	}
	pub.markTime = p.opts.Now().Sub(between)
	return pub
}
