package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"payhook.example/shared/bus"
	"payhook.example/shared/evidence"
	"payhook.example/shared/keys"
	"payhook.example/shared/parallel"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
)

// conflictOf returns what is parked of a delivery in which these events are in
// conflict.
func conflictOf(delivery payment.Delivery, conflicts []event) parking.Parked {
	p := parking.Parked{Reason: parking.Conflict, DeliveryID: delivery.DeliveryID}
	for _, e := range conflicts {
		p.EventIDs, p.EventDigests = append(p.EventIDs, e.entry.EventID), append(p.EventDigests, e.entry.Digest[:])
	}
	return p
}

// maxInvalid is how many events without identity an invalid delivery is parked with. One object is stored
// for each eventId.
const maxInvalid = 1000

// parkParts parks a delivery for its events without identity, unless it is parked for them before, and for
// those in conflict. The error is that of parking, or else the first of these events has it.
func (p *Pipeline) parkParts(ctx context.Context, delivery payment.Delivery, conflicts []event, payload []byte,
	proof proof, before bool) (parked [2]ParkedAs, err error) {
	var parts []parking.Parked
	if delivery.Err != nil && !before {
		invalid := parking.Parked{Reason: parking.Invalid, Cause: delivery.Err.Error(), DeliveryID: delivery.DeliveryID}
		for _, r := range delivery.Rejected[:min(len(delivery.Rejected), maxInvalid)] {
			invalid.Positions = append(invalid.Positions, r.Position)
			if r.EventID != "" {
				invalid.EventIDs = append(invalid.EventIDs, r.EventID)
			}
		}
		parts = append(parts, invalid)
	}
	if err = delivery.Err; len(conflicts) > 0 {
		parts, err = append(parts, conflictOf(delivery, conflicts)), cmp.Or(err, errConflict)
	}
	for i, part := range parts {
		var failed error
		if parked[i], failed = p.parkDelivery(ctx, part, payload, proof); failed != nil {
			return parked, failed
		}
	}
	return parked, err
}

// parkDelivery parks a delivery with its proof.
func (p *Pipeline) parkDelivery(ctx context.Context, parked parking.Parked, payload []byte,
	proof proof) (ParkedAs, error) {
	parked.ParkedAt, parked.Proof = p.opts.Now(), proof.of(payload)
	name, before, err := p.parking.Park(ctx, parked)
	if err != nil {
		return ParkedAs{}, fmt.Errorf("%w: %w", errParking, err)
	}
	return ParkedAs{name, before}, nil
}

// of returns the proof of a payload as it is stored.
func (p proof) of(payload []byte) evidence.Proof {
	stored := evidence.Proof{Payload: payload}
	if p.signed() {
		stored.JWK = keys.FormatJWK(p.signature.KeyID, p.key)
		stored.Timestamp, stored.KeyID, stored.Signature = p.signature.Timestamp, p.signature.KeyID,
			p.signature.Signature
	}
	if p.chain != nil {
		stored.Certificate = evidence.NewCertificate(payload, p.chain, p.acceptedAt)
	}
	return stored
}

// unpublishable reports whether EventBridge is known to reject the event.
func (f failure) unpublishable() bool {
	_, ok := errors.AsType[*bus.DetailError](f.err)
	return ok
}

// parkUnpublishable parks those of the failed events that EventBridge is known to
// reject. It returns those that it parked, and why EventBridge rejects the first. An
// event that can't be parked now stays pending, and redrive parks it.
func (p *Pipeline) parkUnpublishable(ctx context.Context, failed []failure) (parked map[string]bool, cause error) {
	var found []failure
	for _, f := range failed {
		if f.unpublishable() {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	results := make([]error, len(found))
	parallel.Each(len(found), Parallel, func(i int) { results[i] = p.parkEvent(ctx, found[i]) })
	parked = make(map[string]bool, len(found))
	for i, err := range results {
		if err == nil {
			parked[found[i].EventID] = true
		}
	}
	return parked, found[0].err
}

// parkEvent parks an event that is pending in the ledger, and marks it so.
func (p *Pipeline) parkEvent(ctx context.Context, f failure) error {
	if _, _, err := p.parking.Park(ctx, parking.Parked{
		Reason: parking.Unpublishable, Cause: f.cause(), ParkedAt: p.opts.Now(),
		DeliveryID: f.DeliveryID, EventIDs: []string{f.EventID},
		Event: f.Detail, Digest: f.Digest[:], Claimed: f.Claimed, RecordedAt: f.RecordedAt, Attempts: f.Attempts,
	}); err != nil {
		return err
	}
	return p.ledger.MarkParked(ctx, f.Item)
}

// maxPointer is the most that the cause of a parked event says of the field, in
// bytes.
const maxPointer = 256

// cause returns the cause that is parked with the event. Unlike the error it
// names the field with names of the payload, which is parked in the same object.
func (f failure) cause() string {
	detail, ok := errors.AsType[*bus.DetailError](f.err)
	switch {
	case !ok:
		return ""
	case len(detail.Pointer) > maxPointer:
		return detail.Error()
	}
	return detail.Error() + ", at " + string(detail.Pointer)
}
