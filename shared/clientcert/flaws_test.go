package clientcert_test

import (
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
	"math/big"
	"testing"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// flaw is a flaw of a client certificate that is otherwise valid.
type flaw struct {
	reason clientcert.Reason
	change func(*x509.Certificate)
	// issuer returns another issuer than the CA. Its certificate is in the truststore, too.
	issuer func(*paymenttest.CA) *paymenttest.CA
}

var modulus = paymenttest.NewKey(2048).Private.N

var flaws = map[string]flaw{
	"expired": {clientcert.Expired, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	}, nil},
	"not yet valid": {clientcert.NotYetValid,
		func(c *x509.Certificate) { c.NotBefore = time.Now().Add(24 * time.Hour) }, nil},
	"for servers only": {clientcert.WrongUsage,
		func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, nil},
	"sha-1": {clientcert.Weak, func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 }, nil},
	"rsa-1024": {clientcert.Weak,
		func(c *x509.Certificate) { c.PublicKey = paymenttest.NewKey(1024).Private.Public() }, nil},
	"the exponent 3": {clientcert.Weak,
		func(c *x509.Certificate) { c.PublicKey = &rsa.PublicKey{N: modulus, E: 3} }, nil},
	"an even modulus": {clientcert.Weak, func(c *x509.Certificate) {
		c.PublicKey = &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 65537}
	}, nil},
	"p-224": {clientcert.Weak, func(c *x509.Certificate) {
		key, _ := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
		c.PublicKey = &key.PublicKey
	}, nil},
	"ed25519": {clientcert.Weak, func(c *x509.Certificate) {
		c.PublicKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public()
	}, nil},
	"an extension twice": {clientcert.Malformed, func(c *x509.Certificate) {
		extension := pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 55555, 1}, Value: []byte{5, 0}}
		c.ExtraExtensions = []pkix.Extension{extension, extension}
	}, nil},
	"the serial number 0": {clientcert.Malformed,
		func(c *x509.Certificate) { c.SerialNumber = new(big.Int) }, nil},
	"a serial number of 21 octets": {clientcert.Malformed,
		func(c *x509.Certificate) { c.SerialNumber = new(big.Int).Lsh(big.NewInt(1), 8*20) }, nil},

	"issued with the key of a client": {clientcert.Untrusted, nil, func(ca *paymenttest.CA) *paymenttest.CA {
		client := ca.Client(nil)
		return &paymenttest.CA{Certificate: client.Leaf, Key: client.PrivateKey.(crypto.Signer)}
	}},
	"a chain of five CAs": {clientcert.Untrusted, nil, func(ca *paymenttest.CA) *paymenttest.CA {
		for range 4 {
			ca = ca.NewIntermediate("Intermediate CA", nil)
		}
		return ca
	}},
	"issued by a CA without the CA flag": {clientcert.Untrusted, nil, func(ca *paymenttest.CA) *paymenttest.CA {
		return ca.NewIntermediate("CA Without Constraints",
			func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = false, false })
	}},
}

func TestRejectsEveryFlawWithItsReason(t *testing.T) {
	verify := func(t *testing.T, client tls.Certificate, want clientcert.Reason, trusted ...*x509.Certificate) {
		t.Helper()
		_, err := clientcert.NewVerifier(clientcert.TruststoreOf(trusted...), clientcert.Policy{}).Verify(pemOf(client),
			time.Now())
		rejected(t, err, want)
	}
	for name, f := range flaws {
		t.Run(name, func(t *testing.T) {
			ca := paymenttest.NewCA("Operator CA")
			issuer := ca
			if f.issuer != nil {
				issuer = f.issuer(ca)
			}
			verify(t, issuer.Client(f.change), f.reason, append(issuer.Chain, issuer.Certificate, ca.Certificate)...)
		})
	}
	ca := paymenttest.NewCA("Operator CA")
	forged := ca.Client(nil)
	forged.Certificate[0][len(forged.Certificate[0])-1] ^= 1
	self := paymenttest.NewCA("Operator CA").SelfSigned(func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	})
	for _, untrusted := range []tls.Certificate{forged, {Certificate: [][]byte{self.Raw}},
		paymenttest.NewCA("Somebody Else").Client(nil), paymenttest.NewCA("Operator CA").Client(nil)} {
		verify(t, untrusted, clientcert.Untrusted, ca.Certificate)
	}
}
