package main

import (
	"context"
	"errors"
	"log/slog"

	"payhook.example/shared/awsenv"
	"payhook.example/shared/names"
	"payhook.example/shared/token"
)

// handler runs the refresher for an invocation and writes its report as a log line and
// metrics.
type handler struct {
	refresher *token.Refresher
	log       *awsenv.Log
}

// event is the event of an invocation. That of the schedule is empty.
type event struct {
	// Refresh replaces the token even if it is not due, for an operator who has changed
	// the client credentials and tests them.
	Refresh bool `json:"refresh"`
}

// report is what an invocation returns.
type report struct {
	Outcome          token.Outcome `json:"outcome"`
	RemainingSeconds int           `json:"remainingSeconds"` // of the stored token; 0 if no valid token is stored
	Cause            string        `json:"cause,omitempty"`  // of a failure
}

// Handle runs the refresher once. A failure is in the report, the log line and the metrics.
// It is not an error of the invocation: Lambda would log it a second time.
func (h *handler) Handle(ctx context.Context, e event) (report, error) {
	r, err := h.refresher.Run(ctx, e.Refresh)
	return h.write(ctx, r, err), nil
}

// shortLived is the warning of a run that had a token with a short lifetime.
const shortLived = "the lifetime of the token is less than 20 minutes, so the secret gets more than 90 versions a " +
	"day; AWS accepts 100; set tokenStore=parameter, or ask the service for tokens of at least 20 minutes"

// write writes the line of a run and returns its report. The errors of package token
// contain no secret.
func (h *handler) write(ctx context.Context, r token.Report, err error) report {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("outcome", string(r.Outcome)),
		slog.Float64("lifetimeSeconds", r.Lifetime.Seconds()),
		slog.Int("calls", r.Calls),
	}
	var values []awsenv.Value
	if r.Known {
		attrs = append(attrs, slog.Float64("remainingSeconds", r.Remaining.Seconds()))
		values = append(values, awsenv.Value{Metric: names.TokenShortfallMetric, Value: r.Shortfall.Seconds()})
	}
	if err != nil {
		values = append(values, awsenv.Value{Metric: names.TokenFailedMetric, Value: 1})
	}
	if r.WritesTooOften {
		values = append(values, awsenv.Value{Metric: names.TokenWritesTooOftenMetric, Value: 1})
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("warning", shortLived))
	}
	if r.Unreadable != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("unreadable", r.Unreadable.Error()))
	}
	if r.UnexpectedType != "" {
		level = max(level, slog.LevelWarn)
		attrs = append(attrs, slog.String("contentType", r.UnexpectedType))
	}
	out := report{Outcome: r.Outcome, RemainingSeconds: int(r.Remaining.Seconds())}
	if err != nil {
		level = slog.LevelError
		out.Cause = err.Error()
		attrs = append(attrs, slog.String("cause", out.Cause))
		if answer, ok := errors.AsType[*token.EndpointError](err); ok {
			attrs = append(attrs, slog.Int("status", answer.Status), slog.String("oauthError", answer.Code))
		}
	}
	h.log.Outcome(ctx, level, "token", values, attrs...)
	return out
}
