package main

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"payhook.example/shared/awsenv"
	"payhook.example/shared/intake"
	"payhook.example/shared/parking"
	"payhook.example/shared/settings"
)

// captured receives captured webhooks with the checks of the webhook function.
type captured struct {
	receiver        *intake.Receiver
	allowed         []netip.Prefix // none: any
	maxPayloadBytes int
}

func newCaptured(p *intake.Pipeline, signature *intake.Signature, s settings.Function) *captured {
	return &captured{intake.NewReceiver(p, intake.Mechanisms{Signature: signature}), s.Networks, s.MaxPayloadBytes}
}

// The outcomes of captured webhooks that cannot be replayed.
var (
	notCaptured        = intake.Outcome{Name: "certificate-not-captured"}
	incomplete         = intake.Outcome{Name: "payload-incomplete"}
	captureRejectedOff = intake.Outcome{Name: "capture-rejected-off"}
)

// receive receives a captured webhook. With acceptAge, its age is that when it arrived.
func (h *handler) receive(ctx context.Context, name string, acceptAge bool) intake.Result {
	c := h.captured
	switch {
	case h.trust != nil:
		return intake.Result{Outcome: notCaptured,
			Err: errors.New("redrive: client certificates are not captured: the service must send it again")}
	case c == nil:
		return intake.Result{Outcome: captureRejectedOff,
			Err: errors.New("redrive: captured webhooks are replayed only with the setting captureRejected")}
	}
	w, err := h.parking.Captured(ctx, name)
	if err != nil {
		return intake.Result{Err: err}
	}
	source, err := intake.CheckSource(w.SourceIP, c.allowed)
	switch {
	case len(w.Payload) < w.PayloadBytes:
		return intake.Result{Outcome: incomplete,
			Err: errors.New("redrive: its body was too large to be captured: the service must send it again")}
	case err != nil:
	case len(w.Payload) > c.maxPayloadBytes:
		err = intake.ErrPayloadTooLarge
	default:
		err = intake.CheckMethod(w.Method)
	}
	if err != nil {
		return intake.Result{Outcome: intake.OutcomeOf(err), Err: err}
	}
	d := intake.Delivery{Payload: w.Payload, Headers: w.Headers, RawQuery: w.RawQuery, SourceIP: source}
	if acceptAge {
		d.ArrivedAt = w.ReceivedAt
	}
	return c.receiver.Receive(ctx, d)
}

// replayCaptured receives captured webhooks, one after another. It stores who had those replayed that
// were accepted or parked. The note stays when the captured webhook expires.
func (h *handler) replayCaptured(ctx context.Context, e event) (out report, err error) {
	if strings.TrimSpace(e.Reason) == "" {
		return out, errors.New("redrive: the replay of a captured webhook needs a reason")
	}
	for _, name := range e.Captured {
		r := h.receive(ctx, name, e.AcceptAge)
		result, err := newReplayed(name, r), r.Err
		if r.Done() || r.Parked != "" {
			note := parking.Note{By: e.By, At: h.now(), Reason: e.Reason, AgeAccepted: e.AcceptAge}
			noted := h.parking.MarkReplayed(ctx, parking.CapturedPrefix+name, note)
			err = errors.Join(err, noted, rejected(r))
		}
		result.Cause = awsenv.Cause(err)
		h.writeReplay(ctx, replayLine{replayed: result, Reason: "captured", DeliveryID: r.DeliveryID,
			AcceptAge: e.AcceptAge})
		out.Replayed = append(out.Replayed, result)
	}
	return out, nil
}
