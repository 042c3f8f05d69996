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
	"encoding/json/jsontext"
	"encoding/json/v2"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"reflect"
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
		c.Chain = append(c.Chain, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Raw})))
	}
	return c
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

// Verify verifies the client's certificate as of the time of acceptance and returns the chain
// that this found. A truststore of nil stands for the CAs that are stored. The error wraps
// [ErrAltered] if the payload or the fingerprint is another one.
func (c *Certificate) Verify(payload []byte, trusted *clientcert.Truststore) (chain []*x509.Certificate, err error) {
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
	if trusted == nil {
		trusted = clientcert.TruststoreOf(chain...)
	}
	return clientcert.NewVerifier(trusted, clientcert.Policy{}).VerifyCertificate(chain[0], c.AcceptedAt)
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
		key, err := r.VerifySignature(keys.AnyExponent(r.JWK))
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
		chain, err := c.Verify(r.Payload, nil)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(NewCertificate(r.Payload, chain, r.AcceptedAt), c) {
			return fmt.Errorf("%w: another chain or time of acceptance", ErrAltered)
		}
	}
	deliveryID, eventIDs := payment.PeekIDs(r.Payload, math.MaxInt)
	if deliveryID != r.DeliveryID || !slices.Equal(eventIDs, r.EventIDs) {
		return fmt.Errorf("%w: the ids are not those of the payload", ErrAltered)
	}
	return nil
}

// ErrDamaged is returned for a line that is not one that [Record.Lines] returned. A digest
// of the line finds damage. It does not find forgery, since anyone can compute it.
var ErrDamaged = errors.New("evidence: damaged")

// Decode returns the record in a line, with or without the line feed at its end. The error
// wraps [ErrDamaged] if any bit of the line is not as [Record.Lines] wrote it. It is safe for
// concurrent use.
func Decode(line []byte) (Record, error) { return open[Record](line) }

// A line ends with the SHA-256 of all before it, in hexadecimal.
const (
	digestFormat = `,"sha256":"%x"}`
	digestSize   = len(digestFormat) - len("%x") + 2*sha256.Size
)

// seal returns an object as a line without a line feed.
func seal(object any) ([]byte, error) {
	line, err := json.Marshal(object, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	line = line[:len(line)-1]
	return fmt.Appendf(line, digestFormat, sha256.Sum256(line)), nil
}

// open returns the object of a line that [seal] returned. An object has only one line.
func open[Object any](line []byte) (object Object, err error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) < digestSize {
		return object, fmt.Errorf("%w: the line is too short", ErrDamaged)
	}
	body := append(slices.Clip(line[:len(line)-digestSize]), '}')
	err = json.Unmarshal(body, &object, json.RejectUnknownMembers(true))
	if again, sealErr := seal(object); err != nil || sealErr != nil || !bytes.Equal(again, line) {
		return object, fmt.Errorf("%w: it is not as it was written", ErrDamaged)
	}
	return object, nil
}

// Digest returns the digest of a line that [Record.Lines] or [Joiner.Join] returned. Repeated
// lines have the same digest.
func Digest(line []byte) string {
	line = bytes.TrimRight(line, "\"}\n")
	return string(line[max(0, len(line)-2*sha256.Size):])
}
