// Package intake is the way of a delivery from the wire to the bus, and the
// only package that knows its order: authenticate, decode, record, publish,
// mark.
//
// It guarantees that nothing is written or published before a delivery was
// found authentic, and that a delivery is reported as taken only if every one
// of its events is recorded: what is recorded reaches the bus, by the
// [Receiver] itself or later by the [Redriver], whatever fails in between.
//
// An event reaches the bus twice in one case only: whoever published it died,
// lost the answer, or could not write the mark, after EventBridge took the event
// and before the ledger says so. A request whose answer was lost may also arrive
// later than the one that was sent in its place.
package intake

import (
	"context"
	"crypto/x509"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"payhook.example/shared/bus"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
)

// Outcome is what became of a delivery. Its text is stable: logs and metrics
// name it.
type Outcome string

// The outcomes of a delivery.
const (
	Accepted Outcome = "accepted" // every event is recorded, now or before

	// Not authentic. The reasons of package clientcert are outcomes as well.
	SignatureMissing     Outcome = "signature-missing"   // signature, timestamp or key id is missing
	SignatureRepeated    Outcome = "signature-repeated"  // one of them came more than once
	SignatureMalformed   Outcome = "signature-malformed" // one of them is malformed
	TimestampOutside     Outcome = "timestamp-outside-window"
	KeyUnknown           Outcome = "key-unknown"
	KeyRefused           Outcome = "key-refused" // the service's key is not one to be used
	SignatureDoesntMatch Outcome = "signature-mismatch"

	// Authentic, and can't be taken.
	Invalid  Outcome = "invalid"   // not a delivery of section 2.2
	TooLarge Outcome = "too-large" // an event is too large for the ledger or the bus
	Conflict Outcome = "conflict"  // an eventId was seen before with other content

	// Not our answer to give now.
	KeyUnavailable    Outcome = "key-unavailable"
	KeyOutOfBudget    Outcome = "key-out-of-budget"
	LedgerUnavailable Outcome = "ledger-unavailable" // an event could not be recorded
	OutOfTime         Outcome = "out-of-time"        // an event could not be recorded in time
	ParkingFailed     Outcome = "parking-failed"     // it can't be taken, and could not be kept aside either
)

// Delivery is a webhook as it came over the wire.
type Delivery struct {
	Payload  []byte            // as received, not decoded in any way
	Headers  map[string]string // names of any case; repeated headers joined by commas
	RawQuery string            // without the question mark
	// SourceIP is the peer of the TCP connection that the webhook came by. It
	// decides which budget of key look-ups applies, and nothing else. The zero Addr
	// counts as a stranger's.
	SourceIP netip.Addr
	// Certificate is the client certificate that API Gateway passed on. The caller has
	// to know that the webhook came through API Gateway.
	Certificate clientcert.Presented
}

// Result says what became of a delivery, and how.
type Result struct {
	Outcome Outcome
	// Err is the cause of an outcome other than Accepted and Conflict, or why an
	// event can't be published. It wraps an error of the package that found it,
	// and its text holds nothing of the delivery.
	Err error

	KeyID string // once it is known to be a UUID
	// Certificate is the client certificate, where one is required and it could be
	// read.
	Certificate *x509.Certificate
	// Unverified says what a replay could not verify of the proof; "" for nothing.
	Unverified string
	DeliveryID string // once the delivery is known to be authentic
	Key        keys.Found
	Refetched  bool // the signature verified, or not, with a key fetched anew

	Events     int // in the delivery
	Recorded   int // new
	Duplicates int // recorded before
	Conflicts  int // seen before with other content
	TooLarge   int // too large for the ledger or the bus
	Unrecorded int // not known to be recorded
	Published  int // new, on the bus, and marked so
	Pending    int // new, left to redrive
	Unmarked   int // on the bus and not marked so: redrive publishes them again
	Claimed    int // new, and in the claim-check bucket
	// Unpublishable is how many new events are parked, each by itself, since
	// EventBridge is known to reject them.
	Unpublishable int

	// Parked is the name under which the delivery is parked, or "".
	Parked string
	// ParkedBefore: the same delivery, with the same proof, was parked before.
	ParkedBefore bool

	Steps Steps
}

// Steps is how long each step took.
type Steps struct {
	Authenticate, Decode, Record, Publish, Mark time.Duration
}

// Keys finds keys by their ids. [keys.Cache] does.
type Keys interface {
	Lookup(ctx context.Context, id string, from netip.Addr) (keys.Found, error)
	Refetch(ctx context.Context, id string, failed keys.Found, from netip.Addr) (keys.Found, error)
	RecordSource(ctx context.Context, from netip.Addr)
}

// MTLS says which client certificates deliveries must come with.
type MTLS struct {
	Verifier *clientcert.Verifier
	// Alone: the certificate is proof enough. Otherwise a signature is required as
	// well.
	Alone bool
	// Accepted is told which certificates are accepted; nil tells nobody.
	Accepted interface {
		Record(ctx context.Context, certificate *x509.Certificate, now time.Time) error
	}
}

// Options are the knobs of a [Receiver] and of a [Redriver]. The zero value of
// each stands for the default that is named.
type Options struct {
	// Timeout is assumed where the context has no deadline; 30 seconds.
	Timeout time.Duration
	// Margin is kept free before the deadline, to give the answer in; 1 second,
	// and at most a quarter of the time that is left at the start.
	Margin time.Duration
	// Grace is how long after the deadline of whoever holds an event nobody else
	// touches it: more than two clocks can differ; 30 seconds.
	Grace time.Duration
	// Patience is how long a receiver tries to reach the bus; 5 seconds. What is
	// not on the bus by then is left to redrive.
	Patience time.Duration
	// Parallel is how many calls of the ledger are under way at once; 128.
	Parallel int
	// Claims keeps events that are too large; nil refuses them.
	Claims Claims
	// ClaimBytes is the size from which an event is too large; what ledger and
	// bus take.
	ClaimBytes int
	// Parking keeps aside what is authentic and can't be published; nil forgets
	// it.
	Parking Parking
	// MaxAttempts is how often redrive tries to publish an item before it parks
	// it; 20. Without Parking it tries for ever.
	MaxAttempts int
	// MTLS, if not nil, requires a client certificate.
	MTLS *MTLS
	// Truststore is what a replay verifies client certificates with; nil stands for
	// the CAs that are stored with a delivery.
	Truststore *clientcert.Truststore
	// Exponents are the public exponents that a parked key may have; 65537.
	Exponents []int
	Now       func() time.Time // time.Now
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		option *time.Duration
		value  time.Duration
	}{
		{&o.Timeout, 30 * time.Second},
		{&o.Margin, time.Second},
		{&o.Grace, 30 * time.Second},
		{&o.Patience, 5 * time.Second},
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
	if o.MaxAttempts == 0 {
		o.MaxAttempts = 20
	}
	if o.Exponents == nil {
		o.Exponents = []int{65537}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Claims keeps an event and returns the detail that stands for it.
// [claimcheck.Store] does.
type Claims interface {
	Put(ctx context.Context, event payment.RawEvent) ([]byte, error)
}

// Parking stores what can't be published. It returns the name, and whether the
// same was parked before. [parking.Store] does.
type Parking interface {
	Park(ctx context.Context, p parking.Parked) (name string, before bool, err error)
}

// DefaultParallel is how many calls of the ledger are under way at once. A
// client should keep as many connections.
const DefaultParallel = 128

// Receiver takes deliveries. It is safe for concurrent use.
type Receiver struct {
	scheme signature.Scheme
	window *signature.Window
	keys   Keys
	ledger *ledger.Ledger
	bus    *bus.Bus
	opts   Options
}

// NewReceiver returns a receiver of deliveries whose proof travels by scheme
// and is not older than window allows.
func NewReceiver(scheme signature.Scheme, window *signature.Window, keys Keys, ledger *ledger.Ledger, bus *bus.Bus, opts Options) *Receiver {
	opts.setDefaults()
	return &Receiver{scheme, window, keys, ledger, bus, opts}
}

// Receive takes a delivery. It returns before ctx's deadline, early enough to
// give the answer.
func (r *Receiver) Receive(ctx context.Context, d Delivery) (result Result) {
	start := r.opts.Now()
	deadline, work := r.opts.deadlines(ctx, start)
	ctx, cancel := context.WithDeadline(ctx, work)
	defer cancel()

	proof, err := r.authenticate(ctx, d, start, &result)
	result.Steps.Authenticate = r.opts.Now().Sub(start)
	if err != nil {
		result.Outcome, result.Err = outcomeOf(err), err
		return result
	}

	r.take(ctx, d.Payload, proof, deadline, work, &result)
	// Last, since nothing depends on it.
	if proof.signed() {
		r.keys.RecordSource(ctx, d.SourceIP)
	}
	if m := r.opts.MTLS; m != nil && m.Accepted != nil {
		_ = m.Accepted.Record(ctx, proof.chain[0], start) // the next delivery tries again
	}
	return result
}

// proof is what a delivery is authenticated by: a signature, a certificate, or both.
type proof struct {
	signature.Proof                     // zero for none
	chain           []*x509.Certificate // of the client's certificate; nil for none
	acceptedAt      time.Time           // when chain was verified
}

func (p proof) signed() bool { return p.Signature != "" }

// take takes what was found authentic.
func (r *Receiver) take(ctx context.Context, payload []byte, proof proof, deadline, work time.Time, result *Result) {
	start := r.opts.Now()
	delivery, err := payment.DecodeDelivery(payload)
	result.Steps.Decode = r.opts.Now().Sub(start)
	if err != nil {
		result.Outcome, result.Err = Invalid, err
		var ids []string
		result.DeliveryID, ids = payment.PeekIDs(payload)
		r.park(ctx, parking.Parked{Reason: parking.Invalid, Cause: err.Error(), EventIDs: ids}, payload, proof, result)
		return
	}
	result.DeliveryID = delivery.DeliveryID
	result.Events = len(delivery.Events)

	recorded, conflicts := r.record(ctx, delivery, deadline.Add(r.opts.Grace), result)
	if len(conflicts) > 0 {
		p := parking.Parked{Reason: parking.Conflict}
		for _, c := range conflicts {
			p.EventIDs, p.EventDigests = append(p.EventIDs, c.EventID), append(p.EventDigests, c.Digest[:])
		}
		r.park(ctx, p, payload, proof, result)
	}
	p := publisher{r.ledger, r.bus, r.opts}
	done := p.publish(ctx, recorded, min(r.opts.Patience, work.Sub(r.opts.Now())))
	result.Published, result.Pending, result.Unmarked = done.marked, done.pending, done.unmarked
	r.parkUnpublishable(ctx, p, done.failed, result)
	result.Steps.Publish, result.Steps.Mark = done.publishing, done.marking
}

// deadlines returns when the invocation ends, and when work for it does.
func (o *Options) deadlines(ctx context.Context, now time.Time) (deadline, work time.Time) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = now.Add(o.Timeout)
	}
	return deadline, deadline.Add(-min(o.Margin, deadline.Sub(now)/4))
}

// authenticate returns the proof that d is authentic: that it came with a client
// certificate that is accepted, that it was signed by the holder of the key that it
// names, within the window, or both.
func (r *Receiver) authenticate(ctx context.Context, d Delivery, now time.Time, result *Result) (p proof, err error) {
	// First the certificate: it costs no call.
	if m := r.opts.MTLS; m != nil {
		chain, err := m.Verifier.Verify(d.Certificate, now)
		if len(chain) > 0 {
			result.Certificate = chain[0]
		}
		if err != nil {
			return p, err
		}
		p.chain, p.acceptedAt = chain, now
		if m.Alone {
			return p, nil
		}
	}
	if p.Proof, err = r.scheme.Extract(d.Headers, d.RawQuery); err != nil {
		return p, err
	}
	// What costs nothing comes first.
	if err := r.window.Check(p.Timestamp, now); err != nil {
		return p, err
	}
	// What cannot be a signature of any key must not spend the budget of key
	// look-ups.
	if err := signature.CheckForm(p.Signature, keys.MinModulusBytes, keys.MaxModulusBytes); err != nil {
		return p, err
	}
	return p, r.verify(ctx, d, p.Proof, result)
}

func (r *Receiver) verify(ctx context.Context, d Delivery, proof signature.Proof, result *Result) error {
	found, err := r.keys.Lookup(ctx, proof.KeyID, d.SourceIP)
	result.Key = found
	if !errors.Is(err, keys.ErrMalformedID) {
		result.KeyID = proof.KeyID
	}
	if err != nil {
		return err
	}
	err = signature.Verify(found.Key, d.Payload, proof)
	if err == nil {
		return nil
	}
	// The service may have put another key under the same id.
	again, refetchErr := r.keys.Refetch(ctx, proof.KeyID, found, d.SourceIP)
	result.Key.TableFailed = found.TableFailed || again.TableFailed
	result.Key.Withdrawn = found.Withdrawn || again.Withdrawn
	if refetchErr != nil || again.Key == nil {
		// With the key that we have it does not verify, and there is no other.
		return err
	}
	result.Key, result.Refetched = again, true
	return signature.Verify(again.Key, d.Payload, proof)
}

// outcomeOf is the one table from errors of authentication to outcomes.
func outcomeOf(err error) Outcome {
	for _, row := range []struct {
		err     error
		outcome Outcome
	}{
		{signature.ErrMissing, SignatureMissing},
		{signature.ErrRepeated, SignatureRepeated},
		{signature.ErrMalformed, SignatureMalformed},
		{signature.ErrOutsideWindow, TimestampOutside},
		{signature.ErrMismatch, SignatureDoesntMatch},
		{keys.ErrMalformedID, SignatureMalformed},
		{keys.ErrUnknown, KeyUnknown},
		{keys.ErrOutOfBudget, KeyOutOfBudget},
	} {
		if errors.Is(err, row.err) {
			return row.outcome
		}
	}
	var refused *keys.PolicyError
	if errors.As(err, &refused) {
		return KeyRefused
	}
	if rejected, ok := errors.AsType[*clientcert.Error](err); ok {
		return Outcome(rejected.Reason)
	}
	return KeyUnavailable
}

// errOutOfTime is the cause of an event that was not even tried.
var errOutOfTime = errors.New("intake: out of time")

// park parks a delivery with what proves it, for the reason that p says. If it
// can't be parked, it has to come again, which is the outcome then.
func (r *Receiver) park(ctx context.Context, p parking.Parked, payload []byte, proof proof, result *Result) {
	if r.opts.Parking == nil {
		return
	}
	if proof.signed() {
		p.JWK = keys.FormatJWK(proof.KeyID, result.Key.Key)
	} else {
		p.SentAt = payment.PeekTime(payload)
	}
	if proof.chain != nil {
		p.Certificate = parkedCertificate(payload, proof)
	}
	p.ParkedAt, p.DeliveryID = r.opts.Now(), result.DeliveryID
	p.Payload, p.Timestamp, p.KeyID, p.Signature = payload, proof.Timestamp, proof.KeyID, proof.Signature
	var err error
	result.Parked, result.ParkedBefore, err = r.opts.Parking.Park(ctx, p)
	if err != nil && result.Unrecorded == 0 {
		result.Outcome, result.Err = ParkingFailed, err
	}
}

// record writes down every event of a delivery, all at once, and returns those
// that are new, and those in conflict. It settles the outcome.
func (r *Receiver) record(ctx context.Context, delivery payment.Delivery, due time.Time, result *Result) (recorded, conflicts []ledger.Entry) {
	start := r.opts.Now()
	defer func() { result.Steps.Record = r.opts.Now().Sub(start) }()

	entries, conflicts := r.entries(delivery, start, result)
	holder := ledger.NewHolder()
	outcomes := make([]ledger.Outcome, len(entries))
	failures := make([]error, len(entries))
	r.inRounds(ctx, entries, outcomes, func(i int) (again bool) {
		if ctx.Err() != nil {
			failures[i] = errOutOfTime
			return
		}
		// What the ledger names has to be there first.
		if e := &entries[i]; e.Claimed {
			if e.Event.Bytes, failures[i] = r.opts.Claims.Put(ctx, e.Event); failures[i] != nil {
				return
			}
		}
		outcomes[i], failures[i] = r.ledger.Record(ctx, entries[i], holder, due)
		return failures[i] == nil && outcomes[i] != ledger.Recorded
	})

	recorded = entries[:0]
	for i, e := range entries {
		switch {
		case failures[i] != nil:
			result.Unrecorded++
			result.Err = failures[i]
		case outcomes[i] == ledger.Recorded:
			recorded = append(recorded, e)
			if e.Claimed {
				result.Claimed++
			}
		case outcomes[i] == ledger.Duplicate:
			result.Duplicates++
		default:
			conflicts = append(conflicts, e)
		}
	}
	result.Conflicts = len(conflicts)
	result.Recorded = len(recorded)
	switch {
	case result.Unrecorded > 0 && ctx.Err() != nil:
		result.Outcome = OutOfTime
	case result.Unrecorded > 0:
		result.Outcome = LedgerUnavailable
	case result.TooLarge > 0:
		result.Outcome = TooLarge
	case result.Conflicts > 0:
		result.Outcome = Conflict
	default:
		result.Outcome = Accepted
	}
	return recorded, conflicts
}

// entries returns what is to be recorded of a delivery: each eventId once, and
// nothing that can't be kept. It also returns the further contents of eventIds
// that occur with several.
func (r *Receiver) entries(delivery payment.Delivery, now time.Time, result *Result) (entries, conflicts []ledger.Entry) {
	entries = make([]ledger.Entry, 0, len(delivery.Events))
	type content struct {
		id     string
		digest ledger.Digest
	}
	ids := make(map[string]bool, len(delivery.Events))
	contents := make(map[content]bool, len(delivery.Events))
	for _, event := range delivery.Events {
		e := r.entry(event, delivery.DeliveryID, now)
		c := content{e.EventID, e.Digest}
		if contents[c] {
			result.Duplicates++
			continue
		}
		contents[c] = true
		if ids[e.EventID] {
			conflicts = append(conflicts, e)
			continue
		}
		ids[e.EventID] = true
		if e.Claimed && r.opts.Claims == nil {
			result.TooLarge++
			continue
		}
		entries = append(entries, e)
	}
	return entries, conflicts
}

// entry returns what is to be recorded of an event. It is claimed if it is too
// large; its bytes are the event's own in any case.
func (r *Receiver) entry(event payment.RawEvent, deliveryID string, now time.Time) ledger.Entry {
	return ledger.Entry{
		EventID: ledger.Key(event.EventID), DeliveryID: deliveryID, Digest: ledger.DigestOf(event.Bytes), RecordedAt: now, Event: event,
		Claimed: len(event.Bytes) > r.opts.ClaimBytes || !r.bus.Fits(bus.Event{RawEvent: event, DeliveryID: deliveryID}),
	}
}

// parkUnpublishable parks those of the failed events that EventBridge is known
// to reject. What can't be parked now stays pending, and redrive parks it.
func (r *Receiver) parkUnpublishable(ctx context.Context, p publisher, failed []failure, result *Result) {
	if r.opts.Parking == nil {
		return
	}
	failed = slices.DeleteFunc(failed, func(f failure) bool { return !f.unpublishable() })
	parked := make([]bool, len(failed))
	each(len(failed), r.opts.Parallel, func(i int) { parked[i] = p.park(ctx, failed[i]) == nil })
	for i := range failed {
		if parked[i] {
			result.Unpublishable++
			result.Pending--
		}
		if result.Err == nil {
			result.Err = failed[i].err
		}
	}
}

// publisher puts recorded events on the bus, for receiver and redriver alike.
type publisher struct {
	ledger *ledger.Ledger
	bus    *bus.Bus
	opts   Options
}

type published struct {
	marked   int // on the bus, and marked so
	unmarked int // on the bus, and not marked so
	pending  int // not known to be on the bus

	failed []failure // these

	publishing, marking time.Duration
}

// publish puts entries on the bus, which the caller must hold in the ledger,
// and marks them. It tries to reach the bus for as long as patience, and keeps
// a part of it for the marks: an event that is on the bus without a mark is
// published again.
func (p publisher) publish(ctx context.Context, entries []ledger.Entry, patience time.Duration) (done published) {
	start := p.opts.Now()
	events := make([]bus.Event, len(entries))
	for i, e := range entries {
		events[i] = bus.Event{RawEvent: e.Event, DeliveryID: e.DeliveryID}
	}
	publishing, cancel := context.WithTimeout(ctx, patience*3/4)
	failures := p.bus.Publish(publishing, events)
	cancel()
	done.publishing = p.opts.Now().Sub(start)

	start = p.opts.Now()
	unmarked := make([]bool, len(entries))
	each(len(entries), p.opts.Parallel, func(i int) {
		if failures[i] == nil {
			unmarked[i] = p.ledger.MarkPublished(ctx, entries[i]) != nil
		}
	})
	for i := range entries {
		switch {
		case failures[i] != nil:
			done.pending++
			done.failed = append(done.failed, failure{entries[i], failures[i]})
		case unmarked[i]:
			done.unmarked++
		default:
			done.marked++
		}
	}
	done.marking = p.opts.Now().Sub(start)
	return done
}

// failure is an event that is not known to be on the bus, and why.
type failure struct {
	ledger.Entry
	err error
}

// unpublishable reports whether EventBridge is known to reject the event.
func (f failure) unpublishable() bool {
	var detail *bus.DetailError
	return errors.As(f.err, &detail)
}

// maxPointer bounds what the cause of a parked event says of the field, in
// bytes.
const maxPointer = 256

// cause returns the cause that is parked with the event. Unlike the error it
// names the field with names of the payload, which is parked in the same object.
func (f failure) cause() string {
	var detail *bus.DetailError
	switch {
	case !errors.As(f.err, &detail):
		return ""
	case len(detail.Pointer) > maxPointer:
		return detail.Error()
	}
	return detail.Error() + ", at " + string(detail.Pointer)
}

// park parks an event that the ledger has as pending, and marks it so.
func (p publisher) park(ctx context.Context, f failure) error {
	if _, _, err := p.opts.Parking.Park(ctx, parking.Parked{
		Reason: parking.Unpublishable, Cause: f.cause(), ParkedAt: p.opts.Now(), DeliveryID: f.DeliveryID, EventIDs: []string{f.EventID},
		Event: f.Event.Bytes, Digest: f.Digest[:], Claimed: f.Claimed, RecordedAt: f.RecordedAt, Attempts: f.Attempts,
	}); err != nil {
		return err
	}
	return p.ledger.MarkParked(ctx, f.Entry)
}

// each calls do for every number under n, up to parallel at once, and returns
// when all calls have.
func each(n, parallel int, do func(i int)) {
	if n == 1 || parallel == 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = g.Wait() // do returns no error
}
