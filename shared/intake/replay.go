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

	"payhook.example/shared/clientcert"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
	"payhook.example/shared/signature"
)

// Replayer replays what is parked. It is safe for concurrent use.
type Replayer struct {
	pipeline   *Pipeline
	truststore *clientcert.Truststore
	revoked    clientcert.Revocations
}

// NewReplayer returns a replayer that passes what is verified to the pipeline. A truststore of nil
// verifies client certificates with the CAs that are stored with a delivery.
func NewReplayer(p *Pipeline, truststore *clientcert.Truststore, revoked clientcert.Revocations) *Replayer {
	return &Replayer{p, truststore, revoked}
}

// claimEndsSoon is how long before the end of the event of a claim check a replay warns.
const claimEndsSoon = 30 * 24 * time.Hour

// ReplayEvent makes a parked event pending again, for redrive to publish, and stores the decision in the ledger. The
// event has no proof: the ledger had accepted it.
//
// The outcome is Gone if it is a claim check whose event is not stored any more, and Altered if the event is not the
// one that was recorded. If the event is not parked, nothing is written, and the outcome is StillPending,
// AlreadyPublished, AlreadyDismissed or NotParked. The window of the event begins when it is published.
func (r *Replayer) ReplayEvent(ctx context.Context, eventID string, d ledger.Decision) Result {
	_, ctx, cancel := r.pipeline.begin(ctx)
	defer cancel()
	result := Result{Events: 1}
	item, err := r.decide(ctx, eventID, func(i ledger.Item) (done ledger.Result) {
		if result.ClaimEnds, done.Err = r.pipeline.claimEnds(ctx, i); done.Err != nil {
			return done
		}
		return r.pipeline.ledger.Replay(ctx, i, d, r.pipeline.opts.Now())
	})
	result.DeliveryID = item.DeliveryID
	if err == nil {
		result.Recorded, result.Pending = 1, 1
	} else if OutcomeOf(err) == LedgerUnavailable {
		err = unrecorded(ctx, err)
	}
	result.Outcome, result.Err = OutcomeOf(err), err
	return result
}

// DismissEvent removes the bytes of a parked event, which is not published, and stores the decision in the ledger. It
// changes nothing for an event that is dismissed already. Otherwise, the error says what the event is instead of
// parked.
func (r *Replayer) DismissEvent(ctx context.Context, eventID string, d ledger.Decision) error {
	_, ctx, cancel := r.pipeline.begin(ctx)
	defer cancel()
	_, err := r.decide(ctx, eventID, func(i ledger.Item) ledger.Result { return r.pipeline.ledger.Dismiss(ctx, i, d) })
	if errors.Is(err, errDismissed) {
		err = nil
	}
	return err
}

// decide reads an event and changes it if it is parked. A change that arrives late must not concern what was parked
// after it was sent.
func (r *Replayer) decide(ctx context.Context, eventID string,
	change func(ledger.Item) ledger.Result) (ledger.Item, error) {
	item, _, err := r.pipeline.ledger.Find(ctx, eventID)
	if err == nil || item.Err != nil {
		err = parkedEvent(&item)
	}
	if err == nil {
		done := change(item)
		if err = done.Err; err == nil && !done.Done {
			err = cmp.Or(parkedEvent(done.Found), errPending) // it is parked anew
		}
	}
	return item, err
}

// parkedEvent returns an error unless the ledger has an event as parked.
func parkedEvent(i *ledger.Item) error {
	switch {
	case i == nil || i.EventID == "":
		return errNotParked
	case i.State == ledger.Pending:
		return errPending
	case i.State == ledger.Published:
		return errPublished
	case i.State == ledger.Dismissed:
		return errDismissed
	}
	return nil
}

// claimEnds checks what a parked event has. Of a claim check whose event is deleted soon, it returns when.
func (p *Pipeline) claimEnds(ctx context.Context, i ledger.Item) (time.Time, error) {
	if _, err := i.WithEvent(); err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", proof.ErrAltered, err)
	}
	if !i.Claimed {
		return time.Time{}, nil
	}
	at, err := p.claims.StoredAt(ctx, i.Detail)
	if err != nil || p.opts.ClaimRetention == 0 {
		return time.Time{}, err
	}
	end := at.Add(p.opts.ClaimRetention)
	if end.Sub(p.opts.Now()) > claimEndsSoon {
		end = time.Time{}
	}
	return end, nil
}

// Replay publishes a parked delivery, or leaves it to redrive to publish. It writes and
// publishes only what is parked: of a delivery in conflict, only the events in
// conflict. [Result.Done] reports whether nothing is left to do about the delivery.
//
// The outcome is StillPending if an event was recorded before this replay and is not
// published yet. Redrive publishes or parks it.
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
// ParkedVersion, the parked content replaces what the ledger has, once that is
// published or dismissed; the other content is in conflict from then on.
//
// The window of a replayed event begins when it is published.
func (r *Replayer) Replay(ctx context.Context, p proof.Proof, version redrive.Version) Result {
	inv, ctx, cancel := r.pipeline.begin(ctx)
	defer cancel()
	if err := checkVersion(p.Reason, version); err != nil {
		return Result{Outcome: OutcomeOf(err)} // which says it all
	}
	by, known, err := r.verify(p)
	if err != nil {
		return Result{Outcome: OutcomeOf(err), Err: err, Authentication: known}
	}
	delivery, err := payment.DecodeDelivery(p.Payload)
	var result Result
	switch {
	case err != nil: // it is parked already
		result = failed(err)
	case p.Reason == proof.Conflict:
		result = r.replayConflict(ctx, p, delivery, version, inv)
		result.DeliveryID = delivery.DeliveryID
	default:
		result = r.pipeline.process(ctx, p.Payload, by, inv, true)
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
func checkVersion(reason proof.Reason, version redrive.Version) error {
	switch {
	case reason == proof.Conflict && version != redrive.FirstVersion && version != redrive.ParkedVersion:
		return errVersionMissing
	case reason != proof.Conflict && version != redrive.NoVersion:
		return errVersionUnfit
	}
	return nil
}

func failed(err error) Result { return Result{Outcome: OutcomeOf(err), Err: err} }

// replayConflict replays the events in conflict of a delivery.
func (r *Replayer) replayConflict(ctx context.Context, p proof.Proof, delivery payment.Delivery,
	version redrive.Version, inv invocation) Result {
	events, err := r.inConflict(p, delivery, inv.start)
	if err != nil {
		return failed(fmt.Errorf("%w: %w", proof.ErrAltered, err))
	}
	if version == redrive.FirstVersion {
		return r.checkFirst(ctx, events)
	}
	return r.replace(ctx, events)
}

// inConflict returns the events of a parked delivery that are in conflict.
func (r *Replayer) inConflict(p proof.Proof, delivery payment.Delivery, now time.Time) (events []event, err error) {
	if len(p.Contents) == 0 {
		return nil, errors.New("it is not stored which events are in conflict")
	}
	wanted := map[string]bool{}
	for _, c := range p.Contents {
		wanted[c.EventID+string(c.Digest)] = true
	}
	for _, raw := range delivery.Events {
		e := r.pipeline.newEvent(raw, delivery.DeliveryID, now)
		if content := e.item.EventID + string(e.item.Digest[:]); wanted[content] {
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
		ids = append(ids, e.item.EventID)
	}
	slices.Sort(ids)
	known, err := r.pipeline.ledger.Known(ctx, slices.Compact(ids))
	if err != nil {
		result.Err = unrecorded(ctx, err)
		result.Outcome, result.Unrecorded = OutcomeOf(result.Err), len(events)
		return result
	}
	for _, e := range events {
		first, id := known[e.item.EventID], e.item.EventID
		problem := ""
		switch {
		case first.EventID != "" && first.Digest == e.item.Digest:
			problem = "the ledger has the parked version of %[2]s, and not the first"
		case first.State == ledger.Parked:
			problem = firstParked
		case first.State == ledger.Dismissed:
			problem = "the first version of %[2]s was dismissed and is not on the bus: dismiss the conflict as well"
		case first.State == ledger.Pending:
			result.Err = cmp.Or(result.Err, errPending)
		}
		// What the ledger does not have any more was published or dismissed a window ago.
		if problem != "" {
			result.Err = fmt.Errorf("%w: "+problem, errVersionUnfit, id)
		}
	}
	result.Outcome = OutcomeOf(result.Err)
	return result
}

const firstParked = "the first version of %[2]s is parked and not on the bus: replay or dismiss the event %[2]s first"

// replace lets redrive publish events in place of what the ledger has.
func (r *Replayer) replace(ctx context.Context, events []event) Result {
	ids := map[string]bool{}
	for _, e := range events {
		if id := e.item.EventID; ids[id] {
			return Result{
				Outcome: VersionUnfit, Events: len(events),
				Err: fmt.Errorf("%w: several contents of %s are parked, and it can't be said which one is meant",
					errVersionUnfit, id),
			}
		}
		ids[e.item.EventID] = true
	}
	items := make([]ledger.Item, len(events))
	errs := make([]error, len(events))
	objects.Parallel(len(events), Parallel, func(i int) {
		items[i] = events[i].item
		if events[i].large {
			items[i], errs[i] = r.pipeline.claim(ctx, events[i])
		}
	})
	if err := errors.Join(errs...); err != nil {
		err = unrecorded(ctx, err)
		return Result{Outcome: OutcomeOf(err), Err: err, Events: len(events), Unrecorded: len(events)}
	}
	return summary(ctx, items, r.pipeline.ledger.Replace(ctx, items, r.pipeline.opts.Now()))
}

// summary returns the result of events that were written for redrive to publish.
func summary(ctx context.Context, items []ledger.Item, recordings []ledger.Recording) Result {
	result := Result{Events: len(recordings)}
	var parked, pending error
	for n, rec := range recordings {
		switch {
		case rec.Err != nil:
			result.Unrecorded++
			result.Err = unrecorded(ctx, rec.Err)
			continue
		case rec.Outcome == ledger.Recorded:
			result.Recorded++
			result.Pending++
			continue
		case rec.Outcome == ledger.Duplicate:
			result.Duplicates++
		default:
			result.Conflicts++
		}
		switch same := rec.Outcome == ledger.Duplicate; {
		case rec.Found.State == ledger.Parked && same:
			parked = fmt.Errorf("%w: the parked version of %[2]s is parked as the event %[2]s: replay or dismiss that",
				errVersionUnfit, items[n].EventID)
		case rec.Found.State == ledger.Parked:
			parked = fmt.Errorf("%w: "+firstParked, errVersionUnfit, items[n].EventID)
		case rec.Found.State == ledger.Pending:
			pending = errPending
			if same {
				result.PendingDuplicates++
			}
		}
	}
	result.Err = cmp.Or(result.Err, parked, pending)
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

// verify returns what a parked delivery was authenticated by, after it verified every part of it. A
// delivery without a certificate must be signed.
func (r *Replayer) verify(p proof.Proof) (by authentic, known Authentication, err error) {
	key, err := p.Verify()
	if err != nil {
		return by, known, err
	}
	var unverified []string
	if c := p.Certificate; c != nil {
		var trusted bool
		if by.chain, trusted, err = r.verifyCertificate(p); err != nil {
			return by, known, err
		}
		by.acceptedAt = c.AcceptedAt
		if !trusted {
			unverified = append(unverified, otherCAs)
		}
	}
	if key == nil {
		unverified = append(unverified, noSignature)
	} else if err := checkRevoked(r.revoked, p.KeyID, key); err != nil {
		return by, known, err
	} else {
		by.signature = signature.Parts{Timestamp: p.Timestamp, KeyID: p.KeyID, Signature: p.Signature}
		by.key, known.KeyID, known.Key.Key = key, p.KeyID, key
	}
	known.Unverified = strings.Join(unverified, "; ")
	return by, known, nil
}

// verifyCertificate returns the chain of the certificate that is parked with a delivery, and
// whether the truststore trusts it.
func (r *Replayer) verifyCertificate(p proof.Proof) (chain []*x509.Certificate, trusted bool, err error) {
	if r.truststore != nil {
		chain, err = p.Certificate.Verify(p.Payload, r.truststore, r.revoked)
		if err == nil || OutcomeOf(err) == CertificateOutcome(clientcert.Revoked) {
			return chain, true, err
		}
	}
	chain, err = p.Certificate.Verify(p.Payload, nil, r.revoked)
	return chain, false, err
}
