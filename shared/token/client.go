package token

import (
	"io"
	"net/http"
	"net/url"
	"strings"
)

// NewClient returns a client of the service's protected APIs with a [Transport]. It has no timeout: use a context with
// a deadline for each request, or set the client's Timeout.
func NewClient(reader *Reader, baseURL *url.URL) *http.Client {
	return &http.Client{Transport: NewTransport(reader, baseURL, nil)}
}

// Transport is an [http.RoundTripper] that adds the headers of section 4.4 of the interface, Authorization: Bearer and
// Content-Type: application/json, to every request to one scheme, host and port. It forwards other requests unchanged,
// so a redirect to another host does not receive the token. It is safe for concurrent use.
//
// If the service answers 401, the Transport drops the token. If the secret contains another one and the request's body
// can be read again (http.Request.GetBody, or no body), it sends the request once more.
type Transport struct {
	reader *Reader
	origin string
	base   http.RoundTripper
}

// NewTransport returns a Transport for the scheme, host and port of baseURL. The path of baseURL is ignored. If base is
// nil, it has connections of its own, like Go's default ones, but with TLS 1.2 or newer and HTTP/1.1.
func NewTransport(reader *Reader, baseURL *url.URL, base http.RoundTripper) *Transport {
	if base == nil {
		base = newTransport()
	}
	return &Transport{reader, origin(baseURL), base}
}

// RoundTrip implements [http.RoundTripper]. It returns the errors of [Reader.Bearer] and of the base.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if origin(request.URL) != t.origin {
		return t.base.RoundTrip(request)
	}
	used, err := t.reader.Bearer(request.Context())
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	response, err := t.base.RoundTrip(authorized(request, used))
	if pool, ok := t.base.(interface{ CloseIdleConnections() }); ok && err != nil {
		pool.CloseIdleConnections() // they can be dead as well, and each would cost a call
	}
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	t.reader.Drop(used.AccessToken.Reveal())
	other, err := t.reader.Bearer(request.Context())
	if err != nil || other.AccessToken.Equal(used.AccessToken) {
		return response, nil
	}
	again := authorized(request, other)
	if request.Body != nil && request.Body != http.NoBody {
		if request.GetBody == nil {
			return response, nil
		}
		again.Body, err = request.GetBody()
	}
	if err != nil {
		return response, nil
	}
	// The connection can be reused if a short body is read to its end.
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswer)
	_ = response.Body.Close()
	return t.base.RoundTrip(again)
}

// authorized returns a copy of a request with the two headers. A RoundTripper must not change the request itself.
func authorized(request *http.Request, b Bearer) *http.Request {
	r := request.Clone(request.Context())
	r.Header.Set("Authorization", bearerType+" "+b.AccessToken.Reveal())
	r.Header.Set("Content-Type", "application/json")
	return r
}

// origin returns scheme, host and port (RFC 6454, section 4).
func origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[scheme]
	}
	return scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
