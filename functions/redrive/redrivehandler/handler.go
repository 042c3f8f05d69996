// Package redrivehandler publishes what is pending, and replays and dismisses what is parked.
package redrivehandler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/ledger"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/wire"
)

// Handler runs redrive for an invocation and writes a log line and metrics. Lambda may
// invoke it twice or late, and an operator may invoke it.
type Handler struct {
	redriver *intake.Redriver
	replayer *intake.Replayer
	receiver *intake.Receiver            // of rejected webhooks; nil: they are not replayed
	findBus  func(context.Context) error // as bus.Find
	parking  intake.Parking
	log      *lambdaruntime.Log
	now      func() time.Time
	conf     settings.Config
}

// findTimeout is the time to find the bus. A call that is not answered leaves the rest to the run.
const findTimeout = 5 * time.Second

// New returns the handler with its stores and settings. keyEndpoint calls the key endpoint, for rejected webhooks.
func New(all intake.Stores, keyEndpoint *http.Client, conf settings.Config, log *lambdaruntime.Log) *Handler {
	accepting := all.Pipeline(conf)
	all.Evidence = nil // a parked delivery has its proof
	pipeline := all.Pipeline(conf)
	h := &Handler{
		redriver: intake.NewRedriver(pipeline, settings.RedriveAttempts),
		findBus: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, findTimeout)
			defer cancel()
			return all.Bus.Find(ctx)
		},
		parking: all.Parking,
		log:     log,
		conf:    conf,
		now:     func() time.Time { return time.Now().UTC() },
	}
	var truststore clientcert.Truststore // nil: no client certificate is required
	if conf.MTLS != nil {
		truststore = conf.MTLS.Truststore
	} else if conf.KeysTable != "" {
		h.receiver = intake.NewReceiver(accepting, intake.Mechanisms{Signature: all.Signature(keyEndpoint, conf)})
	}
	h.replayer = intake.NewReplayer(pipeline, truststore, conf.Revoked)
	return h
}

// Handle runs redrive, replays or dismisses. A run fails if the ledger could not be read
// or written, so that Lambda's Errors metric counts it. Runs and replays publish nothing and fail if the bus does not
// exist. If that is not known, they publish.
func (h *Handler) Handle(ctx context.Context, e wire.RedriveRequest) (wire.RedriveReport, error) {
	replays := len(e.Replay) > 0
	switch err := check(e); {
	case err != nil:
		return wire.RedriveReport{}, fmt.Errorf("redrive: %w", err)
	case len(e.Dismiss) > 0:
		return h.decide(ctx, e), nil
	case e.Certificates:
		return wire.RedriveReport{Certificates: h.certificates()}, nil
	}
	err := h.findBus(ctx)
	switch missing := errors.Is(err, bus.ErrMissing); {
	case missing && replays:
		return wire.RedriveReport{}, fmt.Errorf("redrive: %w", err)
	case missing:
		return h.write(ctx, intake.Redriven{Unread: true, Err: err}, nil)
	case replays:
		return h.decide(ctx, e), nil
	}
	return h.write(ctx, h.redriver.Run(ctx), err)
}

// check returns an error for a request that cannot be done.
func check(e wire.RedriveRequest) error {
	switch {
	case len(e.Replay) > 0 && len(e.Dismiss) > 0:
		return errors.New("replay and dismiss exclude each other")
	case len(e.Dismiss) > 0 && strings.TrimSpace(e.Reason) == "":
		return errors.New("dismiss needs a reason")
	}
	for _, name := range e.Replay {
		if intake.KindOf(name) == string(proof.Rejected) && strings.TrimSpace(e.Reason) == "" {
			return errors.New("the replay of a rejected webhook needs a reason")
		}
	}
	// As long as it becomes: what is published could not be noted otherwise.
	return proof.Note{By: e.By, At: time.Unix(0, 1).UTC(), Reason: e.Reason, Content: string(e.Content),
		AgeAccepted: e.AcceptAge}.Check()
}

// write writes the line of a run and returns its report, with an error if the run failed. notFound is why it is not
// known whether the bus exists, or nil.
func (h *Handler) write(ctx context.Context, r intake.Redriven, notFound error) (wire.RedriveReport, error) {
	level := slog.LevelInfo
	switch {
	case r.Err != nil || r.Unmarked > 0:
		level = slog.LevelError
	case r.Failed > 0 || r.Left || notFound != nil:
		level = slog.LevelWarn
	}
	line := struct {
		Run      intake.Redriven `json:",embed"`
		Cause    string          `json:"cause,omitzero"`
		BusCause string          `json:"busCause,omitzero"`
	}{r, lambdaruntime.Cause(cmp.Or(r.Err, r.PublishErr)), lambdaruntime.Cause(notFound)}
	var values []lambdaruntime.Value
	if errors.Is(r.Err, bus.ErrMissing) {
		values = append(values, lambdaruntime.Value{Metric: settings.BusMissingMetric, Value: 1})
	}
	if !r.Unread {
		values = append(values, lambdaruntime.Value{Metric: settings.OldestPendingMetric, Value: r.Oldest.Seconds()})
	}
	if r.Parked > 0 {
		values = append(values, lambdaruntime.Value{Metric: settings.ParkedMetric, Value: float64(r.Parked)})
	}
	if h.conf.MTLS != nil {
		values = append(values, lambdaruntime.Value{Metric: settings.TrustDaysLeftMetric, Value: h.daysLeft()})
	}
	h.log.Outcome(ctx, level, "redrive", line, values...)
	if r.Err != nil {
		return wire.RedriveReport{RedriveCounts: r.RedriveCounts}, fmt.Errorf("redrive: %s", lambdaruntime.Cause(r.Err))
	}
	return wire.RedriveReport{RedriveCounts: r.RedriveCounts}, nil
}

// decided is the line of a replay or of a dismissal.
type decided struct {
	Decided    wire.Decided        `json:",embed"`
	Request    wire.RedriveRequest `json:",embed"`         // without names
	Kind       string              `json:"kind,omitempty"` // event, or the reason of a stored delivery
	DeliveryID string              `json:"deliveryId,omitempty"`
}

// decide replays or dismisses what has the names, one after another.
func (h *Handler) decide(ctx context.Context, e wire.RedriveRequest) (out wire.RedriveReport) {
	message, one := "replay", h.replayOne
	if len(e.Dismiss) > 0 {
		message, one = "dismiss", h.dismissOne
	}
	names := append(e.Replay, e.Dismiss...)
	e.Replay, e.Dismiss = nil, nil
	for _, name := range names {
		r, err := one(ctx, name, e)
		result := wire.Decided{Name: name, Outcome: r.Outcome.Name, Cause: lambdaruntime.Cause(err),
			Recorded: r.Recorded, Pending: r.Pending + r.PendingDuplicates, Duplicates: r.Duplicates,
			Conflicts: r.Conflicts, Parked: r.ParkedAs.Name, Unverified: r.By.Unverified,
			LargeEventEnds: r.LargeEventEnds}
		level := slog.LevelInfo
		if err != nil || r.Err != nil {
			level = slog.LevelWarn
		}
		h.log.Outcome(ctx, level, message, decided{result, e, intake.KindOf(name), r.DeliveryID})
		out.Decided = append(out.Decided, result)
	}
	return out
}

// replayOne replays an event or a stored delivery, and stores the decision. The error is why there is an outcome other
// than Accepted and ConflictDismissed, or what is wrong although everything is recorded.
func (h *Handler) replayOne(ctx context.Context, name string, e wire.RedriveRequest) (r intake.Result, err error) {
	note := proof.Note{By: e.By, At: h.now(), Reason: e.Reason, Content: string(e.Content), AgeAccepted: e.AcceptAge}
	if intake.KindOf(name) == intake.EventKind {
		if e.Content != wire.NoContent {
			return intake.Failed(intake.ContentUnavailable), intake.ContentUnavailable
		}
		r = h.replayer.ReplayEvent(ctx, name, ledger.Note{By: note.By, At: note.At, Reason: note.Reason})
		return r, r.Err
	}
	p, err := proof.Get(ctx, h.parking, name)
	if err != nil {
		return r, err
	}
	if !e.Again {
		if r.Outcome, err = h.undecided(ctx, name); err != nil {
			return r, err
		}
	}
	decision := proof.Replayed
	if p.Reason != proof.Rejected {
		r = h.replayer.Replay(ctx, p, e.Content)
	} else if r = h.receive(ctx, p, e); r.ParkedAs.Name != "" { // it is authentic
		if err := proof.Decide(ctx, h.parking, decision, name, note); err != nil {
			return r, err
		}
		return r, r.Err
	}
	if !r.Done() {
		return r, r.Err
	}
	if e.Content == wire.FirstContent {
		decision, r.Outcome = proof.Dismissed, intake.ConflictDismissed
	}
	if err := proof.Decide(ctx, h.parking, decision, name, note); err != nil {
		return r, err
	}
	if r.Unpublishable > 0 {
		err = fmt.Errorf("redrive: %d of its events parked: %w", r.Unpublishable, r.PublishErr)
	}
	return r, err
}

// undecided returns an error if a delivery was replayed or dismissed, with the outcome AlreadyReplayed or
// AlreadyDismissed. A second replay of a conflict could publish its other content.
func (h *Handler) undecided(ctx context.Context, name string) (intake.Outcome, error) {
	decision, note, err := proof.DecisionOn(ctx, h.parking, name)
	if err != nil || decision == proof.Open {
		return intake.Outcome{}, err
	}
	outcome := intake.AlreadyDismissed
	if decision == proof.Replayed {
		outcome = intake.AlreadyReplayed
	}
	return outcome, fmt.Errorf("it was %s at %s", decision, note.At.UTC().Format(time.RFC3339))
}

// dismissOne stores that what has a name is not published.
func (h *Handler) dismissOne(ctx context.Context, name string, e wire.RedriveRequest) (none intake.Result, err error) {
	note := proof.Note{By: e.By, At: h.now(), Reason: e.Reason}
	if intake.KindOf(name) == intake.EventKind {
		err = h.replayer.DismissEvent(ctx, name, ledger.Note{By: note.By, At: note.At, Reason: note.Reason})
	} else if _, err = proof.Get(ctx, h.parking, name); err == nil {
		err = proof.Decide(ctx, h.parking, proof.Dismissed, name, note)
	}
	return none, err
}
