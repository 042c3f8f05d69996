package token

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// Reader hands out the token that a [Refresher] keeps in Secrets Manager. It
// is an oauth2.TokenSource, and safe for concurrent use.
//
// It keeps the token in memory and reads the secret again in the token's last
// minute (or the last quarter of its life, if that is shorter), by when a newer
// one should be there; until there is, the old one is handed out. No token is
// handed out in its last 5 seconds (or the last tenth of its life, if that is
// shorter): a request needs time to arrive, and the clock that wrote the expiry
// may be ahead of this one by as much.
//
// There is one read of the secret at a time for all callers, and its result is
// used for a second: an expired token or an outage of Secrets Manager costs one
// read a second, not one per request.
type Reader struct {
	secrets Getter
	id      string
	now     func() time.Time
	timeout time.Duration

	reading chan struct{} // holds one element while the secret is being read

	mu           sync.Mutex
	held         *Bearer
	next         time.Time // when to look for a newer token than held
	failure      error     // of the last read; holds until failureUntil
	failureUntil time.Time
	refused      Secret // the token that was dropped last
	refusedUntil time.Time
}

// ReaderOptions are the optional parameters of a [Reader].
type ReaderOptions struct {
	Timeout time.Duration    // of one read of the secret, the SDK's own retries included; zero: 5 s
	Now     func() time.Time // nil: time.Now
}

// NewReader returns a reader of the secret with that name or ARN. The one
// permission that it needs is secretsmanager:GetSecretValue on that secret.
func NewReader(secrets Getter, secretID string, o ReaderOptions) *Reader {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Reader{
		secrets: secrets,
		id:      secretID,
		now:     o.Now,
		timeout: o.Timeout,
		reading: make(chan struct{}, 1),
	}
}

// remember is how long the result of a read is used if it is not a token with
// enough life left.
const remember = time.Second

// margin is the time before its expiry in which a token is not handed out.
func (b Bearer) margin() time.Duration { return min(5*time.Second, b.Lifetime()/10) }

// notAfter is the end of the time in which a token is handed out.
func (b Bearer) notAfter() time.Time { return b.ExpiresAt.Add(-b.margin()) }

// lookAgain is the time at which there should be a newer token.
func (b Bearer) lookAgain() time.Time {
	return b.ExpiresAt.Add(-min(time.Minute, b.Lifetime()/4))
}

// Token returns the token, as oauth2.TokenSource asks. Its errors wrap
// [ErrNone], [ErrUnreadable], [ErrExpired] or [*SecretError].
//
// An oauth2.Token that is printed shows the token.
func (r *Reader) Token() (*oauth2.Token, error) { return r.TokenContext(context.Background()) }

// TokenContext is [Reader.Token] for as long as ctx allows; then it returns the
// context's error.
func (r *Reader) TokenContext(ctx context.Context) (*oauth2.Token, error) {
	b, err := r.bearer(ctx)
	if err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: b.AccessToken.Reveal(), TokenType: bearerType, Expiry: b.ExpiresAt}, nil
}

// Drop forgets a token that the service refused, so that the next call reads
// the secret again. It does nothing if another token is held by now, or if the
// same one was dropped within the last second: then the secret holds no other,
// and reading it for each refusal would not change that.
func (r *Reader) Drop(accessToken string) { r.drop(NewSecret(accessToken)) }

func (r *Reader) drop(access Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if r.held == nil || !r.held.AccessToken.Equal(access) || r.refused.Equal(access) && now.Before(r.refusedUntil) {
		return
	}
	r.held = nil
	r.refused, r.refusedUntil = access, now.Add(remember)
}

func (r *Reader) bearer(ctx context.Context) (Bearer, error) {
	held, err, settled := r.recall()
	if settled {
		return held, err
	}
	if held.AccessToken != (Secret{}) {
		// Another call is reading the secret; this token is valid meanwhile.
		select {
		case r.reading <- struct{}{}:
		default:
			return held, nil
		}
	} else {
		select {
		case r.reading <- struct{}{}:
		case <-ctx.Done():
			return Bearer{}, fmt.Errorf("token: %w", ctx.Err())
		}
	}
	defer func() { <-r.reading }()
	// The call before this one may have read what is needed.
	if held, err, settled := r.recall(); settled {
		return held, err
	}
	return r.read(ctx)
}

// recall returns what is known without a read, and whether no read is needed. If
// one is, the token may still be one that can be handed out.
func (r *Reader) recall() (b Bearer, err error, settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if r.held != nil && now.Before(r.held.notAfter()) {
		return *r.held, nil, now.Before(r.next)
	}
	if r.failure != nil && now.Before(r.failureUntil) {
		return Bearer{}, r.failure, true
	}
	return Bearer{}, nil, false
}

// read reads the secret for all waiting calls.
func (r *Reader) read(ctx context.Context) (Bearer, error) {
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	b, err := bearer(limited, r.secrets, r.id)

	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if err == nil && !now.Before(b.notAfter()) {
		err = ErrExpired
	}
	if err == nil {
		r.held, r.next, r.failure = &b, later(b.lookAgain(), now.Add(remember)), nil
		return b, nil
	}
	if r.held != nil && now.Before(r.held.notAfter()) {
		r.next = now.Add(remember)
		return *r.held, nil
	}
	if _, named := errors.AsType[*SecretError](err); !named {
		err = fmt.Errorf("token: %w", err)
	}
	// If this caller gave up, that is no result for the next one.
	if ctx.Err() == nil {
		r.failure, r.failureUntil = err, now.Add(remember)
	}
	return Bearer{}, err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
