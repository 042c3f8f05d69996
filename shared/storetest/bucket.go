package storetest

import (
	"context"

	"payhook.example/shared/objects"
)

// Bucket is a bucket in memory whose calls can wait or fail.
type Bucket struct {
	objects.Memory
	// Fails, if set, is called before every call, with the method's name and the key or prefix. Its error is that
	// of the call.
	Fails func(ctx context.Context, call, key string) error
}

func (b *Bucket) fails(ctx context.Context, call, key string) error {
	if b.Fails == nil {
		return nil
	}
	return b.Fails(ctx, call, key)
}

// Put implements [objects.Putter].
func (b *Bucket) Put(ctx context.Context, key string, body []byte) error {
	if err := b.fails(ctx, "Put", key); err != nil {
		return err
	}
	return b.Memory.Put(ctx, key, body)
}

// Create implements [objects.Creator].
func (b *Bucket) Create(ctx context.Context, key string, body []byte) (existed bool, err error) {
	if err := b.fails(ctx, "Create", key); err != nil {
		return false, err
	}
	return b.Memory.Create(ctx, key, body)
}

// Get implements [objects.Getter].
func (b *Bucket) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	if err := b.fails(ctx, "Get", key); err != nil {
		return nil, err
	}
	return b.Memory.Get(ctx, key, limit)
}

// List implements [objects.Lister].
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (page []objects.Object, more bool,
	err error) {
	if err := b.fails(ctx, "List", prefix); err != nil {
		return nil, false, err
	}
	return b.Memory.List(ctx, prefix, after, limit)
}
