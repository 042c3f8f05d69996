// Package claimcheck keeps events that are too large for the bus in S3, and has
// the bus carry a reference (the claim check pattern).
//
// It guarantees that what a consumer gets by a reference is the event that was
// signed, byte for byte, or an error: [Resolve] checks size and digest.
//
// A consumer calls [Resolve] with every detail. Events that travel whole come
// back as they are.
package claimcheck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"encoding/json/v2"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"payhook.example/shared/payment"
)

// Reference says where an event is, and what it is.
type Reference struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	Size   int    `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // of the bytes, in hexadecimal
}

// Detail is the detail of an event that is in S3. The envelope around it is the
// one of every event: rules on source, detail-type and resources match alike.
type Detail struct {
	EventName      string    `json:"eventName"`
	EventID        string    `json:"eventId"`
	EventTimestamp time.Time `json:"eventTimestamp"`
	ClaimCheck     Reference `json:"claimCheck"`
}

// PutAPI is what of S3 the receiver needs.
type PutAPI interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

// GetAPI is what of S3 a consumer needs.
type GetAPI interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
}

// Store is the bucket that events are kept in. It is safe for concurrent use.
type Store struct {
	client PutAPI
	bucket string
}

// NewStore returns the store in the bucket of that name.
func NewStore(client PutAPI, bucket string) *Store { return &Store{client, bucket} }

// Put keeps an event and returns the detail that stands for it on the bus. The
// object is named by the event's id and digest, so that putting the same event
// twice leaves one object. S3 checks the digest of what arrives.
func (s *Store) Put(ctx context.Context, event payment.RawEvent) ([]byte, error) {
	sum := sha256.Sum256(event.Bytes)
	digest := hex.EncodeToString(sum[:])
	key := "events/" + event.EventID + "/" + digest + ".json"
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:         &s.bucket,
		Key:            &key,
		Body:           bytes.NewReader(event.Bytes),
		ContentType:    aws.String("application/json"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	})
	if err != nil {
		return nil, fmt.Errorf("claimcheck: put %s: %w", event.EventID, err)
	}
	detail, err := json.Marshal(Detail{
		EventName: event.EventName, EventID: event.EventID, EventTimestamp: event.EventTimestamp,
		ClaimCheck: Reference{Bucket: s.bucket, Key: key, Size: len(event.Bytes), SHA256: digest},
	})
	if err != nil {
		return nil, fmt.Errorf("claimcheck: %w", err)
	}
	return detail, nil
}

// The ways in which a reference fails.
var (
	// ErrGone is returned when the object does not exist, or no longer. S3 says so
	// only to callers that have s3:ListBucket on the bucket (AWS, "GetObject" in the
	// S3 API reference).
	ErrGone = errors.New("claimcheck: the event is not in the bucket")
	// ErrDenied is returned when S3 denies access. To callers without s3:ListBucket
	// on the bucket, it also denies access to an object that does not exist.
	ErrDenied = errors.New("claimcheck: S3 denies access to the event: it takes s3:GetObject on it, " +
		"and s3:ListBucket on the bucket to be told that an event is gone")
	// ErrAltered: the object is not the one that the reference was made for.
	ErrAltered = errors.New("claimcheck: the event is not the one that was referred to")
)

// Resolve returns the event that a detail is or stands for. It is safe for
// concurrent use.
func Resolve(ctx context.Context, client GetAPI, detail []byte) ([]byte, error) {
	var claim struct {
		ClaimCheck *Reference `json:"claimCheck"`
	}
	if err := json.Unmarshal(detail, &claim); err != nil {
		return nil, fmt.Errorf("claimcheck: detail: %w", err)
	}
	ref := claim.ClaimCheck
	if ref == nil {
		return detail, nil
	}
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &ref.Bucket, Key: &ref.Key})
	if err != nil {
		var missing *types.NoSuchKey
		if errors.As(err, &missing) {
			return nil, ErrGone
		}
		var api smithy.APIError
		if errors.As(err, &api) && api.ErrorCode() == "AccessDenied" {
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
