// Package refused stores webhooks that were rejected before they were found authentic,
// so that a person can find out why (payhook explain).
//
// It guarantees that a [Capturer] stores at most [PerHour] requests an hour over all
// functions together and at most [MaxPayload] bytes of each body, that it takes at most
// [Timeout], and that it stores nothing after its end. What is stored is not authentic:
// anybody who knows the URL can have written it. It can be a real webhook and contain
// payment data.
package refused

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	PerHour    = 50          // requests that are stored in an hour
	MaxPayload = 256 << 10   // bytes of a body that is stored
	Timeout    = time.Second // of one capture
)

// Request is a webhook that was rejected.
type Request struct {
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
	// MaxPayload bytes.
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

// API is the part of the S3 client that a [Store] uses.
type API interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// Store stores rejected requests in the parking bucket, as
//
//	refused/20260131T120000.123Z-signature-missing-RANDOM.json
//
// with the time of receipt and the outcome. It is safe for concurrent use.
type Store struct {
	client API
	bucket string
}

// NewStore returns a Store that uses the bucket of that name.
func NewStore(client API, bucket string) *Store { return &Store{client, bucket} }

const (
	prefix     = "refused/"
	timeFormat = "20060102T150405.000Z"
)

// Put stores a request and returns its name.
func (s *Store) Put(ctx context.Context, r Request) (name string, err error) {
	sum := sha256.Sum256(r.Payload)
	r.PayloadBytes, r.PayloadSHA256 = len(r.Payload), hex.EncodeToString(sum[:])
	if len(r.Payload) > MaxPayload {
		r.Payload = nil
	}
	text, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("refused: %w", err)
	}
	random := make([]byte, 4)
	_, _ = rand.Read(random) // which never fails
	name = r.ReceivedAt.UTC().Format(timeFormat) + "-" + r.Outcome + "-" + hex.EncodeToString(random) + ".json"
	digest := sha256.Sum256(text)
	_, err = s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:         &s.bucket,
		Key:            aws.String(prefix + name),
		Body:           bytes.NewReader(text),
		ContentType:    aws.String("application/json"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(digest[:])),
	})
	if err != nil {
		return "", fmt.Errorf("refused: put: %w", err)
	}
	return name, nil
}

// ErrNotStored is returned when no request has the name. It can have expired.
var ErrNotStored = errors.New("refused: no request has this name")

// Get returns the request of that name, or [ErrNotStored].
func (s *Store) Get(ctx context.Context, name string) (r Request, err error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: aws.String(prefix + name)})
	if _, missing := errors.AsType[*types.NoSuchKey](err); missing {
		return r, ErrNotStored
	}
	if err != nil {
		return r, fmt.Errorf("refused: get: %w", err)
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	if err != nil {
		return r, fmt.Errorf("refused: get: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return Request{}, fmt.Errorf("refused: %s: %w", name, err)
	}
	return r, nil
}

// List returns the names of all requests, the earliest first.
func (s *Store) List(ctx context.Context) (names []string, err error) {
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(prefix)}
	for {
		out, err := s.client.ListObjectsV2(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("refused: list: %w", err)
		}
		for _, object := range out.Contents {
			names = append(names, strings.TrimPrefix(aws.ToString(object.Key), prefix))
		}
		if !aws.ToBool(out.IsTruncated) {
			return names, nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// Parse returns the time of receipt and the outcome in a name.
func Parse(name string) (at time.Time, outcome string, ok bool) {
	stamp, rest, _ := strings.Cut(name, "-")
	at, err := time.Parse(timeFormat, stamp)
	end := strings.LastIndex(rest, "-")
	if err != nil || end < 0 {
		return time.Time{}, "", false
	}
	return at, rest[:end], true
}

// Budget limits what is stored in an hour. [payhook.example/shared/keys.Table]
// implements it for all functions together.
type Budget interface {
	SpendHourly(ctx context.Context, name string, now time.Time, limit int) (bool, error)
}

// Capturer stores rejected requests until its end. It is safe for concurrent use.
type Capturer struct {
	store  *Store
	budget Budget
	until  time.Time
	now    func() time.Time

	mu    sync.Mutex
	spent time.Time // the hour whose budget is used up
}

// NewCapturer returns a Capturer that stores until that time. A nil now is time.Now.
func NewCapturer(store *Store, budget Budget, until time.Time, now func() time.Time) *Capturer {
	if now == nil {
		now = time.Now
	}
	return &Capturer{store: store, budget: budget, until: until, now: now}
}

// Capture stores a request and returns its name; "" if the end or the limit of the hour
// is reached. It takes at most [Timeout], and stores nothing if ctx ends before twice
// that time. When the budget cannot be read, it stores nothing.
func (c *Capturer) Capture(ctx context.Context, r Request) (name string, err error) {
	now := c.now()
	hour := now.Truncate(time.Hour)
	c.mu.Lock()
	spent := c.spent.Equal(hour)
	c.mu.Unlock()
	if spent || !now.Before(c.until) {
		return "", nil
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < 2*Timeout {
		return "", fmt.Errorf("refused: %w", context.DeadlineExceeded)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	left, err := c.budget.SpendHourly(ctx, "refused", now, PerHour)
	if err != nil {
		return "", err
	}
	if !left {
		c.mu.Lock()
		c.spent = hour
		c.mu.Unlock()
		return "", nil
	}
	return c.store.Put(ctx, r)
}
