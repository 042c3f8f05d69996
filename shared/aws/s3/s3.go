// Package s3 has the stores of package objects in Amazon S3.
package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	awsclient "payhook.example/shared/aws/client"
	"payhook.example/shared/bus"
	"payhook.example/shared/objects"
)

// Client calls S3. It has all of the interfaces of this package.
type Client = s3.Client

// NewClient returns a client with that configuration. The host name of an endpoint other than AWS rarely resolves with
// the name of a bucket in front.
func NewClient(cfg aws.Config) *Client {
	return s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = cfg.BaseEndpoint != nil })
}

// PutAPI writes objects.
type PutAPI interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

// GetAPI reads objects.
type GetAPI interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
}

// ListAPI lists objects.
type ListAPI interface {
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// API writes, reads and lists objects.
type API interface {
	PutAPI
	GetAPI
	ListAPI
}

// Bucket is an [objects.Store] in a bucket. It is safe for concurrent use.
type Bucket struct {
	Reader
	client API
}

// NewBucket returns the bucket of that name.
func NewBucket(client API, bucket string) Bucket { return Bucket{NewReader(client, bucket), client} }

// Put implements [objects.Putter]. S3 rejects an upload whose content has another SHA-256
// (AWS, "Checking object integrity for data uploads in Amazon S3", in the S3 user guide). The content type is
// application/json. The only permission that Put and Create need is s3:PutObject.
func (b Bucket) Put(ctx context.Context, key string, body []byte) error {
	return awsclient.ErrorOf("S3 PutObject", b.put(ctx, key, body, nil, func(*s3.Options) {}))
}

// Create implements [objects.Creator]. For this, client must repeat no request with If-None-Match below the SDK.
//
// S3 answers 409 if another write of the key is in progress; the upload must then be
// retried (AWS, "PutObject" in the S3 API reference).
func (b Bucket) Create(ctx context.Context, key string, body []byte) (existed bool, err error) {
	var retried atomic.Bool
	err = b.put(ctx, key, body, aws.String("*"), func(o *s3.Options) {
		o.Retryer = observedRetryer{retry.AddWithErrorCodes(o.Retryer, "ConditionalRequestConflict"), &retried}
	})
	if awsclient.Code(err) == "PreconditionFailed" {
		return !retried.Load(), nil
	}
	return false, awsclient.ErrorOf("S3 PutObject", err)
}

func (b Bucket) put(ctx context.Context, key string, body []byte, ifNoneMatch *string,
	options func(*s3.Options)) error {
	sum := sha256.Sum256(body)
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:         &b.bucket,
		Key:            &key,
		Body:           bytes.NewReader(body),
		ContentType:    aws.String("application/json"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
		IfNoneMatch:    ifNoneMatch,
	}, s3.WithAPIOptions(signedPayload(hex.EncodeToString(sum[:]))), options)
	return err
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

// observedRetryer records whether a request was retried.
type observedRetryer struct {
	aws.Retryer
	retried *atomic.Bool
}

func (r observedRetryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	r.retried.Store(true)
	return r.Retryer.RetryDelay(attempt, err)
}

// Reader is an [objects.Getter]. It is safe for concurrent use.
type Reader struct {
	client GetAPI
	bucket string
}

// NewReader returns what reads from the bucket of that name. The only permission that it needs is s3:GetObject, and
// s3:ListBucket to distinguish a missing object.
func NewReader(client GetAPI, bucket string) Reader { return Reader{client, bucket} }

// Get implements [objects.Getter].
func (r Reader) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	out, err := r.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &r.bucket, Key: &key})
	if _, ok := errors.AsType[*types.NoSuchKey](err); ok {
		return nil, objects.ErrNotFound
	}
	err = awsclient.ErrorOf("S3 GetObject", err)
	if awsclient.Code(err) == "AccessDenied" {
		return nil, fmt.Errorf("%w: %w", objects.ErrDenied, err)
	}
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	body, err := io.ReadAll(io.LimitReader(out.Body, min(int64(limit), math.MaxInt64-1)+1))
	if err != nil {
		return nil, awsclient.ErrorOf("S3 GetObject", err)
	}
	return body, nil
}

// List implements [objects.Lister]. The only permission that it needs is s3:ListBucket.
func (b Bucket) List(ctx context.Context, prefix, after string, limit int) (page []objects.Object, more bool,
	err error) {
	in := &s3.ListObjectsV2Input{Bucket: &b.bucket, Prefix: &prefix, MaxKeys: aws.Int32(int32(limit)),
		EncodingType: types.EncodingTypeUrl}
	if after != "" {
		in.StartAfter = &after
	}
	pages := s3.NewListObjectsV2Paginator(b.client, in)
	// An answer can be empty and have more pages: only its token leads to them.
	for len(page) == 0 && pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, false, awsclient.ErrorOf("S3 ListObjectsV2", err)
		}
		for _, o := range out.Contents {
			DecodeKeys(out.EncodingType, o.Key)
			page = append(page, objects.Object{Key: aws.ToString(o.Key), Size: int(aws.ToInt64(o.Size)),
				StoredAt: aws.ToTime(o.LastModified)})
		}
	}
	return page, pages.HasMorePages(), nil
}

// DecodeKeys decodes keys of a list in place. A key can have characters that XML cannot, so a list asks S3 to encode
// keys, and the answer says whether they are encoded (AWS, "ListObjectsV2" in the S3 API reference).
func DecodeKeys(encoding types.EncodingType, keys ...*string) {
	for _, key := range keys {
		if text, err := url.QueryUnescape(aws.ToString(key)); err == nil && key != nil && encoding != "" {
			*key = text
		}
	}
}

// Resolve returns the event that the detail of an event on the bus refers to ([bus.Resolve]). A consumer calls
// it with every detail. It needs s3:GetObject on the objects, and s3:ListBucket to distinguish a missing event.
func Resolve(ctx context.Context, client GetAPI, detail []byte) ([]byte, error) {
	return bus.Resolve(ctx, func(bucket string) objects.Getter { return NewReader(client, bucket) }, detail)
}
