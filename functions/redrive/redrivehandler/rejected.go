package redrivehandler

import (
	"context"

	"payhook.example/shared/intake"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

// The outcomes of rejected webhooks that cannot be replayed.
var (
	noCertificate = intake.Outcome{OfReplay: true, Name: "certificate-not-stored",
		Text: "client certificates are not stored: the service must send it again"}
	incomplete = intake.Outcome{OfReplay: true, Name: "payload-incomplete",
		Text: "its body was too large to be stored: the service must send it again"}
	storeRejectedOff = intake.Outcome{OfReplay: true, Name: "store-rejected-off",
		Text: "rejected webhooks are replayed only with the setting storeRejected"}
)

// receive receives a rejected webhook like a new one.
func (h *Handler) receive(ctx context.Context, p proof.Proof, e wire.RedriveRequest) intake.Result {
	w := p.Request
	switch {
	case h.conf.MTLS != nil:
		return intake.Failed(noCertificate)
	case h.receiver == nil:
		return intake.Failed(storeRejectedOff)
	case len(p.Payload) < w.PayloadBytes:
		return intake.Failed(incomplete)
	}
	sender, err := intake.CheckSender(w.SenderIP, h.conf.Networks)
	if err == nil {
		err = intake.CheckMethod(w.Method)
	}
	if err != nil {
		return intake.Failed(err)
	}
	d := intake.Delivery{Payload: p.Payload, Headers: w.Headers, RawQuery: w.RawQuery, SenderIP: sender}
	if e.AcceptAge {
		d.ArrivedAt = w.ReceivedAt
	}
	return h.receiver.Receive(ctx, d)
}
