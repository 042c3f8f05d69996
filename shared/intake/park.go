package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"payhook.example/shared/bus"
	"payhook.example/shared/calls"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
)

// conflictOf returns what is stored of a delivery in which these events are in conflict.
func conflictOf(delivery payment.Delivery, conflicts []conflict) proof.Proof {
	p := proof.Proof{Reason: proof.Conflict, DeliveryID: delivery.DeliveryID}
	for _, e := range conflicts {
		p.EventIDs = append(p.EventIDs, e.item.EventID)
		p.Contents = append(p.Contents, proof.Content{EventID: e.item.EventID, Digest: e.item.Digest[:],
			Amount: e.item.Amount, Currency: e.item.Currency, First: proof.First{DeliveryID: e.first.DeliveryID,
				Digest: e.first.Digest[:], Amount: e.first.Amount, Currency: e.first.Currency,
				RecordedAt: e.first.RecordedAt, State: string(e.first.State)}})
	}
	return p
}

// readAmounts completes the firsts that the ledger has as pending: their amounts and currencies are in their bytes
// alone. It takes at most half of the time that is left. A conflict is parked without what can't be read.
func (p *Pipeline) readAmounts(ctx context.Context, conflicts []conflict) {
	ctx, cancel := p.half(ctx)
	defer cancel()
	calls.Parallel(len(conflicts), Parallel, func(n int) {
		first := &conflicts[n].first
		if first.State != ledger.Pending || first.Detail != nil { // the first of this delivery has its bytes
			return
		}
		if found, _, err := p.ledger.Find(ctx, first.EventID); err == nil && found.Digest == first.Digest {
			found, _ = found.WithEvent() // it can be published by now, and has no bytes then
			first.Amount, first.Currency = found.Amount, found.Currency
		}
	})
}

// parkParts parks a delivery for its events without identity, unless it is parked for them before, and for
// those in conflict. The error is that of parking, or else the first of these events has it.
func (p *Pipeline) parkParts(ctx context.Context, delivery payment.Delivery, conflicts []conflict, payload []byte,
	before bool, r *Result) error {
	var parts []proof.Proof
	if delivery.Err != nil && !before {
		invalid := proof.Proof{Reason: proof.Invalid, Cause: delivery.Err.Error(), DeliveryID: delivery.DeliveryID}
		for _, r := range delivery.Rejected[:min(len(delivery.Rejected), proof.MaxIDs)] {
			invalid.Positions = append(invalid.Positions, r.Position)
			if r.EventID != "" {
				invalid.EventIDs = append(invalid.EventIDs, r.EventID)
			}
		}
		parts = append(parts, invalid)
	}
	err := delivery.Err
	if len(conflicts) > 0 {
		p.readAmounts(ctx, conflicts)
		parts = append(parts, conflictOf(delivery, conflicts))
		if err == nil {
			err = Conflict
		}
	}
	as := []*ParkedAs{&r.ParkedAs, &r.AlsoParked}
	for i, part := range parts {
		var failed error
		if *as[i], failed = p.parkDelivery(ctx, part, payload, r.By); failed != nil {
			return failed
		}
	}
	return err
}

// parkDelivery parks a delivery with its proof.
func (p *Pipeline) parkDelivery(ctx context.Context, parked proof.Proof, payload []byte,
	by Authentication) (ParkedAs, error) {
	parked.StoredAt = p.opts.Now()
	name, before, err := proof.Put(ctx, p.parking, by.prove(parked, payload))
	if err != nil {
		return ParkedAs{}, fmt.Errorf("%w: %w", ParkingFailed, err)
	}
	return ParkedAs{name, before}, nil
}

// prove returns p with a payload and what it was authenticated by.
func (a Authentication) prove(p proof.Proof, payload []byte) proof.Proof {
	p.Payload = payload
	if a.Key.Key != nil {
		p.JWK = keys.FormatJWK(a.signature.KeyID, a.Key.Key)
		p.Timestamp, p.KeyID, p.Signature = a.signature.Timestamp, a.signature.KeyID, a.signature.Signature
	}
	if a.Chain != nil {
		p.Certificate = proof.NewCertificate(payload, a.Chain, a.acceptedAt)
	}
	return p
}

// unpublishable reports whether no further attempt can publish the event: EventBridge is known to reject it, or it
// is not what was recorded.
func (f failure) unpublishable() bool {
	_, ok := errors.AsType[*bus.DetailError](f.err)
	return ok || errors.Is(f.err, ledger.ErrCorrupt)
}

// parkUnpublishable parks those of the failed events that EventBridge is known to reject, counts both, and returns what
// became of each. An event that can't be parked now stays pending, and redrive parks it.
func (p *Pipeline) parkUnpublishable(ctx context.Context, failed []failure, r *Result) map[string]EventResult {
	parked := make([]bool, len(failed))
	calls.Parallel(len(failed), Parallel, func(i int) {
		parked[i] = failed[i].unpublishable() && p.parkEvent(ctx, failed[i]) == nil
	})
	results := make(map[string]EventResult, len(failed))
	for i, f := range failed {
		results[f.item.EventID] = Pending
		if parked[i] {
			results[f.item.EventID] = Unpublishable
			r.Unpublishable++
		} else {
			r.Pending++
		}
	}
	if i := slices.IndexFunc(failed, failure.unpublishable); len(failed) > 0 {
		r.PublishErr = failed[max(i, 0)].err
	}
	return results
}

// parkEvent parks an event that is pending.
func (p *Pipeline) parkEvent(ctx context.Context, f failure) error {
	cause, problem := f.cause()
	return p.ledger.Park(ctx, f.item, cause, problem)
}

// maxPointer is how many bytes of the field's name the problem of a parked event has at most.
const maxPointer = 256

// cause returns why the event is parked, as a code and as a text. The text names the field, with names of the payload.
func (f failure) cause() (cause, problem string) {
	detail, ok := errors.AsType[*bus.DetailError](f.err)
	switch {
	case errors.Is(f.err, ledger.ErrCorrupt):
		return "damaged", f.err.Error()
	case !ok:
		return "attempts", f.err.Error()
	case len(detail.Pointer) > maxPointer:
		return "detail", detail.Error()
	}
	return "detail", detail.Error() + ", at " + string(detail.Pointer)
}
