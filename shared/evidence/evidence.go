// Package evidence defines the record that is kept of each accepted delivery, so that an
// institution can show later what was sent to it and by whom. It is the JSON lines format
// of the evidence bucket. A [Joiner] puts lines together again.
//
// A record shows that the holder of the private key of its JWK signed the payload. It does
// not show whose key this is: compare the JWK with one from another source. A record of a
// delivery by mTLS alone has no signature. It shows which certificate was accepted and whether
// it was valid at that time, not that the client sent this payload. Nothing shows that no
// record was withheld.
package evidence

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
)

// Proof is the payload of a delivery and what it was authenticated by.
type Proof struct {
	Payload []byte `json:"payload,omitempty"` // as it was signed
	// The signature and the key that verified it; absent with mTLS alone.
	Timestamp string         `json:"timestamp,omitempty"`
	KeyID     string         `json:"keyId,omitempty"`
	Signature string         `json:"signature,omitempty"`
	JWK       jsontext.Value `json:"jwk,omitzero"`
	// Certificate is nil if no client certificate was required. Without a signature,
	// it is the only proof.
	Certificate *Certificate `json:"certificate,omitempty"`
}

// Certificate is the client certificate of a delivery and the digest of the payload.
// It is not a signature: a certificate is public, so anyone with write access can
// store it with another payload.
type Certificate struct {
	PayloadDigest []byte    `json:"payloadDigest"` // SHA-256
	Chain         []string  `json:"chain"`         // in PEM, from the client's certificate to the root
	Fingerprint   string    `json:"fingerprint"`   // of the client's certificate: SHA-256 in hexadecimal
	AcceptedAt    time.Time `json:"acceptedAt"`    // when it was verified
}

// NewCertificate returns what is kept of a delivery with that payload, whose client
// certificate was verified at that time. The chain has at least one certificate.
func NewCertificate(payload []byte, chain []*x509.Certificate, acceptedAt time.Time) *Certificate {
	digest := sha256.Sum256(payload)
	c := &Certificate{PayloadDigest: digest[:], Fingerprint: clientcert.Fingerprint(chain[0]), AcceptedAt: acceptedAt}
	for _, one := range chain {
		c.Chain = append(c.Chain, encode(one))
	}
	return c
}

func encode(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

// ErrAltered is returned when parts of a proof or of a record do not belong together.
var ErrAltered = errors.New("evidence: what is stored is not what was accepted")

// HasSignature reports whether p has a signature, or any part of one.
func (p Proof) HasSignature() bool {
	return p.Timestamp != "" || p.KeyID != "" || p.Signature != "" || len(p.JWK) > 0
}

// VerifySignature returns the key of p after it verified the signature with it. exponents
// are the allowed public exponents. Without a usable key the error wraps [ErrAltered], and
// otherwise it is that of [signature.Verify].
func (p Proof) VerifySignature(exponents []int) (*rsa.PublicKey, error) {
	key, err := keys.ParseJWK(p.JWK, p.KeyID, exponents)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAltered, err)
	}
	return key, signature.Verify(key, p.Payload,
		signature.Proof{Timestamp: p.Timestamp, KeyID: p.KeyID, Signature: p.Signature})
}

// Parse returns the chain, which it does not verify. The error wraps [ErrAltered] if the
// payload or the fingerprint is another one.
func (c *Certificate) Parse(payload []byte) (chain []*x509.Certificate, err error) {
	for _, text := range c.Chain {
		one, err := clientcert.Parse(text)
		if err != nil {
			return nil, err
		}
		chain = append(chain, one)
	}
	digest := sha256.Sum256(payload)
	if len(chain) == 0 || clientcert.Fingerprint(chain[0]) != c.Fingerprint ||
		!bytes.Equal(digest[:], c.PayloadDigest) {
		return nil, fmt.Errorf("%w: the payload or the certificate", ErrAltered)
	}
	return chain, nil
}

// verify verifies the chain with its own CAs, as of the time of acceptance.
func (c *Certificate) verify(payload []byte) error {
	chain, err := c.Parse(payload)
	if err != nil {
		return err
	}
	verifier := clientcert.NewVerifier(clientcert.TruststoreOf(chain...), clientcert.Policy{})
	verified, err := verifier.VerifyCertificate(chain[0], c.AcceptedAt)
	if err != nil {
		return err
	}
	same := func(c *x509.Certificate, text string) bool { return encode(c) == text }
	if !slices.EqualFunc(verified, c.Chain, same) {
		return fmt.Errorf("%w: it is not the chain of the certificate", ErrAltered)
	}
	return nil
}

// Record is what is kept of an accepted delivery.
type Record struct {
	AcceptedAt time.Time `json:"acceptedAt"` // when it was found authentic; UTC, milliseconds
	// FunctionVersion identifies the code that accepted it.
	FunctionVersion string   `json:"functionVersion"`
	DeliveryID      string   `json:"deliveryId"`
	EventIDs        []string `json:"eventIds"` // of all events in the payload, in their order, as sent
	Proof
}

// Verify returns nil if the parts of the record belong together: the signature over payload,
// timestamp and key id verifies with the JWK, the payload has the deliveryId and the
// eventIds, and the client certificate was valid when it was accepted. It does not check
// pins and revocations, and compares neither the JWK nor the CAs with another source. It is
// safe for concurrent use.
//
// Nothing protects acceptedAt and functionVersion against whoever can write records.
func (r Record) Verify() error {
	if r.HasSignature() {
		key, err := r.VerifySignature(exponentsOf(r.JWK))
		if err != nil {
			return err
		}
		if !bytes.Equal(r.JWK, keys.FormatJWK(r.KeyID, key)) {
			return fmt.Errorf("%w: the JWK has other members than the key", ErrAltered)
		}
	} else if r.Certificate == nil {
		return fmt.Errorf("%w: neither a signature nor a certificate", ErrAltered)
	}
	if c := r.Certificate; c != nil {
		if err := c.verify(r.Payload); err != nil {
			return err
		}
		if !c.AcceptedAt.Equal(r.AcceptedAt) {
			return fmt.Errorf("%w: two times of acceptance", ErrAltered)
		}
	}
	if deliveryID, eventIDs := IDs(r.Payload); deliveryID != r.DeliveryID || !slices.Equal(eventIDs, r.EventIDs) {
		return fmt.Errorf("%w: the ids are not those of the payload", ErrAltered)
	}
	return nil
}

// exponentsOf returns the public exponent of a JWK. Which exponents are accepted was a
// setting, and 1 is never accepted: everything verifies with it.
func exponentsOf(jwk []byte) []int {
	var text struct {
		E string `json:"e"`
	}
	_ = json.Unmarshal(jwk, &text) // without an exponent, no key is accepted
	e := 0
	octets, _ := base64.RawURLEncoding.DecodeString(text.E)
	for _, octet := range octets[:min(len(octets), 4)] {
		e = e<<8 | int(octet)
	}
	if e < 3 {
		return nil
	}
	return []int{e}
}

// IDs returns the deliveryId and all eventIds of a payload. It returns as many as can be read
// if the payload is not a delivery.
func IDs(payload []byte) (deliveryID string, eventIDs []string) {
	delivery, err := payment.DecodeDelivery(payload)
	if err != nil {
		return payment.PeekIDs(payload)
	}
	for _, e := range delivery.Events {
		eventIDs = append(eventIDs, e.EventID)
	}
	return delivery.DeliveryID, eventIDs
}

// ErrDamaged is returned for a line that is not one that [Record.Lines] returned. A digest
// of the line finds damage. It does not find forgery, since anyone can compute it.
var ErrDamaged = errors.New("evidence: damaged")

// Decode returns the record in a line, with or without the line feed at its end. The error
// wraps [ErrDamaged] if any bit of the line is not as [Record.Lines] wrote it. It is safe for
// concurrent use.
func Decode(line []byte) (r Record, err error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	body, err := open(line)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(body, &r, json.RejectUnknownMembers(true)); err != nil {
		return r, fmt.Errorf("%w: it is not a record", ErrDamaged)
	}
	// So a record has one form only.
	if again, err := seal(r); err != nil || !bytes.Equal(again, line) {
		return r, fmt.Errorf("%w: it is not in the form of a record", ErrDamaged)
	}
	return r, nil
}

// digestBegin and digestEnd surround the digest at the end of a line. The digest is the
// SHA-256 of all before digestBegin, in hexadecimal.
const (
	digestBegin = `,"sha256":"`
	digestEnd   = `"}`
	digestSize  = len(digestBegin) + 2*sha256.Size + len(digestEnd)
)

// seal returns an object as a line without a line feed.
func seal(object any) ([]byte, error) {
	line, err := json.Marshal(object, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	line = line[:len(line)-1]
	sum := sha256.Sum256(line)
	line = append(line, digestBegin...)
	line = hex.AppendEncode(line, sum[:])
	return append(line, digestEnd...), nil
}

// open returns the object of a line that [seal] returned.
func open(line []byte) ([]byte, error) {
	if len(line) < digestSize {
		return nil, fmt.Errorf("%w: the line is too short", ErrDamaged)
	}
	begin := len(line) - digestSize
	sum := sha256.Sum256(line[:begin])
	if string(line[begin:]) != digestBegin+hex.EncodeToString(sum[:])+digestEnd {
		return nil, fmt.Errorf("%w: the digest is that of another line", ErrDamaged)
	}
	return append(slices.Clip(line[:begin]), '}'), nil
}

// Digest returns the digest of a line that [Record.Lines] or [Joiner.Join] returned. Repeated
// lines have the same digest.
func Digest(line []byte) string {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) < digestSize {
		return ""
	}
	return string(line[len(line)-len(digestEnd)-2*sha256.Size : len(line)-len(digestEnd)])
}
