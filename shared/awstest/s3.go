package awstest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// S3 is an S3 in memory. It is safe for concurrent use; each operation is atomic, and an
// object can be read and listed immediately after it was written.
type S3 struct {
	// Fails, if set, is called before every operation. If it returns an error, the
	// operation fails with it.
	Fails func(operation, key string) error
	// DenyList means that the caller has no s3:ListBucket. A listing is denied, and so is
	// a request for a missing object, which is 404 for other callers (AWS, "GetObject" in
	// the S3 API reference).
	DenyList bool

	mu      sync.Mutex
	buckets map[string]map[string]object
	calls   map[string]int
}

type object struct {
	body        []byte
	contentType *string
	storedAt    time.Time
}

// NewS3 returns an S3 without buckets.
func NewS3() *S3 { return &S3{buckets: map[string]map[string]object{}, calls: map[string]int{}} }

// MakeBucket creates an empty bucket.
func (s *S3) MakeBucket(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[name] = map[string]object{}
}

// Objects returns a copy of a bucket's objects, by their keys.
func (s *S3) Objects(bucket string) map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects := map[string][]byte{}
	for key, o := range s.buckets[bucket] {
		objects[key] = slices.Clone(o.body)
	}
	return objects
}

// Calls returns the number of calls of an operation, including failed ones.
func (s *S3) Calls(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[operation]
}

// open counts a call and returns its bucket. The caller holds the lock.
func (s *S3) open(ctx context.Context, operation string, bucket, key *string) (map[string]object, error) {
	s.calls[operation]++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.Fails != nil {
		if err := s.Fails(operation, aws.ToString(key)); err != nil {
			return nil, err
		}
	}
	b := s.buckets[aws.ToString(bucket)]
	if b == nil {
		return nil, &types.NoSuchBucket{Message: aws.String("The specified bucket does not exist")}
	}
	return b, nil
}

// PutObject stores an object if it has the given SHA-256. With IfNoneMatch "*" it does
// not replace an existing object.
func (s *S3) PutObject(ctx context.Context, in *s3.PutObjectInput,
	_ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	var body []byte
	if in.Body != nil {
		var err error
		if body, err = io.ReadAll(in.Body); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	bucket, err := s.open(ctx, "PutObject", in.Bucket, in.Key)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(body); in.ChecksumSHA256 != nil &&
		*in.ChecksumSHA256 != base64.StdEncoding.EncodeToString(sum[:]) {
		return nil, denied("BadDigest", "The SHA256 you specified did not match the calculated checksum.")
	}
	if _, exists := bucket[aws.ToString(in.Key)]; exists && aws.ToString(in.IfNoneMatch) == "*" {
		return nil, denied("PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
	}
	bucket[aws.ToString(in.Key)] = object{body, in.ContentType, time.Now()}
	return &s3.PutObjectOutput{ChecksumSHA256: in.ChecksumSHA256}, nil
}

// GetObject returns an object or types.NoSuchKey, but AccessDenied if the object does not
// exist and the caller has no s3:ListBucket.
func (s *S3) GetObject(ctx context.Context, in *s3.GetObjectInput,
	_ ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bucket, err := s.open(ctx, "GetObject", in.Bucket, in.Key)
	if err != nil {
		return nil, err
	}
	o, ok := bucket[aws.ToString(in.Key)]
	switch {
	case !ok && s.DenyList:
		return nil, denied("AccessDenied", "Access Denied")
	case !ok:
		return nil, &types.NoSuchKey{Message: aws.String("The specified key does not exist.")}
	}
	return &s3.GetObjectOutput{
		Body: io.NopCloser(bytes.NewReader(slices.Clone(o.body))), ContentLength: aws.Int64(int64(len(o.body))),
		ContentType: o.contentType,
	}, nil
}

// ListObjectsV2 returns up to MaxKeys (1000) objects in the order of the bytes of their
// keys, starting after the token, which is a key, or StartAfter.
func (s *S3) ListObjectsV2(ctx context.Context, in *s3.ListObjectsV2Input,
	_ ...func(*s3.Options)) (*s3.ListObjectsV2Output, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bucket, err := s.open(ctx, "ListObjectsV2", in.Bucket, in.Prefix)
	if err != nil {
		return nil, err
	}
	if s.DenyList {
		return nil, denied("AccessDenied", "Access Denied")
	}
	limit, after := 1000, cmp.Or(aws.ToString(in.ContinuationToken), aws.ToString(in.StartAfter))
	if in.MaxKeys != nil {
		limit = min(limit, int(*in.MaxKeys))
	}
	out := &s3.ListObjectsV2Output{Name: in.Bucket, Prefix: in.Prefix, IsTruncated: aws.Bool(false)}
	for _, key := range slices.Sorted(maps.Keys(bucket)) {
		if !strings.HasPrefix(key, aws.ToString(in.Prefix)) || key <= after {
			continue
		}
		if len(out.Contents) == limit {
			out.IsTruncated, out.NextContinuationToken = aws.Bool(true), out.Contents[limit-1].Key
			break
		}
		o := bucket[key]
		out.Contents = append(out.Contents, types.Object{Key: aws.String(key), Size: aws.Int64(int64(len(o.body))),
			LastModified: &o.storedAt})
	}
	out.KeyCount = aws.Int32(int32(len(out.Contents)))
	return out, nil
}

func denied(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message, Fault: smithy.FaultClient}
}
