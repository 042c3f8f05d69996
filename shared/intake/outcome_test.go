package intake_test

import (
	"errors"
	"fmt"
	"testing"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/signature"
)

func TestEveryErrorHasItsOutcome(t *testing.T) {
	errs := map[error]intake.Outcome{
		signature.ErrMissing:             intake.SignatureMissing,
		signature.ErrRepeated:            intake.SignatureRepeated,
		signature.ErrMalformed:           intake.SignatureMalformed,
		signature.ErrOutsideWindow:       intake.TimestampOutside,
		signature.ErrMismatch:            intake.SignatureMismatch,
		keys.ErrMalformedID:              intake.SignatureMalformed,
		keys.ErrUnknown:                  intake.KeyUnknown,
		&keys.PolicyError{}:              intake.KeyRefused,
		keys.ErrOutOfBudget:              intake.KeyOutOfBudget,
		keys.ErrUnavailable:              intake.KeyUnavailable,
		&payment.FieldError{}:            intake.Invalid,
		errors.New("an error of no row"): intake.LedgerUnavailable,
	}
	for _, outcome := range intake.Outcomes() {
		errs[outcome] = outcome
	}
	for _, reason := range clientcert.Reasons() {
		errs[&clientcert.Error{Reason: reason}] = intake.CertificateOutcome(reason)
	}
	// The sender must send again what failed, whatever the cause is.
	errs[fmt.Errorf("%w: %w", intake.LedgerUnavailable, &payment.FieldError{})] = intake.LedgerUnavailable
	errs[fmt.Errorf("%w: %w", intake.ParkingFailed, proof.ErrAltered)] = intake.ParkingFailed
	for err, want := range errs {
		if got := intake.OutcomeOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	if got := intake.OutcomeOf(nil); got != intake.Accepted {
		t.Errorf("no error: %s", got)
	}
}
