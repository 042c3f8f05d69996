// Package claimcheck stores events that are too large for the bus in S3; the bus
// then carries a reference (the claim check pattern).
//
// It guarantees that [Resolve] returns the event that was signed, byte for byte,
// or an error: it checks size and digest.
//
// A consumer calls [Resolve] with every detail. It returns a detail that is not a
// reference unchanged.
package claimcheck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"payhook.example/shared/payment"
)

// Reference is the location of an event, with its size and digest.
type Reference struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	Size   int    `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // of the bytes, in hexadecimal
}

// Detail is the detail of an event that is in S3. Its envelope is that of every
// event, so rules on source, detail-type and resources match it too. EventData
// contains the values of [payment.RawEvent.RoutingData] at the same paths as in the
// event, so rules on these fields match it too. It is not the event:
// [payment.DecodeEvent] rejects it.
type Detail struct {
	EventName      string         `json:"eventName"`
	EventID        string         `json:"eventId"`
	EventTimestamp string         `json:"eventTimestamp,omitzero"` // [payment.RawEvent.SentTimestamp]
	EventData      jsontext.Value `json:"eventData,omitzero"`
	ClaimCheck     Reference      `json:"claimCheck"`
}

// StoreAPI is the part of the S3 client that a [Store] uses.
type StoreAPI interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// GetAPI is the part of the S3 client that [Resolve] uses.
type GetAPI interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
}

// Store stores events in a bucket. It is safe for concurrent use.
type Store struct {
	client StoreAPI
	bucket string
}

// NewStore returns a Store that uses the bucket of that name.
func NewStore(client StoreAPI, bucket string) *Store { return &Store{client, bucket} }

// Put stores an event and returns the detail that refers to it. S3 rejects an upload whose
// content has another SHA-256 (AWS, "Checking object integrity for data uploads in Amazon S3",
// in the S3 user guide). The object's key consists of the event's id and digest, so storing
// the same event twice leaves one object.
func (s *Store) Put(ctx context.Context, event payment.RawEvent) ([]byte, error) {
	sum := sha256.Sum256(event.Bytes)
	digest := hex.EncodeToString(sum[:])
	key := folder(event.EventID) + digest + ".json"
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:         &s.bucket,
		Key:            &key,
		Body:           bytes.NewReader(event.Bytes),
		ContentType:    aws.String("application/json"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	}, s3.WithAPIOptions(signedPayload(digest)))
	if err != nil {
		return nil, fmt.Errorf("claimcheck: put %s: %w", event.EventID, err)
	}
	detail, err := json.Marshal(Detail{
		EventName: event.EventName, EventID: event.EventID, EventTimestamp: event.SentTimestamp,
		EventData:  event.RoutingData(),
		ClaimCheck: Reference{Bucket: s.bucket, Key: key, Size: len(event.Bytes), SHA256: digest},
	}, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, fmt.Errorf("claimcheck: %w", err)
	}
	return detail, nil
}

// folder returns what the keys of all contents of an event begin with. Case has no meaning in a UUID (RFC 9562,
// section 4).
func folder(eventID string) string { return "events/" + strings.ToLower(eventID) + "/" }

// Exists returns nil if the event that detail refers to is still stored, and [ErrGone] if it
// is not. It lists the key instead of requesting the object, so s3:ListBucket is enough:
// without it, S3 answers 403 to a HEAD of an object that does not exist (AWS, "HeadObject" in
// the S3 API reference), and with s3:GetObject the caller could read the event.
func (s *Store) Exists(ctx context.Context, detail []byte) error {
	var claim Detail
	if err := json.Unmarshal(detail, &claim); err != nil {
		return fmt.Errorf("claimcheck: detail: %w", err)
	}
	ref := claim.ClaimCheck
	// The key itself is the first of the keys that begin with it.
	out, err := s.client.ListObjectsV2(ctx,
		&s3.ListObjectsV2Input{Bucket: &ref.Bucket, Prefix: &ref.Key, MaxKeys: aws.Int32(1)})
	if err != nil {
		return fmt.Errorf("claimcheck: list: %w", err)
	}
	if len(out.Contents) == 0 || aws.ToString(out.Contents[0].Key) != ref.Key {
		return ErrGone
	}
	return nil
}

// signedPayload makes the signature of a request cover its body, whose SHA-256 is known.
// By default, the SDK leaves the body out over TLS, and otherwise computes the digest (AWS,
// "Authenticating Requests: Using the Authorization Header" in the S3 API reference).
func signedPayload(digest string) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("SignedPayload",
			func(ctx context.Context, in middleware.InitializeInput,
				next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				return next.HandleInitialize(v4.SetPayloadHash(ctx, digest), in)
			}), middleware.After)
	}
}

// The errors of a reference.
var (
	// ErrGone is returned when the object does not exist. S3 reports this only to
	// callers that have s3:ListBucket on the bucket (AWS, "GetObject" in the S3 API
	// reference).
	ErrGone = errors.New("claimcheck: the event is not in the bucket")
	// ErrDenied is returned when S3 denies access. To callers without s3:ListBucket
	// on the bucket, S3 also denies access to an object that does not exist.
	ErrDenied = errors.New("claimcheck: S3 denies access to the event: s3:GetObject on the object is required, " +
		"and s3:ListBucket on the bucket to distinguish a missing event")
	// ErrAltered is returned when the object has another size or digest than the
	// reference.
	ErrAltered = errors.New("claimcheck: the object is not the event of the reference")
)

// Resolve returns the event that detail refers to, or detail itself if it is not a
// reference. The errors of a reference wrap [ErrGone], [ErrDenied] or
// [ErrAltered]. It is safe for concurrent use.
func Resolve(ctx context.Context, client GetAPI, detail []byte) ([]byte, error) {
	var claim struct {
		ClaimCheck *Reference `json:"claimCheck"`
	}
	if err := json.Unmarshal(payment.WithoutBOM(detail), &claim); err != nil {
		return nil, fmt.Errorf("claimcheck: detail: %w", err)
	}
	if claim.ClaimCheck == nil {
		return detail, nil
	}
	return get(ctx, client, *claim.ClaimCheck)
}

// FindAPI is the part of the S3 client that [Find] uses.
type FindAPI interface {
	GetAPI
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// Find returns the content of an eventId in a bucket for which is returns true, and nil if there is none. It
// needs no reference: it reads what a [Store] has stored. It is safe for concurrent use.
func Find(ctx context.Context, client FindAPI, bucket, eventID string, is func(event []byte) bool) ([]byte, error) {
	pages := s3.NewListObjectsV2Paginator(client,
		&s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String(folder(eventID))})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("claimcheck: list: %w", err)
		}
		for _, object := range page.Contents {
			key := aws.ToString(object.Key)
			event, err := get(ctx, client, Reference{Bucket: bucket, Key: key, Size: int(aws.ToInt64(object.Size)),
				SHA256: strings.TrimSuffix(path.Base(key), ".json")})
			if err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrAltered) {
				return nil, err
			}
			if err == nil && is(event) {
				return event, nil
			}
		}
	}
	return nil, nil
}

// get returns the event of a reference.
func get(ctx context.Context, client GetAPI, ref Reference) ([]byte, error) {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &ref.Bucket, Key: &ref.Key})
	if err != nil {
		if _, ok := errors.AsType[*types.NoSuchKey](err); ok {
			return nil, ErrGone
		}
		if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "AccessDenied" {
			return nil, fmt.Errorf("%w: %w", ErrDenied, err)
		}
		return nil, fmt.Errorf("claimcheck: get: %w", err)
	}
	defer out.Body.Close()
	event, err := io.ReadAll(io.LimitReader(out.Body, int64(ref.Size)+1))
	if err != nil {
		return nil, fmt.Errorf("claimcheck: get: %w", err)
	}
	if sum := sha256.Sum256(event); len(event) != ref.Size || hex.EncodeToString(sum[:]) != ref.SHA256 {
		return nil, ErrAltered
	}
	return event, nil
}
