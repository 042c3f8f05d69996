// Package intake takes deliveries from the wire to the bus. It is the only package
// that knows the order of the steps: authenticate, decode, record, publish, mark.
//
// A [Pipeline] decodes, records, publishes and marks. A [Receiver] authenticates a delivery and passes it to the
// pipeline. A [Replayer] verifies what is parked and passes it to the same pipeline. A [Redriver] publishes and marks
// with it what was recorded and did not reach the bus.
//
// The package guarantees that nothing is written or published before a delivery was found authentic, and that a
// delivery is reported as accepted only if every one of its events is recorded. A recorded event reaches the bus by the
// Receiver or, after any failure, by the Redriver.
//
// An event reaches the bus twice in one case only: the function that published it stopped, lost the answer, or could
// not write the mark, after EventBridge accepted the event and before the ledger says so. A request whose answer was
// lost may also arrive later than the request that was sent in its place.
package intake

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
)

// Options are the options of a [Pipeline]. The zero value stands for the default that is named.
type Options struct {
	// Grace is the time after the deadline of an invocation during which no other invocation touches the events that it
	// holds. It must be longer than two clocks can differ; required.
	Grace time.Duration
	// LargeEventBytes is the size above which an event is sent as a claim check;
	// [ledger.MaxEventBytes]. So is an event that does not fit on the bus.
	LargeEventBytes int
	Now             func() time.Time // time.Now
	// Evidence is the bucket with the proof of each delivery that a [Receiver] accepts; nil: none is stored.
	Evidence objects.Creator
	// EvidenceDays is for how many days that bucket locks a proof.
	EvidenceDays int
	// LargeEventRetention is how long the events of claim checks are stored; 0 or less: without an end.
	LargeEventRetention time.Duration
}

// Parallel is how many calls of S3 a pipeline makes at the same time. A client should keep as many connections.
const Parallel = 128

const (
	// timeout is the time that an invocation has if its context has no deadline. On Lambda it has one.
	timeout = 30 * time.Second
	// margin is the time before the deadline that is kept for the answer, if that is at
	// most a quarter of the time that the invocation has.
	margin = time.Second
)

// Pipeline decodes, records, publishes and marks. It is safe for concurrent use.
type Pipeline struct {
	ledger      *ledger.Ledger
	bus         *bus.Bus
	largeEvents *bus.LargeEvents
	parking     objects.Creator
	opts        Options
}

// NewPipeline returns a pipeline from the ledger to the bus. It stores in largeEvents what is
// too large for the bus, and in parking the deliveries that can't be published.
func NewPipeline(l *ledger.Ledger, b *bus.Bus, largeEvents *bus.LargeEvents, parking objects.Creator,
	opts Options) *Pipeline {
	if opts.Grace <= 0 {
		panic("intake: no grace")
	}
	opts.LargeEventBytes = cmp.Or(opts.LargeEventBytes, ledger.MaxEventBytes)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Pipeline{ledger: l, bus: b, largeEvents: largeEvents, parking: parking, opts: opts}
}

// invocation has the times of one invocation of a function.
type invocation struct {
	start     time.Time
	workUntil time.Time // the time after it is for the answer
	heldUntil time.Time // until then no other invocation touches its events
}

// begin returns the times of an invocation that begins now, and a context that ends when its work must.
func (p *Pipeline) begin(ctx context.Context) (invocation, context.Context, context.CancelFunc) {
	start := p.opts.Now()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = start.Add(timeout)
	}
	inv := invocation{
		start:     start,
		workUntil: deadline.Add(-min(margin, deadline.Sub(start)/4)),
		heldUntil: deadline.Add(p.opts.Grace),
	}
	ctx, cancel := context.WithDeadline(ctx, inv.workUntil)
	return inv, ctx, cancel
}

// since returns the milliseconds since then.
func (p *Pipeline) since(then time.Time) int64 {
	return p.opts.Now().Sub(then).Round(time.Millisecond).Milliseconds()
}

// process decodes a payload that is authentic, records its events, publishes those
// that are new and marks them. It parks the delivery with its proof if it holds a conflict,
// and if it is invalid, unless it is parked as invalid before.
func (p *Pipeline) process(ctx context.Context, payload []byte, by Authentication, inv invocation, before bool) Result {
	r := Result{By: by}
	start := p.opts.Now()
	delivery, err := payment.DecodeDelivery(payload)
	r.Steps.Decode = p.since(start)
	if err != nil {
		invalid := proof.Proof{Reason: proof.Invalid, Cause: err.Error()}
		invalid.DeliveryID, invalid.EventIDs = payment.PeekIDs(payload, proof.MaxIDs)
		r.DeliveryID = invalid.DeliveryID
		var failed error
		if r.ParkedAs, failed = p.parkDelivery(ctx, invalid, payload, by); failed != nil {
			err = failed
		}
		return r.with(err)
	}

	r.DeliveryID, r.Events, r.Invalid = delivery.DeliveryID, len(delivery.Events), len(delivery.Rejected)
	r.EventIDs, r.Deviations = EventIDs{}, deviationsOf(delivery.Events)
	items, conflicts, err := p.record(ctx, delivery, inv, &r)
	left := inv.workUntil.Sub(p.opts.Now())
	stored := make(chan evidence, 1)
	if err != nil || p.opts.Evidence == nil {
		stored <- evidence{}
	} else {
		go func() { stored <- p.storeEvidence(ctx, payload, by, p.publishTime(1, left)) }()
	}
	failed := p.publish(ctx, items, p.publishTime(len(items), left), &r)
	of := <-stored
	if r.Steps.Evidence = of.took; err == nil {
		err = of.err
	}
	// A delivery with another error is sent again. It is parked then: signed again, it would be parked twice.
	if err == nil {
		err = p.parkParts(ctx, delivery, conflicts, payload, before, &r)
	}
	results := p.parkUnpublishable(ctx, failed, &r)
	for _, i := range items {
		r.EventIDs.add(cmp.Or(results[i.EventID], Published), i.EventID)
	}
	return r.with(err)
}

// deviationsOf returns the first deviation of each event, of the first ten events that have one.
func deviationsOf(events []payment.RawEvent) (paths []string) {
	for _, e := range events {
		if len(e.Deviations) > 0 && len(paths) < 10 {
			paths = append(paths, e.Deviations[0])
		}
	}
	return paths
}

// evidence says how many milliseconds the evidence of a delivery took, and why it is not known to be stored.
type evidence struct {
	took int64
	err  error
}

// storeEvidence stores the proof of a delivery, for at most the given time.
func (p *Pipeline) storeEvidence(ctx context.Context, payload []byte, by Authentication, most time.Duration) evidence {
	begin := p.opts.Now()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	accepted := by.prove(proof.Proof{LockDays: p.opts.EvidenceDays}, payload).AsAccepted()
	_, _, err := proof.Put(ctx, p.opts.Evidence, accepted)
	if err != nil {
		err = fmt.Errorf("%w: %w", EvidenceUnavailable, err)
	}
	return evidence{p.since(begin), err}
}
