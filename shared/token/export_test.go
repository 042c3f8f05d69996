package token

import (
	"crypto/x509"
	"net/http"
)

// Trust makes an endpoint with the default transport trust the server of a test.
func Trust(e *Endpoint, certificate *x509.Certificate) {
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	e.client.Transport.(*http.Transport).TLSClientConfig.RootCAs = pool
}
