package bus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strings"
	"time"

	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
)

// Reference is the location of an event, with its size and digest.
type Reference struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	Size   int    `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // of the bytes, in hexadecimal
}

// Detail is the detail of an event that is in a bucket, since it is too large for the bus (the claim check pattern).
// Its envelope is that of every event, so rules on source, detail-type and resources match it too. EventData contains
// the values of [payment.RawEvent.RoutingData] at the same paths as in the event, so rules on these fields match it
// too. It is not the event: [payment.DecodeEvent] rejects it.
type Detail struct {
	EventName      string         `json:"eventName"`
	EventID        string         `json:"eventId"`
	EventTimestamp string         `json:"eventTimestamp,omitzero"` // [payment.RawEvent.SentTimestamp]
	EventData      jsontext.Value `json:"eventData,omitzero"`
	ClaimCheck     Reference      `json:"claimCheck"`
}

// LargeEventBucket is what [LargeEvents] need of the bucket.
type LargeEventBucket interface {
	objects.Putter
	objects.Lister
}

// LargeEvents stores events in a bucket. It is safe for concurrent use.
type LargeEvents struct {
	bucket LargeEventBucket
	name   string
}

// NewLargeEvents returns the large events in that bucket, whose name references contain.
func NewLargeEvents(bucket LargeEventBucket, name string) *LargeEvents {
	return &LargeEvents{bucket, name}
}

// Put stores an event and returns the detail that refers to it. The object's key consists of the event's id and
// digest, so storing the same event twice leaves one object, whose life begins again.
func (c *LargeEvents) Put(ctx context.Context, event payment.RawEvent) ([]byte, error) {
	sum := sha256.Sum256(event.Bytes)
	digest := hex.EncodeToString(sum[:])
	key := folder(event.EventID) + digest + ".json"
	if err := c.bucket.Put(ctx, key, event.Bytes); err != nil {
		return nil, fmt.Errorf("claim check: put %s: %w", event.EventID, err)
	}
	detail, err := json.Marshal(Detail{
		EventName: event.EventName, EventID: event.EventID, EventTimestamp: event.SentTimestamp,
		EventData:  event.RoutingData(),
		ClaimCheck: Reference{Bucket: c.name, Key: key, Size: len(event.Bytes), SHA256: digest},
	}, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, fmt.Errorf("claim check: %w", err)
	}
	return detail, nil
}

// folder returns what the keys of all contents of an event begin with. Case has no meaning in a UUID (RFC 9562,
// section 4).
func folder(eventID string) string { return "events/" + strings.ToLower(eventID) + "/" }

// StoredAt returns when the event that detail refers to was last stored, and [ErrGone] if it is not there. It lists
// the key instead of requesting the object, so s3:ListBucket is enough:
// without it, S3 answers 403 to a HEAD of an object that does not exist (AWS, "HeadObject" in
// the S3 API reference), and with s3:GetObject the caller could read the event.
func (c *LargeEvents) StoredAt(ctx context.Context, detail []byte) (time.Time, error) {
	var reference Detail
	if err := json.Unmarshal(detail, &reference); err != nil {
		return time.Time{}, fmt.Errorf("claim check: detail: %w", err)
	}
	ref := reference.ClaimCheck
	if ref.Bucket != c.name {
		return time.Time{}, fmt.Errorf("claim check: the event is in the bucket %q, not in %s", ref.Bucket, c.name)
	}
	// The key itself is the first of the keys that begin with it.
	page, _, err := c.bucket.List(ctx, ref.Key, "", 1)
	if err != nil {
		return time.Time{}, fmt.Errorf("claim check: list: %w", err)
	}
	if len(page) == 0 || page[0].Key != ref.Key {
		return time.Time{}, ErrGone
	}
	return page[0].StoredAt, nil
}

// endsSoon is how long before the end of a large event its end is reported.
const endsSoon = 30 * 24 * time.Hour

// LargeEventEnd returns when an event that was stored at that time is deleted, if that is in at most 30 days, and the
// zero time otherwise. It is stored for a retention; one of zero or less has no end.
func LargeEventEnd(storedAt time.Time, retention time.Duration, now time.Time) time.Time {
	if end := storedAt.Add(retention); retention > 0 && end.Sub(now) <= endsSoon {
		return end
	}
	return time.Time{}
}

// The errors of a reference.
var (
	// ErrGone is returned when the object does not exist. S3 reports this only to callers that have s3:ListBucket on
	// the bucket (AWS, "GetObject" in the S3 API reference).
	ErrGone = errors.New("claim check: the event is not in the bucket")
	// ErrDenied is returned when access is denied.
	ErrDenied = objects.ErrDenied
	// ErrAltered is returned when the object has another size or digest than the reference.
	ErrAltered = errors.New("claim check: the object is not the event of the reference")
)

// Resolve returns the event that detail refers to, byte for byte as it was signed: it checks size and digest. It
// returns a detail that is not a reference unchanged. It reads the event from the bucket that open returns. The errors
// of a reference wrap [ErrGone], [ErrDenied] or [ErrAltered]. It is safe for concurrent use.
func Resolve(ctx context.Context, open func(bucket string) objects.Getter, detail []byte) ([]byte, error) {
	var reference struct {
		ClaimCheck *Reference `json:"claimCheck"`
	}
	if err := json.Unmarshal(payment.WithoutBOM(detail), &reference); err != nil {
		return nil, fmt.Errorf("claim check: detail: %w", err)
	}
	if reference.ClaimCheck == nil {
		return detail, nil
	}
	return get(ctx, open(reference.ClaimCheck.Bucket), *reference.ClaimCheck)
}

// FindLargeEvent returns the content of an eventId in a bucket for which is returns true, with its key, and nil if
// there is none. It needs no reference: it reads what [LargeEvents] have stored. It is safe for concurrent use.
func FindLargeEvent(ctx context.Context, bucket interface {
	objects.Lister
	objects.Getter
}, eventID string, is func(event []byte) bool) (key string, event []byte, err error) {
	for object, err := range objects.All(ctx, bucket, folder(eventID), "") {
		if err != nil {
			return "", nil, fmt.Errorf("claim check: list: %w", err)
		}
		event, err := get(ctx, bucket, Reference{Key: object.Key, Size: object.Size,
			SHA256: strings.TrimSuffix(strings.TrimPrefix(object.Key, folder(eventID)), ".json")})
		if err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrAltered) {
			return "", nil, err
		}
		if err == nil && is(event) {
			return object.Key, event, nil
		}
	}
	return "", nil, nil
}

// get returns the event of a reference.
func get(ctx context.Context, bucket objects.Getter, ref Reference) ([]byte, error) {
	event, err := bucket.Get(ctx, ref.Key, max(ref.Size, 0))
	if errors.Is(err, objects.ErrNotFound) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("claim check: get: %w", err)
	}
	if sum := sha256.Sum256(event); len(event) != ref.Size || hex.EncodeToString(sum[:]) != ref.SHA256 {
		return nil, ErrAltered
	}
	return event, nil
}
