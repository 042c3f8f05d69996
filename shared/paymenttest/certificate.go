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
	"math/big"
	"net"
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
	return &CA{Certificate: c, Key: key, chain: append([]*x509.Certificate{a.Certificate}, a.chain...)}
}

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
	for _, c := range append([]*x509.Certificate{a.Certificate}, a.chain...) {
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
	for _, above := range append([]*x509.Certificate{a.Certificate}, a.chain...) {
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
func CertificateFlaws() []CertificateFlaw {
	return []CertificateFlaw{
		CertificateExpired, CertificateNotYetValid, UnknownCA, SameSubjectOtherCA, SelfSignedAsCA, LeafAsCA,
		ChainTooLong,
		NoBasicConstraints, PathTooLong, NameConstraints, ServerUsage, SHA1, MD5, RSA1024, RSAExponent3, RSAEvenModulus,
		P224, Ed25519, DuplicateExtension, UnknownCriticalExtension, NegativeSerial, ZeroSerial, LongSerial,
		ForgedSignature,
	}
}

// Flawed issues a certificate with a flaw. above contains the further CAs of its chain,
// which a truststore with a must also contain. It is empty for most flaws.
func (a *CA) Flawed(flaw CertificateFlaw) (certificate tls.Certificate, above []*x509.Certificate, err error) {
	template := clientTemplate()
	var key crypto.Signer = newECDSAKey(elliptic.P256())
	issuer := a
	var edit func(*tbsCertificate)
	switch flaw {
	case CertificateExpired:
		template.NotBefore, template.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	case CertificateNotYetValid:
		template.NotBefore = time.Now().Add(24 * time.Hour)
	case UnknownCA:
		issuer = NewCA("Somebody Else")
	case SameSubjectOtherCA:
		issuer = NewCA(a.Certificate.Subject.CommonName)
	case SelfSignedAsCA:
		template.Subject = a.Certificate.Subject
		return a.alone(sign(template, template, key.Public(), key), key), nil, nil
	case LeafAsCA:
		leaf := a.Client(nil)
		issuer = &CA{Certificate: leaf.Leaf, Key: leaf.PrivateKey.(crypto.Signer),
			chain: append([]*x509.Certificate{a.Certificate}, a.chain...)}
	case ChainTooLong:
		for n := len(a.chain) + 1; n < 5; n++ {
			issuer = issuer.NewIntermediate(fmt.Sprintf("Intermediate CA %d", n), nil)
		}
	case NoBasicConstraints:
		issuer = a.NewIntermediate("CA Without Constraints",
			func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = false, false })
	case PathTooLong:
		issuer = a.NewIntermediate("Last CA",
			func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true }).NewIntermediate("One CA Too Many",
			nil)
	case NameConstraints:
		issuer = a.NewIntermediate("CA For Other Names", func(c *x509.Certificate) {
			c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"other.example"}
		})
	case ServerUsage:
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	case SHA1, MD5:
		return a.weaklySigned(template, flaw)
	case RSA1024:
		key, err = rsa.GenerateKey(rand.Reader, 1024)
	case RSAExponent3:
		key = rsaKeys().small
	case RSAEvenModulus:
		key = rsaKeys().normal
		edit = func(t *tbsCertificate) {
			n := new(big.Int).Sub(rsaKeys().normal.N, big.NewInt(1))
			t.PublicKey.PublicKey = bitString(struct {
				N *big.Int
				E int
			}{n, 65537})
		}
	case P224:
		key = newECDSAKey(elliptic.P224())
	case Ed25519:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case DuplicateExtension:
		edit = func(t *tbsCertificate) { t.Extensions = append(t.Extensions, t.Extensions[0]) }
	case UnknownCriticalExtension:
		template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 55555, 1},
			Critical: true, Value: []byte{5, 0}}}
	case NegativeSerial:
		edit = func(t *tbsCertificate) { t.SerialNumber = big.NewInt(-5) }
	case ZeroSerial:
		edit = func(t *tbsCertificate) { t.SerialNumber = big.NewInt(0) }
	case LongSerial:
		edit = func(t *tbsCertificate) { t.SerialNumber = new(big.Int).Lsh(big.NewInt(1), 8*20) }
	case ForgedSignature:
		good := a.Client(nil)
		raw := bytes.Clone(good.Leaf.Raw)
		raw[len(raw)-1] ^= 1
		good.Certificate[0], good.Leaf = raw, nil
		return good, nil, nil
	default:
		err = fmt.Errorf("paymenttest: unknown certificate flaw %q", flaw)
	}
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	var raw []byte
	if edit != nil {
		raw = editAndSign(sign(template, issuer.Certificate, key.Public(), issuer.Key).Raw, issuer.Key, edit)
	} else {
		raw = sign(template, issuer.Certificate, key.Public(), issuer.Key).Raw
	}
	certificate = tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
	if issuer != a {
		for _, c := range append([]*x509.Certificate{issuer.Certificate}, issuer.chain...) {
			if !c.Equal(a.Certificate) && !bytes.Equal(c.RawIssuer, c.RawSubject) {
				certificate.Certificate = append(certificate.Certificate, c.Raw)
				above = append(above, c)
			}
		}
	}
	return certificate, above, nil
}

func (a *CA) alone(c *x509.Certificate, key crypto.Signer) tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}
}

// weaklySigned issues a certificate that is signed with a broken digest. crypto/x509 has
// no such algorithm for ECDSA, so an intermediate CA of a with an RSA key issues it.
func (a *CA) weaklySigned(template *x509.Certificate,
	flaw CertificateFlaw) (tls.Certificate, []*x509.Certificate, error) {
	caKey := rsaKeys().normal
	ca := sign(caTemplate("RSA CA"), a.Certificate, caKey.Public(), a.Key)
	key := newECDSAKey(elliptic.P256())
	good := sign(template, ca, key.Public(), caKey)
	algorithm, hash := asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 5}, crypto.SHA1
	if flaw == MD5 {
		algorithm, hash = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 4}, crypto.MD5
	}
	raw := editAndSignWith(good.Raw, caKey, hash,
		func(t *tbsCertificate) { t.SignatureAlgorithm.Algorithm = algorithm })
	return tls.Certificate{Certificate: [][]byte{raw, ca.Raw}, PrivateKey: key}, []*x509.Certificate{ca}, nil
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
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, public, key)
	if err != nil {
		panic(err) // crypto/x509 rejects a template of this package
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return c
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

func editAndSign(certificate []byte, key crypto.Signer, edit func(*tbsCertificate)) []byte {
	return editAndSignWith(certificate, key, crypto.SHA256, edit)
}

// editAndSignWith changes a certificate and signs it again.
func editAndSignWith(certificate []byte, key crypto.Signer, hash crypto.Hash, edit func(*tbsCertificate)) []byte {
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
