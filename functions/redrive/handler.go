package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"payhook.example/shared/awsenv"
	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
)

// handler runs redrive for an invocation and writes a log line and metrics. Lambda may
// invoke it twice or late, and an operator may invoke it.
type handler struct {
	redriver *intake.Redriver
	replayer *intake.Replayer
	findBus  func(context.Context) error // as bus.Find
	parking  *parking.Store
	log      *awsenv.Log
	now      func() time.Time
	trust    *trust    // nil: no client certificate is required
	revoked  []string  // the setting revokedKeys
	captured *captured // nil: no captured webhook can be replayed
}

// event is the event of an invocation. That of the schedule is empty and starts a run.
type event struct {
	// Replay has the names of parked objects to replay, instead of a run. A conflict
	// needs Version.
	Replay  []string       `json:"replay,omitempty"`
	Version intake.Version `json:"version,omitempty"`
	// Again replays what was replayed or dismissed before as well.
	Again bool `json:"again,omitempty"`
	// Captured has the names of captured webhooks to receive, for the given Reason. Unless
	// AcceptAge, they must not be too old by now.
	Captured  []string `json:"captured,omitempty"`
	AcceptAge bool     `json:"acceptAge,omitempty"`
	// Dismiss has the names of parked objects to dismiss, for the given Reason.
	Dismiss []string `json:"dismiss,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	// Certificates requests the report on client certificates, instead of a run.
	Certificates bool `json:"certificates,omitempty"`
	// By is who decided, as the caller states.
	By string `json:"by,omitempty"`
}

// report is what an invocation returns.
type report struct {
	Found     int `json:"found"`
	Published int `json:"published"`
	Failed    int `json:"failed"`
	Parked    int `json:"parked,omitempty"` // failed items that were parked
	// Left is true if the run ended before it had tried every item.
	Left bool `json:"left"`

	Replayed  []replayed  `json:"replayed,omitempty"`
	Dismissed []dismissed `json:"dismissed,omitempty"`

	Certificates *trusted `json:"certificates,omitempty"`
}

// replayed is the result of a replay of one parked object or captured webhook.
type replayed struct {
	Name       string         `json:"name"`
	Outcome    intake.Outcome `json:"outcome,omitzero"` // accepted: all its events are recorded or published
	Cause      string         `json:"cause,omitempty"`
	Recorded   int            `json:"recorded,omitzero"`
	Pending    int            `json:"pending,omitzero"` // also of Duplicates: redrive publishes them
	Duplicates int            `json:"duplicates,omitzero"`
	Conflicts  int            `json:"conflicts,omitzero"`
	// Parked is the name of the new parked object with its events in conflict.
	Parked string `json:"parked,omitempty"`
	// Unverified is the part of the proof that could not be verified.
	Unverified string `json:"unverified,omitempty"`
}

// dismissed is the result of dismissing one parked object.
type dismissed struct {
	Name  string `json:"name"`
	Cause string `json:"cause,omitempty"` // why it is not dismissed
}

// count returns 1 if an event has names of a kind, and 0 otherwise.
func count(of []string) int { return min(len(of), 1) }

// Handle runs redrive, moves, replays or dismisses. A run fails if the ledger could not be read
// or written, so that Lambda's Errors metric counts it. Runs and replays publish nothing and fail if the bus does not
// exist. If that is not known, they publish.
func (h *handler) Handle(ctx context.Context, e event) (report, error) {
	switch {
	case count(e.Replay)+count(e.Captured)+count(e.Dismiss) > 1:
		return report{}, errors.New("redrive: replay, captured and dismiss exclude each other")
	case len(e.Dismiss) > 0:
		return h.dismiss(ctx, e)
	case e.Certificates:
		t, err := h.trust.report(ctx, h.now())
		if err != nil {
			return report{}, fmt.Errorf("redrive: %s", awsenv.Cause(err))
		}
		t.RevokedKeys = h.revoked
		return report{Certificates: t}, nil
	}
	err := h.findBus(ctx)
	missing := errors.Is(err, bus.ErrMissing)
	switch replays := len(e.Replay)+len(e.Captured) > 0; {
	case missing && replays:
		return report{}, fmt.Errorf("redrive: %w", err)
	case missing:
		return h.write(ctx, intake.Redriven{Unread: true, Err: err}, nil)
	case len(e.Replay) > 0:
		return h.replay(ctx, e), nil
	case len(e.Captured) > 0:
		return h.replayCaptured(ctx, e)
	}
	return h.write(ctx, h.redriver.Run(ctx), err)
}

// line is the line of a run.
type line struct {
	Found            int    `json:"found,omitzero"`
	Leased           int    `json:"leased,omitzero"`
	Published        int    `json:"published,omitzero"`
	Failed           int    `json:"failed,omitzero"`
	Unmarked         int    `json:"unmarked,omitzero"`
	Errors           int    `json:"errors,omitzero"`
	Left             bool   `json:"left,omitzero"`
	Cause            string `json:"cause,omitzero"`
	BusCause         string `json:"busCause,omitzero"`
	CertificateCause string `json:"certificateCause,omitzero"`
}

// write writes the line of a run and returns its report, with an error if the run failed. notFound is why it is not
// known whether the bus exists, or nil.
func (h *handler) write(ctx context.Context, r intake.Redriven, notFound error) (report, error) {
	level := slog.LevelInfo
	switch {
	case r.Err != nil || r.Unmarked > 0:
		level = slog.LevelError
	case r.Failed > 0 || r.Left || notFound != nil:
		level = slog.LevelWarn
	}
	l := line{Found: r.Found, Leased: r.Leased, Published: r.Published, Failed: r.Failed, Unmarked: r.Unmarked,
		Errors: r.Errors, Left: r.Left, Cause: awsenv.Cause(cmp.Or(r.Err, r.PublishErr)),
		BusCause: awsenv.Cause(notFound)}
	var values []awsenv.Value
	if errors.Is(r.Err, bus.ErrMissing) {
		values = append(values, awsenv.Value{Metric: names.BusMissingMetric, Value: 1})
	}
	if !r.Unread {
		values = append(values, awsenv.Value{Metric: names.OldestPendingMetric, Value: r.Oldest.Seconds()})
	}
	if r.Parked > 0 {
		values = append(values, awsenv.Value{Metric: names.ParkedMetric, Value: float64(r.Parked)})
	}
	if h.trust != nil {
		// Without the certificate that was accepted last, only the CAs count. Another run
		// raises the alarm for the certificate.
		t, err := h.trust.report(ctx, h.now())
		if err != nil {
			l.CertificateCause = awsenv.Cause(err)
			level = max(level, slog.LevelWarn)
		}
		values = append(values, awsenv.Value{Metric: names.TrustDaysLeftMetric, Value: t.DaysLeft})
	}
	h.log.Outcome(ctx, level, "redrive", l, values...)
	out := report{Found: r.Found, Published: r.Published, Failed: r.Failed, Parked: r.Parked, Left: r.Left}
	if r.Err != nil {
		return out, fmt.Errorf("redrive: %s", awsenv.Cause(r.Err))
	}
	return out, nil
}

// replay replays parked objects, one after another.
func (h *handler) replay(ctx context.Context, e event) (out report) {
	for _, name := range e.Replay {
		result := replayed{Name: name}
		p, err := h.parking.Get(ctx, name)
		if err == nil && !e.Again {
			result.Outcome, err = h.decided(ctx, name)
		}
		if err == nil {
			r := h.replayer.Replay(ctx, p, e.Version)
			result, err = newReplayed(name, r), r.Err
			if r.Done() {
				err = cmp.Or(h.decide(ctx, name, e), rejected(r))
			}
		}
		result.Cause = awsenv.Cause(err)
		h.writeReplay(ctx, replayLine{replayed: result, DeliveryID: p.DeliveryID, Reason: string(p.Reason),
			Version: e.Version})
		out.Replayed = append(out.Replayed, result)
	}
	return out
}

func newReplayed(name string, r intake.Result) replayed {
	return replayed{Name: name, Outcome: r.Outcome, Recorded: r.Recorded, Pending: r.Pending + r.PendingDuplicates,
		Duplicates: r.Duplicates, Conflicts: r.Conflicts, Parked: r.Parked, Unverified: r.Unverified}
}

// rejected returns an error if events of r are parked because EventBridge rejects them.
func rejected(r intake.Result) error {
	if r.Unpublishable == 0 {
		return nil
	}
	return fmt.Errorf("redrive: %d of its events parked: %w", r.Unpublishable, r.PublishErr)
}

// replayLine is the line of a replay.
type replayLine struct {
	replayed
	DeliveryID string         `json:"deliveryId,omitzero"`
	Reason     string         `json:"reason,omitzero"`
	Version    intake.Version `json:"version,omitzero"`
	AcceptAge  bool           `json:"acceptAge,omitzero"`
}

// writeReplay writes the line of a replay.
func (h *handler) writeReplay(ctx context.Context, l replayLine) {
	level := slog.LevelInfo
	if l.Outcome != intake.Accepted || l.Cause != "" {
		level = slog.LevelWarn
	}
	h.log.Outcome(ctx, level, "replay", l)
}

// decided returns an error if an object was replayed or dismissed, with the outcome
// already-replayed or already-dismissed. A second replay of a conflict could publish its other
// version.
func (h *handler) decided(ctx context.Context, name string) (intake.Outcome, error) {
	state, note, err := h.parking.Decision(ctx, name)
	if err != nil || state == parking.Open {
		return intake.Outcome{}, err
	}
	return intake.Outcome{Name: "already-" + string(state)}, fmt.Errorf("it was %s at %s", state, note.At.UTC().Format(time.RFC3339))
}

// decide stores that an object was replayed. A conflict whose first version stays is
// dismissed, because nothing of it is published. Nothing else is replayed with that version.
func (h *handler) decide(ctx context.Context, name string, e event) error {
	note := parking.Note{By: e.By, At: h.now(), Version: string(e.Version)}
	if e.Version == intake.FirstVersion {
		note.Reason = "the first version stays"
		return h.parking.Dismiss(ctx, name, note)
	}
	return h.parking.MarkReplayed(ctx, name, note)
}

// dismiss stores that parked objects need no replay, one after another.
func (h *handler) dismiss(ctx context.Context, e event) (out report, err error) {
	if strings.TrimSpace(e.Reason) == "" {
		return out, errors.New("redrive: dismiss needs a reason")
	}
	for _, name := range e.Dismiss {
		_, err := h.parking.Get(ctx, name)
		if err == nil {
			err = h.parking.Dismiss(ctx, name, parking.Note{By: e.By, At: h.now(), Reason: e.Reason})
		}
		result, level := dismissed{Name: name, Cause: awsenv.Cause(err)}, slog.LevelInfo
		if err != nil {
			level = slog.LevelWarn
		}
		h.log.Outcome(ctx, level, "dismiss", result)
		out.Dismissed = append(out.Dismissed, result)
	}
	return out, nil
}
