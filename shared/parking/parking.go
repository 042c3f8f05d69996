// Package parking stores deliveries and events that are authentic but cannot be
// published, together with their proof. A person inspects them later and replays
// or dismisses them. What is stored this way is called parked. A [Capturer] stores
// webhooks that were not found authentic.
//
// It guarantees that the signature of a parked delivery can be verified later
// without the service: payload, timestamp, key id, signature and key are stored
// together. The name of an object depends on its content, so parking the same
// content again writes nothing. Objects are listed in the order of their times,
// and can be found by deliveryId and by the eventIds concerned.
//
// The proof shows that the holder of the private key of the stored JWK signed the
// payload. It does not show whose key this is: any principal that can write to the
// prefix parked/ of the bucket can store its own key. Therefore only the functions
// that verify webhooks must have this permission.
//
// A delivery that was authenticated by mTLS alone has no signature. The payload's
// digest, the chain of the client certificate and the time of acceptance are stored
// with it. They show which certificate the webhook function accepted and whether it
// was valid at that time. They do not prove that the client sent this payload: for
// this, a reader relies on the permissions of the bucket.
package parking

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"

	"payhook.example/shared/evidence"
	"payhook.example/shared/payment"
)

// Reason is the reason why a delivery or an event is parked.
type Reason string

// The reasons.
const (
	Invalid       Reason = "invalid"       // authentic, without identity: the delivery, or some of its events
	Conflict      Reason = "conflict"      // contains an eventId that was recorded before with different content
	Unpublishable Reason = "unpublishable" // an event that EventBridge rejects, or that failed too often
)

// Parked is a parked delivery, or one parked event of a delivery.
type Parked struct {
	Reason   Reason    `json:"reason"`
	Cause    string    `json:"cause,omitempty"` // as in events[3].eventId: must be a UUID
	ParkedAt time.Time `json:"parkedAt"`

	DeliveryID string `json:"deliveryId,omitempty"` // "" if it could not be read
	// EventIDs are those of the events at Positions or in conflict, or all ids that could be read.
	EventIDs []string `json:"eventIds,omitempty"`
	// Positions are those of the events without identity, of an invalid delivery whose other events were
	// published: from 0, at most the first 1000.
	Positions []int `json:"positions,omitempty"`
	// EventDigests are the digests of the events in conflict, in the order of
	// EventIDs. They identify the contents that are parked. It is empty for other
	// reasons.
	EventDigests [][]byte `json:"eventDigests,omitempty"`

	evidence.Proof // of a delivery; zero for an event

	// An event that the ledger had recorded; absent for a delivery.
	Event      []byte    `json:"event,omitempty"`
	Digest     []byte    `json:"digest,omitempty"` // as in the ledger
	Claimed    bool      `json:"claimed,omitzero"` // the event is a claim check
	RecordedAt time.Time `json:"recordedAt,omitzero"`
	Attempts   int       `json:"attempts,omitzero"`
}

// API is the part of the S3 client that a [Store] uses.
type API interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// Store stores parked deliveries and events in a bucket. It is safe for concurrent
// use.
//
// The objects of the bucket are:
//
//	parked/2026/01/31/12/20260131T120000.123Z-conflict-DIGEST.json   a parked delivery or event
//	delivery/DELIVERYID/…                                            empty, for each deliveryId
//	event/EVENTID/…                                                  empty, for each eventId
//	replayed/…                                                       a note, after it was replayed
//	replayed/captured-…                                              a note, after a [Captured] was replayed
//	dismissed/…                                                        a note, after it was dismissed
//	captured/20260131T120000.123Z-signature-missing-RANDOM.json      a [Captured], with its outcome
//
// where … is the key of the first without its prefix and with dashes for slashes.
// The time in a name is that of the signed timestamp of a delivery, or that at which
// the event was recorded. For a delivery without a signature, it is the time of the
// latest event. It is 1970 if the time cannot be read. DIGEST is the digest of the
// content.
type Store struct {
	client API
	bucket string
}

// NewStore returns a Store that uses the bucket of that name.
func NewStore(client API, bucket string) *Store { return &Store{client, bucket} }

// Keep stores the record of an accepted delivery under its key, unless it is stored already. It
// returns nil once S3 has acknowledged it, now or before. The bucket locks its objects.
func (s *Store) Keep(ctx context.Context, r evidence.Record) error {
	text, err := r.Encode()
	if err != nil {
		return err
	}
	_, err = s.create(ctx, r.Key(), text)
	return err
}

// maxIndexed is the maximum number of index objects of a parked delivery or event.
const maxIndexed = 1000

// Park stores p and returns its name. The name depends only on the content: reason,
// payload, proof and eventIds of a delivery, where the fingerprint represents a
// certificate; id, digest and recordedAt of an event.
//
// If the same content is parked already, Park writes nothing and returns the same
// name and true, also if an earlier call wrote it and returned an error. It returns
// false if an earlier attempt of the same call can have written the object. For this,
// client must repeat no request with If-None-Match below the SDK (package aws/client). It
// writes the index first, so every parked object can be found.
func (s *Store) Park(ctx context.Context, p Parked) (name string, before bool, err error) {
	name = nameOf(p)
	text, err := json.Marshal(p)
	if err != nil {
		return "", false, fmt.Errorf("parking: %w", err)
	}
	g, indexing := errgroup.WithContext(ctx)
	g.SetLimit(64)
	indexed := 0
	index := func(kind, id string) {
		if !payment.IsUUID(id) || indexed == maxIndexed {
			return
		}
		indexed++
		g.Go(func() error {
			_, err := s.create(indexing, kind+strings.ToLower(id)+"/"+flat(name), nil)
			return err
		})
	}
	index("delivery/", p.DeliveryID)
	for _, id := range p.EventIDs {
		index("event/", id)
	}
	if err = g.Wait(); err == nil {
		before, err = s.create(ctx, "parked/"+name, text)
	}
	if err != nil {
		return "", false, err
	}
	return name, before, nil
}

// nameOf returns the name of p.
func nameOf(p Parked) string {
	at := p.SentAt()
	if p.Event != nil {
		at = p.RecordedAt
	}
	path := evidence.Path(at)
	fields := [][]byte{[]byte(path), []byte(p.Reason), p.Proof.Digest(), p.Digest}
	for _, id := range slices.Sorted(slices.Values(p.EventIDs)) {
		fields = append(fields, []byte(id))
	}
	fields = append(fields, slices.SortedFunc(slices.Values(p.EventDigests), bytes.Compare)...)
	return fmt.Sprintf("%s-%s-%x.json", path, p.Reason, evidence.Digest(fields...)[:16])
}

// timeFormat is the format of the time in a name.
const timeFormat = "20060102T150405.000Z"

func flat(name string) string   { return strings.ReplaceAll(name, "/", "-") }
func unflat(name string) string { return strings.Replace(name, "-", "/", 4) }

// create writes an object unless the key exists. It reports whether the key exists,
// but false if an earlier attempt, whose response was lost, can have written it.
//
// S3 answers 409 if another write of the key is in progress; the upload must then be
// retried (AWS, "PutObject" in the S3 API reference).
func (s *Store) create(ctx context.Context, key string, body []byte) (exists bool, err error) {
	sum := sha256.Sum256(body)
	var retried atomic.Bool
	_, err = s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:         &s.bucket,
		Key:            &key,
		Body:           bytes.NewReader(body),
		ContentType:    aws.String("application/json"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
		IfNoneMatch:    aws.String("*"),
	}, func(o *s3.Options) {
		o.Retryer = observedRetryer{retry.AddWithErrorCodes(o.Retryer, "ConditionalRequestConflict"), &retried}
	})
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "PreconditionFailed" {
		return !retried.Load(), nil
	}
	if err != nil {
		return false, failed{"put", err}
	}
	return false, nil
}

// failed is a failed call of S3. Its text has no message of AWS, which can name accounts and resources.
type failed struct {
	what string
	err  error
}

func (f failed) Error() string {
	if api, ok := errors.AsType[smithy.APIError](f.err); ok {
		return "parking: " + f.what + ": " + api.ErrorCode()
	}
	if _, called := errors.AsType[*smithy.OperationError](f.err); called {
		return "parking: " + f.what + ": no answer"
	}
	return "parking: " + f.what + ": " + f.err.Error()
}

func (f failed) Unwrap() error { return f.err }

// observedRetryer records whether a request was retried.
type observedRetryer struct {
	aws.Retryer
	retried *atomic.Bool
}

func (r observedRetryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	r.retried.Store(true)
	return r.Retryer.RetryDelay(attempt, err)
}

// ErrNotParked is returned when no parked object has the name.
var ErrNotParked = errors.New("parking: no parked object has this name")

// Get returns the parked delivery or event of that name, or [ErrNotParked].
func (s *Store) Get(ctx context.Context, name string) (p Parked, err error) {
	err = s.read(ctx, "parked/"+name, &p, ErrNotParked)
	return p, err
}

// read decodes an object into a value; if there is none, it returns missing.
func (s *Store) read(ctx context.Context, key string, into any, missing error) error {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if _, ok := errors.AsType[*types.NoSuchKey](err); ok {
		return missing
	}
	if err != nil {
		return failed{"get", err}
	}
	defer out.Body.Close()
	if err := json.UnmarshalRead(out.Body, into); err != nil {
		return fmt.Errorf("parking: %s: %w", key, err)
	}
	return nil
}

// State is the decision of a person about a parked delivery or event.
type State string

// The states.
const (
	Open      State = "open"      // not decided
	Replayed  State = "replayed"  // it was replayed and accepted
	Dismissed State = "dismissed" // it needs no replay
)

// Note records who decided about a parked delivery or event, when, and why.
type Note struct {
	By      string    `json:"by,omitempty"` // the name that the caller of the redrive function passed
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"`
	Version string    `json:"version,omitempty"` // of a conflict
	// AgeAccepted is whether a captured webhook was replayed although it is too old by now.
	AgeAccepted bool `json:"ageAccepted,omitzero"`
}

// MarkReplayed records that the parked delivery or event was replayed. It changes
// nothing if this is recorded already.
func (s *Store) MarkReplayed(ctx context.Context, name string, n Note) error {
	return s.note(ctx, Replayed, name, n)
}

// Dismiss records that the parked delivery or event needs no replay. It changes
// nothing if this is recorded already.
func (s *Store) Dismiss(ctx context.Context, name string, n Note) error {
	return s.note(ctx, Dismissed, name, n)
}

func (s *Store) note(ctx context.Context, state State, name string, n Note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("parking: %w", err)
	}
	_, err = s.create(ctx, string(state)+"/"+flat(name), text)
	return err
}

// States returns the names that are not open, with their states. A name that was
// both dismissed and replayed is replayed.
func (s *Store) States(ctx context.Context) (map[string]State, error) {
	states := map[string]State{}
	for _, state := range []State{Dismissed, Replayed} {
		err := s.list(ctx, string(state)+"/", "", func(name string) bool {
			states[unflat(name)] = state
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

// CountOpen returns the number of parked deliveries and events that are neither replayed
// nor dismissed.
func (s *Store) CountOpen(ctx context.Context) (int, error) {
	decided, err := s.States(ctx)
	if err != nil {
		return 0, err
	}
	open := 0
	// What the retention has deleted is not open, although its note remains.
	err = s.list(ctx, "parked/", "", func(name string) bool {
		if _, ok := decided[name]; !ok {
			open++
		}
		return true
	})
	return open, err
}

// Decision returns the state of a name, and its note unless the state is open.
func (s *Store) Decision(ctx context.Context, name string) (State, Note, error) {
	for _, state := range []State{Replayed, Dismissed} {
		var n Note
		switch err := s.read(ctx, string(state)+"/"+flat(name), &n, ErrNotParked); {
		case err == nil:
			return state, n, nil
		case !errors.Is(err, ErrNotParked):
			return "", Note{}, err
		}
	}
	return Open, Note{}, nil
}

// List calls found with each name whose time is not before from and before until,
// in the order of these times. It stops when found returns false. A zero until
// means no end.
func (s *Store) List(ctx context.Context, from, until time.Time, found func(name string) bool) error {
	return s.list(ctx, "parked/", from.UTC().Format("2006/01/02/15/"+timeFormat), func(name string) bool {
		at, err := TimeOf(name)
		if err == nil && !until.IsZero() && !at.Before(until) {
			return false
		}
		return found(name)
	})
}

// FindDelivery returns the names of the parked deliveries with that deliveryId.
func (s *Store) FindDelivery(ctx context.Context, id string) ([]string, error) {
	return s.find(ctx, "delivery/"+strings.ToLower(id)+"/")
}

// FindEvent returns the names of the parked deliveries and events that concern an eventId.
func (s *Store) FindEvent(ctx context.Context, id string) ([]string, error) {
	return s.find(ctx, "event/"+strings.ToLower(id)+"/")
}

func (s *Store) find(ctx context.Context, prefix string) (names []string, err error) {
	err = s.list(ctx, prefix, "", func(name string) bool {
		names = append(names, unflat(name))
		return true
	})
	return names, err
}

// Concerned returns the names of all parked deliveries by their deliveryIds and, of all parked deliveries and
// events, by the eventIds that they concern. The ids are in lower case.
func (s *Store) Concerned(ctx context.Context) (byID map[string][]string, err error) {
	parked := map[string]bool{} // the index is written first: what it names may have failed to be parked
	if err := s.List(ctx, time.Time{}, time.Time{}, func(name string) bool {
		parked[name] = true
		return true
	}); err != nil {
		return nil, err
	}
	byID = map[string][]string{}
	for _, kind := range []string{"delivery/", "event/"} {
		if err := s.list(ctx, kind, "", func(rest string) bool {
			id, name, _ := strings.Cut(rest, "/")
			if name = unflat(name); parked[name] {
				byID[id] = append(byID[id], name)
			}
			return true
		}); err != nil {
			return nil, err
		}
	}
	return byID, nil
}

// list calls found with the rest of each key that starts with a prefix, for the rests
// after the one given, until found returns false.
func (s *Store) list(ctx context.Context, prefix, after string, found func(name string) bool) error {
	// Without after, this is the prefix itself, which is no key.
	pages := s3.NewListObjectsV2Paginator(s.client,
		&s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &prefix, StartAfter: aws.String(prefix + after)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return failed{"list", err}
		}
		for _, object := range out.Contents {
			if !found(strings.TrimPrefix(aws.ToString(object.Key), prefix)) {
				return nil
			}
		}
	}
	return nil
}

// TimeOf returns the time in a name. [Store] describes it.
func TimeOf(name string) (time.Time, error) {
	base := name[strings.LastIndex(name, "/")+1:]
	stamp, _, _ := strings.Cut(base, "-")
	return time.Parse(timeFormat, stamp)
}
