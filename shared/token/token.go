// Package token keeps a valid OAuth 2.0 access token in a [Store], and adds it to requests.
//
// It guarantees that:
//
//   - no token is returned after its expiry;
//   - a failed refresh never changes the stored token;
//   - the client secret is sent only to the token endpoint, and the token only to
//     its store and the service's own host;
//   - no error contains either of them, and a [Secret] that is printed, logged or
//     marshaled does not show its text.
//
// A [Refresher] runs on a schedule and calls the [Endpoint] when the stored token has to be replaced. Other code uses a
// [Reader], which is an oauth2.TokenSource, or the [http.Client] of [NewClient].
//
// The expiry of a token is the time at which the request for it was sent, plus expires_in. So it is earlier than that
// of the service by the time until the answer. It is stored with the token. The clock that wrote it and the clock that
// reads it can differ by 5 seconds or a tenth of the token's lifetime, whichever is less.
package token

import (
	"context"
	"crypto/subtle"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The errors of a [Reader] without a valid token.
var (
	// ErrNone is returned when the secret or parameter does not exist or has no value yet.
	ErrNone = errors.New("token: no token is stored yet")
	// ErrUnreadable is returned when the stored value was not written by a Refresher.
	ErrUnreadable = errors.New("token: the stored value is not a token")
	// ErrExpired is returned when the stored token has expired or is about to.
	ErrExpired = errors.New("token: the stored token has expired")
)

// Secret is a text that is printed, logged and marshaled as "[redacted]". The zero value is the empty text. It is safe
// for concurrent use.
type Secret struct {
	// text is a pointer because fmt does not call the methods of an unexported field, and would print a string.
	text *string
}

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Equal reports whether both have the same text. Its running time depends only on the length.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

const redacted = "[redacted]"

// Format implements [fmt.Formatter]: every verb writes "[redacted]".
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns "[redacted]".
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Bearer is a stored access token (section 2.1 of the payment service's interface).
type Bearer struct {
	AccessToken Secret
	IssuedAt    time.Time // before the request for it was sent
	ExpiresAt   time.Time

	endpoint       string // the digest of the endpoint that issued it
	unexpectedType string // of the answer that brought it, unless it is JSON
}

// Lifetime returns the time between IssuedAt and ExpiresAt.
func (b Bearer) Lifetime() time.Duration { return b.ExpiresAt.Sub(b.IssuedAt) }

// is reports whether both are the same token of one endpoint.
func (b Bearer) is(other Bearer) bool {
	return b.endpoint == other.endpoint && b.AccessToken.Equal(other.AccessToken)
}

// useless reports whether it does not replace the stored token: it is the same one with the same expiry or, unless
// always, another one that expires earlier. A token of another endpoint is always replaced.
func (b Bearer) useless(stored Bearer, always bool) bool {
	switch {
	case b.endpoint != stored.endpoint:
		return false
	case b.AccessToken.Equal(stored.AccessToken):
		// Two answers with one token differ by their delay, and by the fraction of a second that expires_in lacks.
		return b.ExpiresAt.Sub(stored.ExpiresAt).Abs() < 30*time.Second
	}
	return !always && b.ExpiresAt.Before(stored.ExpiresAt) && !stored.ahead()
}

const (
	// maxAhead is how far in the future the issue time of a token can be: more than any two clocks differ. The expiry
	// of a token with a later issue time is not reliable.
	maxAhead = 5 * time.Minute
	// maxLifetime is the longest lifetime that counts. Some endpoints report the largest number that they know.
	maxLifetime = 366 * 24 * time.Hour
	// maxTokenLength is in bytes: more than servers accept in a header, and less than the limit of a secret.
	maxTokenLength = 32 << 10
	bearerType     = "Bearer" // the value of token_type, as it is stored and sent
)

// now is the time without the monotonic clock, which can stop while a function is frozen.
func now() time.Time { return time.Now().Round(0) }

func (b Bearer) ahead() bool { return b.IssuedAt.After(time.Now().Add(maxAhead)) }

// storedBearer is the stored value. Its times are UTC in RFC 3339.
type storedBearer struct {
	AccessToken string    `json:"access_token"`
	TokenType   string    `json:"token_type"`
	IssuedAt    time.Time `json:"issued_at"`
	ExpiresAt   time.Time `json:"expires_at"`
	Endpoint    string    `json:"endpoint_sha256"`
}

// text returns the stored value. Its times are truncated, so that a stored expiry is never later than the true one.
func (b Bearer) text() string {
	// It fails only for an illegal token.
	text, _ := json.Marshal(storedBearer{AccessToken: b.AccessToken.Reveal(), TokenType: bearerType,
		IssuedAt: b.IssuedAt.UTC().Truncate(time.Millisecond), ExpiresAt: b.ExpiresAt.UTC().Truncate(time.Millisecond),
		Endpoint: b.endpoint})
	return string(text)
}

// bearer returns the token in a source. Its errors are [ErrNone], [*StoreError] and [ErrUnreadable], without details,
// because a value that a person edited can contain a secret anywhere. Unknown members are ignored.
func bearer(ctx context.Context, source Source) (Bearer, error) {
	text, err := load(ctx, source)
	if err != nil {
		return Bearer{}, err
	}
	var v storedBearer
	if json.Unmarshal([]byte(text), &v) != nil {
		return Bearer{}, ErrUnreadable
	}
	b := Bearer{AccessToken: NewSecret(v.AccessToken), IssuedAt: v.IssuedAt, ExpiresAt: v.ExpiresAt,
		endpoint: v.Endpoint}
	if v.TokenType != bearerType || !legal(v.AccessToken) || b.Lifetime() <= 0 || b.Lifetime() > maxLifetime {
		return Bearer{}, ErrUnreadable
	}
	return b, nil
}

// legal reports whether a text is a valid access token: it has no space, although RFC 6749, appendix A.12, allows one,
// since the header Authorization has no place for it (RFC 6750, section 2.1). A control character could end the header.
func legal(text string) bool {
	return text != "" && len(text) <= maxTokenLength &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
