// Package tokenhandler keeps a valid access token.
package tokenhandler

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// Handler runs the refresher for an invocation and writes its report as a log line and metrics.
type Handler struct {
	refresher *token.Refresher
	log       *lambdaruntime.Log
}

// New returns the handler with its store and settings. It loads the client credentials in each run that calls the
// endpoint.
func New(store token.Store, credentials token.Source, s settings.Config, log *lambdaruntime.Log) *Handler {
	endpoint := token.NewEndpoint(s.TokenService, s.TokenManagerID, token.EndpointOptions{
		Scopes: strings.Fields(s.Scopes), RootCAs: s.ServiceCAs,
		FormEncoded: s.CredentialEncoding == settings.FormEncoded})
	return &Handler{token.NewRefresher(store, credentials, endpoint), log}
}

// Event is the event of an invocation. That of the schedule is empty.
type Event struct {
	// Refresh replaces the token even if it is not due, for an operator who has changed
	// the client credentials and tests them.
	Refresh bool `json:"refresh"`
}

// Report is what an invocation returns.
type Report struct {
	Outcome          token.Outcome `json:"outcome"`
	RemainingSeconds int           `json:"remainingSeconds"` // of the stored token; 0 if no valid token is stored
	Cause            string        `json:"cause,omitempty"`  // of the last refresh, if it failed
}

// Handle runs the refresher once. A failure is in the report, the log line and the metrics.
// It is not an error of the invocation: Lambda would log it a second time.
func (h *Handler) Handle(ctx context.Context, e Event) (Report, error) {
	r, err := h.refresher.Run(ctx, e.Refresh)
	return h.write(ctx, r, err), nil
}

// line is the line of a run, which functions/README.md explains. The errors of package token contain no secret.
type line struct {
	Outcome    token.Outcome `json:"outcome"`
	Lifetime   float64       `json:"lifetimeSeconds,omitzero"`
	Calls      int           `json:"calls,omitzero"`
	NextCall   time.Time     `json:"nextCall,omitzero"`
	Remaining  *float64      `json:"remainingSeconds,omitzero"` // nil: not known
	Warning    string        `json:"warning,omitzero"`
	Unreadable string        `json:"unreadable,omitzero"`
	Type       string        `json:"contentType,omitzero"`
	Cause      string        `json:"cause,omitzero"`
	Status     int           `json:"status,omitzero"`
	OAuthError string        `json:"oauthError,omitzero"`
}

// write writes the line of a run and returns its report.
func (h *Handler) write(ctx context.Context, r token.Report, err error) Report {
	level, failure := slog.LevelInfo, r.LastFailure
	if err != nil {
		level, failure = slog.LevelError, err
	}
	l := line{Outcome: r.Outcome, Lifetime: r.Lifetime.Round(time.Millisecond).Seconds(), Calls: r.Calls,
		NextCall: r.NextCall.UTC().Truncate(time.Millisecond), Type: r.UnexpectedType,
		Unreadable: lambdaruntime.Cause(r.Unreadable), Cause: lambdaruntime.Cause(failure)}
	var values []lambdaruntime.Value
	if r.Known {
		l.Remaining = new(r.Remaining.Round(time.Millisecond).Seconds())
		values = []lambdaruntime.Value{{Metric: settings.TokenShortfallMetric, Value: r.Shortfall.Seconds()}}
	}
	if r.WritesTooOften {
		l.Warning = token.ShortLived
	}
	if err == nil && l.Warning+l.Unreadable+l.Type+l.Cause != "" {
		level = slog.LevelWarn
	}
	if answer, ok := errors.AsType[*token.EndpointError](failure); ok {
		l.Status, l.OAuthError = answer.Status, answer.Code
	}
	h.log.Outcome(ctx, level, "token", l, values...)
	return Report{Outcome: r.Outcome, RemainingSeconds: int(r.Remaining.Seconds()), Cause: l.Cause}
}
