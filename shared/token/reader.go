package token

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// Reader returns the token that a [Refresher] stores. It is an oauth2.TokenSource, and safe for concurrent use.
//
// It caches the token in memory. In the token's last minute (or the last quarter of its lifetime, if that is shorter),
// a newer token should exist, so the Reader reads it again; until it finds one, it returns the old token. It does not
// return a token in its last 5 seconds (or the last tenth of its lifetime, if that is shorter): a request needs time to
// arrive, and the clock that wrote the expiry can be ahead of this one by as much.
//
// Concurrent callers share one read of the source, and its result is used for a second. So an expired token or an
// outage of the source causes one read a second, not one per request.
type Reader struct {
	source Source

	reading chan struct{} // contains one element while the source is being read

	mu           sync.Mutex
	held         Bearer
	failure      error     // of the last read, if held is not valid
	until        time.Time // when the source is read again
	dropped      Secret    // the token that was dropped last
	refusedUntil time.Time
}

// NewReader returns a Reader of a source.
func NewReader(source Source) *Reader {
	return &Reader{source: source, reading: make(chan struct{}, 1)}
}

const (
	readTimeout = 5 * time.Second // of one read of the source, the SDK's own retries included
	remember    = time.Second     // how long an error, or a token that expires soon, is used
)

// margin is the time before its expiry in which a token is not returned.
func (b Bearer) margin() time.Duration { return min(5*time.Second, b.Lifetime()/10) }

// notAfter is the time until which a token is returned.
func (b Bearer) notAfter() time.Time { return b.ExpiresAt.Add(-b.margin()) }

// Token implements oauth2.TokenSource. Its errors are those of [Reader.Bearer]. Do not print the result: an
// oauth2.Token shows the access token.
func (r *Reader) Token() (*oauth2.Token, error) {
	b, err := r.Bearer(context.Background())
	if err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: b.AccessToken.Reveal(), TokenType: bearerType, Expiry: b.ExpiresAt}, nil
}

// Drop removes a token that the service rejected from memory, so that the next call reads the source again. It does
// nothing if memory contains another token, or if the same token was dropped within the last second, because another
// read of the source would return the same token.
func (r *Reader) Drop(accessToken string) {
	access := NewSecret(accessToken)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := now()
	if !r.held.AccessToken.Equal(access) || r.dropped.Equal(access) && now.Before(r.refusedUntil) {
		return
	}
	r.held = Bearer{}
	r.dropped, r.refusedUntil = access, now.Add(remember)
}

// Bearer returns the token. Its errors wrap [ErrNone], [ErrUnreadable], [ErrExpired], [*StoreError] or, when ctx ends,
// the context's error.
func (r *Reader) Bearer(ctx context.Context) (Bearer, error) {
	held, err, dismissed := r.recall()
	if dismissed {
		return held, err
	}
	select {
	case r.reading <- struct{}{}:
	default:
		if held.AccessToken != (Secret{}) { // it is still valid, and another call is reading the source
			return held, nil
		}
		select {
		case r.reading <- struct{}{}:
		case <-ctx.Done():
			return Bearer{}, fmt.Errorf("token: waiting for the token: %w", ctx.Err())
		}
	}
	defer func() { <-r.reading }()
	// The previous call can have read the token.
	if held, err, dismissed := r.recall(); dismissed {
		return held, err
	}
	return r.read(ctx)
}

// recall returns the result that is in memory, and whether no read is needed. If a read
// is needed, b can still be a valid token.
func (r *Reader) recall() (b Bearer, err error, dismissed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := now()
	if now.Before(r.held.notAfter()) {
		return r.held, nil, now.Before(r.until)
	}
	return Bearer{}, r.failure, r.failure != nil && now.Before(r.until)
}

// read reads the source for all waiting callers.
func (r *Reader) read(ctx context.Context) (Bearer, error) {
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	b, err := bearer(limited, r.source)

	r.mu.Lock()
	defer r.mu.Unlock()
	now := now()
	if err == nil && !now.Before(b.notAfter()) {
		err = ErrExpired
	}
	soon := now.Add(remember)
	switch {
	case err == nil:
		r.held, r.failure, r.until = b, nil, soon
		if next := b.ExpiresAt.Add(-min(time.Minute, b.Lifetime()/4)); next.After(soon) {
			r.until = next
		}
		return b, nil
	case now.Before(r.held.notAfter()):
		r.until = soon
		return r.held, nil
	case ctx.Err() == nil: // the cancellation of this caller is not a result for the next one
		r.failure, r.until = err, soon
	}
	return Bearer{}, err
}
