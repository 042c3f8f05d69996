package intake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
)

// Version is which of two contents of one eventId a person decided for.
type Version string

// The versions.
const (
	NoVersion     Version = ""       // nobody decided
	FirstVersion  Version = "first"  // what was published stays as it is
	ParkedVersion Version = "parked" // what is parked is published as well
)

// The outcomes of a replay alone.
const (
	// VersionMissing: a conflict is replayed only after a person decided.
	VersionMissing Outcome = "version-missing"
	// VersionUnfit: there is nothing to decide, or that version can't be had.
	VersionUnfit Outcome = "version-unfit"
	// Altered: what is parked is not what was parked.
	Altered Outcome = "altered"
)

// Replay publishes what is parked, or leaves it to redrive to publish. It writes
// and publishes nothing that is not parked for its own sake: of a delivery in
// conflict, the events in conflict only. The outcome is Accepted if nothing is
// left to do.
//
// A delivery is verified again with the key that is stored with it. Its age, and
// what the key service says of the key now, are not looked at: both may have
// changed for good reasons. A client certificate is verified as of the time at which
// it was accepted, with the truststore or, if that does not trust it any more, with
// the CAs that are stored with it; pins and revocations of today are not looked at.
// Result.Unverified says what that does not prove.
//
// An invalid delivery goes through the same steps as a new one. What of it is in
// conflict is parked for itself; then the outcome is Conflict, Parked names it, and
// nothing is left to do about p.
//
// For a conflict, version is required. With FirstVersion, Replay looks whether the
// content that the ledger knows is on the bus, or will be, and writes nothing. With
// ParkedVersion, the parked content takes the place of what the ledger knows, once
// that is not pending any more; the other content is in conflict from then on.
//
// An event that could not be published becomes pending again. If the ledger knows
// other content by then, the outcome is Conflict unless version is ParkedVersion.
// An event has no proof: the ledger had accepted it. See package parking for who
// must be trusted.
//
// The window of a replayed event begins when it is published.
func (r *Receiver) Replay(ctx context.Context, p parking.Parked, version Version) (result Result) {
	start := r.opts.Now()
	deadline, work := r.opts.deadlines(ctx, start)
	ctx, cancel := context.WithDeadline(ctx, work)
	defer cancel()
	switch {
	case p.Reason == parking.Unpublishable:
		if version == FirstVersion {
			result.Outcome = VersionUnfit
			return result
		}
		r.replayEvent(ctx, p, version, &result)
		return result
	case p.Reason == parking.Conflict && version != FirstVersion && version != ParkedVersion:
		result.Outcome = VersionMissing
		return result
	case p.Reason == parking.Invalid && version != NoVersion:
		result.Outcome = VersionUnfit
		return result
	}

	proof, err := r.verifyParked(p, &result)
	if err != nil {
		if result.Outcome = outcomeOf(err); result.Outcome == KeyUnavailable {
			result.Outcome = Altered // the stored key or certificate can't be read
		}
		result.Err = err
		return result
	}
	delivery, err := payment.DecodeDelivery(p.Payload)
	if err != nil { // it is parked already
		result.Outcome, result.Err = Invalid, err
		return result
	}
	if p.Reason != parking.Conflict {
		r.take(ctx, p.Payload, proof, deadline, work, &result)
		return result
	}
	result.DeliveryID = delivery.DeliveryID
	entries, err := r.inConflict(p, delivery, start)
	switch {
	case err != nil:
		result.Outcome, result.Err = Altered, err
	case version == FirstVersion:
		r.keepFirst(ctx, entries, &result)
	default:
		r.replace(ctx, entries, &result)
	}
	return result
}

// inConflict returns the events of a parked delivery that are in conflict.
func (r *Receiver) inConflict(p parking.Parked, delivery payment.Delivery, now time.Time) (entries []ledger.Entry, err error) {
	if len(p.EventIDs) == 0 || len(p.EventIDs) != len(p.EventDigests) {
		return nil, errors.New("intake: what is parked does not say which events are in conflict")
	}
	wanted := map[string]bool{}
	for i, id := range p.EventIDs {
		wanted[id+string(p.EventDigests[i])] = true
	}
	for _, event := range delivery.Events {
		e := r.entry(event, delivery.DeliveryID, now)
		if content := e.EventID + string(e.Digest[:]); wanted[content] {
			delete(wanted, content)
			entries = append(entries, e)
		}
	}
	if len(wanted) > 0 {
		return nil, errors.New("intake: an event in conflict is not in the payload")
	}
	return entries, nil
}

// keepFirst finds out whether the contents that entries are in conflict with are
// on the bus, or will be.
func (r *Receiver) keepFirst(ctx context.Context, entries []ledger.Entry, result *Result) {
	result.Events, result.Outcome = len(entries), Accepted
	ids := map[string]bool{}
	for _, e := range entries {
		ids[e.EventID] = true
	}
	known := map[string]ledger.Known{}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(ids)), ledger.MaxKnown) {
		part, err := r.ledger.Known(ctx, some)
		if err != nil {
			result.Unrecorded = len(entries)
			result.Outcome, result.Err = r.unavailable(ctx), err
			return
		}
		maps.Copy(known, part)
	}
	for _, e := range entries {
		// What is not known any more was published or parked a window ago.
		switch first, ok := known[e.EventID]; {
		case ok && first.Parked:
			result.Outcome, result.Err = VersionUnfit, fmt.Errorf("intake: the first version of %s was not published: it is parked as well", e.EventID)
			return
		case ok && first.Digest == e.Digest:
			result.Outcome, result.Err = VersionUnfit, fmt.Errorf("intake: the parked version of %s was published in place of the first", e.EventID)
			return
		}
	}
}

// replace lets redrive publish entries in place of what the ledger knows.
func (r *Receiver) replace(ctx context.Context, entries []ledger.Entry, result *Result) {
	result.Events = len(entries)
	ids := map[string]bool{}
	for _, e := range entries {
		if ids[e.EventID] {
			result.Outcome, result.Err = VersionUnfit, fmt.Errorf("intake: several contents of %s are parked: which one is meant can't be said", e.EventID)
			return
		}
		ids[e.EventID] = true
	}
	r.write(ctx, entries, r.ledger.Replace, result)
	if result.Outcome == Conflict {
		result.Err = errors.New("intake: the first version is not published yet")
	}
}

// replayEvent gives an event that was parked for failing too often to redrive again.
func (r *Receiver) replayEvent(ctx context.Context, p parking.Parked, version Version, result *Result) {
	result.DeliveryID, result.Events = p.DeliveryID, 1
	event, err := payment.DecodeRawEvent(p.Event)
	e := ledger.Entry{
		EventID: ledger.Key(event.EventID), DeliveryID: p.DeliveryID, RecordedAt: r.opts.Now(), Event: event, Claimed: p.Claimed,
	}
	if err != nil || copy(e.Digest[:], p.Digest) != len(e.Digest) || !p.Claimed && e.Digest != ledger.DigestOf(event.Bytes) {
		result.Outcome, result.Err = Altered, ledger.ErrCorrupt
		return
	}
	write := r.ledger.Restore
	if version == ParkedVersion {
		write = r.ledger.Replace
	}
	// Its bytes are a claim check already if it is claimed.
	r.writeAll(ctx, []ledger.Entry{e}, write, result)
}

// write stores the claims of entries and writes entries to the ledger.
func (r *Receiver) write(ctx context.Context, entries []ledger.Entry, write writer, result *Result) {
	for i := range entries {
		if !entries[i].Claimed {
			continue
		}
		if r.opts.Claims == nil {
			result.TooLarge++
			result.Outcome = TooLarge
			return
		}
		var err error
		if entries[i].Event.Bytes, err = r.opts.Claims.Put(ctx, entries[i].Event); err != nil {
			result.Outcome, result.Err = r.unavailable(ctx), err
			result.Unrecorded = len(entries)
			return
		}
	}
	r.writeAll(ctx, entries, write, result)
}

type writer func(context.Context, ledger.Entry, time.Time) (ledger.Outcome, error)

func (r *Receiver) writeAll(ctx context.Context, entries []ledger.Entry, write writer, result *Result) {
	due := r.opts.Now()
	outcomes := make([]ledger.Outcome, len(entries))
	failures := make([]error, len(entries))
	each(len(entries), r.opts.Parallel, func(i int) {
		if ctx.Err() != nil {
			failures[i] = errOutOfTime
			return
		}
		outcomes[i], failures[i] = write(ctx, entries[i], due)
	})
	result.Outcome = Accepted
	for i := range entries {
		switch {
		case failures[i] != nil:
			result.Unrecorded++
			result.Err = failures[i]
		case outcomes[i] == ledger.Recorded:
			result.Recorded++
			result.Pending++
		case outcomes[i] == ledger.Duplicate:
			result.Duplicates++
		default:
			result.Conflicts++
			result.Outcome = Conflict
		}
	}
	if result.Unrecorded > 0 {
		result.Outcome = r.unavailable(ctx)
	}
}

// unavailable returns the outcome of a call of the ledger that failed.
func (r *Receiver) unavailable(ctx context.Context) Outcome {
	if ctx.Err() != nil {
		return OutOfTime
	}
	return LedgerUnavailable
}
