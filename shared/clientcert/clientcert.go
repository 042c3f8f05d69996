// Package clientcert verifies the client certificate of a webhook that is
// authenticated by mTLS (the interface, sections 5.2 and 5.3).
//
// It guarantees that a certificate is accepted only if it is valid at that time, is
// allowed for client authentication, is strong enough, chains to a CA of the
// [Truststore], is not revoked by the settings, and matches the pins of the settings
// if there are any. API Gateway has already verified chain and validity, but it
// checks neither revocation nor pins, and a principal that can invoke the function
// directly bypasses it. Therefore everything is verified again.
//
// A truststore contains the certificates of all CAs up to the roots, because API
// Gateway forwards only the client's own certificate. A self-signed client
// certificate is its own CA.
package clientcert

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Reason is the reason why a certificate is rejected. Its text is stable and appears in logs.
type Reason string

// The reasons.
const (
	Missing     Reason = "certificate-missing"       // the event contains no certificate
	WrongOrigin Reason = "certificate-wrong-origin"  // the event does not come from the API's domain
	Malformed   Reason = "certificate-malformed"     // not one certificate in PEM
	Expired     Reason = "certificate-expired"       // its validity has ended, or that of a CA of its chain
	NotYetValid Reason = "certificate-not-yet-valid" // its validity has not begun
	Weak        Reason = "certificate-weak"          // a signature or key of its chain is too weak or unsupported
	WrongUsage  Reason = "certificate-wrong-usage"   // it is not allowed for client authentication
	Untrusted   Reason = "certificate-untrusted"     // it does not chain to a CA of the truststore
	Revoked     Reason = "certificate-revoked"       // the settings revoke it, or a CA of its chain
	NotPinned   Reason = "certificate-not-pinned"    // it does not match the pins of the settings
	Contradicts Reason = "certificate-contradicts"   // the other fields of the event contradict the PEM
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Missing, WrongOrigin, Malformed, Expired, NotYetValid, Weak, WrongUsage, Untrusted, Revoked,
		NotPinned, Contradicts}
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

// Pin is the SHA-256 of a certificate's subject public key info (RFC 7469,
// section 2.4).
type Pin [sha256.Size]byte

// Serial identifies a certificate by its issuer and serial number (RFC 5280, section
// 4.1.2.2).
type Serial struct {
	Issuer Name
	Number string // hexadecimal, lower case, without leading zeros
}

// Policy restricts the certificates that are accepted, in addition to the truststore.
type Policy struct {
	// Pins are the accepted keys; every key if it is empty.
	Pins []Pin
	// Subjects and DNSNames are the accepted subjects and DNS names. A certificate must
	// have one of them, unless both are empty. With Pins, it must match both.
	Subjects []Name
	DNSNames []string
	// Revoked are the rejected certificates. If one is a CA, all certificates that it
	// issued are rejected.
	Revoked []Serial
}

// Verifier verifies client certificates. It is safe for concurrent use.
type Verifier struct {
	truststore *Truststore
	policy     Policy
}

// NewVerifier returns a Verifier.
func NewVerifier(truststore *Truststore, policy Policy) *Verifier {
	return &Verifier{truststore, policy}
}

// Presented is the client certificate in an event of API Gateway with payload format
// 2.0: requestContext.authentication.clientCert (AWS, "Create AWS Lambda proxy
// integrations for HTTP APIs in API Gateway").
type Presented struct {
	PEM                 string
	SubjectDN, IssuerDN string
	SerialNumber        string
	NotBefore, NotAfter string
}

// Verify returns the chain of the certificate of p if it is accepted at the time now:
// the certificate first, its root last. Otherwise the error is an [*Error], and the
// chain contains only the certificate, for logs, or is empty if it could not be
// parsed.
func (v *Verifier) Verify(p Presented, now time.Time) (chain []*x509.Certificate, err error) {
	if p.PEM == "" {
		return nil, reject(Missing, "")
	}
	c, err := Parse(p.PEM)
	if err != nil {
		return nil, err
	}
	if chain, err = v.VerifyCertificate(c, now); err == nil {
		err = contradiction(c, p)
	}
	if err != nil {
		return []*x509.Certificate{c}, err
	}
	return chain, nil
}

// VerifyCertificate is [Verifier.Verify] for a certificate without the other fields
// of API Gateway. The chain is nil if the certificate is rejected.
func (v *Verifier) VerifyCertificate(c *x509.Certificate, now time.Time) (chain []*x509.Certificate, err error) {
	if c.SerialNumber.Sign() <= 0 || c.SerialNumber.BitLen() > 8*20-1 {
		// RFC 5280, section 4.1.2.2.
		return nil, reject(Malformed, "the serial number is not a positive number of at most 20 octets")
	}
	switch {
	case now.Before(c.NotBefore):
		return nil, reject(NotYetValid, "before %s", c.NotBefore.UTC().Format(time.RFC3339))
	case now.After(c.NotAfter):
		return nil, reject(Expired, "at %s", c.NotAfter.UTC().Format(time.RFC3339))
	}
	if err := checkStrength(c); err != nil {
		return nil, reject(Weak, "it %s", err)
	}
	chains, err := c.Verify(x509.VerifyOptions{
		Roots: v.truststore.roots, Intermediates: v.truststore.intermediates,
		CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
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

// anyChain returns the first chain that is short and strong enough and contains no
// revoked certificate, or the error of the last chain.
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
		if slices.Contains(v.policy.Revoked, SerialOf(c)) {
			return reject(Revoked, "%s", Subject(c))
		}
	}
	return nil
}

func (v *Verifier) pinned(c *x509.Certificate) error {
	if pins := v.policy.Pins; len(pins) > 0 && !slices.Contains(pins, PinOf(c)) {
		return reject(NotPinned, "its key is not in clientCertPins")
	}
	p := v.policy
	if len(p.Subjects)+len(p.DNSNames) == 0 || slices.Contains(p.Subjects, SubjectName(c)) ||
		slices.ContainsFunc(c.DNSNames, func(name string) bool { return slices.Contains(p.DNSNames, name) }) {
		return nil
	}
	return reject(NotPinned, "its subject is not in clientCertSubjects")
}

// Parse parses a text that consists of exactly one certificate in PEM, without headers and
// other text. Otherwise the error is an [*Error]. Lines can end with CR LF, and white space
// can surround the text: the example of API Gateway has line feeds, but AWS does not
// specify them (AWS, "Create AWS Lambda proxy integrations for HTTP APIs in API Gateway").
func Parse(text string) (*x509.Certificate, error) {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	block, rest := pem.Decode([]byte(text))
	switch {
	case block == nil || len(block.Headers) > 0:
		return nil, reject(Malformed, "it is not a certificate in PEM")
	case strings.Count(text, "-----BEGIN") != 1:
		// pem.Decode skips blocks that it cannot parse.
		return nil, reject(Malformed, "there is more than one PEM block")
	case !strings.HasPrefix(text, "-----BEGIN CERTIFICATE-----\n"):
		return nil, reject(Malformed, "there is text before it, or it is not a certificate")
	case strings.ContainsRune(text, '\r'):
		return nil, reject(Malformed, "there is a carriage return within a line")
	case len(rest) > 0:
		return nil, reject(Malformed, "there is text after it")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, reject(Malformed, "%s", plain(err))
	}
	return c, nil
}

// contradiction returns an error if another field of the event contradicts the
// certificate. AWS does not document the format of serial numbers and names: its
// examples have "1" and "a1:a1:a1". So a serial number can be decimal or hexadecimal,
// and a name contradicts only if a word of one of its common attributes is missing.
func contradiction(c *x509.Certificate, p Presented) error {
	if text := p.SerialNumber; text != "" && text != c.SerialNumber.String() &&
		canonicalSerial(text) != SerialOf(c).Number {
		return reject(Contradicts, "serialNumber")
	}
	for _, field := range []struct {
		name, text string
		is         time.Time
	}{{"validity.notBefore", p.NotBefore, c.NotBefore}, {"validity.notAfter", p.NotAfter, c.NotAfter}} {
		if field.text == "" {
			continue
		}
		if at, err := time.Parse("Jan _2 15:04:05 2006 MST", field.text); err != nil || !at.Equal(field.is) {
			return reject(Contradicts, "%s", field.name)
		}
	}
	for _, field := range []struct {
		name, text string
		raw        []byte
	}{{"subjectDN", p.SubjectDN, c.RawSubject}, {"issuerDN", p.IssuerDN, c.RawIssuer}} {
		if field.text == "" {
			continue
		}
		for _, word := range wordsOf(field.raw) {
			if !strings.Contains(field.text, word) {
				return reject(Contradicts, "%s", field.name)
			}
		}
	}
	return nil
}

// wordsOf returns the words of ASCII letters and digits in the values of a name. All
// other characters separate words, because they can be escaped in several ways. It
// considers only the attributes that every implementation writes as text (RFC 4514,
// section 3: CN, L, ST, O, OU, C).
func wordsOf(rawName []byte) (words []string) {
	for _, set := range sequence(rawName) {
		for _, attribute := range set {
			text, _ := attribute.Value.(string) // other values have no words
			if slices.Contains(commonAttributes, attribute.Type.String()) {
				words = append(words, strings.FieldsFunc(text, separates)...)
			}
		}
	}
	return words
}

// commonAttributes are the types CN, C, L, ST, O and OU.
var commonAttributes = []string{"2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.10", "2.5.4.11"}

func separates(r rune) bool {
	return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

func sequence(rawName []byte) (s pkix.RDNSequence) {
	_, _ = asn1.Unmarshal(rawName, &s) // crypto/x509 has parsed it
	return s
}

// Subject returns the subject of a certificate in the form of RFC 4514, for people.
func Subject(c *x509.Certificate) string { return sequence(c.RawSubject).String() }

// Issuer returns the issuer of a certificate in the form of [Subject].
func Issuer(c *x509.Certificate) string { return sequence(c.RawIssuer).String() }

// SerialOf returns the issuer and the serial number of a certificate.
func SerialOf(c *x509.Certificate) Serial {
	return Serial{IssuerName(c), canonicalSerial(c.SerialNumber.Text(16))}
}

// PinOf returns the pin of a certificate's key.
func PinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// Fingerprint returns the SHA-256 of a certificate in hexadecimal.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// canonicalSerial returns the canonical form of a hexadecimal serial number.
func canonicalSerial(text string) string {
	text = strings.ToLower(strings.ReplaceAll(text, ":", ""))
	if trimmed := strings.TrimLeft(text, "0"); trimmed != "" {
		return trimmed
	}
	return "0"
}

// plain returns the text of an error of crypto/x509 without its prefix.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "x509: ") }

// ParsePin parses a pin: 64 hexadecimal digits, with or without colons.
func ParsePin(text string) (p Pin, err error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(text), ":", ""))
	if err != nil || copy(p[:], raw) != len(p) || len(raw) != len(p) {
		return Pin{}, errors.New("must be a SHA-256 in hexadecimal, 64 digits")
	}
	return p, nil
}

// ParseSerial parses SERIAL@ISSUER: a serial number in hexadecimal, with or without
// colons, and the issuer as [ParseName] accepts it.
func ParseSerial(text string) (Serial, error) {
	text, issuer, ok := strings.Cut(strings.TrimSpace(text), "@")
	number := canonicalSerial(strings.TrimPrefix(text, "serial=")) // openssl x509 writes it
	if !ok || text == "" || strings.Trim(number, "0123456789abcdef") != "" {
		return Serial{}, errors.New("must be SERIAL@ISSUER, as in 0a1b2c@CN=Operator CA,O=Payments")
	}
	name, err := ParseName(issuer)
	return Serial{name, number}, err
}
