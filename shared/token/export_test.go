package token

import (
	"crypto/x509"
	"net/http"
)

// Legal is legal.
var Legal = legal

// TextOf is the value of the secret with b.
func TextOf(b Bearer) (string, error) { return b.text() }

// Digest is the digest that is stored beside the endpoint's tokens.
func Digest(e *Endpoint) string { return e.digest }

// Direct makes an endpoint use a transport.
func Direct(e *Endpoint, transport http.RoundTripper) *Endpoint {
	e.client.Transport = transport
	return e
}

// Trust makes a client of NewClient trust the certificates of roots.
func Trust(c *http.Client, roots *x509.CertPool) {
	c.Transport.(*Transport).base.(*http.Transport).TLSClientConfig.RootCAs = roots
}
