package token

import (
	"net/http"
)

// Interval is interval.
const Interval = interval

// Legal is legal.
var Legal = legal

// TextOf is the value of the secret with b.
func TextOf(b Bearer) (string, error) { return b.text() }

// Direct makes an endpoint use a transport.
func Direct(e *Endpoint, transport http.RoundTripper) *Endpoint {
	e.client.Transport = transport
	return e
}
