// Package objects defines what Payhook needs of a bucket: objects with keys, which are written, read and listed.
// [Memory] is a bucket in memory. It also makes calls of any store at the same time ([Parallel]), and again after a
// [Pause].
package objects

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Object describes an object of a list.
type Object struct {
	Key      string
	Size     int       // bytes
	StoredAt time.Time // when it was last written
}

// Putter writes objects.
type Putter interface {
	// Put writes an object and replaces the one with this key.
	Put(ctx context.Context, key string, body []byte) error
}

// Creator writes objects that do not exist yet.
type Creator interface {
	// Create writes an object unless the key exists. It reports whether the key existed, but false if an earlier
	// attempt of the same call, whose response was lost, can have written it.
	Create(ctx context.Context, key string, body []byte) (existed bool, err error)
}

// Getter reads objects.
type Getter interface {
	// Get returns the first bytes of an object, at most limit+1: more than limit means that the object is larger.
	// The limit is not negative. It returns an error that wraps [ErrNotFound] or [ErrDenied] for these cases.
	Get(ctx context.Context, key string, limit int) ([]byte, error)
}

// MaxPage is the maximum number of objects of a page.
const MaxPage = 1000

// Lister lists objects.
type Lister interface {
	// List returns the first objects, at most limit, whose keys begin with a prefix and follow after, in the order
	// of the bytes of their keys, and whether there are more. The limit is from 1 to [MaxPage].
	List(ctx context.Context, prefix, after string, limit int) (page []Object, more bool, err error)
}

// Store is a bucket. All that it writes can be read and listed immediately.
type Store interface {
	Putter
	Creator
	Getter
	Lister
}

// The errors of a [Getter].
var (
	// ErrNotFound is returned when the object does not exist.
	ErrNotFound = errors.New("the object does not exist")
	// ErrDenied is returned when the caller may not read the object. To callers without s3:ListBucket on the
	// bucket, S3 also denies access to an object that does not exist (AWS, "GetObject" in the S3 API reference).
	ErrDenied = errors.New("access to the object is denied: s3:GetObject on the object is required, " +
		"and s3:ListBucket on the bucket to distinguish a missing object")
)

// All returns the objects whose keys begin with a prefix and follow after, in the order of their keys. It ends with
// the first error.
func All(ctx context.Context, l Lister, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for more := true; more; {
			var page []Object
			var err error
			if page, more, err = l.List(ctx, prefix, after, MaxPage); err != nil {
				yield(Object{}, err)
				return
			}
			for _, o := range page {
				if !yield(o, nil) {
					return
				}
				after = o.Key
			}
		}
	}
}
