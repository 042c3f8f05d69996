package handler

import (
	"context"
	"errors"

	"payhook.example/shared/intake"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
)

// The outcomes of rejected webhooks that cannot be replayed.
var (
	noCertificate      = intake.Outcome{Name: "certificate-not-captured"}
	incomplete         = intake.Outcome{Name: "payload-incomplete"}
	captureRejectedOff = intake.Outcome{Name: "capture-rejected-off"}
)

// receive receives a rejected webhook like a new one.
func (h *Handler) receive(ctx context.Context, p proof.Proof, e redrive.Request) intake.Result {
	w := p.Request
	switch {
	case h.trust != nil:
		return intake.Result{Outcome: noCertificate,
			Err: errors.New("redrive: client certificates are not captured: the service must send it again")}
	case h.receiver == nil:
		return intake.Result{Outcome: captureRejectedOff,
			Err: errors.New("redrive: rejected webhooks are replayed only with the setting captureRejected")}
	case len(p.Payload) < w.PayloadBytes:
		return intake.Result{Outcome: incomplete,
			Err: errors.New("redrive: its body was too large to be captured: the service must send it again")}
	}
	source, err := intake.CheckSource(w.SourceIP, h.allowed)
	if err == nil {
		err = intake.CheckMethod(w.Method)
	}
	if err != nil {
		return intake.Result{Outcome: intake.OutcomeOf(err), Err: err}
	}
	d := intake.Delivery{Payload: p.Payload, Headers: w.Headers, RawQuery: w.RawQuery, SourceIP: source}
	if e.AcceptAge {
		d.ArrivedAt = w.ReceivedAt
	}
	return h.receiver.Receive(ctx, d)
}
