package token

import (
	"crypto/x509"
	"net/http"
)

// NewTransportOf is newTransport.
var NewTransportOf = newTransport

// Legal is legal.
var Legal = legal

// TextOf is the value of the secret with b.
func TextOf(b Bearer) (string, error) { return b.text() }

// Trust makes an endpoint with the default transport trust the server of a test.
func Trust(e *Endpoint, certificate *x509.Certificate) {
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	e.client.Transport.(*http.Transport).TLSClientConfig.RootCAs = pool
}
