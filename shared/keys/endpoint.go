package keys

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"payhook.example/shared/payment"
)

// maxAnswer is the maximum size of an answer of the key endpoint, in bytes.
const maxAnswer = 64 << 10

// Endpoint is the payment service's key lookup (section 4.2 of the interface).
type Endpoint struct {
	client  *http.Client
	baseURL *url.URL
	timeout time.Duration
}

// NewEndpoint returns the key lookup at {baseURL}/v1/keys/{keyId}. Each lookup takes at most timeout. It does not
// follow redirects, whatever the policy of client: keys must come from the configured host.
func NewEndpoint(client *http.Client, baseURL *url.URL, timeout time.Duration) *Endpoint {
	c := *client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Endpoint{client: &c, baseURL: baseURL, timeout: timeout}
}

// Fetch returns the key that the service answers for a key id, and the type of the answer unless it is JSON. The error
// is a [*PolicyError] if the key must not be used. Otherwise it wraps [ErrUnknown] if the service reports that there is
// no such key, [ErrUnavailable] if it does not answer or answers anything else, and [ErrMalformedID] if id is not one
// that [payment.KeyID] accepts. It contains no data of the answer. Fetch is safe for concurrent use.
func (e *Endpoint) Fetch(ctx context.Context, id string) (key *rsa.PublicKey, unexpectedType string, err error) {
	if _, ok := payment.KeyID(id); !ok {
		return nil, "", ErrMalformedID
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.baseURL.JoinPath("v1", "keys", id).String(), nil)
	if err != nil {
		return nil, "", unavailable("request", err)
	}
	payment.SetHeaders(req.Header)
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, "", unavailable("request", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return nil, "", fmt.Errorf("%w to the service", ErrUnknown)
	default:
		failed := StatusError{resp.StatusCode, payment.RetryAfter(resp.Header)}
		return nil, "", fmt.Errorf("%w: %w", ErrUnavailable, failed)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = errors.New("larger than 64 KiB")
	}
	if err != nil {
		return nil, "", unavailable("answer", err)
	}
	if key, err = ParseJWK(text, id); errors.Is(err, ErrNotJWK) {
		err = unavailable("answer", err)
	}
	return key, payment.UnexpectedType(resp.Header.Get("Content-Type")), err
}

// StatusError is the status of an answer that is neither a key nor says that there is none. [ErrUnavailable] is beside
// it.
type StatusError struct {
	Status     int
	RetryAfter time.Duration // the pause that the service asks for; 0 for none
}

func (e StatusError) Error() string { return fmt.Sprintf("status %d", e.Status) }

func unavailable(what string, err error) error {
	// The URL is known from the settings; the cause is sufficient.
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if problem := payment.CertificateProblem(err); problem != "" {
		err = errors.New(problem)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}
