package webhookhandler

import (
	"log/slog"

	"payhook.example/shared/intake"
	"payhook.example/shared/settings"
)

// answer is how a webhook is answered, counted and logged.
type answer struct {
	metric     settings.Metric // counts the webhook, and has the status; that of success has none
	status     int
	detail     string // for the sender; the outcome Invalid has that of its error
	retryAfter int    // seconds; 0 for none
	level      slog.Level
}

// answers are the answers to the outcomes, except to those of webhooks that are not authentic.
var answers = map[intake.Outcome]answer{
	intake.Accepted: {metric: settings.AcceptedMetric},
	intake.Conflict: {metric: settings.AcceptedMetric, level: slog.LevelError},

	intake.SenderNotAllowed: refusal(settings.SenderNotAllowedMetric, "The sender is not allowed."),
	intake.NotAWebhookEvent: refusal(settings.BadRequestMetric, "The event is not a webhook."),
	intake.MethodNotAllowed: refusal(settings.MethodNotAllowedMetric, "The method is not one of webhooks."),
	intake.PayloadEmpty:     refusal(settings.BadRequestMetric, "The request has no body."),
	intake.PayloadEncoding:  refusal(settings.BadRequestMetric, "The body can't be decoded."),
	intake.Invalid:          refusal(settings.InvalidMetric, ""),

	intake.KeyUnavailable:      failure(settings.KeyUnavailableMetric, cannotCheck, 5),
	intake.KeyOutOfBudget:      failure(settings.KeyUnavailableMetric, cannotCheck, 60),
	intake.LedgerUnavailable:   notStored,
	intake.OutOfTime:           failure(settings.NotStoredMetric, "Not every event could be recorded in time.", 5),
	intake.ParkingFailed:       failure(settings.NotStoredMetric, "The delivery could not be stored.", 5),
	intake.EvidenceUnavailable: failure(settings.NotStoredMetric, "The delivery could not be recorded.", 5),
}

const cannotCheck = "The signature can't be checked now."

var (
	// unauthentic is one answer for all reasons, so that a forger learns nothing.
	unauthentic = refusal(settings.UnauthenticatedMetric, "The webhook is not authentic.")
	notStored   = failure(settings.NotStoredMetric, "Not every event could be recorded.", 5)
)

func refusal(m settings.Metric, detail string) answer {
	return answer{metric: m, status: m.Status, detail: detail, level: slog.LevelWarn}
}

func failure(m settings.Metric, detail string, retryAfter int) answer {
	return answer{metric: m, status: m.Status, detail: detail, retryAfter: retryAfter, level: slog.LevelError}
}

// answerTo returns the answer to a webhook with that outcome. Only Accepted and Conflict are answered with the status
// of success. The sender must send again what has an outcome that no webhook has.
func answerTo(o intake.Outcome, success int) answer {
	a, ok := answers[o]
	switch {
	case !ok && o.BeforeProof:
		return unauthentic
	case !ok:
		return notStored
	case a.status == 0:
		a.status = success
	}
	return a
}
