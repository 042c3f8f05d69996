package webhookhandler

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"payhook.example/shared/intake"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/proof"
)

// attempt is what is logged about a request that was stored or could not be.
type attempt struct {
	Rejected          string `json:"rejected,omitzero"`
	RejectedNotStored string `json:"rejectedNotStored,omitzero"`
}

// storeRejected stores a request that was rejected before it was found authentic. Requests without a body are not
// stored: scanners send them, and they are no webhooks. A failure changes nothing else.
func (h *Handler) storeRejected(ctx context.Context, r request, result intake.Result, received time.Time) attempt {
	if h.rejected == nil || !result.Outcome.BeforeProof {
		return attempt{}
	}
	payload, err := r.payload()
	switch {
	case errors.Is(err, intake.PayloadEmpty):
		return attempt{}
	case err != nil:
		payload = unquote(r.body)
	}
	stored := proof.RejectedRequest{
		ReceivedAt: received,
		Outcome:    result.Outcome.Name,
		Method:     r.RequestContext.HTTP.Method,
		Path:       r.RawPath,
		RawQuery:   r.RawQueryString,
		Headers:    r.Headers,
		SenderIP:   r.RequestContext.HTTP.SourceIP,
		Settings:   h.conf.Verification,
	}
	if lambda, ok := lambdacontext.FromContext(ctx); ok {
		stored.RequestID = lambda.AwsRequestID
	}
	name, err := h.rejected.Put(ctx, stored, payload, lambdaruntime.Cause(result.Err))
	return attempt{name, lambdaruntime.Cause(err)}
}
