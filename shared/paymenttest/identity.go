package paymenttest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// NoCertificate stands for a webhook that is sent without a client certificate.
const NoCertificate CertificateFlaw = "none"

// Identity is who a payment service is in mutual TLS (section 5.3): its CA and the
// client certificate with which it calls webhook URLs. It is safe for concurrent
// use.
type Identity struct {
	CA *CA

	servers *x509.CertPool
	flawed  func() (map[CertificateFlaw]flawedCertificate, error)

	mu      sync.Mutex
	current tls.Certificate
	clients map[CertificateFlaw]*http.Client // "" is for the current certificate
}

type flawedCertificate struct {
	tls.Certificate
	above []*x509.Certificate
}

// NewIdentity returns an identity with a new CA. servers are the CAs of the servers
// that it trusts.
func NewIdentity(servers ...*x509.Certificate) *Identity {
	i := &Identity{CA: NewCA("Operator CA"), servers: x509.NewCertPool(), clients: map[CertificateFlaw]*http.Client{}}
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

// Certificate returns the client certificate that is used at present.
func (i *Identity) Certificate() tls.Certificate {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current
}

// Next returns a certificate of the same CA with a new key, which is not used before
// Use.
func (i *Identity) Next() tls.Certificate { return i.CA.Client(nil) }

// Use makes a certificate the one that is used from the next webhook on.
func (i *Identity) Use(certificate tls.Certificate) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.current = certificate
	delete(i.clients, "")
}

// Flawed returns the certificate with a flaw that webhooks are sent with on request.
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
		return tls.Certificate{}, fmt.Errorf("paymenttest: there is no certificate flaw %q", flaw)
	}
	return c.Certificate, nil
}

// Above returns the certificates of CAs below CA that have issued the flawed
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

// client returns what sends with the certificate that has a flaw, or the current one
// if flaw is empty.
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

// NewTLSClient returns a client with a timeout of a minute that follows no redirect,
// trusts the servers' CAs and presents a certificate to servers that ask for one, or
// none if it is empty.
func NewTLSClient(servers *x509.CertPool, certificate tls.Certificate) *http.Client {
	client := newClient()
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{
		RootCAs: servers,
		// Whatever the server says that it accepts.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
	}
	return client
}
