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

// The limits of a [RejectedStore].
const (
	RejectedPerHour    = 50          // webhooks
	MaxRejectedPayload = 256 << 10   // bytes
	RejectedTimeout    = time.Second // of one webhook
)

// RejectedStore stores rejected webhooks until its end: at most [RejectedPerHour] over all functions together, and at
// most [MaxRejectedPayload] bytes of each. It is safe for concurrent use.
type RejectedStore struct {
	bucket objects.Creator
	budget keys.Store
	scheme signature.Scheme
	until  time.Time
	spent  atomic.Int64 // the hour whose budget is used up, in Unix seconds
}

// NewRejectedStore returns a RejectedStore that stores until that time. The functions share their limit through budget.
func NewRejectedStore(bucket objects.Creator, budget keys.Store, scheme signature.Scheme,
	until time.Time) *RejectedStore {
	return &RejectedStore{bucket: bucket, budget: budget, scheme: scheme, until: until}
}

// Put stores a webhook and returns its name; "" if the end or the limit of the hour
// is reached. Of headers and query parameters, it stores the names, and the values that the signature needs and of
// Content-Type, Content-Length, User-Agent and Host. It takes at most [RejectedTimeout], and stores nothing if ctx
// ends before twice that time. When the budget cannot be read, it stores nothing.
func (s *RejectedStore) Put(ctx context.Context, r RejectedRequest, payload []byte,
	cause string) (name string, err error) {
	now := time.Now()
	hour := now.Truncate(time.Hour)
	if s.spent.Load() == hour.Unix() || !now.Before(s.until) {
		return "", nil
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < 2*RejectedTimeout {
		return "", fmt.Errorf("proof: rejected: %w", context.DeadlineExceeded)
	}
	ctx, cancel := context.WithTimeout(ctx, RejectedTimeout)
	defer cancel()
	name = fmt.Sprintf("rejected#%d", hour.Unix()/3600)
	left, err := s.budget.Take(ctx, name, RejectedPerHour, hour.Add(2*time.Hour))
	if err != nil {
		return "", err
	}
	if !left {
		s.spent.Store(hour.Unix())
		return "", nil
	}
	r.Headers, r.RawQuery = s.scheme.Redact(r.Headers, r.RawQuery, "Content-Type", "Content-Length", "User-Agent",
		"Host")
	sum := sha256.Sum256(payload)
	r.PayloadBytes, r.PayloadSHA256 = len(payload), hex.EncodeToString(sum[:])
	if len(payload) > MaxRejectedPayload {
		payload = nil
	}
	name, _, err = Put(ctx, s.bucket, Proof{Reason: Rejected, Cause: cause, Payload: payload, Request: &r})
	return name, err
}
