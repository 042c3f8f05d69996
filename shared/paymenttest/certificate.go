package paymenttest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"slices"
	"time"
)

// CA is a certificate authority of the payment service's operator, which issues
// the client certificates of webhooks (section 5.3). It is safe for concurrent
// use.
type CA struct {
	Certificate *x509.Certificate
	Key         crypto.Signer

	chain []*x509.Certificate // from the issuer of Certificate to the root
}

// ClientSubject is the subject of the client certificates that a CA issues.
var ClientSubject = pkix.Name{CommonName: "webhooks.payments.example", Organization: []string{"Payment Service"}}

// NewCA returns a CA with a certificate that is signed with its own key and valid
// for ten years.
func NewCA(name string) *CA {
	key := newECDSAKey(elliptic.P256())
	template := caTemplate(name)
	return &CA{Certificate: sign(template, template, key.Public(), key), Key: key}
}

// NewIntermediate returns a CA whose certificate is issued by a. change, if not nil,
// changes the certificate before it is signed.
func (a *CA) NewIntermediate(name string, change func(*x509.Certificate)) *CA {
	key := newECDSAKey(elliptic.P256())
	template := caTemplate(name)
	if change != nil {
		change(template)
	}
	c := sign(template, a.Certificate, key.Public(), a.Key)
	return &CA{Certificate: c, Key: key, chain: a.all()}
}

// all returns the certificates of the CA and of its issuers up to the root.
func (a *CA) all() []*x509.Certificate { return append([]*x509.Certificate{a.Certificate}, a.chain...) }

// SelfSigned returns a certificate for a's key that is signed with this key, after change
// has changed it: a client or server that is its own CA.
func (a *CA) SelfSigned(change func(*x509.Certificate)) *x509.Certificate {
	template := caTemplate(a.Certificate.Subject.CommonName)
	change(template)
	return sign(template, template, a.Key.Public(), a.Key)
}

// PEM returns the certificates of the CA and of its issuers up to the root, for a
// truststore.
func (a *CA) PEM() []byte {
	var out bytes.Buffer
	for _, c := range a.all() {
		out.Write(EncodeCertificate(c))
	}
	return out.Bytes()
}

// Client issues a client certificate of the service, valid for a year. change, if not
// nil, changes it before it is signed.
func (a *CA) Client(change func(*x509.Certificate)) tls.Certificate {
	template := clientTemplate()
	if change != nil {
		change(template)
	}
	return a.bundle(template)
}

// Server issues the certificate of a server on 127.0.0.1.
func (a *CA) Server(names ...string) tls.Certificate {
	template := clientTemplate()
	template.Subject = pkix.Name{CommonName: "localhost"}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = append([]string{"localhost"}, names...)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	return a.bundle(template)
}

// bundle issues a certificate for a new key, and returns both with the intermediate CAs that a
// client sends. It omits the root (RFC 8446, section 4.4.2).
func (a *CA) bundle(template *x509.Certificate) tls.Certificate {
	key := newECDSAKey(elliptic.P256())
	c := sign(template, a.Certificate, key.Public(), a.Key)
	bundle := tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
	for _, above := range a.all() {
		if !bytes.Equal(above.RawIssuer, above.RawSubject) {
			bundle.Certificate = append(bundle.Certificate, above.Raw)
		}
	}
	return bundle
}

// EncodeCertificate returns a certificate in PEM.
func EncodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// EncodePrivateKey returns a private key in PEM, PKCS #8.
func EncodePrivateKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// CertificateFlaw is a flaw of a client certificate that is otherwise valid.
type CertificateFlaw string

// The flaws of certificates.
const (
	CertificateExpired     CertificateFlaw = "expired"
	CertificateNotYetValid CertificateFlaw = "not-yet-valid"
	UnknownCA              CertificateFlaw = "unknown-ca"
	SameSubjectOtherCA     CertificateFlaw = "same-subject-other-ca" // by another CA of the same subject
	SelfSignedAsCA         CertificateFlaw = "self-signed-as-ca"     // signed with its own key, as the CA
	LeafAsCA               CertificateFlaw = "leaf-as-ca"            // issued with the key of a client certificate
	ChainTooLong           CertificateFlaw = "chain-too-long"        // its chain has five CAs
	NoBasicConstraints     CertificateFlaw = "no-basic-constraints"  // its CA's certificate does not have the CA flag
	ServerUsage            CertificateFlaw = "server-usage"          // it is allowed only for server authentication
	SHA1                   CertificateFlaw = "sha1"
	RSA1024                CertificateFlaw = "rsa-1024"
	RSAExponent3           CertificateFlaw = "rsa-exponent-3"
	RSAEvenModulus         CertificateFlaw = "rsa-even-modulus"
	P224                   CertificateFlaw = "p-224"
	Ed25519                CertificateFlaw = "ed25519"
	DuplicateExtension     CertificateFlaw = "duplicate-extension"
	ZeroSerial             CertificateFlaw = "zero-serial"
	LongSerial             CertificateFlaw = "long-serial" // 21 octets
	ForgedSignature        CertificateFlaw = "forged-signature"
)

// CertificateFlaws returns all flaws. A receiver must reject a certificate with
// any of them.
func CertificateFlaws() []CertificateFlaw { return slices.Sorted(maps.Keys(flawed)) }

// issue is a certificate that is about to be issued.
type issue struct {
	by       *CA
	template *x509.Certificate
	key      crypto.Signer
	public   crypto.PublicKey // in the certificate; nil: that of key
	forged   bool             // the signature is changed
}

// flawed has the change that makes a valid certificate flawed.
var flawed = map[CertificateFlaw]func(*issue){
	CertificateExpired: func(i *issue) {
		i.template.NotBefore, i.template.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	},
	CertificateNotYetValid: func(i *issue) { i.template.NotBefore = time.Now().Add(24 * time.Hour) },
	UnknownCA:              func(i *issue) { i.by = NewCA("Somebody Else") },
	SameSubjectOtherCA:     func(i *issue) { i.by = NewCA(i.by.Certificate.Subject.CommonName) },
	SelfSignedAsCA: func(i *issue) {
		i.template.Subject = i.by.Certificate.Subject
		i.by = &CA{Certificate: i.template, Key: i.key}
	},
	LeafAsCA: func(i *issue) {
		leaf := i.by.Client(nil)
		i.by = &CA{Certificate: leaf.Leaf, Key: leaf.PrivateKey.(crypto.Signer), chain: i.by.all()}
	},
	ChainTooLong: func(i *issue) {
		for n := len(i.by.chain) + 1; n < 5; n++ {
			i.by = i.by.NewIntermediate(fmt.Sprintf("Intermediate CA %d", n), nil)
		}
	},
	NoBasicConstraints: func(i *issue) {
		i.by = i.by.NewIntermediate("CA Without Constraints",
			func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = false, false })
	},
	ServerUsage:  func(i *issue) { i.template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
	SHA1:         func(i *issue) { i.template.SignatureAlgorithm = x509.ECDSAWithSHA1 },
	RSA1024:      func(i *issue) { i.key = newRSAKey(1024) },
	RSAExponent3: func(i *issue) { i.public = &rsa.PublicKey{N: newRSAKey(2048).N, E: 3} },
	RSAEvenModulus: func(i *issue) {
		i.public = &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 65537}
	},
	P224:    func(i *issue) { i.key = newECDSAKey(elliptic.P224()) },
	Ed25519: func(i *issue) { i.key = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) },
	DuplicateExtension: func(i *issue) {
		extension := pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 55555, 1}, Value: []byte{5, 0}}
		i.template.ExtraExtensions = []pkix.Extension{extension, extension}
	},
	ZeroSerial:      func(i *issue) { i.template.SerialNumber = new(big.Int) },
	LongSerial:      func(i *issue) { i.template.SerialNumber = new(big.Int).Lsh(big.NewInt(1), 8*20) },
	ForgedSignature: func(i *issue) { i.forged = true },
}

// Flawed issues a certificate with a flaw. above contains the further CAs of its chain,
// which a truststore with a must also contain. It is empty for most flaws.
func (a *CA) Flawed(flaw CertificateFlaw) (certificate tls.Certificate, above []*x509.Certificate, err error) {
	change := flawed[flaw]
	if change == nil {
		return tls.Certificate{}, nil, fmt.Errorf("paymenttest: unknown certificate flaw %q", flaw)
	}
	i := &issue{by: a, template: clientTemplate(), key: newECDSAKey(elliptic.P256())}
	change(i)
	if i.public == nil {
		i.public = i.key.Public()
	}
	raw := create(i.template, i.by.Certificate, i.public, i.by.Key)
	if i.forged {
		raw[len(raw)-1] ^= 1
	}
	certificate = tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: i.key}
	if i.by == a {
		return certificate, nil, nil
	}
	for _, c := range i.by.all() {
		if !c.Equal(a.Certificate) && !bytes.Equal(c.RawIssuer, c.RawSubject) {
			certificate.Certificate = append(certificate.Certificate, c.Raw)
			above = append(above, c)
		}
	}
	return certificate, above, nil
}

// must returns v. An error is a mistake of this package: an argument that the standard library rejects.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

func newECDSAKey(curve elliptic.Curve) *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(curve, rand.Reader))
}

func newRSAKey(bits int) *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, bits)) }

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name, Organization: []string{"Payment Service"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

func clientTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject: ClientSubject, DNSNames: []string{ClientSubject.CommonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// sign signs template with the issuer's key.
func sign(template, issuer *x509.Certificate, public crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	return must(x509.ParseCertificate(create(template, issuer, public, key)))
}

func create(template, issuer *x509.Certificate, public crypto.PublicKey, key crypto.Signer) []byte {
	return must(x509.CreateCertificate(rand.Reader, template, issuer, public, key))
}
