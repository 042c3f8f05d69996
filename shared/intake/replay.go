package intake

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/claimcheck"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/evidence"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parallel"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/revocation"
	"payhook.example/shared/signature"
)

// Version is the one of two contents of an eventId that a person chose.
type Version string

// The versions.
const (
	NoVersion     Version = ""       // no choice
	FirstVersion  Version = "first"  // what was published stays as it is
	ParkedVersion Version = "parked" // what is parked is published as well
)

// Replayer replays what is parked. It is safe for concurrent use.
type Replayer struct {
	pipeline   *Pipeline
	truststore *clientcert.Truststore
	revoked    revocation.List
}

// NewReplayer returns a replayer that passes what is verified to the pipeline. A truststore of nil
// verifies client certificates with the CAs that are stored with a delivery.
func NewReplayer(p *Pipeline, truststore *clientcert.Truststore, revoked revocation.List) *Replayer {
	return &Replayer{p, truststore, revoked}
}

// Replay publishes what is parked, or leaves it to redrive to publish. It writes and
// publishes only what is parked: of a delivery in conflict, only the events in
// conflict. [Result.Done] reports whether nothing is left to do about parked.
//
// The outcome is StillPending if an event was recorded before this replay and is not
// published yet. Redrive publishes or parks it. If it is parked, it has the same name as
// before, so parked must stay open until the event is published or recorded anew.
//
// A delivery is verified again with the key that is stored with it. Its age is not
// checked, and the key service is not asked: both may have changed for good reasons.
// A client certificate is verified as of the time at which it was accepted, with the
// truststore or, if that does not trust it any more, with the CAs that are stored with
// it; the present pins are not checked. What is revoked by now is rejected. Result.Unverified
// says what this does not prove.
//
// An invalid delivery goes through the same steps as a new one. Its events in
// conflict are parked on their own; then the outcome is Conflict, and Parked names what
// is parked, which needs its own decision. It stays invalid if an event has no identity; the
// others are published.
//
// A conflict needs a version. With FirstVersion, Replay checks whether the content
// that the ledger has is on the bus, and writes nothing. With
// ParkedVersion, the parked content replaces what the ledger has, once that is not
// pending any more; the other content is in conflict from then on.
//
// An event that could not be published becomes pending again, unless it is a claim check
// whose large event is not stored any more: then the outcome is Gone. If the ledger has
// other content by then, the outcome is Conflict unless the version is ParkedVersion.
// An event has no proof: the ledger had accepted it. Package parking says who must be
// trusted.
//
// The window of a replayed event begins when it is published.
func (r *Replayer) Replay(ctx context.Context, parked parking.Parked, version Version) Result {
	inv, ctx, cancel := r.pipeline.begin(ctx)
	defer cancel()
	if err := checkVersion(parked.Reason, version); err != nil {
		return Result{Outcome: OutcomeOf(err)} // which says it all
	}
	if parked.Reason == parking.Unpublishable {
		return r.replayEvent(ctx, parked, version)
	}

	proof, known, err := r.verify(parked)
	if err != nil {
		return Result{Outcome: OutcomeOf(err), Err: err, Authentication: known}
	}
	delivery, err := payment.DecodeDelivery(parked.Payload)
	var result Result
	switch {
	case err != nil: // it is parked already
		result = failed(err)
	case parked.Reason == parking.Conflict:
		result = r.replayConflict(ctx, parked, delivery, version, inv)
		result.DeliveryID = delivery.DeliveryID
	default:
		result = r.pipeline.process(ctx, parked.Payload, proof, inv, true)
		switch {
		case result.Outcome == Invalid:
			result.Err = fmt.Errorf("intake: %d of its events have no identity and are not published, the others "+
				"are recorded: %w", result.Invalid, result.Err)
		case result.Done() && result.PendingDuplicates > 0:
			result.Outcome, result.Err = StillPending, errPending
		}
	}
	result.Authentication = known
	return result
}

// Done reports whether a replay leaves nothing to decide about what was replayed. Events in
// conflict are parked as a new object, which needs its own decision.
func (r Result) Done() bool { return r.Outcome == Accepted || r.Outcome == Conflict && r.Parked != "" }

// checkVersion returns an error if what is parked for that reason can't be replayed
// with that version.
func checkVersion(reason parking.Reason, version Version) error {
	switch {
	case reason == parking.Unpublishable && version == FirstVersion:
		return errVersionUnfit
	case reason == parking.Conflict && version != FirstVersion && version != ParkedVersion:
		return errVersionMissing
	case reason == parking.Invalid && version != NoVersion:
		return errVersionUnfit
	}
	return nil
}

func failed(err error) Result { return Result{Outcome: OutcomeOf(err), Err: err} }

// replayConflict replays the events in conflict of a delivery.
func (r *Replayer) replayConflict(ctx context.Context, parked parking.Parked, delivery payment.Delivery,
	version Version, inv invocation) Result {
	events, err := r.inConflict(parked, delivery, inv.start)
	if err != nil {
		return failed(fmt.Errorf("%w: %w", evidence.ErrAltered, err))
	}
	if version == FirstVersion {
		return r.checkFirst(ctx, events)
	}
	return r.replace(ctx, events)
}

// inConflict returns the events of a parked delivery that are in conflict.
func (r *Replayer) inConflict(parked parking.Parked, delivery payment.Delivery,
	now time.Time) (events []event, err error) {
	if len(parked.EventIDs) == 0 || len(parked.EventIDs) != len(parked.EventDigests) {
		return nil, errors.New("it is not stored which events are in conflict")
	}
	wanted := map[string]bool{}
	for i, id := range parked.EventIDs {
		wanted[id+string(parked.EventDigests[i])] = true
	}
	for _, raw := range delivery.Events {
		e := r.pipeline.newEvent(raw, delivery.DeliveryID, now)
		if content := e.entry.EventID + string(e.entry.Digest[:]); wanted[content] {
			delete(wanted, content)
			events = append(events, e)
		}
	}
	if len(wanted) > 0 {
		return nil, errors.New("an event in conflict is not in the payload")
	}
	return events, nil
}

// checkFirst checks whether the contents that events are in conflict with are on the
// bus.
func (r *Replayer) checkFirst(ctx context.Context, events []event) Result {
	result := Result{Events: len(events)}
	var ids []string
	for _, e := range events {
		ids = append(ids, e.entry.EventID)
	}
	slices.Sort(ids)
	known, err := r.pipeline.ledger.Known(ctx, slices.Compact(ids))
	if err != nil {
		result.Err = unrecorded(ctx, err)
		result.Outcome, result.Unrecorded = OutcomeOf(result.Err), len(events)
		return result
	}
	for _, e := range events {
		// What the ledger does not have any more was published or parked a window ago.
		switch first := known[e.entry.EventID]; {
		case first.Cause == "parked":
			result.Err = fmt.Errorf("%w: the first version of %s was not published: it is parked as well",
				errVersionUnfit, e.entry.EventID)
		case first.Digest == e.entry.Digest:
			result.Err = fmt.Errorf("%w: the parked version of %s was published in place of the first", errVersionUnfit,
				e.entry.EventID)
		case first.State == ledger.Pending:
			result.Err = cmp.Or(result.Err, errPending)
		}
	}
	result.Outcome = OutcomeOf(result.Err)
	return result
}

// replace lets redrive publish events in place of what the ledger has.
func (r *Replayer) replace(ctx context.Context, events []event) Result {
	ids := map[string]bool{}
	for _, e := range events {
		if id := e.entry.EventID; ids[id] {
			return Result{
				Outcome: VersionUnfit, Events: len(events),
				Err: fmt.Errorf("%w: several contents of %s are parked, and it can't be said which one is meant",
					errVersionUnfit, id),
			}
		}
		ids[e.entry.EventID] = true
	}
	entries := make([]ledger.Item, len(events))
	errs := make([]error, len(events))
	parallel.Each(len(events), Parallel, func(i int) {
		entries[i] = events[i].entry
		if events[i].large {
			entries[i], errs[i] = r.pipeline.claim(ctx, events[i])
		}
	})
	if err := errors.Join(errs...); err != nil {
		err = unrecorded(ctx, err)
		return Result{Outcome: OutcomeOf(err), Err: err, Events: len(events), Unrecorded: len(events)}
	}
	return r.summary(ctx, r.pipeline.ledger.Replace(ctx, entries, r.pipeline.opts.Now()))
}

// replayEvent makes an event pending again that was parked on its own.
func (r *Replayer) replayEvent(ctx context.Context, parked parking.Parked, version Version) Result {
	raw, err := payment.DecodeRawEvent(parked.Event)
	now := r.pipeline.opts.Now()
	entry := ledger.NewItem(raw, parked.DeliveryID, now)
	signed := entry.Digest // of a claim check, if it is claimed
	if parked.Claimed {
		entry = entry.AsClaim(parked.Event)
	}
	if err != nil || copy(entry.Digest[:], parked.Digest) != len(entry.Digest) ||
		!parked.Claimed && entry.Digest != signed {
		err = fmt.Errorf("%w: %w", evidence.ErrAltered, ledger.ErrCorrupt)
		return Result{Outcome: OutcomeOf(err), Err: err, DeliveryID: parked.DeliveryID, Events: 1}
	}
	if parked.Claimed {
		if _, err := r.pipeline.claims.StoredAt(ctx, parked.Event); err != nil {
			if !errors.Is(err, claimcheck.ErrGone) {
				err = unrecorded(ctx, err)
			}
			return Result{Outcome: OutcomeOf(err), Err: err, DeliveryID: parked.DeliveryID, Events: 1}
		}
	}
	write := r.pipeline.ledger.Restore
	if version == ParkedVersion {
		write = r.pipeline.ledger.Replace
	}
	result := r.summary(ctx, write(ctx, []ledger.Item{entry}, now))
	result.DeliveryID = parked.DeliveryID
	return result
}

// summary returns the result of events that were written for redrive to publish.
func (r *Replayer) summary(ctx context.Context, recordings []ledger.Recording) Result {
	result := Result{Events: len(recordings)}
	for _, rec := range recordings {
		switch {
		case rec.Err != nil:
			result.Unrecorded++
			result.Err = unrecorded(ctx, rec.Err)
		case rec.Outcome == ledger.Recorded:
			result.Recorded++
			result.Pending++
		case rec.Outcome == ledger.Duplicate:
			result.Duplicates++
			if rec.State == ledger.Pending {
				result.PendingDuplicates++
			}
		default:
			result.Conflicts++
		}
	}
	switch {
	case result.Err != nil:
	case result.Conflicts > 0:
		result.Err = fmt.Errorf("%w, which is not published yet", errConflict)
	case result.PendingDuplicates > 0:
		result.Err = errPending
	}
	result.Outcome = OutcomeOf(result.Err)
	return result
}

// What a replay can't verify.
const (
	// A certificate is public, and says nothing of the payload beside it.
	noSignature = "a delivery by mTLS has no signature: that this client sent this payload rests on who may write to " +
		"the parking bucket"
	otherCAs = "the truststore does not trust the client certificate: it was verified with the CAs that are " +
		"stored with the delivery"
)

// verify returns the proof of a parked delivery after it verified every part of it. A
// delivery without a certificate must be signed.
func (r *Replayer) verify(parked parking.Parked) (p proof, known Authentication, err error) {
	var unverified []string
	if c := parked.Certificate; c != nil {
		var trusted bool
		if p.chain, trusted, err = r.verifyCertificate(parked); err != nil {
			return p, known, err
		}
		p.acceptedAt, known.Certificate = c.AcceptedAt, p.chain[0]
		if !trusted {
			unverified = append(unverified, otherCAs)
		}
	}
	if parked.Certificate != nil && !parked.HasSignature() {
		unverified = append(unverified, noSignature)
	} else {
		key, err := parked.VerifySignature()
		if err == nil {
			err = checkRevoked(r.revoked, parked.KeyID, key)
		}
		if err != nil {
			return p, known, err
		}
		p.signature = signature.Parts{Timestamp: parked.Timestamp, KeyID: parked.KeyID, Signature: parked.Signature}
		p.key, known.KeyID, known.Key.Key = key, parked.KeyID, key
	}
	known.Unverified = strings.Join(unverified, "; ")
	return p, known, nil
}

// verifyCertificate returns the chain of the certificate that is parked with a delivery, and
// whether the truststore trusts it.
func (r *Replayer) verifyCertificate(parked parking.Parked) (chain []*x509.Certificate, trusted bool, err error) {
	if r.truststore != nil {
		chain, err = parked.Certificate.Verify(parked.Payload, r.truststore, r.revoked)
		if err == nil || OutcomeOf(err) == CertificateOutcome(clientcert.Revoked) {
			return chain, true, err
		}
	}
	chain, err = parked.Certificate.Verify(parked.Payload, nil, r.revoked)
	return chain, false, err
}
