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
	ledger.Entry
	err error
}

// publish puts entries on the bus and marks them. The caller holds them in the
// ledger. It takes at most the given time. A quarter of it is kept for the marks,
// since an event that is on the bus without a mark is published again.
func (p *Pipeline) publish(ctx context.Context, entries []ledger.Entry, timeout time.Duration) (pub publication) {
	start := p.opts.Now()
	events := make([]bus.Event, len(entries))
	for i, e := range entries {
		events[i] = busEvent(e)
	}
	publishing, cancel := context.WithTimeout(ctx, timeout*3/4)
	failures := p.bus.Publish(publishing, events)
	cancel()
	published := make([]ledger.Entry, 0, len(entries))
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
