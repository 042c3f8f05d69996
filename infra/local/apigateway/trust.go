package apigateway

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// maxCAs is how many CAs the chain of a client certificate may have. AWS says that
// certificates can have a chain of at most four; those who tried found that the
// client's own certificate does not count ("Understanding the API Gateway mTLS chain
// depth limit").
const maxCAs = 4

// trust is a truststore. Certificates that a client sends beside its own are not
// used: the issuers must be in the truststore.
type trust struct{ roots, intermediates *x509.CertPool }

func newTrust(text []byte) (*trust, error) {
	t := &trust{x509.NewCertPool(), x509.NewCertPool()}
	found := false
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("apigateway: truststore: %w", err)
		}
		found = true
		if bytes.Equal(c.RawSubject, c.RawIssuer) &&
			c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil {
			t.roots.AddCert(c)
		} else {
			t.intermediates.AddCert(c)
		}
	}
	if !found {
		return nil, errors.New("apigateway: truststore: there is no certificate")
	}
	return t, nil
}

func (t *trust) verify(c *x509.Certificate, now time.Time) error {
	if err := strength(c); err != nil {
		return err
	}
	chains, err := c.Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: t.intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return err
	}
	for _, chain := range chains {
		if err = checkChain(chain); err == nil {
			return nil
		}
	}
	return err
}

func checkChain(chain []*x509.Certificate) error {
	if cas := len(chain) - 1; cas > maxCAs {
		return fmt.Errorf("its chain has %d CAs, more than %d", cas, maxCAs)
	}
	for _, c := range chain {
		if err := strength(c); err != nil {
			return err
		}
	}
	return nil
}

// strength returns why a certificate is too weak: API Gateway accepts SHA-256 or
// stronger, RSA of 2048 bits or more and ECDSA of 256 bits or more.
func strength(c *x509.Certificate) error {
	switch c.SignatureAlgorithm {
	case x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA,
		x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS,
		x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512:
	default:
		return fmt.Errorf("it is signed with %s", c.SignatureAlgorithm)
	}
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < 2048 {
			return fmt.Errorf("its RSA key has %d bits", bits)
		}
	case *ecdsa.PublicKey:
		if bits := key.Curve.Params().BitSize; bits < 256 {
			return fmt.Errorf("its ECDSA key has %d bits", bits)
		}
	default:
		return fmt.Errorf("its key is %s", c.PublicKeyAlgorithm)
	}
	return nil
}
