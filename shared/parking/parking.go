// Package parking keeps what is authentic and can't be published, whole and
// with what proves it, for a person to look at and to replay.
//
// It guarantees that a signed delivery that was parked can be proved authentic later,
// without the service: payload, timestamp, key id, signature and the key are kept
// together. Names are derived from the content: parking the same thing again writes
// nothing. Listing objects lists them by time, and each can be found by its
// deliveryId and by the eventIds that it is about.
//
// The proof shows that the holder of the private key of the stored JWK signed the
// payload. It does not show whose key that is: whoever can write objects to the
// prefix parked/ of the bucket can store a key of his own. So only the functions
// that verify webhooks may write there.
//
// A delivery by mTLS alone has no signature. Its payload's digest, the chain of its
// client certificate and the time of acceptance are kept with it, and show which
// certificate the webhook function accepted and whether that was valid then. That the
// client sent this payload can't be proved: it rests on who may write to the bucket.
package parking

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"encoding/json/jsontext"
	"encoding/json/v2"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"

	"payhook.example/shared/rfc9562"
	"payhook.example/shared/signature"
)

// Reason is why something was parked.
type Reason string

// The reasons.
const (
	Invalid       Reason = "invalid"       // authentic, and not a delivery of section 2.2 of the interface
	Conflict      Reason = "conflict"      // holds an eventId that was seen before with other content
	Unpublishable Reason = "unpublishable" // an event that redrive could not publish, again and again
)

// Parked is a delivery, or one event of one, that is kept aside.
type Parked struct {
	Reason   Reason    `json:"reason"`
	Cause    string    `json:"cause,omitempty"` // as in events[3].eventId: must be a UUID
	ParkedAt time.Time `json:"parkedAt"`

	DeliveryID string   `json:"deliveryId,omitempty"` // "" if it could not be read
	EventIDs   []string `json:"eventIds,omitempty"`   // what it is about: those in conflict, or all that could be read
	// EventDigests are the digests of the events in conflict, in the order of
	// EventIDs: which contents of the payload are parked. Otherwise there are none.
	EventDigests [][]byte `json:"eventDigests,omitempty"`

	// What proves a delivery; absent for one event.
	Payload   []byte         `json:"payload,omitempty"` // as it was signed
	Timestamp string         `json:"timestamp,omitempty"`
	KeyID     string         `json:"keyId,omitempty"`
	Signature string         `json:"signature,omitempty"`
	JWK       jsontext.Value `json:"jwk,omitzero"`
	// Certificate is nil where no client certificate was required. Without a
	// signature, it is all the proof that there is.
	Certificate *Certificate `json:"certificate,omitempty"`
	// SentAt is the time that the name tells where there is no signed timestamp: that
	// of the delivery's latest event.
	SentAt time.Time `json:"sentAt,omitzero"`

	// One event, which the ledger had accepted; absent for a delivery.
	Event      []byte    `json:"event,omitempty"`
	Digest     []byte    `json:"digest,omitempty"` // as the ledger has it
	Claimed    bool      `json:"claimed,omitzero"` // the event is a claim check
	RecordedAt time.Time `json:"recordedAt,omitzero"`
	Attempts   int       `json:"attempts,omitzero"`
}

// Certificate is the client certificate that a delivery came with, and what it came
// with. It is no signature: anybody who has the certificate, which is public, can
// write it beside another payload.
type Certificate struct {
	PayloadDigest []byte    `json:"payloadDigest"` // SHA-256
	Chain         []string  `json:"chain"`         // in PEM, from the client's certificate to its root
	Fingerprint   string    `json:"fingerprint"`   // of the client's certificate: SHA-256 in hexadecimal
	AcceptedAt    time.Time `json:"acceptedAt"`    // when it was verified
}

// API is what of S3 parking needs.
type API interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// Lot is the bucket that things are parked in. It is safe for concurrent use.
//
// Its objects:
//
//	parked/2026/01/31/12/20260131T120000.123Z-conflict-DIGEST.json   what was parked
//	delivery/DELIVERYID/…                                            empty, for each deliveryId
//	event/EVENTID/…                                                  empty, for each eventId
//	replayed/…                                                       a note, once it was replayed
//	settled/…                                                        a note, once it was settled
//
// where … is the name of the first without its prefix, slashes as dashes. The time
// in a name is when the delivery was signed, or the event recorded; for a delivery
// without a signature, it is that of its latest event; 1970 if it can't be read. DIGEST is that of the content.
type Lot struct {
	client API
	bucket string
}

// NewLot returns the lot in the bucket of that name.
func NewLot(client API, bucket string) *Lot { return &Lot{client, bucket} }

// maxIndexed bounds the index objects of one parked thing.
const maxIndexed = 1000

// Park stores p and returns its name, which depends on its content alone: reason,
// payload, proof and eventIds of a delivery, where the proof of a certificate is its
// fingerprint; id, digest and recordedAt of an
// event. Parking the same content again writes nothing and reports true, with
// the same name. It reports false if an earlier try of the same call may have
// written it. The index is written first: what is parked can be found.
func (l *Lot) Park(ctx context.Context, p Parked) (name string, before bool, err error) {
	name = nameOf(p)
	text, err := json.Marshal(p)
	if err != nil {
		return "", false, fmt.Errorf("parking: %w", err)
	}
	index := []string{}
	if rfc9562.Valid(p.DeliveryID) {
		index = append(index, "delivery/"+strings.ToLower(p.DeliveryID)+"/"+flat(name))
	}
	for _, id := range p.EventIDs {
		if rfc9562.Valid(id) && len(index) < maxIndexed {
			index = append(index, "event/"+strings.ToLower(id)+"/"+flat(name))
		}
	}
	g, indexing := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for _, key := range index {
		g.Go(func() error {
			_, err := l.create(indexing, key, nil)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return "", false, err
	}
	if before, err = l.create(ctx, "parked/"+name, text); err != nil {
		return "", false, err
	}
	return name, before, nil
}

// nameOf returns the name under which p is parked.
func nameOf(p Parked) string {
	at := p.RecordedAt
	switch {
	case p.Event != nil:
	case p.Signature == "" && p.Certificate != nil:
		at = p.SentAt
	default:
		at, _ = signature.TimeOf(p.Timestamp)
	}
	if at = at.UTC(); at.Year() < 1970 || at.Year() > 9999 {
		at = time.Unix(0, 0).UTC()
	}
	h := sha256.New()
	add := func(field []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		h.Write(field)
	}
	for _, field := range []string{string(p.Reason), p.Timestamp, p.KeyID, p.Signature} {
		add([]byte(field))
	}
	add(p.Payload)
	add(p.Digest)
	add([]byte(at.Format(time.RFC3339Nano)))
	for _, id := range slices.Sorted(slices.Values(p.EventIDs)) {
		add([]byte(id))
	}
	for _, digest := range slices.SortedFunc(slices.Values(p.EventDigests), bytes.Compare) {
		add(digest)
	}
	if p.Certificate != nil {
		add([]byte(p.Certificate.Fingerprint))
	}
	base := at.Format(timeFormat) + "-" + string(p.Reason) + "-" + hex.EncodeToString(h.Sum(nil)[:16]) + ".json"
	return at.Format("2006/01/02/15/") + base
}

// timeFormat is how names tell the time.
const timeFormat = "20060102T150405.000Z"

func flat(name string) string   { return strings.ReplaceAll(name, "/", "-") }
func unflat(name string) string { return strings.Replace(name, "-", "/", 4) }

// create writes an object unless one of that key exists, which it reports. It
// reports false if an earlier try, whose answer was lost, may have written it.
//
// If another write of the key is under way, S3 answers 409, after which the
// upload has to be tried again (AWS, "PutObject" in the S3 API reference).
func (l *Lot) create(ctx context.Context, key string, body []byte) (exists bool, err error) {
	sum := sha256.Sum256(body)
	var retried atomic.Bool
	_, err = l.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:         &l.bucket,
		Key:            &key,
		Body:           bytes.NewReader(body),
		ContentType:    aws.String("application/json"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
		IfNoneMatch:    aws.String("*"),
	}, func(o *s3.Options) {
		o.Retryer = noting{retry.AddWithErrorCodes(o.Retryer, "ConditionalRequestConflict"), &retried}
	})
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "PreconditionFailed" {
		return !retried.Load(), nil
	}
	if err != nil {
		return false, fmt.Errorf("parking: put: %w", err)
	}
	return false, nil
}

// noting is a retryer that notes that it was asked for a second try.
type noting struct {
	aws.Retryer
	retried *atomic.Bool
}

func (n noting) RetryDelay(attempt int, err error) (time.Duration, error) {
	n.retried.Store(true)
	return n.Retryer.RetryDelay(attempt, err)
}

// ErrNotParked: nothing of that name is parked.
var ErrNotParked = errors.New("parking: nothing of that name")

// Get returns what is parked under a name.
func (l *Lot) Get(ctx context.Context, name string) (p Parked, err error) {
	text, err := l.get(ctx, "parked/"+name)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return Parked{}, fmt.Errorf("parking: %s: %w", name, err)
	}
	return p, nil
}

func (l *Lot) get(ctx context.Context, key string) ([]byte, error) {
	out, err := l.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &l.bucket, Key: &key})
	var missing *types.NoSuchKey
	if errors.As(err, &missing) {
		return nil, ErrNotParked
	}
	if err != nil {
		return nil, fmt.Errorf("parking: get: %w", err)
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	if err != nil {
		return nil, fmt.Errorf("parking: get: %w", err)
	}
	return text, nil
}

// State is what a person has decided about something that is parked.
type State string

// The states.
const (
	Open     State = "open"     // nothing yet
	Replayed State = "replayed" // it was replayed and accepted
	Settled  State = "settled"  // it needs no replay
)

// Note says who decided about something that is parked, when, and why.
type Note struct {
	By      string    `json:"by,omitempty"` // as the caller of the redrive function names himself
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"`
	Version string    `json:"version,omitempty"` // of a conflict
}

// MarkReplayed stores that what is parked under a name was replayed. It changes
// nothing if that is stored already.
func (l *Lot) MarkReplayed(ctx context.Context, name string, n Note) error {
	return l.note(ctx, Replayed, name, n)
}

// Settle stores that what is parked under a name needs no replay. It changes
// nothing if that is stored already.
func (l *Lot) Settle(ctx context.Context, name string, n Note) error {
	return l.note(ctx, Settled, name, n)
}

func (l *Lot) note(ctx context.Context, state State, name string, n Note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("parking: %w", err)
	}
	_, err = l.create(ctx, string(state)+"/"+flat(name), text)
	return err
}

// States returns the states of all that is not open, by its name. What was both
// settled and replayed is replayed.
func (l *Lot) States(ctx context.Context) (map[string]State, error) {
	states := map[string]State{}
	for _, state := range []State{Settled, Replayed} {
		err := l.list(ctx, string(state)+"/", "", func(name string) bool {
			states[unflat(name)] = state
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

// Decision returns the state of what is parked under a name, and the note of it.
func (l *Lot) Decision(ctx context.Context, name string) (State, Note, error) {
	var n Note
	for _, state := range []State{Replayed, Settled} {
		text, err := l.get(ctx, string(state)+"/"+flat(name))
		if errors.Is(err, ErrNotParked) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		if err != nil {
			return "", n, err
		}
		return state, n, nil
	}
	return Open, n, nil
}

// List calls found with the name of everything whose name tells a time from one
// on and before another, in the order of these times, until found reports false.
// A zero until is the end of time.
func (l *Lot) List(ctx context.Context, from, until time.Time, found func(name string) bool) error {
	return l.list(ctx, "parked/", "parked/"+from.UTC().Format("2006/01/02/15/"+timeFormat), func(name string) bool {
		at, err := TimeOf(name)
		if err == nil && !until.IsZero() && !at.Before(until) {
			return false
		}
		return found(name)
	})
}

// FindDelivery returns the names under which a delivery is parked.
func (l *Lot) FindDelivery(ctx context.Context, id string) ([]string, error) {
	return l.find(ctx, "delivery/"+strings.ToLower(id)+"/")
}

// FindEvent returns the names under which something about an event is parked.
func (l *Lot) FindEvent(ctx context.Context, id string) ([]string, error) {
	return l.find(ctx, "event/"+strings.ToLower(id)+"/")
}

func (l *Lot) find(ctx context.Context, prefix string) (names []string, err error) {
	err = l.list(ctx, prefix, "", func(name string) bool {
		names = append(names, unflat(name))
		return true
	})
	return names, err
}

func (l *Lot) list(ctx context.Context, prefix, after string, found func(name string) bool) error {
	in := &s3.ListObjectsV2Input{Bucket: &l.bucket, Prefix: &prefix}
	if after != "" {
		in.StartAfter = &after
	}
	for {
		out, err := l.client.ListObjectsV2(ctx, in)
		if err != nil {
			return fmt.Errorf("parking: list: %w", err)
		}
		for _, object := range out.Contents {
			if !found(strings.TrimPrefix(aws.ToString(object.Key), prefix)) {
				return nil
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// TimeOf returns the time that a name tells: when the delivery was signed, or the
// event recorded.
func TimeOf(name string) (time.Time, error) {
	base := name[strings.LastIndex(name, "/")+1:]
	stamp, _, _ := strings.Cut(base, "-")
	return time.Parse(timeFormat, stamp)
}
