package proof

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	"payhook.example/shared/keys"
	"payhook.example/shared/objects"
	"payhook.example/shared/signature"
)

// The limits of a [Capturer].
const (
	CapturedPerHour    = 50          // webhooks
	MaxCapturedPayload = 256 << 10   // bytes
	CaptureTimeout     = time.Second // of one webhook
)

// Capturer stores rejected webhooks until its end: at most [CapturedPerHour] over all
// functions together, and at most [MaxCapturedPayload] bytes of each. It is safe for
// concurrent use.
type Capturer struct {
	bucket objects.Creator
	budget keys.Store
	scheme signature.Scheme
	until  time.Time
	spent  atomic.Int64 // the hour whose budget is used up, in Unix seconds
}

// NewCapturer returns a Capturer that stores until that time. The functions share their
// limit through budget.
func NewCapturer(bucket objects.Creator, budget keys.Store, scheme signature.Scheme, until time.Time) *Capturer {
	return &Capturer{bucket: bucket, budget: budget, scheme: scheme, until: until}
}

// Capture stores a webhook and returns its name; "" if the end or the limit of the hour
// is reached. Of headers and query parameters, it stores the names, and the values that the signature needs and of
// Content-Type, Content-Length, User-Agent and Host. It takes at most [CaptureTimeout], and stores nothing if ctx
// ends before twice that time. When the budget cannot be read, it stores nothing.
func (c *Capturer) Capture(ctx context.Context, r Request, payload []byte, cause string) (name string, err error) {
	now := time.Now()
	hour := now.Truncate(time.Hour)
	if c.spent.Load() == hour.Unix() || !now.Before(c.until) {
		return "", nil
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < 2*CaptureTimeout {
		return "", fmt.Errorf("proof: capture: %w", context.DeadlineExceeded)
	}
	ctx, cancel := context.WithTimeout(ctx, CaptureTimeout)
	defer cancel()
	name = fmt.Sprintf("captured#%d", hour.Unix()/3600)
	left, err := c.budget.Take(ctx, name, CapturedPerHour, hour.Add(2*time.Hour))
	if err != nil {
		return "", err
	}
	if !left {
		c.spent.Store(hour.Unix())
		return "", nil
	}
	r.Headers, r.RawQuery = c.scheme.Redact(r.Headers, r.RawQuery, "Content-Type", "Content-Length", "User-Agent",
		"Host")
	sum := sha256.Sum256(payload)
	r.PayloadBytes, r.PayloadSHA256 = len(payload), hex.EncodeToString(sum[:])
	if len(payload) > MaxCapturedPayload {
		payload = nil
	}
	name, _, err = Put(ctx, c.bucket, Proof{Reason: Rejected, Cause: cause, Payload: payload, Request: &r})
	return name, err
}
