package clientcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxChain is the length of the longest chain of CA certificates that API Gateway accepts (AWS, "How to turn on mutual
// TLS authentication for your HTTP APIs in API Gateway"). The client's own certificate is not counted. This is not in
// the AWS documentation but was found by testing ("Understanding the API Gateway mTLS chain depth limit").
const MaxChain = 4

// Truststore contains the CA certificates that client certificates must chain to, in the order of the text.
type Truststore []*x509.Certificate

// privateKey is in the first and the last line of a private key in PEM, of any kind.
const privateKey = "PRIVATE KEY-"

// ParseTruststore parses the PEM text of CA certificates, which must be valid at the time now. Comments and other text
// between the certificates are ignored. The error names every certificate that can't be read, that API Gateway does not
// accept, that is not a CA or a self-signed client certificate, or whose chain is incomplete or too long.
func ParseTruststore(text []byte, now time.Time) (Truststore, error) {
	if bytes.Contains(text, []byte(privateKey)) {
		// The error must not contain any of it.
		return nil, errors.New("the truststore contains a private key: remove it and replace the key, which can " +
			"have been copied")
	}
	t, problems := readTruststore(string(text), now)
	problems = append(problems, t.chainProblems()...)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return t, nil
}

// ReadTruststore parses a text that [ParseTruststore] accepted earlier. It does not check validity, because
// certificates can have expired since.
func ReadTruststore(text []byte) (Truststore, error) {
	t, problems := readTruststore(string(text), time.Time{})
	if len(problems) > 0 {
		return nil, fmt.Errorf("clientcert: truststore: %w", problems[0])
	}
	return t, nil
}

// readTruststore returns the certificates in a text and what is wrong with each; unless now is zero, also by itself.
func readTruststore(text string, now time.Time) (t Truststore, problems []error) {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimLeft(line, " \t\uFEFF"), "#") { // also a certificate can be a comment
			lines[i] = "\n"
		}
	}
	at, rest := 1, strings.Join(lines, "")
	for n := 1; rest != ""; n++ {
		var before, block string
		before, block, rest = cutBlock(rest)
		// Otherwise, a CA with a mistake in its first line would be missing without a word.
		for line := range strings.Lines(before) {
			if strings.Contains(line, "BEGIN CERTIFICATE") || strings.Contains(line, "END CERTIFICATE") {
				problems = append(problems, fmt.Errorf("a certificate's first or last line is damaged (line %d)", at))
			}
			at += strings.Count(line, "\n")
		}
		if block == "" {
			break
		}
		c, err := parseBlock(block)
		if err != nil {
			problems = append(problems, fmt.Errorf("certificate %d %w (line %d)", n, err, at))
		} else {
			if !now.IsZero() {
				for _, problem := range t.problemsOf(c, now) {
					problems = append(problems, fmt.Errorf("certificate %d (%s) %s", n, Subject(c), problem))
				}
			}
			t = append(t, c)
		}
		at += strings.Count(block, "\n")
	}
	if len(t)+len(problems) == 0 {
		problems = append(problems, errors.New("there is no certificate in PEM"))
	}
	return t, problems
}

const beginning, ending, dashes = "-----BEGIN ", "-----END ", "-----"

// cutBlock returns the first PEM block of a text, which can be damaged, and what is before and after it. Without one,
// block and after are empty.
func cutBlock(text string) (before, block, after string) {
	begin := strings.Index(text, beginning)
	if begin < 0 {
		return text, "", ""
	}
	before, text = text[:begin], text[begin:]
	end := len(text)
	if _, last, ok := strings.Cut(text, ending); ok {
		_, rest, _ := strings.Cut(last, dashes)
		end -= len(rest)
	}
	if next := strings.Index(text[1:], beginning); next >= 0 {
		end = min(end, 1+next)
	}
	return before, text[:end], text[end:]
}

// parseBlock parses a block of [cutBlock] that is a certificate.
func parseBlock(block string) (*x509.Certificate, error) {
	kind, body, _ := strings.Cut(strings.TrimPrefix(block, beginning), dashes)
	body, _, ended := strings.Cut(body, ending+kind+dashes)
	switch {
	case !ended:
		return nil, errors.New("can't be read: its first or last line is damaged")
	case kind != "CERTIFICATE":
		return nil, fmt.Errorf("is a %.40s, not a certificate", kind)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(body), ""))
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	c, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %s", plain(err))
	}
	return c, nil
}

// PEM returns the certificates in PEM, without other text.
func (t Truststore) PEM() (text []byte) {
	for _, c := range t {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text
}

// DaysLeft returns the number of days until the first of some certificates expires; 0 if one has expired.
func DaysLeft(certificates []*x509.Certificate, now time.Time) float64 {
	first := slices.MinFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return max(0, first.NotAfter.Sub(now).Hours()/24)
}

// problemsOf returns the problems of one certificate.
func (t Truststore) problemsOf(c *x509.Certificate, now time.Time) (problems []string) {
	if reason, text := validity(c, now); reason != "" {
		problems = append(problems, text)
	}
	if err := checkStrength(c); err != nil {
		problems = append(problems, err.Error())
	}
	switch {
	case isCA(c):
	case !selfSigned(c):
		problems = append(problems, "is not the certificate of a CA")
	case !allowsClients(c):
		problems = append(problems, "is neither the certificate of a CA nor that of a client")
	}
	same := func(other *x509.Certificate) bool { return bytes.Equal(other.RawSubject, c.RawSubject) }
	if slices.ContainsFunc(t, same) {
		problems = append(problems, "has the subject of an earlier certificate")
	}
	return problems
}

// validity returns the reason why a certificate is not valid at that time, and a text that says it.
func validity(c *x509.Certificate, now time.Time) (Reason, string) {
	switch {
	case now.Before(c.NotBefore):
		return NotYetValid, "is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	case now.After(c.NotAfter):
		return Expired, "expired at " + c.NotAfter.UTC().Format(time.RFC3339)
	}
	return "", ""
}

// chainProblems returns the problems of the chains.
func (t Truststore) chainProblems() (problems []error) {
	for _, c := range t {
		if !selfSigned(c) && t.issuerOf(c) == nil {
			problems = append(problems,
				fmt.Errorf("the certificate of %s is missing: it issued %s", Issuer(c), Subject(c)))
		}
		length := 0 // certificates can form a cycle
		for at := c; at != nil && length <= len(t); at = t.issuerOf(at) {
			length++
		}
		if length > MaxChain {
			problems = append(problems, fmt.Errorf("the chain of %s has %d certificates, but API Gateway accepts %d",
				Subject(c), length, MaxChain))
		}
	}
	return problems
}

// issuerOf returns the certificate that issued another; nil for none.
func (t Truststore) issuerOf(c *x509.Certificate) *x509.Certificate {
	for _, other := range t {
		if bytes.Equal(other.RawSubject, c.RawIssuer) && c.CheckSignatureFrom(other) == nil && !selfSigned(c) {
			return other
		}
	}
	return nil
}

// selfSigned reports whether a certificate is signed with its own key. If the signature algorithm is not supported, it
// reports whether issuer and subject are equal.
func selfSigned(c *x509.Certificate) bool {
	if !bytes.Equal(c.RawSubject, c.RawIssuer) {
		return false
	}
	err := c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature)
	_, insecure := errors.AsType[x509.InsecureAlgorithmError](err)
	return err == nil || insecure || errors.Is(err, x509.ErrUnsupportedAlgorithm)
}

// isCA reports whether a certificate is allowed to sign others (RFC 5280, sections 4.2.1.3 and 4.2.1.9).
func isCA(c *x509.Certificate) bool {
	return c.IsCA && (c.KeyUsage == 0 || c.KeyUsage&x509.KeyUsageCertSign != 0)
}

// allowsClients reports whether a certificate is allowed for client authentication (RFC 5280, section 4.2.1.12: without
// the extension it is valid for every purpose).
func allowsClients(c *x509.Certificate) bool {
	return len(c.ExtKeyUsage) == 0 && len(c.UnknownExtKeyUsage) == 0 ||
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) ||
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// The allowed sizes of RSA keys. The most is the limit of crypto/tls: a client chooses what verifying its chain costs.
const (
	MinRSABits = 2048
	MaxRSABits = 8192
)

// checkStrength returns an error if a certificate's signature or key is too weak or not supported by API Gateway, which
// supports SHA-256 or stronger, RSA-2048 or stronger and ECDSA-256 or stronger.
func checkStrength(c *x509.Certificate) error {
	switch c.SignatureAlgorithm {
	case x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA,
		x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS,
		x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512:
	default:
		return fmt.Errorf("is signed with %s, not with SHA-256 or stronger over RSA or ECDSA", c.SignatureAlgorithm)
	}
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		switch {
		case key.N.BitLen() < MinRSABits:
			return fmt.Errorf("has an RSA key of %d bits, fewer than %d", key.N.BitLen(), MinRSABits)
		case key.N.BitLen() > MaxRSABits:
			return fmt.Errorf("has an RSA key of %d bits, more than %d", key.N.BitLen(), MaxRSABits)
		case key.N.Bit(0) == 0:
			return errors.New("has an RSA key with an even modulus")
		case key.E < 65537 || key.E%2 == 0:
			return fmt.Errorf("has an RSA key with the exponent %d, not an odd one of at least 65537", key.E)
		}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
		default:
			return fmt.Errorf("has an ECDSA key on %s, not on P-256, P-384 or P-521", key.Curve.Params().Name)
		}
	default:
		return fmt.Errorf("has a key of the kind %s, not RSA or ECDSA", c.PublicKeyAlgorithm)
	}
	return nil
}
