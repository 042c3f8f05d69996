package intake_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
)

func TestEveryErrorHasItsOutcome(t *testing.T) {
	errs := map[error]intake.Outcome{
		intake.ErrMethod:                 intake.MethodNotAllowed,
		intake.ErrPayloadEmpty:           intake.PayloadEmpty,
		intake.ErrPayloadEncoding:        intake.PayloadEncoding,
		intake.ErrPayloadTooLarge:        intake.PayloadTooLarge,
		signature.ErrMissing:             intake.SignatureMissing,
		signature.ErrRepeated:            intake.SignatureRepeated,
		signature.ErrMalformed:           intake.SignatureMalformed,
		signature.ErrOutsideWindow:       intake.TimestampOutside,
		signature.ErrMismatch:            intake.SignatureMismatch,
		keys.ErrMalformedID:              intake.SignatureMalformed,
		keys.ErrUnknown:                  intake.KeyUnknown,
		&keys.PolicyError{}:              intake.KeyRefused,
		keys.ErrOutOfBudget:              intake.KeyOutOfBudget,
		&payment.FieldError{}:            intake.Invalid,
		errors.New("an error of no row"): intake.LedgerUnavailable,
	}
	for _, reason := range clientcert.Reasons() {
		errs[&clientcert.Error{Reason: reason}] = intake.Outcome(reason)
	}
	for err, want := range errs {
		if got := intake.OutcomeOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	if got := intake.OutcomeOf(nil); got != intake.Accepted {
		t.Errorf("no error: %s", got)
	}
}

// A forger learns nothing: all reasons have one answer.
func TestAllThatIsNotAuthenticHasOneAnswer(t *testing.T) {
	outcomes := []intake.Outcome{
		intake.SignatureMissing, intake.SignatureRepeated, intake.SignatureMalformed, intake.TimestampOutside,
		intake.KeyUnknown, intake.KeyRefused, intake.SignatureMismatch,
	}
	for _, reason := range clientcert.Reasons() {
		outcomes = append(outcomes, intake.Outcome(reason))
	}
	first := intake.AnswerTo(outcomes[0])
	if first.Status != http.StatusUnauthorized || first.Detail == "" {
		t.Errorf("%+v", first)
	}
	for _, o := range outcomes {
		if a := intake.AnswerTo(o); a.Status != first.Status || a.Detail != first.Detail || a.RetryAfter != 0 ||
			a.Metric != first.Metric || a.Level != slog.LevelWarn {
			t.Errorf("%s is answered %+v, and %s %+v", o, a, outcomes[0], first)
		}
	}
}
