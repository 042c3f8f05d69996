package intake

import (
	"context"
	"time"

	"payhook.example/shared/evidence"
	"payhook.example/shared/payment"
)

// needsEvidence reports whether a record of a delivery is stored before it is accepted: unless
// all of its events are duplicates that it brought itself, and for which the ledger has the note
// that a record is stored. A conflict has no such note, since the ledger has other content.
//
// The record is stored while the events are published, in the same round trip, so a new
// delivery takes no further call one after the other. While they are recorded would be as
// early, but it is not known then whether the delivery is a repeated one, and each repeated
// delivery would be recorded again. The mark of the published events has the note, so it is
// no further write.
//
// The sender sends again what is not answered 2xx. After each failure, the evidence is:
//
//	failure                                    record      note     when the delivery is repeated
//	the ledger is unavailable                  none        no       recorded
//	a crash before the record is sent          none        no       recorded
//	Firehose does not acknowledge, or too late none, parts
//	                                           or complete no       recorded again
//	a crash before the mark                    any of them no       recorded again
//	the mark fails, or the event is not on the
//	bus and redrive publishes or parks it      complete    no       recorded again
//	the answer is lost                         complete    yes      not recorded again
//	it is repeated while the first is underway any of them not yet  recorded again
//	Firehose can't deliver for 24 hours        lost        yes      not recorded again; there is an alarm
//
// A note is lost if what was parked is replayed, or with the ledger's item at the end of the
// de-duplication window. Then the delivery is recorded again. A delivery with a conflict, or with
// an event that another delivery brought, is recorded each time. What is not answered 2xx, such as
// an invalid delivery, is not recorded, and neither is its replay; its proof is parked.
func (p *Pipeline) needsEvidence(rec recording) bool {
	return p.opts.Evidence != nil && len(rec.entries)+len(rec.unproven)+len(rec.conflicts) > 0
}

// storeEvidence stores a record of a delivery.
func (p *Pipeline) storeEvidence(ctx context.Context, payload []byte, delivery payment.Delivery, proof proof) error {
	proof.acceptedAt = proof.acceptedAt.UTC().Truncate(time.Millisecond)
	r := evidence.Record{AcceptedAt: proof.acceptedAt, DeliveryID: delivery.DeliveryID, Proof: proof.of(payload)}
	for _, e := range delivery.Events {
		r.EventIDs = append(r.EventIDs, e.EventID)
	}
	return p.opts.Evidence.Put(ctx, r)
}
