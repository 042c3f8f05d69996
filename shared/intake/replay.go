package intake

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/calls"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

// Replayer replays what is parked. It is safe for concurrent use.
type Replayer struct {
	pipeline   *Pipeline
	truststore clientcert.Truststore
	revoked    clientcert.Revocations
}

// NewReplayer returns a replayer that passes what is verified to the pipeline. A truststore of nil
// verifies client certificates with the CAs that are stored with a delivery.
func NewReplayer(p *Pipeline, truststore clientcert.Truststore, revoked clientcert.Revocations) *Replayer {
	return &Replayer{p, truststore, revoked}
}

// ReplayEvent makes a parked event pending again, for redrive to publish, and stores the decision in the ledger. The
// event has no proof: the ledger had accepted it.
//
// The outcome is Gone if it is a claim check whose event is not stored any more, and DigestMismatch if the event is
// not the one that was recorded. It is NotPublishable if EventBridge is known to reject the event, which stays parked.
// If the event is not parked, nothing is written, and the outcome is StillPending, AlreadyPublished, AlreadyDismissed
// or NotParked. The window of the event begins when it is published.
func (r *Replayer) ReplayEvent(ctx context.Context, eventID string, note ledger.Note) Result {
	_, ctx, cancel := r.pipeline.begin(ctx)
	defer cancel()
	result := Result{Events: 1}
	item, err := r.decide(ctx, eventID, func(i ledger.Item) (done ledger.WriteResult) {
		if result.LargeEventEnds, done.Err = r.pipeline.largeEventEnds(ctx, i); done.Err == nil {
			done.Err = checkDetail(i)
		}
		if done.Err != nil {
			return done
		}
		return r.pipeline.ledger.Replay(ctx, i, note, r.pipeline.opts.Now())
	})
	result.DeliveryID = item.DeliveryID
	if err == nil {
		result.Recorded, result.Pending = 1, 1
	} else if OutcomeOf(err) == LedgerUnavailable {
		err = unrecorded(ctx, err)
	}
	return result.with(err)
}

// checkDetail returns an error if EventBridge is known to reject what is published of an event.
func checkDetail(i ledger.Item) error {
	if err := bus.Check(i.Detail); err != nil {
		return fmt.Errorf("%w: %w", NotPublishable, err)
	}
	return nil
}

// DismissEvent removes the bytes of a parked event, which is not published, and stores the decision in the ledger. It
// changes nothing for an event that is dismissed already. Otherwise, the error says what the event is instead of
// parked.
func (r *Replayer) DismissEvent(ctx context.Context, eventID string, note ledger.Note) error {
	_, ctx, cancel := r.pipeline.begin(ctx)
	defer cancel()
	_, err := r.decide(ctx, eventID, func(i ledger.Item) ledger.WriteResult {
		return r.pipeline.ledger.Dismiss(ctx, i, note)
	})
	if err == AlreadyDismissed {
		err = nil
	}
	return err
}

// decide reads an event and changes it if it is parked. A change that arrives late must not concern what was parked
// after it was sent.
func (r *Replayer) decide(ctx context.Context, eventID string,
	change func(ledger.Item) ledger.WriteResult) (ledger.Item, error) {
	item, _, err := r.pipeline.ledger.Find(ctx, eventID)
	if err != nil && item.Err == nil {
		return item, err
	}
	if err = parkedEvent(&item); err != nil {
		return item, err
	}
	done := change(item)
	if done.Err != nil || done.Done {
		return item, done.Err
	}
	if err = parkedEvent(done.Found); err == nil {
		err = StillPending // it is parked anew
	}
	return item, err
}

// parkedEvent returns an error unless the ledger has an event as parked.
func parkedEvent(i *ledger.Item) error {
	switch {
	case i == nil || i.EventID == "":
		return NotParked
	case i.State == ledger.Pending:
		return StillPending
	case i.State == ledger.Published:
		return AlreadyPublished
	case i.State == ledger.Dismissed:
		return AlreadyDismissed
	}
	return nil
}

// largeEventEnds checks what a parked event has. Of a claim check whose event is deleted soon, it returns when.
func (p *Pipeline) largeEventEnds(ctx context.Context, i ledger.Item) (time.Time, error) {
	if _, err := i.WithEvent(); err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", proof.ErrAltered, err)
	}
	if !i.Large {
		return time.Time{}, nil
	}
	at, err := p.largeEvents.StoredAt(ctx, i.Detail)
	if err != nil {
		return time.Time{}, err
	}
	return bus.LargeEventEnd(at, p.opts.LargeEventRetention, p.opts.Now()), nil
}

// Replay publishes a parked delivery, or leaves it to redrive to publish. It writes and
// publishes only what is parked: of a delivery in conflict, only the events in
// conflict. [Result.Done] reports whether nothing is left to do about the delivery.
//
// The outcome is StillPending if an event was recorded before this replay and is not
// published yet. Redrive publishes or parks it.
//
// A delivery is verified again with the key that is stored with it. Its age is not checked, and the key endpoint is not
// asked: both may have changed for good reasons. A client certificate is verified as of the time at which it was
// accepted, with the truststore or, if that does not trust it any more, with the CAs that are stored with it; the
// present pins are not checked. What is revoked by now is rejected. Result.Unverified says what this does not prove.
//
// An invalid delivery goes through the same steps as a new one. Its events in conflict are parked on their own; then
// the outcome is Conflict, and Parked names what is parked, which needs its own decision. It stays invalid if an event
// has no identity; the others are published.
//
// A conflict needs a content. With wire.FirstContent, Replay checks whether the content that the ledger has is on the
// bus, and writes nothing. With wire.ParkedContent, the parked content replaces what the ledger has, once that is
// published or dismissed; the other content is in conflict from then on. If EventBridge is known to reject an event of
// the parked content, the outcome is NotPublishable, and nothing is written.
//
// The window of a replayed event begins when it is published.
func (r *Replayer) Replay(ctx context.Context, p proof.Proof, content wire.Content) Result {
	inv, ctx, cancel := r.pipeline.begin(ctx)
	defer cancel()
	conflict := p.Reason == proof.Conflict
	switch {
	case conflict && content != wire.FirstContent && content != wire.ParkedContent:
		return Failed(ContentMissing)
	case !conflict && content != wire.NoContent:
		return Failed(ContentUnavailable)
	}
	by, err := r.verify(p)
	if err != nil {
		return Result{By: by}.with(err)
	}
	delivery, err := payment.DecodeDelivery(p.Payload)
	var result Result
	switch {
	case err != nil: // it is parked already
		result = Failed(err)
	case conflict:
		result = r.decideConflict(ctx, p, delivery, content, inv.start)
		result.DeliveryID = delivery.DeliveryID
	default:
		result = r.pipeline.process(ctx, p.Payload, by, inv, true)
		switch {
		case result.Outcome == Invalid:
			result.Err = fmt.Errorf("intake: %d of its events have no identity and are not published, the others "+
				"are recorded: %w", result.Invalid, result.Err)
		case result.Done() && result.PendingDuplicates > 0:
			result = result.with(StillPending)
		}
	}
	result.By = by
	return result
}

// Done reports whether a replay leaves nothing to decide about what was replayed. Events in
// conflict are parked as a new object, which needs its own decision.
func (r Result) Done() bool {
	return r.Outcome == Accepted || r.Outcome == Conflict && r.ParkedAs.Name != ""
}

// decideConflict replays the events in conflict of a delivery. With the first content, it checks whether what they
// are in conflict with is on the bus. In the parked one, it lets redrive publish them in place of what the ledger has.
func (r *Replayer) decideConflict(ctx context.Context, p proof.Proof, delivery payment.Delivery, content wire.Content,
	now time.Time) Result {
	items, err := inConflict(p, delivery, now)
	if err != nil {
		return Failed(fmt.Errorf("%w: %w", proof.ErrAltered, err))
	}
	result := Result{Events: len(items)}
	ids := map[string]bool{}
	for _, i := range items {
		if ids[i.EventID] && content == wire.ParkedContent {
			return result.with(
				fmt.Errorf("%w: several contents of %s are parked, and it can't be said which one is meant",
					ContentUnavailable, i.EventID),
			)
		}
		ids[i.EventID] = true
		if content == wire.ParkedContent && !r.pipeline.isLarge(i) {
			if err := checkDetail(i); err != nil {
				return result.with(err)
			}
		}
	}
	var results []ledger.WriteResult
	if content == wire.ParkedContent {
		results, err = r.replace(ctx, items)
	} else {
		results, err = r.find(ctx, items, slices.Collect(maps.Keys(ids)))
	}
	if err != nil {
		result.Unrecorded = len(items)
		return result.with(unrecorded(ctx, err))
	}
	var failed, unfit, pending error
	for n, done := range results {
		found := cmp.Or(done.Found, &ledger.Item{}) // zero: it was published or dismissed a window ago
		s := situation{content, firstContent, found.State}
		if found.Digest == items[n].Digest {
			s.stored = parkedContent
		}
		switch {
		case done.Err != nil:
			result.Unrecorded++
			failed = unrecorded(ctx, done.Err)
			continue
		case done.Done:
			result.Recorded++
			result.Pending++
			continue
		}
		switch problem := s.problem(items[n].EventID); {
		case problem == StillPending:
			pending = problem
		case problem != nil:
			unfit = problem
		}
		switch {
		case content == wire.FirstContent: // nothing is counted, since nothing is written
		case s.stored == wire.FirstContent:
			result.Conflicts++
		default:
			result.Duplicates++
			if s.state == ledger.Pending {
				result.PendingDuplicates++
			}
		}
	}
	switch {
	case failed != nil:
		return result.with(failed)
	case unfit != nil:
		return result.with(unfit)
	}
	return result.with(pending)
}

// find returns what the ledger has of each item. The ids are those of all items, each once.
func (r *Replayer) find(ctx context.Context, items []ledger.Item, ids []string) ([]ledger.WriteResult, error) {
	known, err := r.pipeline.ledger.Known(ctx, ids)
	results := make([]ledger.WriteResult, len(items))
	for n, i := range items {
		found := known[i.EventID]
		results[n].Found = &found
	}
	return results, err
}

// situation is what decides about an event in conflict: which content a person chose, and which one the ledger has in
// which state.
type situation struct {
	choice, stored wire.Content
	state          ledger.State
}

const (
	firstContent, parkedContent = wire.FirstContent, wire.ParkedContent

	notFirst = "the ledger has the parked content and not the first: choose the parked one, or dismiss the conflict"
	isParked = "the first content is parked and not on the bus: replay or dismiss the event first"

	dismissed = "the first content was dismissed and is not on the bus: dismiss the conflict too"
	another   = "the parked content is parked as an event of its own: replay or dismiss that event"
)

// undecided has the situations in which a replay does not decide a conflict: with ContentUnavailable and what a person
// does first, or with StillPending and "". In all others, the content that was chosen is on the bus, or redrive
// publishes it.
var undecided = map[situation]string{
	{firstContent, firstContent, ledger.Pending}:    "",
	{firstContent, firstContent, ledger.Parked}:     isParked,
	{firstContent, firstContent, ledger.Dismissed}:  dismissed,
	{firstContent, parkedContent, ledger.Pending}:   notFirst,
	{firstContent, parkedContent, ledger.Published}: notFirst,
	{firstContent, parkedContent, ledger.Parked}:    notFirst,
	{firstContent, parkedContent, ledger.Dismissed}: notFirst,
	{parkedContent, firstContent, ledger.Pending}:   "",
	{parkedContent, firstContent, ledger.Parked}:    isParked,
	{parkedContent, parkedContent, ledger.Pending}:  "",
	{parkedContent, parkedContent, ledger.Parked}:   another,
}

// problem returns why a conflict about an event is not decided; nil if it is.
func (s situation) problem(eventID string) error {
	switch why, ok := undecided[s]; {
	case !ok:
		return nil
	case why == "":
		return StillPending
	default:
		return fmt.Errorf("%w: event %s: %s", ContentUnavailable, eventID, why)
	}
}

// inConflict returns the events of a parked delivery that are in conflict.
func inConflict(p proof.Proof, delivery payment.Delivery, now time.Time) (items []ledger.Item, err error) {
	if len(p.Contents) == 0 {
		return nil, errors.New("it is not stored which events are in conflict")
	}
	wanted := map[string]bool{}
	for _, c := range p.Contents {
		wanted[c.EventID+string(c.Digest)] = true
	}
	for _, raw := range delivery.Events {
		item := ledger.NewItem(raw, delivery.DeliveryID, now)
		if content := item.EventID + string(item.Digest[:]); wanted[content] {
			delete(wanted, content)
			items = append(items, item)
		}
	}
	if len(wanted) > 0 {
		return nil, errors.New("an event in conflict is not in the payload")
	}
	return items, nil
}

// replace records events, for redrive to publish, in place of what the ledger has. The error is why none is recorded.
func (r *Replayer) replace(ctx context.Context, items []ledger.Item) ([]ledger.WriteResult, error) {
	errs := make([]error, len(items))
	calls.Parallel(len(items), Parallel, func(n int) {
		if r.pipeline.isLarge(items[n]) {
			errs[n] = r.pipeline.storeLarge(ctx, &items[n])
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r.pipeline.ledger.Replace(ctx, items, r.pipeline.opts.Now()), nil
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
func (r *Replayer) verify(p proof.Proof) (by Authentication, err error) {
	key, err := p.Verify()
	if err != nil {
		return by, err
	}
	var unverified []string
	if c := p.Certificate; c != nil {
		var trusted bool
		if by.Chain, trusted, err = r.verifyCertificate(p); err != nil {
			return by, err
		}
		by.acceptedAt = c.AcceptedAt
		if !trusted {
			unverified = append(unverified, otherCAs)
		}
	}
	if key == nil {
		unverified = append(unverified, noSignature)
	} else if err := checkRevoked(r.revoked, p.KeyID, key); err != nil {
		return by, err
	} else {
		by.signature = signature.Parts{Timestamp: p.Timestamp, KeyID: p.KeyID, Signature: p.Signature}
		by.KeyID, by.Key.Key = p.KeyID, key
	}
	by.Unverified = strings.Join(unverified, "; ")
	return by, nil
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
