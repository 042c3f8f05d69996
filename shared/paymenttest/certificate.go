package paymenttest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	_ "crypto/md5" // for certificates that must be rejected
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1" // for certificates that must be rejected
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
	"sync"
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
	key := newECDSAKey(elliptic.P256())
	return a.bundle(sign(template, a.Certificate, key.Public(), a.Key), key)
}

// Server issues the certificate of a server on 127.0.0.1.
func (a *CA) Server(names ...string) tls.Certificate {
	template := clientTemplate()
	template.Subject = pkix.Name{CommonName: "localhost"}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = append([]string{"localhost"}, names...)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	key := newECDSAKey(elliptic.P256())
	return a.bundle(sign(template, a.Certificate, key.Public(), a.Key), key)
}

// bundle returns a certificate with its key and with the intermediate CAs that a client
// sends. It omits the root (RFC 8446, section 4.4.2).
func (a *CA) bundle(c *x509.Certificate, key crypto.Signer) tls.Certificate {
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
	CertificateExpired       CertificateFlaw = "expired"
	CertificateNotYetValid   CertificateFlaw = "not-yet-valid"
	UnknownCA                CertificateFlaw = "unknown-ca"
	SameSubjectOtherCA       CertificateFlaw = "same-subject-other-ca" // by another CA of the same subject
	SelfSignedAsCA           CertificateFlaw = "self-signed-as-ca"     // signed with its own key, as the CA
	LeafAsCA                 CertificateFlaw = "leaf-as-ca"            // issued with the key of a client certificate
	ChainTooLong             CertificateFlaw = "chain-too-long"        // its chain has five CAs
	NoBasicConstraints       CertificateFlaw = "no-basic-constraints"  // its CA's certificate does not have the CA flag
	PathTooLong              CertificateFlaw = "path-too-long"         // its chain violates the path length of a CA
	NameConstraints          CertificateFlaw = "name-constraints"      // its CA may issue only for other names
	ServerUsage              CertificateFlaw = "server-usage"          // it is allowed only for server authentication
	SHA1                     CertificateFlaw = "sha1"
	MD5                      CertificateFlaw = "md5"
	RSA1024                  CertificateFlaw = "rsa-1024"
	RSAExponent3             CertificateFlaw = "rsa-exponent-3"
	RSAEvenModulus           CertificateFlaw = "rsa-even-modulus"
	P224                     CertificateFlaw = "p-224"
	Ed25519                  CertificateFlaw = "ed25519"
	DuplicateExtension       CertificateFlaw = "duplicate-extension"
	UnknownCriticalExtension CertificateFlaw = "unknown-critical-extension"
	NegativeSerial           CertificateFlaw = "negative-serial"
	ZeroSerial               CertificateFlaw = "zero-serial"
	LongSerial               CertificateFlaw = "long-serial" // 21 octets
	ForgedSignature          CertificateFlaw = "forged-signature"
)

// CertificateFlaws returns all flaws. A receiver must reject a certificate with
// any of them.
func CertificateFlaws() []CertificateFlaw { return slices.Sorted(maps.Keys(flawed)) }

// issue is a certificate that is about to be issued.
type issue struct {
	by       *CA
	template *x509.Certificate
	key      crypto.Signer
	edit     func(*tbsCertificate) // changes what crypto/x509 does not; nil: nothing
	signer   crypto.Signer         // signs what edit has changed; nil: the key of by
	hash     crypto.Hash
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
	PathTooLong: func(i *issue) {
		last := i.by.NewIntermediate("Last CA",
			func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true })
		i.by = last.NewIntermediate("One CA Too Many", nil)
	},
	NameConstraints: func(i *issue) {
		i.by = i.by.NewIntermediate("CA For Other Names", func(c *x509.Certificate) {
			c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"other.example"}
		})
	},
	ServerUsage: func(i *issue) { i.template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
	SHA1:        func(i *issue) { i.signWith(crypto.SHA1, 5) },
	MD5:         func(i *issue) { i.signWith(crypto.MD5, 4) },
	RSA1024: func(i *issue) {
		key, err := rsa.GenerateKey(rand.Reader, 1024)
		if err != nil {
			panic(err) // crypto/rsa rejects the size
		}
		i.key = key
	},
	RSAExponent3: func(i *issue) { i.key = rsaKeys().small },
	RSAEvenModulus: func(i *issue) {
		i.key = rsaKeys().normal
		i.edit = func(t *tbsCertificate) {
			n := new(big.Int).Sub(rsaKeys().normal.N, big.NewInt(1))
			t.PublicKey.PublicKey = bitString(struct {
				N *big.Int
				E int
			}{n, 65537})
		}
	},
	P224: func(i *issue) { i.key = newECDSAKey(elliptic.P224()) },
	Ed25519: func(i *issue) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			panic(err) // the random number generator failed
		}
		i.key = key
	},
	DuplicateExtension: func(i *issue) {
		i.edit = func(t *tbsCertificate) { t.Extensions = append(t.Extensions, t.Extensions[0]) }
	},
	UnknownCriticalExtension: func(i *issue) {
		i.template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 55555, 1},
			Critical: true, Value: []byte{5, 0}}}
	},
	NegativeSerial: func(i *issue) { i.edit = func(t *tbsCertificate) { t.SerialNumber = big.NewInt(-5) } },
	ZeroSerial:     func(i *issue) { i.edit = func(t *tbsCertificate) { t.SerialNumber = big.NewInt(0) } },
	LongSerial: func(i *issue) {
		i.edit = func(t *tbsCertificate) { t.SerialNumber = new(big.Int).Lsh(big.NewInt(1), 8*20) }
	},
	ForgedSignature: func(i *issue) { i.edit, i.signer = func(*tbsCertificate) {}, newECDSAKey(elliptic.P256()) },
}

// signWith has the certificate signed with a broken digest and RSA. crypto/x509 has no such
// algorithm for ECDSA, so an intermediate CA with an RSA key issues it. algorithm is the last
// number of its identifier (RFC 8017, appendix C).
func (i *issue) signWith(hash crypto.Hash, algorithm int) {
	key := rsaKeys().normal
	i.by = &CA{Certificate: sign(caTemplate("RSA CA"), i.by.Certificate, key.Public(), i.by.Key), Key: key,
		chain: i.by.all()}
	i.hash = hash
	i.edit = func(t *tbsCertificate) {
		t.SignatureAlgorithm.Algorithm = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, algorithm}
	}
}

// Flawed issues a certificate with a flaw. above contains the further CAs of its chain,
// which a truststore with a must also contain. It is empty for most flaws.
func (a *CA) Flawed(flaw CertificateFlaw) (certificate tls.Certificate, above []*x509.Certificate, err error) {
	change := flawed[flaw]
	if change == nil {
		return tls.Certificate{}, nil, fmt.Errorf("paymenttest: unknown certificate flaw %q", flaw)
	}
	i := &issue{by: a, template: clientTemplate(), key: newECDSAKey(elliptic.P256()), hash: crypto.SHA256}
	change(i)
	raw := create(i.template, i.by.Certificate, i.key.Public(), i.by.Key)
	if i.signer == nil {
		i.signer = i.by.Key
	}
	if i.edit != nil {
		raw = editAndSign(raw, i.signer, i.hash, i.edit)
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

// rsaKeys returns RSA keys. It generates them once, because this takes long.
var rsaKeys = sync.OnceValue(func() (keys struct{ normal, small *rsa.PrivateKey }) {
	var err error
	if keys.normal, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		panic(err)
	}
	keys.small = withExponent3()
	return keys
})

// withExponent3 returns a key with the public exponent 3, which crypto/rsa does
// not generate.
func withExponent3() *rsa.PrivateKey {
	e, one := big.NewInt(3), big.NewInt(1)
	prime := func() *big.Int {
		for {
			p, err := rand.Prime(rand.Reader, 1024)
			if err != nil {
				panic(err)
			}
			if new(big.Int).GCD(nil, nil, e, new(big.Int).Sub(p, one)).Cmp(one) == 0 {
				return p
			}
		}
	}
	for {
		p, q := prime(), prime()
		n := new(big.Int).Mul(p, q)
		if p.Cmp(q) == 0 || n.BitLen() != 2048 {
			continue
		}
		phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
		key := &rsa.PrivateKey{N: n, E: 3, D: new(big.Int).ModInverse(e, phi),
			Primes: []*big.Int{p, q}}
		key.Precompute()
		return key
	}
}

func newECDSAKey(curve elliptic.Curve) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err) // the random number generator failed
	}
	return key
}

func newSerial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err)
	}
	return n.Add(n, big.NewInt(1))
}

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: newSerial(), Subject: pkix.Name{CommonName: name, Organization: []string{"Payment Service"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

func clientTemplate() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: newSerial(), Subject: ClientSubject, DNSNames: []string{ClientSubject.CommonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// sign signs template with the issuer's key.
func sign(template, issuer *x509.Certificate, public crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	c, err := x509.ParseCertificate(create(template, issuer, public, key))
	if err != nil {
		panic(err)
	}
	return c
}

func create(template, issuer *x509.Certificate, public crypto.PublicKey, key crypto.Signer) []byte {
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, public, key)
	if err != nil {
		panic(err) // crypto/x509 rejects a template of this package
	}
	return der
}

// rawCertificate is the ASN.1 structure of a certificate (RFC 5280, section 4.1), for
// certificates that crypto/x509 cannot create.
type rawCertificate struct {
	TBS                asn1.RawValue
	SignatureAlgorithm pkix.AlgorithmIdentifier
	Signature          asn1.BitString
}

type tbsCertificate struct {
	Version            int `asn1:"optional,explicit,default:0,tag:0"`
	SerialNumber       *big.Int
	SignatureAlgorithm pkix.AlgorithmIdentifier
	Issuer             asn1.RawValue
	Validity           asn1.RawValue
	Subject            asn1.RawValue
	PublicKey          struct {
		Algorithm pkix.AlgorithmIdentifier
		PublicKey asn1.BitString
	}
	Extensions []pkix.Extension `asn1:"omitempty,optional,explicit,tag:3"`
}

func bitString(value any) asn1.BitString {
	der, err := asn1.Marshal(value)
	if err != nil {
		panic(err)
	}
	return asn1.BitString{Bytes: der, BitLength: 8 * len(der)}
}

// editAndSign changes a certificate and signs it again.
func editAndSign(certificate []byte, key crypto.Signer, hash crypto.Hash, edit func(*tbsCertificate)) []byte {
	var raw rawCertificate
	var tbs tbsCertificate
	if _, err := asn1.Unmarshal(certificate, &raw); err != nil {
		panic(err)
	}
	if _, err := asn1.Unmarshal(raw.TBS.FullBytes, &tbs); err != nil {
		panic(err)
	}
	edit(&tbs)
	der, err := asn1.Marshal(tbs)
	if err != nil {
		panic(err)
	}
	h := hash.New()
	h.Write(der)
	signature, err := key.Sign(rand.Reader, h.Sum(nil), hash)
	if err != nil {
		panic(err)
	}
	der, err = asn1.Marshal(rawCertificate{
		TBS: asn1.RawValue{FullBytes: der}, SignatureAlgorithm: tbs.SignatureAlgorithm,
		Signature: asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)},
	})
	if err != nil {
		panic(err)
	}
	return der
}
