package token

import (
	"crypto/x509"
	"net/http"
)

// Digest is the digest that is stored beside the endpoint's tokens.
func Digest(e *Endpoint) string { return e.digest }

// Direct makes an endpoint use a transport.
func Direct(e *Endpoint, transport http.RoundTripper) *Endpoint {
	e.transport = transport
	return e
}

// Roots are the CAs that an endpoint trusts.
func Roots(e *Endpoint) *x509.CertPool { return e.transport.(*http.Transport).TLSClientConfig.RootCAs }

// Base is the transport of a client of NewClient.
func Base(c *http.Client) *http.Transport { return c.Transport.(*Transport).base.(*http.Transport) }
