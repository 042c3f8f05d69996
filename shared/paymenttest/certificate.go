package paymenttest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"time"

	"payhook.example/shared/wire"
)

// CA is a certificate authority of the payment service's operator, which issues the client certificates of webhooks
// (section 5.3). It is safe for concurrent use.
type CA struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
	Chain       []*x509.Certificate // from the issuer of Certificate to the root
}

// ClientSubject is the subject of the client certificates that a CA issues.
var ClientSubject = pkix.Name{CommonName: "webhooks.payments.example", Organization: []string{"Payment Service"}}

// NewCA returns a CA with a certificate that is signed with its own key and valid for ten years.
func NewCA(name string) *CA {
	key := newECDSAKey()
	return &CA{Certificate: (&CA{Key: key}).issue(caTemplate(name), key, nil), Key: key}
}

// NewIntermediate returns a CA whose certificate is issued by a. change, if not nil, changes the certificate before
// it is signed, here and below.
func (a *CA) NewIntermediate(name string, change func(*x509.Certificate)) *CA {
	key := newECDSAKey()
	return &CA{Certificate: a.issue(caTemplate(name), key, change), Key: key, Chain: a.all()}
}

// SelfSigned returns a certificate for a's key that is signed with this key: a client or server that is its own CA.
func (a *CA) SelfSigned(change func(*x509.Certificate)) *x509.Certificate {
	return (&CA{Key: a.Key}).issue(caTemplate(a.Certificate.Subject.CommonName), a.Key, change)
}

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{"Payment Service"}},
		NotAfter: time.Now().AddDate(10, 0, 0), IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
}

func newECDSAKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// all returns the certificates of the CA and of its issuers up to the root.
func (a *CA) all() []*x509.Certificate { return append([]*x509.Certificate{a.Certificate}, a.Chain...) }

// PEM returns the certificates of the CA and of its issuers up to the root, for a truststore.
func (a *CA) PEM() []byte {
	var out []byte
	for _, c := range a.all() {
		out = append(out, EncodeCertificate(c)...)
	}
	return out
}

// Client issues a client certificate of the service, valid for a year. With another PublicKey, it has no private key
// of use.
func (a *CA) Client(change func(*x509.Certificate)) tls.Certificate {
	return a.bundle(&x509.Certificate{Subject: ClientSubject, DNSNames: []string{ClientSubject.CommonName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, change)
}

// Server issues the certificate of a server on 127.0.0.1.
func (a *CA) Server(names ...string) tls.Certificate {
	return a.bundle(&x509.Certificate{Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: append([]string{"localhost"}, names...), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, nil)
}

// bundle issues a certificate for a new key, and returns both with the intermediate CAs that a client sends. It omits
// the root (RFC 8446, section 4.4.2).
func (a *CA) bundle(template *x509.Certificate, change func(*x509.Certificate)) tls.Certificate {
	key := newECDSAKey()
	template.NotAfter, template.KeyUsage = time.Now().AddDate(1, 0, 0), x509.KeyUsageDigitalSignature
	c := a.issue(template, key, change)
	bundle := tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
	for _, above := range a.all() {
		if !bytes.Equal(above.RawIssuer, above.RawSubject) {
			bundle.Certificate = append(bundle.Certificate, above.Raw)
		}
	}
	return bundle
}

// issue signs a certificate for the key, or for the PublicKey that change sets. Without a certificate of a, it is
// signed as its own issuer.
func (a *CA) issue(template *x509.Certificate, key crypto.Signer, change func(*x509.Certificate)) *x509.Certificate {
	template.NotBefore, template.BasicConstraintsValid = time.Now().Add(-time.Hour), true
	template.PublicKey = key.Public()
	if change != nil {
		change(template)
	}
	issuer := a.Certificate
	if issuer == nil {
		issuer = template
	}
	raw := must(x509.CreateCertificate(rand.Reader, template, issuer, template.PublicKey, a.Key))
	c, err := x509.ParseCertificate(raw)
	if err != nil { // as is wanted of it
		c = &x509.Certificate{Raw: raw}
	}
	return c
}

// EncodeCertificate returns a certificate in PEM.
func EncodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// EncodePrivateKey returns a private key in PEM, PKCS #8.
func EncodePrivateKey(key crypto.PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))})
}

// must returns v. An error is a mistake of this package: an argument that the standard library rejects.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// The flaws of certificates.
const (
	NoCertificate      wire.CertificateFlaw = "none" // the webhook is sent without one
	CertificateExpired wire.CertificateFlaw = "expired"
	UnknownCA          wire.CertificateFlaw = "unknown-ca"
	ServerUsage        wire.CertificateFlaw = "server-usage" // it is allowed only for server authentication
	ForgedSignature    wire.CertificateFlaw = "forged-signature"
)

var flawed = map[wire.CertificateFlaw]func(*CA) tls.Certificate{
	NoCertificate: func(*CA) tls.Certificate { return tls.Certificate{} },
	CertificateExpired: func(a *CA) tls.Certificate {
		return a.Client(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	},
	UnknownCA: func(*CA) tls.Certificate { return NewCA("Somebody Else").Client(nil) },
	ServerUsage: func(a *CA) tls.Certificate {
		return a.Client(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	},
	ForgedSignature: func(a *CA) tls.Certificate {
		c := a.Client(nil)
		c.Certificate[0][len(c.Certificate[0])-1] ^= 1
		return c
	},
}

// Identity is the identity of a payment service in mutual TLS (section 5.3): its CA and the client certificate with
// which it calls webhook URLs. It is immutable.
type Identity struct {
	CA          *CA
	Certificate tls.Certificate

	servers *x509.CertPool // nil: those of the system
	client  *http.Client   // with the certificate
}

// NewIdentity returns an identity with a new CA. servers are the CAs of the servers that it trusts; without any, it
// trusts those of the system.
func NewIdentity(servers ...*x509.Certificate) *Identity {
	i := &Identity{CA: NewCA("Operator CA")}
	if len(servers) > 0 {
		i.servers = x509.NewCertPool()
	}
	for _, c := range servers {
		i.servers.AddCert(c)
	}
	return i.With(i.CA.Client(nil))
}

// With returns the identity with another certificate.
func (i *Identity) With(certificate tls.Certificate) *Identity {
	return &Identity{i.CA, certificate, i.servers, i.newClient(certificate)}
}

// clientWith returns an HTTP client with a certificate that has the flaw, or with that of i if flaw is empty.
func (i *Identity) clientWith(flaw wire.CertificateFlaw) (*http.Client, error) {
	if flaw == "" {
		return i.client, nil
	}
	if flawed[flaw] == nil {
		return nil, fmt.Errorf("paymenttest: unknown certificate flaw %q", flaw)
	}
	return i.newClient(flawed[flaw](i.CA)), nil
}

// newClient returns a client that presents the certificate to servers that request one, unless it is empty.
func (i *Identity) newClient(certificate tls.Certificate) *http.Client {
	client := newClient()
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{
		RootCAs: i.servers,
		// The certificate is sent even if the server does not accept its issuer.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
	}
	return client
}
