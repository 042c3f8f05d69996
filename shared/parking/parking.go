// Package parking keeps what is authentic and can't be published, whole and
// with what proves it, for a person to look at and to replay.
//
// It guarantees that what was parked can be proved authentic later, without the
// service: payload, timestamp, key id, signature and the key are kept together.
// Objects are named so that listing them lists them by time, and each can be
// found by its deliveryId and by the eventIds that it is about.
package parking

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"payhook/shared/uuid"
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

	// What proves a delivery; absent for one event.
	Payload   []byte         `json:"payload,omitempty"` // as it was signed
	Timestamp string         `json:"timestamp,omitempty"`
	KeyID     string         `json:"keyId,omitempty"`
	Signature string         `json:"signature,omitempty"`
	JWK       jsontext.Value `json:"jwk,omitzero"`

	// One event, which the ledger had accepted; absent for a delivery.
	Event      []byte    `json:"event,omitempty"`
	Digest     []byte    `json:"digest,omitempty"` // as the ledger has it
	Claimed    bool      `json:"claimed,omitzero"` // the event is a claim check
	RecordedAt time.Time `json:"recordedAt,omitzero"`
	Attempts   int       `json:"attempts,omitzero"`
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
//	parked/2026/01/31/12/20260131T120000.123Z-conflict-RANDOM.json   what was parked
//	delivery/DELIVERYID/…                                            empty, for each deliveryId
//	event/EVENTID/…                                                  empty, for each eventId
//	replayed/…                                                       empty, once it was replayed
//
// where … is the name of the first without its prefix, slashes as dashes.
type Lot struct {
	client API
	bucket string
}

// NewLot returns the lot in the bucket of that name.
func NewLot(client API, bucket string) *Lot { return &Lot{client, bucket} }

// maxIndexed bounds the index objects of one parked thing.
const maxIndexed = 1000

// Park keeps p and returns its name. The index comes first: what is parked can
// be found.
func (l *Lot) Park(ctx context.Context, p Parked) (string, error) {
	at := p.ParkedAt.UTC()
	base := at.Format("20060102T150405.000Z") + "-" + string(p.Reason) + "-" + uuid.New()[:8] + ".json"
	name := at.Format("2006/01/02/15/") + base
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("parking: %w", err)
	}
	index := []string{}
	if uuid.Valid(p.DeliveryID) {
		index = append(index, "delivery/"+strings.ToLower(p.DeliveryID)+"/"+flat(name))
	}
	for _, id := range p.EventIDs {
		if uuid.Valid(id) && len(index) < maxIndexed {
			index = append(index, "event/"+strings.ToLower(id)+"/"+flat(name))
		}
	}
	g, indexing := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for _, key := range index {
		g.Go(func() error { return l.put(indexing, key, nil) })
	}
	if err := g.Wait(); err != nil {
		return "", err
	}
	if err := l.put(ctx, "parked/"+name, text); err != nil {
		return "", err
	}
	return name, nil
}

func flat(name string) string   { return strings.ReplaceAll(name, "/", "-") }
func unflat(name string) string { return strings.Replace(name, "-", "/", 4) }

func (l *Lot) put(ctx context.Context, key string, body []byte) error {
	sum := sha256.Sum256(body)
	_, err := l.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:         &l.bucket,
		Key:            &key,
		Body:           bytes.NewReader(body),
		ContentType:    aws.String("application/json"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	})
	if err != nil {
		return fmt.Errorf("parking: put: %w", err)
	}
	return nil
}

// ErrNotParked: nothing of that name is parked.
var ErrNotParked = errors.New("parking: nothing of that name")

// Get returns what is parked under a name.
func (l *Lot) Get(ctx context.Context, name string) (Parked, error) {
	out, err := l.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &l.bucket, Key: aws.String("parked/" + name)})
	var missing *types.NoSuchKey
	if errors.As(err, &missing) {
		return Parked{}, ErrNotParked
	}
	if err != nil {
		return Parked{}, fmt.Errorf("parking: get: %w", err)
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	if err != nil {
		return Parked{}, fmt.Errorf("parking: get: %w", err)
	}
	var p Parked
	if err := json.Unmarshal(text, &p); err != nil {
		return Parked{}, fmt.Errorf("parking: %s: %w", name, err)
	}
	return p, nil
}

// MarkReplayed writes down that what is parked under a name was replayed. It
// stays where it is.
func (l *Lot) MarkReplayed(ctx context.Context, name string) error {
	return l.put(ctx, "replayed/"+flat(name), nil)
}

// Replayed returns the names of all that was replayed.
func (l *Lot) Replayed(ctx context.Context) (map[string]bool, error) {
	names := map[string]bool{}
	err := l.list(ctx, "replayed/", "", func(name string) bool {
		names[unflat(name)] = true
		return true
	})
	return names, err
}

// List calls found with the name of everything that was parked from a time on
// and before another, the first first, until found reports false. A zero until
// is the end of time.
func (l *Lot) List(ctx context.Context, from, until time.Time, found func(name string) bool) error {
	return l.list(ctx, "parked/", "parked/"+from.UTC().Format("2006/01/02/15/20060102T150405.000Z"), func(name string) bool {
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

// TimeOf returns when what has that name was parked.
func TimeOf(name string) (time.Time, error) {
	base := name[strings.LastIndex(name, "/")+1:]
	stamp, _, _ := strings.Cut(base, "-")
	return time.Parse("20060102T150405.000Z", stamp)
}
