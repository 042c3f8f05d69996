package intake

import (
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
// they are equal. The zero Outcome stands for none.
type Outcome struct {
	Name string // stable: logs and reports have it
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

// String returns the name.
func (o Outcome) String() string { return o.Name }

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
	Accepted = Outcome{"accepted", Answer{Metric: settings.AcceptedMetric}}
	// Conflict: an eventId was seen before with other content. The delivery is parked.
	Conflict = Outcome{"conflict", Answer{Metric: settings.AcceptedMetric, Level: slog.LevelError}}

	// Not read.
	SourceNotAllowed = rejected("source-not-allowed", settings.SourceNotAllowedMetric,
		"The source address is not allowed.")

	// Not a delivery. NotAWebhookEvent: an event of another kind invoked the function.
	NotAWebhookEvent = rejected("not-a-webhook-event", settings.BadRequestMetric, "The event is not a webhook.")
	MethodNotAllowed = rejected("method-not-allowed", settings.MethodNotAllowedMetric,
		"The method is not one of webhooks.")
	PayloadEmpty    = rejected("payload-empty", settings.BadRequestMetric, "The request has no body.")
	PayloadEncoding = rejected("payload-encoding", settings.BadRequestMetric, "The body can't be decoded.")

	// Not authentic.
	SignatureMissing   = unauthentic("signature-missing")   // signature, timestamp or key id is missing
	SignatureRepeated  = unauthentic("signature-repeated")  // one of them came more than once
	SignatureMalformed = unauthentic("signature-malformed") // one of them is malformed
	TimestampOutside   = unauthentic("timestamp-outside-window")
	KeyUnknown         = unauthentic("key-unknown")
	KeyRefused         = unauthentic("key-refused") // the service's key must not be used
	KeyRevoked         = unauthentic("key-revoked") // the settings revoke it
	SignatureMismatch  = unauthentic("signature-mismatch")

	// Authentic, and not a delivery of section 2.2 of the interface; parked.
	Invalid = rejected("invalid", settings.InvalidMetric, "")

	// A failure of a service: the sender must send the delivery again.
	KeyUnavailable    = unavailable("key-unavailable", settings.KeyUnavailableMetric, cannotCheck, 5)
	KeyOutOfBudget    = unavailable("key-out-of-budget", settings.KeyUnavailableMetric, cannotCheck, 60)
	LedgerUnavailable = unavailable("ledger-unavailable", settings.NotStoredMetric, notRecorded+".", 5)
	OutOfTime         = unavailable("out-of-time", settings.NotStoredMetric, notRecorded+" in time.", 5)
	ParkingFailed     = unavailable("parking-failed", settings.NotStoredMetric, "The delivery could not be stored.", 5)
	// EvidenceUnavailable: every event is recorded, and the evidence is not known to be stored.
	EvidenceUnavailable = unavailable("evidence-unavailable", settings.NotStoredMetric,
		"The delivery could not be recorded.", 5)

	// Of a replay only.
	StillPending   = Outcome{Name: "pending"}         // an event was recorded before, and is not published yet
	Gone           = Outcome{Name: "gone"}            // the large event of a claim check is not stored any more
	VersionMissing = Outcome{Name: "version-missing"} // a conflict is replayed only after a person chose a version
	VersionUnfit   = Outcome{Name: "version-unfit"}   // there is no version to choose, or it is not available
	Altered        = Outcome{Name: "altered"}         // what is stored is not what was parked
	FirstKept      = Outcome{Name: "first-kept"}      // the conflict is dismissed, and nothing is published
	// The event is not parked, or somebody decided about the delivery before.
	NotParked        = Outcome{Name: "not-parked"}
	AlreadyPublished = Outcome{Name: "already-published"}
	AlreadyReplayed  = Outcome{Name: "already-replayed"}
	AlreadyDismissed = Outcome{Name: "already-dismissed"}
)

const (
	cannotCheck = "The signature can't be checked now."
	notRecorded = "Not every event could be recorded"
)

func rejected(name string, metric settings.Metric, detail string) Outcome {
	return Outcome{name, Answer{Status: metric.Status, Detail: detail, Metric: metric, Level: slog.LevelWarn}}
}

// unauthentic has one answer for all reasons, so that a forger learns nothing.
func unauthentic(name string) Outcome {
	return rejected(name, settings.UnauthenticatedMetric, "The webhook is not authentic.")
}

// CertificateOutcome returns the outcome of a client certificate that is rejected for that reason.
func CertificateOutcome(r clientcert.Reason) Outcome { return unauthentic(string(r)) }

func unavailable(name string, metric settings.Metric, detail string, retryAfter int) Outcome {
	return Outcome{name, Answer{Status: metric.Status, Detail: detail, RetryAfter: retryAfter, Metric: metric,
		Level: slog.LevelError}}
}

// ErrKeyRevoked is returned for a signature by a key that the settings revoke.
var ErrKeyRevoked = errors.New("intake: the setting revokedKeys has the key")

// The errors of requests that are not read or are not deliveries.
var (
	ErrSource          = errors.New("intake: the source address is not allowed")
	ErrEvent           = errors.New("intake: not a webhook")
	ErrMethod          = errors.New("intake: the method is not one of webhooks")
	ErrPayloadEmpty    = errors.New("intake: the request has no body")
	ErrPayloadEncoding = errors.New("intake: the body is not base64")
)

// The errors that this package adds to those of the packages that it uses.
var (
	errConflict       = errors.New("intake: an eventId was seen before with other content")
	errKeyUnavailable = errors.New("intake: the key is not available")
	errLedger         = errors.New("intake: not every event could be recorded")
	errOutOfTime      = errors.New("intake: out of time")
	errParking        = errors.New("intake: not parked")
	errEvidence       = errors.New("intake: the evidence is not stored")
	errPending        = errors.New("intake: an event is recorded and not published yet: redrive publishes or parks " +
		"it; repeat the replay later")
	errNotParked      = errors.New("intake: the ledger has no event of this id")
	errPublished      = errors.New("intake: the event is published")
	errDismissed      = errors.New("intake: the event was dismissed, and its bytes are removed")
	errVersionMissing = errors.New("intake: a conflict needs a version")
	errVersionUnfit   = errors.New("intake: that version is not available")
)

// outcomes are the outcomes of errors. The first that matches decides.
var outcomes = []struct {
	match   func(error) bool
	outcome Outcome
}{
	{func(err error) bool { return err == nil }, Accepted},
	{is(ErrSource), SourceNotAllowed},
	{is(ErrEvent), NotAWebhookEvent},
	{is(ErrMethod), MethodNotAllowed},
	{is(ErrPayloadEmpty), PayloadEmpty},
	{is(ErrPayloadEncoding), PayloadEncoding},
	{is(signature.ErrMissing), SignatureMissing},
	{is(signature.ErrRepeated), SignatureRepeated},
	{is(signature.ErrMalformed), SignatureMalformed},
	{is(signature.ErrOutsideWindow), TimestampOutside},
	{is(signature.ErrMismatch), SignatureMismatch},
	{is(keys.ErrMalformedID), SignatureMalformed},
	{is(keys.ErrUnknown), KeyUnknown},
	{isType[*keys.PolicyError], KeyRefused},
	{is(ErrKeyRevoked), KeyRevoked},
	{is(keys.ErrOutOfBudget), KeyOutOfBudget},
	{is(errKeyUnavailable), KeyUnavailable},
	{is(errOutOfTime), OutOfTime},
	{is(errLedger), LedgerUnavailable},
	{is(errParking), ParkingFailed},
	{is(errEvidence), EvidenceUnavailable},
	{is(errConflict), Conflict},
	{isType[*payment.FieldError], Invalid},
	{is(errPending), StillPending},
	{is(errNotParked), NotParked},
	{is(errPublished), AlreadyPublished},
	{is(errDismissed), AlreadyDismissed},
	{is(bus.ErrGone), Gone},
	{is(errVersionMissing), VersionMissing},
	{is(errVersionUnfit), VersionUnfit},
	{is(proof.ErrAltered), Altered},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// OutcomeOf returns the outcome of a delivery that failed with err, and Accepted for
// nil. For an error that has none it returns LedgerUnavailable: the
// sender has to send the delivery again.
func OutcomeOf(err error) Outcome {
	if rejected, ok := errors.AsType[*clientcert.Error](err); ok {
		return CertificateOutcome(rejected.Reason)
	}
	for _, o := range outcomes {
		if o.match(err) {
			return o.outcome
		}
	}
	return LedgerUnavailable
}

// Outcomes returns all outcomes that a webhook can have, by their names.
func Outcomes() map[string]Outcome {
	all := map[string]Outcome{}
	for _, o := range outcomes {
		if o.outcome.Metric != (settings.Metric{}) {
			all[o.outcome.Name] = o.outcome
		}
	}
	for _, r := range clientcert.Reasons() {
		all[string(r)] = CertificateOutcome(r)
	}
	return all
}
