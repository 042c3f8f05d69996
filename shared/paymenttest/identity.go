package paymenttest

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"sync"
)

// NoCertificate means that a webhook is sent without a client certificate.
const NoCertificate CertificateFlaw = "none"

// Identity is the identity of a payment service in mutual TLS (section 5.3): its CA and
// the client certificate with which it calls webhook URLs. It is safe for concurrent use.
type Identity struct {
	CA *CA

	servers *x509.CertPool // nil: those of the system

	mu      sync.Mutex
	current tls.Certificate
	client  *http.Client // with the current certificate; nil: not yet made
}

// NewIdentity returns an identity with a new CA. servers are the CAs of the servers that it
// trusts; without any, it trusts those of the system.
func NewIdentity(servers ...*x509.Certificate) *Identity {
	i := &Identity{CA: NewCA("Operator CA")}
	if len(servers) > 0 {
		i.servers = x509.NewCertPool()
	}
	for _, c := range servers {
		i.servers.AddCert(c)
	}
	i.current = i.CA.Client(nil)
	return i
}

// Certificate returns the current client certificate.
func (i *Identity) Certificate() tls.Certificate {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current
}

// Next returns a certificate of the same CA with a new key. It is not used before it is
// passed to Use.
func (i *Identity) Next() tls.Certificate { return i.CA.Client(nil) }

// Use sets the certificate that is used, starting with the next webhook.
func (i *Identity) Use(certificate tls.Certificate) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.current, i.client = certificate, nil
}

// clientWith returns an HTTP client with a certificate that has the flaw, or with the
// current certificate if flaw is empty.
func (i *Identity) clientWith(flaw CertificateFlaw) (*http.Client, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch flaw {
	case "":
		if i.client == nil {
			i.client = newTLSClient(i.servers, i.current)
		}
		return i.client, nil
	case NoCertificate:
		return newTLSClient(i.servers, tls.Certificate{}), nil
	}
	certificate, _, err := i.CA.Flawed(flaw)
	return newTLSClient(i.servers, certificate), err
}

// newTLSClient returns a client that trusts the servers' CAs, and presents the certificate
// to servers that request one, unless it is empty.
func newTLSClient(servers *x509.CertPool, certificate tls.Certificate) *http.Client {
	client := newClient()
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{
		RootCAs: servers,
		// The certificate is sent even if the server does not accept its issuer.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
	}
	return client
}
