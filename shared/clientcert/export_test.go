package clientcert

import "crypto/x509"

// NewVerifierOf returns a verifier with a truststore that ParseTruststore may
// refuse.
func NewVerifierOf(certificates []*x509.Certificate, policy Policy) *Verifier {
	t := &Truststore{roots: x509.NewCertPool(), intermediates: x509.NewCertPool()}
	for _, c := range certificates {
		t.add(c)
	}
	return NewVerifier(t, policy)
}
