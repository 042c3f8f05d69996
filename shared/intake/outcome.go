package intake

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"

	"payhook.example/shared/bus"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// Outcome is what became of a delivery, and how it is answered, counted and logged. Two outcomes are the same if
// they are equal. The zero Outcome stands for none. As an error, it is the cause of itself.
type Outcome struct {
	Name string // stable: logs and reports have it
	Text string // of the error, if no other package has one
	Answer
}

// Answer is how a webhook with an outcome is answered, counted and logged.
type Answer struct {
	Status     int             // of HTTP; 0 for success, and for what is the outcome of a replay only
	Detail     string          // for the sender; the outcome Invalid has that of its error
	RetryAfter int             // seconds; 0 for none
	Metric     settings.Metric // counts the webhook; zero: none does
	Level      slog.Level
}

// Error returns a text that has nothing of a delivery.
func (o Outcome) Error() string { return "intake: " + cmp.Or(o.Text, o.Name) }

// MarshalText returns the name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.Name), nil }

// AnswerTo returns the answer to a webhook with that outcome. Only Accepted and Conflict are answered with the status
// of success. What a webhook can't have as its outcome is answered like LedgerUnavailable.
func (o Outcome) AnswerTo(success int) Answer {
	a := o.Answer
	switch {
	case o == Accepted || o == Conflict:
		a.Status = success
	case a.Status == 0:
		return LedgerUnavailable.Answer
	}
	return a
}

// BeforeProof reports whether a webhook with that outcome was rejected before it was
// found authentic.
func (o Outcome) BeforeProof() bool {
	switch o.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusMethodNotAllowed:
		return true
	}
	return o == KeyUnavailable || o == KeyOutOfBudget
}

// The outcomes. [CertificateOutcome] returns those of client certificates.
var (
	// Accepted: every event is recorded, now or before.
	Accepted = Outcome{"accepted", "", Answer{Metric: settings.AcceptedMetric}}
	// Conflict: an eventId was seen before with other content. The delivery is parked.
	Conflict = Outcome{"conflict", "an eventId was seen before with other content",
		Answer{Metric: settings.AcceptedMetric, Level: slog.LevelError}}

	// Not read.
	SenderNotAllowed = rejected("sender-not-allowed", "the source address is not allowed",
		settings.SenderNotAllowedMetric, "The source address is not allowed.")

	// Not a delivery. NotAWebhookEvent: an event of another kind invoked the function.
	NotAWebhookEvent = rejected("not-a-webhook-event", "not a webhook", settings.BadRequestMetric,
		"The event is not a webhook.")
	MethodNotAllowed = rejected("method-not-allowed", "the method is not one of webhooks",
		settings.MethodNotAllowedMetric, "The method is not one of webhooks.")
	PayloadEmpty = rejected("payload-empty", "the request has no body", settings.BadRequestMetric,
		"The request has no body.")
	PayloadEncoding = rejected("payload-encoding", "the body is not base64", settings.BadRequestMetric,
		"The body can't be decoded.")

	// Not authentic.
	SignatureMissing   = unauthentic("signature-missing", "")   // signature, timestamp or key id is missing
	SignatureRepeated  = unauthentic("signature-repeated", "")  // one of them came more than once
	SignatureMalformed = unauthentic("signature-malformed", "") // one of them is malformed
	TimestampOutside   = unauthentic("timestamp-outside-window", "")
	KeyUnknown         = unauthentic("key-unknown", "")
	KeyRefused         = unauthentic("key-refused", "") // the service's key must not be used
	KeyRevoked         = unauthentic("key-revoked", "the setting revokedKeys has the key")
	SignatureMismatch  = unauthentic("signature-mismatch", "")

	// Authentic, and not a delivery of section 2.2 of the interface; parked.
	Invalid = rejected("invalid", "", settings.InvalidMetric, "")

	// A failure of a service: the sender must send the delivery again.
	KeyUnavailable = unavailable("key-unavailable", "the key is not available", settings.KeyUnavailableMetric,
		cannotCheck, 5)
	KeyOutOfBudget    = unavailable("key-out-of-budget", "", settings.KeyUnavailableMetric, cannotCheck, 60)
	LedgerUnavailable = unavailable("ledger-unavailable", "not every event could be recorded",
		settings.NotStoredMetric, notRecorded+".", 5)
	OutOfTime     = unavailable("out-of-time", "out of time", settings.NotStoredMetric, notRecorded+" in time.", 5)
	ParkingFailed = unavailable("parking-failed", "not parked", settings.NotStoredMetric,
		"The delivery could not be stored.", 5)
	// EvidenceUnavailable: every event is recorded, and the evidence is not known to be stored.
	EvidenceUnavailable = unavailable("evidence-unavailable", "the evidence is not stored", settings.NotStoredMetric,
		"The delivery could not be recorded.", 5)

	// Of a replay only.
	StillPending = Outcome{Name: "pending", Text: "an event is recorded and not published yet: redrive publishes or " +
		"parks it; repeat the replay later"}
	Gone           = Outcome{Name: "gone"} // the large event of a claim check is not stored any more
	ContentMissing = Outcome{Name: "content-missing", Text: "a conflict needs a version"}
	// ContentUnavailable: or there is none to choose.
	ContentUnavailable = Outcome{Name: "content-unavailable", Text: "that version is not available"}
	DigestMismatch     = Outcome{Name: "digest-mismatch"}    // what is stored is not what was parked
	ConflictDismissed  = Outcome{Name: "conflict-dismissed"} // the conflict is dismissed, and nothing is published
	// NotPublishable: EventBridge is known to reject the event. Nothing is written.
	NotPublishable = Outcome{Name: "unpublishable", Text: "EventBridge rejects the event: dismiss it"}
	// The event is not parked, or somebody decided about the delivery before.
	NotParked        = Outcome{Name: "not-parked", Text: "the ledger has no event of this id"}
	AlreadyPublished = Outcome{Name: "already-published", Text: "the event is published"}
	AlreadyReplayed  = Outcome{Name: "already-replayed"}
	AlreadyDismissed = Outcome{Name: "already-dismissed", Text: "the event was dismissed, and its bytes are removed"}
)

const (
	cannotCheck = "The signature can't be checked now."
	notRecorded = "Not every event could be recorded"
)

func rejected(name, text string, metric settings.Metric, detail string) Outcome {
	return Outcome{name, text, Answer{Status: metric.Status, Detail: detail, Metric: metric, Level: slog.LevelWarn}}
}

// unauthentic has one answer for all reasons, so that a forger learns nothing.
func unauthentic(name, text string) Outcome {
	return rejected(name, text, settings.UnauthenticatedMetric, "The webhook is not authentic.")
}

// CertificateOutcome returns the outcome of a client certificate that is rejected for that reason.
func CertificateOutcome(r clientcert.Reason) Outcome { return unauthentic(string(r), "") }

func unavailable(name, text string, metric settings.Metric, detail string, retryAfter int) Outcome {
	return Outcome{name, text, Answer{Status: metric.Status, Detail: detail, RetryAfter: retryAfter, Metric: metric,
		Level: slog.LevelError}}
}

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
