package parking

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"payhook.example/shared/keys"
)

// The limits of a [Capturer].
const (
	CapturedPerHour    = 50          // webhooks
	MaxCapturedPayload = 256 << 10   // bytes
	CaptureTimeout     = time.Second // of one webhook
)

// Captured is a webhook that was rejected before it was found authentic, for a person
// who finds out why (payhook explain). It is not authentic: anybody who knows the URL can
// have sent it. It can be a real webhook and contain payment data.
type Captured struct {
	ReceivedAt time.Time `json:"receivedAt"`
	RequestID  string    `json:"requestId,omitempty"` // of Lambda, as in the log
	Outcome    string    `json:"outcome"`             // why it was rejected, as in the log
	Cause      string    `json:"cause,omitempty"`     // as in the log

	Method   string            `json:"method"`
	Path     string            `json:"path"`
	RawQuery string            `json:"rawQuery"` // without the question mark
	Headers  map[string]string `json:"headers"`  // credentials are replaced by Redacted
	SourceIP string            `json:"sourceIp,omitempty"`
	// Payload is the body, byte for byte, in base64. It is absent if it has more than
	// MaxCapturedPayload bytes.
	Payload       []byte `json:"payload,omitempty"`
	PayloadBytes  int    `json:"payloadBytes"`
	PayloadSHA256 string `json:"payloadSha256"` // in hexadecimal

	// Settings are the settings that rejected it, by their keys.
	Settings map[string]string `json:"settings"`
}

// Redacted replaces the value of a header with credentials.
const Redacted = "(redacted)"

// credentials are the headers whose values are not stored: they are not part of the
// signature of section 5.4 of the interface, and can be of use to whoever reads them.
var credentials = []string{"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key",
	"x-amz-security-token"}

// WithoutCredentials returns headers with the values of credentials redacted.
func WithoutCredentials(headers map[string]string) map[string]string {
	kept := maps.Clone(headers)
	for name := range kept {
		if slices.Contains(credentials, strings.ToLower(name)) {
			kept[name] = Redacted
		}
	}
	return kept
}

// CapturedPrefix begins the keys of captured webhooks. It also begins the name by which
// [Store.MarkReplayed] and [Store.Decision] know one.
const CapturedPrefix = "captured/"

// Capture stores a webhook and returns its name.
func (s *Store) Capture(ctx context.Context, c Captured) (name string, err error) {
	sum := sha256.Sum256(c.Payload)
	c.PayloadBytes, c.PayloadSHA256 = len(c.Payload), hex.EncodeToString(sum[:])
	if len(c.Payload) > MaxCapturedPayload {
		c.Payload = nil
	}
	text, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("parking: capture: %w", err)
	}
	name = c.ReceivedAt.UTC().Format(timeFormat) + "-" + c.Outcome + "-" + rand.Text() + ".json"
	if _, err = s.create(ctx, CapturedPrefix+name, text); err != nil {
		return "", err
	}
	return name, nil
}

// ErrNotCaptured is returned when no captured webhook has the name. It can have expired.
var ErrNotCaptured = errors.New("parking: no captured webhook has this name")

// Captured returns the webhook of that name, or [ErrNotCaptured].
func (s *Store) Captured(ctx context.Context, name string) (c Captured, err error) {
	err = s.read(ctx, CapturedPrefix+name, &c, ErrNotCaptured)
	return c, err
}

// ListCaptured returns the names of all captured webhooks, the earliest first.
func (s *Store) ListCaptured(ctx context.Context) (names []string, err error) {
	err = s.list(ctx, CapturedPrefix, "", func(name string) bool {
		names = append(names, name)
		return true
	})
	return names, err
}

// OutcomeOf returns the outcome in the name of a captured webhook.
func OutcomeOf(name string) string {
	_, outcome, _ := strings.Cut(name, "-")
	return outcome[:max(0, strings.LastIndex(outcome, "-"))]
}

// Capturer stores rejected webhooks until its end: at most [CapturedPerHour] over all
// functions together, and at most [MaxCapturedPayload] bytes of each. It is safe for
// concurrent use.
type Capturer struct {
	store  *Store
	budget keys.Store
	until  time.Time
	spent  atomic.Int64 // the hour whose budget is used up, in Unix seconds
}

// NewCapturer returns a Capturer that stores until that time. The functions share their
// limit through budget.
func NewCapturer(store *Store, budget keys.Store, until time.Time) *Capturer {
	return &Capturer{store: store, budget: budget, until: until}
}

// Capture stores a webhook and returns its name; "" if the end or the limit of the hour
// is reached. It takes at most [CaptureTimeout], and stores nothing if ctx ends before
// twice that time. When the budget cannot be read, it stores nothing.
func (c *Capturer) Capture(ctx context.Context, webhook Captured) (name string, err error) {
	now := time.Now()
	hour := now.Truncate(time.Hour).Unix()
	if c.spent.Load() == hour || !now.Before(c.until) {
		return "", nil
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < 2*CaptureTimeout {
		return "", fmt.Errorf("parking: capture: %w", context.DeadlineExceeded)
	}
	ctx, cancel := context.WithTimeout(ctx, CaptureTimeout)
	defer cancel()
	left, err := keys.TakeHourly(ctx, c.budget, "captured", now, CapturedPerHour)
	if err != nil {
		return "", err
	}
	if !left {
		c.spent.Store(hour)
		return "", nil
	}
	return c.store.Capture(ctx, webhook)
}
