// Package clientcert verifies the client certificate of a webhook that is authenticated by mTLS (the interface,
// sections 5.2 and 5.3).
//
// It guarantees that a certificate is accepted only if it is valid at that time, is allowed for client authentication,
// is strong enough, chains to a CA of the [Truststore], is not revoked by the settings, and matches the pins of the
// settings if there are any. API Gateway has already verified chain and validity, but it checks neither revocation nor
// pins, and a principal that can invoke the function directly bypasses it. Therefore everything is verified again.
//
// A truststore contains the certificates of all CAs up to the roots: API Gateway need not forward more than the
// client's own certificate. Certificates that follow it can complete its chain, and are never trusted by themselves. A
// self-signed client certificate is its own CA.
package clientcert

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Reason is the reason why a certificate is rejected. Its text is stable and appears in logs.
type Reason string

// The reasons.
const (
	Missing     Reason = "certificate-missing"       // the event contains no certificate
	WrongOrigin Reason = "certificate-wrong-origin"  // the event does not come from the API's domain
	Malformed   Reason = "certificate-malformed"     // the text does not begin with a certificate in PEM
	Expired     Reason = "certificate-expired"       // its validity has ended, or that of a CA of its chain
	NotYetValid Reason = "certificate-not-yet-valid" // its validity has not begun
	Weak        Reason = "certificate-weak"          // a signature or key of its chain is too weak or unsupported
	WrongUsage  Reason = "certificate-wrong-usage"   // it is not allowed for client authentication
	Untrusted   Reason = "certificate-untrusted"     // it does not chain to a CA of the truststore
	Revoked     Reason = "certificate-revoked"       // the settings revoke its key, or that of a CA of its chain
	NotPinned   Reason = "certificate-not-pinned"    // it does not match the pins of the settings
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Missing, WrongOrigin, Malformed, Expired, NotYetValid, Weak, WrongUsage, Untrusted, Revoked,
		NotPinned}
}

// Error is returned when a certificate is rejected.
type Error struct {
	Reason Reason
	// Detail explains the reason. It can contain names and times of the certificate, never its PEM.
	Detail string
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return "clientcert: " + string(e.Reason)
	}
	return "clientcert: " + string(e.Reason) + ": " + e.Detail
}

func reject(reason Reason, format string, args ...any) error {
	return &Error{reason, fmt.Sprintf(format, args...)}
}

// Policy restricts the certificates that are accepted, in addition to the truststore.
type Policy struct {
	// Pins are the accepted keys, as [PinOf] returns them; every key if it is empty.
	Pins []string
	// Subjects are the accepted subjects, as [Subject] returns them, and DNS names. A certificate must have one of
	// them, unless it is empty. With Pins, it must match both.
	Subjects []string
	// Revoked has the keys that are rejected, by their pins. If one is that of a CA, all certificates that it issued
	// are rejected. A certificate can only be revoked by its key: anyone can change the fingerprint of one that is
	// signed with ECDSA, and a client chooses among the certificates of a key.
	Revoked Revocations
}

// Verifier verifies client certificates. It is safe for concurrent use.
type Verifier struct {
	roots         *x509.CertPool // the certificates of the truststore that are self-signed
	intermediates *x509.CertPool // the others
	policy        Policy
}

// NewVerifier returns a Verifier.
func NewVerifier(truststore Truststore, policy Policy) *Verifier {
	v := &Verifier{x509.NewCertPool(), x509.NewCertPool(), policy}
	for _, c := range truststore {
		if selfSigned(c) {
			v.roots.AddCert(c)
		} else {
			v.intermediates.AddCert(c)
		}
	}
	return v
}

// Verify returns the chain of a certificate in PEM if it is accepted at the time now: the certificate first, its root
// last. Otherwise the error is an [*Error], and the chain contains only the certificate, for logs, or is empty if it
// could not be parsed. "API Gateway forwards the certificates that clients provide" (AWS, "Configuring mutual TLS
// authentication for an HTTP API"): the first one must be as [Parse] accepts it, and those of its CAs can follow.
func (v *Verifier) Verify(text string, now time.Time) (chain []*x509.Certificate, err error) {
	before, block, after := cutBlock(text)
	switch {
	case text == "":
		return nil, reject(Missing, "")
	case strings.Contains(text, privateKey):
		return nil, reject(Malformed, "there is a private key")
	}
	c, err := Parse(before + block)
	if err != nil {
		return nil, err
	}
	if chain, err = v.VerifyCertificate(c, now, intermediatesIn(after)...); err != nil {
		return []*x509.Certificate{c}, err
	}
	return chain, nil
}

// maxAdded is the size of a PEM block that can be an intermediate.
const maxAdded = 16 << 10

// intermediatesIn returns the certificates of CAs among the first [MaxChain] PEM blocks of a text. It ignores what
// cannot help: self-signed and weak certificates, and what can't be read.
func intermediatesIn(text string) (list []*x509.Certificate) {
	for range MaxChain {
		var block string
		if _, block, text = cutBlock(text); len(block) > maxAdded {
			continue
		}
		if c, err := parseBlock(block); err == nil && checkStrength(c) == nil && !selfSigned(c) {
			list = append(list, c)
		}
	}
	return list
}

// VerifyCertificate is [Verifier.Verify] for a certificate that is parsed. Its chain can have the intermediates,
// besides the certificates of the truststore. The chain is nil if the certificate is rejected.
func (v *Verifier) VerifyCertificate(c *x509.Certificate, now time.Time,
	intermediates ...*x509.Certificate) (chain []*x509.Certificate, err error) {
	if c.SerialNumber.Sign() <= 0 || c.SerialNumber.BitLen() > 8*20-1 {
		// RFC 5280, section 4.1.2.2.
		return nil, reject(Malformed, "the serial number is not a positive number of at most 20 octets")
	}
	if reason, text := validity(c, now); reason != "" {
		return nil, reject(reason, "it %s", text)
	}
	if err := checkStrength(c); err != nil {
		return nil, reject(Weak, "it %s", err)
	}
	pool := v.intermediates
	if len(intermediates) > 0 {
		pool = pool.Clone()
	}
	for _, one := range intermediates {
		pool.AddCert(one)
	}
	// It checks at most 100 signatures.
	chains, err := c.Verify(x509.VerifyOptions{Roots: v.roots, Intermediates: pool, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
		switch invalid.Reason {
		case x509.IncompatibleUsage:
			return nil, reject(WrongUsage, "it is not allowed for client authentication")
		case x509.Expired:
			return nil, reject(Expired, "a CA of its chain: %s", plain(err))
		}
		return nil, reject(Untrusted, "%s", plain(err))
	}
	if chain, err = v.anyChain(chains); err != nil {
		return nil, err
	}
	return chain, v.pinned(c)
}

// anyChain returns the first chain that is short and strong enough and contains no revoked key, or the error of the
// last chain.
func (v *Verifier) anyChain(chains [][]*x509.Certificate) (chain []*x509.Certificate, err error) {
	for _, chain := range chains {
		if err = v.checkChain(chain); err == nil {
			return chain, nil
		}
	}
	return nil, err
}

func (v *Verifier) checkChain(chain []*x509.Certificate) error {
	if cas := len(chain) - 1; cas > MaxChain {
		return reject(Untrusted, "its chain has %d CAs, more than %d", cas, MaxChain)
	}
	for _, c := range chain {
		if err := checkStrength(c); err != nil {
			return reject(Weak, "%s %s", Subject(c), err)
		}
		if v.policy.Revoked.HasSHA256(c.RawSubjectPublicKeyInfo) {
			return reject(Revoked, "the key of %s", Subject(c))
		}
	}
	return nil
}

func (v *Verifier) pinned(c *x509.Certificate) error {
	if pins := v.policy.Pins; len(pins) > 0 && !slices.Contains(pins, PinOf(c)) {
		return reject(NotPinned, "its key is not in clientCertPins")
	}
	accepted := v.policy.Subjects
	// A subject has an equals sign. A DNS name that has one must not pass as a subject.
	named := func(name string) bool { return !strings.Contains(name, "=") && slices.Contains(accepted, name) }
	if len(accepted) == 0 || slices.Contains(accepted, Subject(c)) || slices.ContainsFunc(c.DNSNames, named) {
		return nil
	}
	return reject(NotPinned, "its subject is not in clientCertSubjects")
}

// Parse parses a text that consists of exactly one certificate in PEM, without headers and other text. Otherwise the
// error is an [*Error]. White space can be anywhere between its characters: AWS does not specify it (AWS, "Create AWS
// Lambda proxy integrations for HTTP APIs in API Gateway").
func Parse(text string) (*x509.Certificate, error) {
	before, block, after := cutBlock(text)
	c, err := parseBlock(block)
	switch {
	case strings.TrimSpace(before+after) != "":
		return nil, reject(Malformed, "there is other text than a certificate in PEM")
	case err != nil:
		return nil, reject(Malformed, "it %s", err)
	}
	return c, nil
}

// Subject returns the subject of a certificate in the form of RFC 4514.
func Subject(c *x509.Certificate) string { return nameOf(c.RawSubject) }

// Issuer returns the issuer of a certificate in the form of [Subject].
func Issuer(c *x509.Certificate) string { return nameOf(c.RawIssuer) }

func nameOf(raw []byte) string {
	var name pkix.RDNSequence
	_, _ = asn1.Unmarshal(raw, &name) // crypto/x509 has parsed it
	return name.String()
}

// PinOf returns the SHA-256 of a certificate's subject public key info (RFC 7469, section 2.4) in hexadecimal. Unlike a
// certificate's fingerprint, it has only one value for a key.
func PinOf(c *x509.Certificate) string { return hexSHA256(c.RawSubjectPublicKeyInfo) }

// Fingerprint returns the SHA-256 of a certificate in hexadecimal.
func Fingerprint(c *x509.Certificate) string { return hexSHA256(c.Raw) }

func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// plain returns the text of an error of crypto/x509 without its prefix.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "x509: ") }

// subjectForm is a DNS name, or a name as pkix.RDNSequence writes it. It does not contain the replacement character,
// which stands for different bytes.
var subjectForm = regexp.MustCompile(`^(?:[\w.*-]+|` + attributeForm + `(?:[,+]` + attributeForm + `)*)$`)

const attributeForm = `(?:[A-Z]+|\d+(?:\.\d+)+)=(?:[^\\,+"<>;\x{FFFD}]|\\.)*`

// ParseSubject returns a text that is a DNS name, or a subject in the form in which [Subject] returns it. In another
// spelling, a subject would match no certificate.
func ParseSubject(text string) (string, error) {
	if !subjectForm.MatchString(text) {
		return "", errors.New("must be a DNS name, or a subject exactly as the line of a webhook shows it, " +
			"such as CN=webhooks.payments.example,O=Payments")
	}
	return text, nil
}
