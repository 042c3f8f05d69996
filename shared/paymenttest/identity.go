package paymenttest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// NoCertificate means that a webhook is sent without a client certificate.
const NoCertificate CertificateFlaw = "none"

// Identity is the identity of a payment service in mutual TLS (section 5.3): its CA and
// the client certificate with which it calls webhook URLs. It is safe for concurrent use.
type Identity struct {
	CA *CA

	servers *x509.CertPool // nil: those of the system
	flawed  func() (map[CertificateFlaw]flawedCertificate, error)

	mu      sync.Mutex
	current tls.Certificate
	clients map[CertificateFlaw]*http.Client // "" is for the current certificate
}

type flawedCertificate struct {
	tls.Certificate
	above []*x509.Certificate
}

// NewIdentity returns an identity with a new CA. servers are the CAs of the servers that it
// trusts; without any, it trusts those of the system.
func NewIdentity(servers ...*x509.Certificate) *Identity {
	i := &Identity{CA: NewCA("Operator CA"), clients: map[CertificateFlaw]*http.Client{}}
	if len(servers) > 0 {
		i.servers = x509.NewCertPool()
	}
	for _, c := range servers {
		i.servers.AddCert(c)
	}
	i.current = i.CA.Client(nil)
	i.flawed = sync.OnceValues(func() (map[CertificateFlaw]flawedCertificate, error) {
		all := map[CertificateFlaw]flawedCertificate{}
		for _, flaw := range CertificateFlaws() {
			certificate, above, err := i.CA.Flawed(flaw)
			if err != nil {
				return nil, err
			}
			all[flaw] = flawedCertificate{certificate, above}
		}
		return all, nil
	})
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
	i.current = certificate
	delete(i.clients, "")
}

// Flawed returns the certificate that is used for webhooks with that flaw.
func (i *Identity) Flawed(flaw CertificateFlaw) (tls.Certificate, error) {
	if flaw == NoCertificate {
		return tls.Certificate{}, nil
	}
	all, err := i.flawed()
	if err != nil {
		return tls.Certificate{}, err
	}
	c, ok := all[flaw]
	if !ok {
		return tls.Certificate{}, fmt.Errorf("paymenttest: unknown certificate flaw %q", flaw)
	}
	return c.Certificate, nil
}

// Above returns the certificates of the intermediate CAs that issued the flawed
// certificates.
func (i *Identity) Above() ([]*x509.Certificate, error) {
	all, err := i.flawed()
	if err != nil {
		return nil, err
	}
	var above []*x509.Certificate
	for _, flaw := range CertificateFlaws() {
		// From the root down.
		for _, c := range slices.Backward(all[flaw].above) {
			above = append(above, c)
		}
	}
	return above, nil
}

// client returns the HTTP client with the certificate that has the flaw, or with the
// current certificate if flaw is empty.
func (i *Identity) client(flaw CertificateFlaw) (*http.Client, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if client := i.clients[flaw]; client != nil {
		return client, nil
	}
	certificate := i.current
	if flaw != "" {
		var err error
		if certificate, err = i.Flawed(flaw); err != nil {
			return nil, err
		}
	}
	i.clients[flaw] = NewTLSClient(i.servers, certificate)
	return i.clients[flaw], nil
}

// NewTLSClient returns a client with a timeout of a minute that does not follow redirects,
// trusts the servers' CAs, and presents the certificate to servers that request one,
// unless it is empty.
func NewTLSClient(servers *x509.CertPool, certificate tls.Certificate) *http.Client {
	client := newClient()
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{
		RootCAs: servers,
		// The certificate is sent even if the server does not accept its issuer.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
	}
	return client
}
