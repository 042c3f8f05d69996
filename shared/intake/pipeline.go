// Package intake takes deliveries from the wire to the bus. It is the only package
// that knows the order of the steps: authenticate, decode, record, publish, mark.
//
// A [Pipeline] decodes, records, publishes and marks. A [Receiver] authenticates a
// delivery and passes it to the pipeline. A [Replayer] verifies what is parked and
// passes it to the same pipeline. A [Redriver] publishes and marks with it what was
// recorded and did not reach the bus.
//
// The package guarantees that nothing is written or published before a delivery was
// found authentic, and that a delivery is reported as accepted only if every one of
// its events is recorded. A recorded event reaches the bus by the Receiver or, after
// any failure, by the Redriver.
//
// An event reaches the bus twice in one case only: the function that published it
// stopped, lost the answer, or could not write the mark, after EventBridge accepted
// the event and before the ledger says so. A request whose answer was lost may also
// arrive later than the request that was sent in its place.
package intake

import (
	"context"
	"crypto/sha256"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
)

// Options are the options of a [Pipeline]. The zero value of each stands for the
// default that is named.
type Options struct {
	// Timeout is the time that an invocation has if its context has no deadline; 30
	// seconds.
	Timeout time.Duration
	// Margin is the time before the deadline that is kept for the answer; 1 second,
	// and at most a quarter of the time that the invocation has.
	Margin time.Duration
	// Grace is the time after the deadline of an invocation during which no other
	// invocation touches the events that it holds. It must be longer than two clocks
	// can differ; 30 seconds.
	Grace time.Duration
	// Parallel is the number of calls of S3 at the same time; [DefaultParallel].
	Parallel int
	// ClaimBytes is the size above which an event is sent as a claim check;
	// [ledger.MaxEventBytes]. So is an event that does not fit on the bus.
	ClaimBytes int
	Now        func() time.Time // time.Now
}

// DefaultParallel is how many calls of S3 a pipeline makes at the same time unless
// [Options] say otherwise. A client should keep as many connections.
const DefaultParallel = 128

func (o *Options) setDefaults() {
	for _, d := range []struct {
		option *time.Duration
		value  time.Duration
	}{
		{&o.Timeout, 30 * time.Second},
		{&o.Margin, time.Second},
		{&o.Grace, 30 * time.Second},
	} {
		if *d.option == 0 {
			*d.option = d.value
		}
	}
	if o.Parallel == 0 {
		o.Parallel = DefaultParallel
	}
	if o.ClaimBytes == 0 {
		o.ClaimBytes = ledger.MaxEventBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Claims stores an event that is too large for the bus, with the SHA-256 of its bytes, and
// returns its claim check: the detail that is published in its place. Exists returns
// [claimcheck.ErrGone] if the event of a claim check is not stored any more.
// [claimcheck.Store] implements it.
type Claims interface {
	Put(ctx context.Context, event payment.RawEvent, sum [sha256.Size]byte) ([]byte, error)
	Exists(ctx context.Context, detail []byte) error
}

// Parking stores what can't be published. It returns the name, and whether the same
// was parked before. Package parking implements it.
type Parking interface {
	Park(ctx context.Context, p parking.Parked) (name string, before bool, err error)
}

// Pipeline decodes, records, publishes and marks. It is safe for concurrent use.
type Pipeline struct {
	ledger  *ledger.Ledger
	bus     *bus.Bus
	claims  Claims
	parking Parking
	opts    Options
}

// NewPipeline returns a pipeline from the ledger to the bus.
func NewPipeline(l *ledger.Ledger, b *bus.Bus, claims Claims, objects Parking, opts Options) *Pipeline {
	opts.setDefaults()
	return &Pipeline{l, b, claims, objects, opts}
}

// invocation has the times of one invocation of a function.
type invocation struct {
	start     time.Time
	workUntil time.Time // the time after it is for the answer
	heldUntil time.Time // until then no other invocation touches its events
}

// begin returns the times of an invocation that begins now, and a context that ends
// when its work must.
func (p *Pipeline) begin(ctx context.Context) (invocation, context.Context, context.CancelFunc) {
	start := p.opts.Now()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = start.Add(p.opts.Timeout)
	}
	inv := invocation{
		start:     start,
		workUntil: deadline.Add(-min(p.opts.Margin, deadline.Sub(start)/4)),
		heldUntil: deadline.Add(p.opts.Grace),
	}
	ctx, cancel := context.WithDeadline(ctx, inv.workUntil)
	return inv, ctx, cancel
}

// process decodes a payload that is authentic, records its events, publishes those
// that are new and marks them. It parks the delivery with its proof if it is invalid
// or holds a conflict.
func (p *Pipeline) process(ctx context.Context, payload []byte, proof proof, inv invocation) Result {
	start := p.opts.Now()
	delivery, err := payment.DecodeDelivery(payload)
	steps := Steps{Decode: p.opts.Now().Sub(start)}
	if err != nil {
		id, eventIDs := payment.PeekIDs(payload)
		parked, parkErr := p.parkDelivery(ctx, parking.Parked{
			Reason: parking.Invalid, Cause: err.Error(), DeliveryID: id, EventIDs: eventIDs,
		}, payload, proof)
		if parkErr != nil {
			err = parkErr
		}
		return Result{Outcome: OutcomeOf(err), Err: err, DeliveryID: id, ParkedAs: parked, Steps: steps}
	}

	start = p.opts.Now()
	rec := p.record(ctx, delivery, start, inv)
	steps.Record = p.opts.Now().Sub(start)
	err = rec.err
	var parked ParkedAs
	if len(rec.conflicts) > 0 {
		var parkErr error
		parked, parkErr = p.parkDelivery(ctx, conflictOf(delivery, rec.conflicts), payload, proof)
		// A delivery that could not be recorded is sent again in any case.
		if err == nil {
			err = errConflict
			if parkErr != nil {
				err = parkErr
			}
		}
	}

	pub := p.publish(ctx, rec.entries, p.publishTime(len(rec.entries), inv.workUntil.Sub(p.opts.Now())))
	steps.Publish, steps.Mark = pub.publishTime, pub.markTime
	unpublishable, cause := p.parkUnpublishable(ctx, pub.failed)
	if cause == nil && len(pub.failed) > 0 {
		cause = pub.failed[0].err
	}
	return Result{
		Outcome: OutcomeOf(err), Err: err, PublishErr: cause, DeliveryID: delivery.DeliveryID,
		Events: len(delivery.Events), Recorded: len(rec.entries), Duplicates: rec.duplicates,
		Conflicts: len(rec.conflicts), Unrecorded: rec.unrecorded, Claimed: rec.claimed,
		Published: pub.marked, Unmarked: pub.unmarked,
		Pending: len(pub.failed) - len(unpublishable), Unpublishable: len(unpublishable),
		EventIDs: rec.eventIDs.published(rec.entries, pub.failed, unpublishable),
		ParkedAs: parked, Steps: steps,
	}
}
