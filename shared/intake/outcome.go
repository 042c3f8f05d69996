package intake

import (
	"cmp"
	"errors"

	"payhook.example/shared/bus"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/signature"
)

// Outcome is what became of a delivery or of a replay. Two outcomes are the same if they are equal. The zero Outcome
// stands for none. As an error, it is the cause of itself.
type Outcome struct {
	Name        string // stable: logs and reports have it
	Text        string // of the error, if no other package has one
	BeforeProof bool   // the webhook was not accepted, before it was found authentic
	Unavailable bool   // a service failed: the sender must send the webhook again
	OfReplay    bool   // no webhook has it
}

// Error returns a text that has nothing of a delivery.
func (o Outcome) Error() string { return "intake: " + cmp.Or(o.Text, o.Name) }

// MarshalText returns the name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.Name), nil }

// The outcomes. [CertificateOutcome] returns those of client certificates.
var (
	// Accepted: every event is recorded, now or before.
	Accepted = Outcome{Name: "accepted"}
	// Conflict: an eventId was seen before with other content. The delivery is parked.
	Conflict = Outcome{Name: "conflict", Text: "an eventId was seen before with other content"}

	// Not read.
	SenderNotAllowed = Outcome{Name: "sender-not-allowed", Text: "the sender is not allowed"}

	// Not a delivery. NotAWebhookEvent: an event of another kind invoked the function.
	NotAWebhookEvent = beforeProof("not-a-webhook-event", "not a webhook")
	MethodNotAllowed = beforeProof("method-not-allowed", "the method is not one of webhooks")
	PayloadEmpty     = beforeProof("payload-empty", "the request has no body")
	PayloadEncoding  = beforeProof("payload-encoding", "the body is not base64")

	// Not authentic.
	SignatureMissing   = beforeProof("signature-missing", "")   // signature, timestamp or key id is missing
	SignatureRepeated  = beforeProof("signature-repeated", "")  // one of them came more than once
	SignatureMalformed = beforeProof("signature-malformed", "") // one of them is malformed
	TimestampOutside   = beforeProof("timestamp-outside-window", "")
	KeyUnknown         = beforeProof("key-unknown", "")
	KeyRefused         = beforeProof("key-refused", "") // the service's key must not be used
	KeyRevoked         = beforeProof("key-revoked", "the setting revokedKeys has the key")
	SignatureMismatch  = beforeProof("signature-mismatch", "")

	// Authentic, and not a delivery of section 2.2 of the interface; parked.
	Invalid = Outcome{Name: "invalid"}

	// A failure of a service.
	KeyUnavailable = Outcome{Name: "key-unavailable", Text: "the key is not available", BeforeProof: true,
		Unavailable: true}
	KeyOutOfBudget    = Outcome{Name: "key-out-of-budget", BeforeProof: true, Unavailable: true}
	LedgerUnavailable = unavailable("ledger-unavailable", "not every event could be recorded")
	OutOfTime         = unavailable("out-of-time", "out of time")
	ParkingFailed     = unavailable("parking-failed", "not parked")
	// EvidenceUnavailable: every event is recorded, and the evidence is not known to be stored.
	EvidenceUnavailable = unavailable("evidence-unavailable", "the evidence is not stored")

	StillPending = ofReplay("pending", "an event is recorded and not published yet: redrive publishes or parks it; "+
		"repeat the replay later")
	Gone           = ofReplay("gone", "") // the large event of a claim check is not stored any more
	ContentMissing = ofReplay("content-missing", "a conflict needs a content")
	// ContentUnavailable: or there is none to choose.
	ContentUnavailable = ofReplay("content-unavailable", "that content is not available")
	DigestMismatch     = ofReplay("digest-mismatch", "")    // what is stored is not what was parked
	ConflictDismissed  = ofReplay("conflict-dismissed", "") // the conflict is dismissed, and nothing is published
	// NotPublishable: EventBridge is known to reject the event. Nothing is written.
	NotPublishable = ofReplay("unpublishable", "EventBridge rejects the event: dismiss it")
	// The event is not parked, or somebody decided about the delivery before.
	NotParked        = ofReplay("not-parked", "the ledger has no event of this id")
	AlreadyPublished = ofReplay("already-published", "the event is published")
	AlreadyReplayed  = ofReplay("already-replayed", "")
	AlreadyDismissed = ofReplay("already-dismissed", "the event was dismissed, and its bytes are removed")
)

func beforeProof(name, text string) Outcome {
	return Outcome{Name: name, Text: text, BeforeProof: true}
}

func unavailable(name, text string) Outcome {
	return Outcome{Name: name, Text: text, Unavailable: true}
}

func ofReplay(name, text string) Outcome { return Outcome{Name: name, Text: text, OfReplay: true} }

// CertificateOutcome returns the outcome of a client certificate that is rejected for that reason.
func CertificateOutcome(r clientcert.Reason) Outcome { return beforeProof(string(r), "") }

// ofErrors are the outcomes of the errors of other packages, unless an outcome wraps them. The first that matches
// decides.
var ofErrors = []struct {
	match   func(error) bool
	outcome Outcome
}{
	{is(signature.ErrMissing), SignatureMissing},
	{is(signature.ErrRepeated), SignatureRepeated},
	{is(signature.ErrMalformed), SignatureMalformed},
	{is(signature.ErrOutsideWindow), TimestampOutside},
	{is(signature.ErrMismatch), SignatureMismatch},
	{is(keys.ErrMalformedID), SignatureMalformed},
	{is(keys.ErrUnknown), KeyUnknown},
	{isType[*keys.PolicyError], KeyRefused},
	{is(keys.ErrOutOfBudget), KeyOutOfBudget},
	{is(keys.ErrUnavailable), KeyUnavailable},
	{isType[*payment.FieldError], Invalid},
	{is(bus.ErrGone), Gone},
	{is(proof.ErrAltered), DigestMismatch},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// OutcomeOf returns the outcome of a delivery that failed with err, and Accepted for nil. For an error that has none it
// returns LedgerUnavailable: the sender has to send the delivery again.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Accepted
	}
	if rejected, ok := errors.AsType[*clientcert.Error](err); ok {
		return CertificateOutcome(rejected.Reason)
	}
	if own, ok := errors.AsType[Outcome](err); ok {
		return own
	}
	for _, o := range ofErrors {
		if o.match(err) {
			return o.outcome
		}
	}
	return LedgerUnavailable
}

// Outcomes returns all outcomes that a webhook can have, by their names.
func Outcomes() map[string]Outcome {
	all := map[string]Outcome{}
	for _, o := range []Outcome{Accepted, Conflict, SenderNotAllowed, NotAWebhookEvent, MethodNotAllowed, PayloadEmpty,
		PayloadEncoding, SignatureMissing, SignatureRepeated, SignatureMalformed, TimestampOutside, KeyUnknown,
		KeyRefused, KeyRevoked, SignatureMismatch, Invalid, KeyUnavailable, KeyOutOfBudget, LedgerUnavailable,
		OutOfTime, ParkingFailed, EvidenceUnavailable} {
		all[o.Name] = o
	}
	for _, r := range clientcert.Reasons() {
		all[string(r)] = CertificateOutcome(r)
	}
	return all
}
