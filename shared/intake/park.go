package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"payhook.example/shared/bus"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
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
	objects.Parallel(len(conflicts), Parallel, func(n int) {
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
	by authentic, before bool) (parked [2]ParkedAs, err error) {
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
	if err = delivery.Err; len(conflicts) > 0 {
		p.readAmounts(ctx, conflicts)
		parts, err = append(parts, conflictOf(delivery, conflicts)), cmp.Or(err, errConflict)
	}
	for i, part := range parts {
		var failed error
		if parked[i], failed = p.parkDelivery(ctx, part, payload, by); failed != nil {
			return parked, failed
		}
	}
	return parked, err
}

// parkDelivery parks a delivery with its proof.
func (p *Pipeline) parkDelivery(ctx context.Context, parked proof.Proof, payload []byte,
	by authentic) (ParkedAs, error) {
	parked.StoredAt = p.opts.Now()
	name, before, err := proof.Put(ctx, p.parking, by.prove(parked, payload))
	if err != nil {
		return ParkedAs{}, fmt.Errorf("%w: %w", errParking, err)
	}
	return ParkedAs{name, before}, nil
}

// prove returns p with a payload and what it was authenticated by.
func (a authentic) prove(p proof.Proof, payload []byte) proof.Proof {
	p.Payload = payload
	if a.key != nil {
		p.JWK = keys.FormatJWK(a.signature.KeyID, a.key)
		p.Timestamp, p.KeyID, p.Signature = a.signature.Timestamp, a.signature.KeyID, a.signature.Signature
	}
	if a.chain != nil {
		p.Certificate = proof.NewCertificate(payload, a.chain, a.acceptedAt)
	}
	return p
}

// unpublishable reports whether no further attempt can publish the event: EventBridge is known to reject it, or it
// is not what was recorded.
func (f failure) unpublishable() bool {
	_, ok := errors.AsType[*bus.DetailError](f.err)
	return ok || errors.Is(f.err, ledger.ErrCorrupt)
}

// parkUnpublishable parks those of the failed events that EventBridge is known to
// reject. It returns those that it parked, and why EventBridge rejects the first, or else why the first failed. An
// event that can't be parked now stays pending, and redrive parks it.
func (p *Pipeline) parkUnpublishable(ctx context.Context, failed []failure) (parked map[string]bool, cause error) {
	parked = map[string]bool{}
	var mu sync.Mutex
	objects.Parallel(len(failed), Parallel, func(i int) {
		if f := failed[i]; f.unpublishable() && p.parkEvent(ctx, f) == nil {
			mu.Lock()
			defer mu.Unlock()
			parked[f.EventID] = true
		}
	})
	for _, f := range failed {
		if f.unpublishable() {
			return parked, f.err
		}
		cause = cmp.Or(cause, f.err)
	}
	return parked, cause
}

// parkEvent parks an event that is pending.
func (p *Pipeline) parkEvent(ctx context.Context, f failure) error {
	cause, problem := f.cause()
	return p.ledger.Park(ctx, f.Item, cause, problem)
}

// maxPointer is how many bytes of the field's name the problem of a parked event has at most.
const maxPointer = 256

// cause returns why the event is parked, as a code and as a text. The text names the field, with names of the
// payload.
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
