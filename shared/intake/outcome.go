package intake

import (
	"errors"
	"log/slog"
	"net/http"

	"payhook.example/shared/claimcheck"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/evidence"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
)

// Outcome is what became of a delivery. Its text is stable: logs and reports have it.
type Outcome string

// The outcomes. The reasons of package clientcert are outcomes as well.
const (
	Accepted Outcome = "accepted" // every event is recorded, now or before
	Conflict Outcome = "conflict" // an eventId was seen before with other content; the delivery is parked

	// Not read.
	SourceNotAllowed Outcome = "source-not-allowed"

	// Not a delivery.
	NotAWebhookEvent Outcome = "not-a-webhook-event" // an event of another kind invoked the function
	MethodNotAllowed Outcome = "method-not-allowed"
	PayloadEmpty     Outcome = "payload-empty"
	PayloadEncoding  Outcome = "payload-encoding"
	PayloadTooLarge  Outcome = "payload-too-large"

	// Not authentic.
	SignatureMissing   Outcome = "signature-missing"   // signature, timestamp or key id is missing
	SignatureRepeated  Outcome = "signature-repeated"  // one of them came more than once
	SignatureMalformed Outcome = "signature-malformed" // one of them is malformed
	TimestampOutside   Outcome = "timestamp-outside-window"
	KeyUnknown         Outcome = "key-unknown"
	KeyRefused         Outcome = "key-refused" // the service's key must not be used
	KeyRevoked         Outcome = "key-revoked" // the settings revoke it
	SignatureMismatch  Outcome = "signature-mismatch"

	// Authentic, and not a delivery of section 2.2 of the interface; parked.
	Invalid Outcome = "invalid"

	// A failure of a service: the sender must send the delivery again.
	KeyUnavailable    Outcome = "key-unavailable"
	KeyOutOfBudget    Outcome = "key-out-of-budget"
	LedgerUnavailable Outcome = "ledger-unavailable" // an event could not be recorded
	OutOfTime         Outcome = "out-of-time"        // an event could not be recorded in time
	ParkingFailed     Outcome = "parking-failed"
	// EvidenceUnavailable: every event is recorded, and the evidence is not known to be stored.
	EvidenceUnavailable Outcome = "evidence-unavailable"

	// Of a replay only.
	StillPending   Outcome = "pending"         // an event was recorded before, and is not published yet
	Gone           Outcome = "gone"            // the large event of a claim check is not stored any more
	VersionMissing Outcome = "version-missing" // a conflict is replayed only after a person chose a version
	VersionUnfit   Outcome = "version-unfit"   // there is no version to choose, or that version is not available
	Altered        Outcome = "altered"         // what is stored is not what was parked
)

// ErrKeyRevoked is returned for a signature by a key that the settings revoke.
var ErrKeyRevoked = errors.New("intake: the setting revokedKeys has the key")

// The errors of requests that are not read or are not deliveries.
var (
	ErrSource          = errors.New("intake: the source address is not allowed")
	ErrEvent           = errors.New("intake: not a webhook")
	ErrMethod          = errors.New("intake: the method is not one of webhooks")
	ErrPayloadEmpty    = errors.New("intake: the request has no body")
	ErrPayloadEncoding = errors.New("intake: the body is not base64")
	ErrPayloadTooLarge = errors.New("intake: the body is too large")
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
	errVersionMissing = errors.New("intake: a conflict needs a version")
	errVersionUnfit   = errors.New("intake: that version is not available")
)

// Answer is how a webhook with an outcome is answered, counted and logged.
type Answer struct {
	Status     int          // of HTTP; 0 stands for the setting successStatus
	Detail     string       // for the sender; the outcome Invalid has that of its error
	RetryAfter int          // seconds; 0 for none
	Metric     names.Metric // counts the webhook; zero: none does
	Level      slog.Level
}

// unauthentic is one answer for all reasons, so that a forger learns nothing.
var unauthentic = rejected(names.UnauthenticatedMetric, "The webhook is not authentic.")

func rejected(metric names.Metric, detail string) Answer {
	return Answer{Status: metric.Status, Detail: detail, Metric: metric, Level: slog.LevelWarn}
}

func unavailable(detail string, retryAfter int, metric names.Metric) Answer {
	return Answer{
		Status: metric.Status, Detail: detail, RetryAfter: retryAfter,
		Metric: metric, Level: slog.LevelError,
	}
}

// row maps the errors that match to an outcome, and the outcome to its answer. What
// only a replay can have has no answer.
type row struct {
	match   func(error) bool
	outcome Outcome
	answer  Answer
}

// rows is the one table of errors and outcomes. The first row that matches decides.
var rows = []row{
	{func(err error) bool { return err == nil }, Accepted, Answer{Metric: names.AcceptedMetric}},

	{is(ErrSource), SourceNotAllowed, rejected(names.SourceNotAllowedMetric, "The source address is not allowed.")},
	{is(ErrEvent), NotAWebhookEvent, rejected(names.BadRequestMetric, "The event is not a webhook.")},
	{is(ErrMethod), MethodNotAllowed, rejected(names.MethodNotAllowedMetric, "The method is not one of webhooks.")},
	{is(ErrPayloadEmpty), PayloadEmpty, rejected(names.BadRequestMetric, "The request has no body.")},
	{is(ErrPayloadEncoding), PayloadEncoding, rejected(names.BadRequestMetric, "The body can't be decoded.")},
	{is(ErrPayloadTooLarge), PayloadTooLarge, rejected(names.TooLargeMetric, "The body is too large.")},

	{is(signature.ErrMissing), SignatureMissing, unauthentic},
	{is(signature.ErrRepeated), SignatureRepeated, unauthentic},
	{is(signature.ErrMalformed), SignatureMalformed, unauthentic},
	{is(signature.ErrOutsideWindow), TimestampOutside, unauthentic},
	{is(signature.ErrMismatch), SignatureMismatch, unauthentic},
	{is(keys.ErrMalformedID), SignatureMalformed, unauthentic},
	{is(keys.ErrUnknown), KeyUnknown, unauthentic},
	{isType[*keys.PolicyError], KeyRefused, unauthentic},
	{is(ErrKeyRevoked), KeyRevoked, unauthentic},

	{reason(clientcert.Missing), Outcome(clientcert.Missing), unauthentic},
	{reason(clientcert.WrongOrigin), Outcome(clientcert.WrongOrigin), unauthentic},
	{reason(clientcert.Malformed), Outcome(clientcert.Malformed), unauthentic},
	{reason(clientcert.Expired), Outcome(clientcert.Expired), unauthentic},
	{reason(clientcert.NotYetValid), Outcome(clientcert.NotYetValid), unauthentic},
	{reason(clientcert.Weak), Outcome(clientcert.Weak), unauthentic},
	{reason(clientcert.WrongUsage), Outcome(clientcert.WrongUsage), unauthentic},
	{reason(clientcert.Untrusted), Outcome(clientcert.Untrusted), unauthentic},
	{reason(clientcert.Revoked), Outcome(clientcert.Revoked), unauthentic},
	{reason(clientcert.NotPinned), Outcome(clientcert.NotPinned), unauthentic},

	{is(keys.ErrOutOfBudget), KeyOutOfBudget,
		unavailable("The signature can't be checked now.", 60, names.KeyUnavailableMetric)},
	{is(errKeyUnavailable), KeyUnavailable,
		unavailable("The signature can't be checked now.", 5, names.KeyUnavailableMetric)},
	{is(errOutOfTime), OutOfTime, unavailable("Not every event could be recorded in time.", 5, names.NotStoredMetric)},
	{is(errLedger), LedgerUnavailable, unavailable("Not every event could be recorded.", 5, names.NotStoredMetric)},
	{is(errParking), ParkingFailed, unavailable("The delivery could not be stored.", 5, names.NotStoredMetric)},

	{is(errEvidence), EvidenceUnavailable,
		unavailable("The delivery could not be recorded.", 5, names.NotStoredMetric)},

	{is(errConflict), Conflict, Answer{Metric: names.AcceptedMetric, Level: slog.LevelError}},
	{isType[*payment.FieldError], Invalid, rejected(names.InvalidMetric, "")},

	{match: is(errPending), outcome: StillPending},
	{match: is(claimcheck.ErrGone), outcome: Gone},
	{match: is(errVersionMissing), outcome: VersionMissing},
	{match: is(errVersionUnfit), outcome: VersionUnfit},
	{match: is(evidence.ErrAltered), outcome: Altered},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func reason(r clientcert.Reason) func(error) bool {
	return func(err error) bool {
		rejected, ok := errors.AsType[*clientcert.Error](err)
		return ok && rejected.Reason == r
	}
}

// OutcomeOf returns the outcome of a delivery that failed with err, and Accepted for
// nil. For an error that is not in the table it returns LedgerUnavailable: the
// sender has to send the delivery again.
func OutcomeOf(err error) Outcome {
	for _, r := range rows {
		if r.match(err) {
			return r.outcome
		}
	}
	return LedgerUnavailable
}

// AnswerTo returns the answer to a webhook with that outcome. For an outcome without one, it
// returns that of LedgerUnavailable, never one of success.
func AnswerTo(o Outcome) Answer {
	for _, r := range rows {
		if r.outcome == o && r.answer != (Answer{}) {
			return r.answer
		}
	}
	return AnswerTo(LedgerUnavailable)
}

// BeforeProof reports whether a webhook with that outcome was rejected before it was
// found authentic.
func BeforeProof(o Outcome) bool {
	switch AnswerTo(o).Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		return true
	}
	return o == KeyUnavailable || o == KeyOutOfBudget
}

// Answers returns the answers of all outcomes that a webhook can have.
func Answers() map[Outcome]Answer {
	all := map[Outcome]Answer{}
	for _, r := range rows {
		if r.answer != (Answer{}) {
			all[r.outcome] = r.answer
		}
	}
	return all
}
