// Package evidence defines what is stored of a delivery so that an institution can show later
// what was sent to it and by whom: the [Proof] of a delivery, which parked deliveries have, and
// the [Record] of an accepted one. infra/EVIDENCE.md describes the format for auditors.
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
	"encoding/binary"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/revocation"
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

// Certificate is the client certificate of a delivery and the time at which it was verified.
// It is not a signature: a certificate is public, so anyone with write access can
// store it with another payload.
type Certificate struct {
	// Digest is the [Digest] of payload, acceptedAt and chain. It finds damage, not forgery.
	Digest      []byte    `json:"digest"`
	Chain       []string  `json:"chain"`       // in PEM, from the client's certificate to the root
	Fingerprint string    `json:"fingerprint"` // of the client's certificate: SHA-256 in hexadecimal
	AcceptedAt  time.Time `json:"acceptedAt"`  // when it was verified; UTC, milliseconds
}

// NewCertificate returns what is stored of a delivery with that payload, whose client
// certificate was verified at that time. The chain has at least one certificate.
func NewCertificate(payload []byte, chain []*x509.Certificate, acceptedAt time.Time) *Certificate {
	c := &Certificate{Fingerprint: clientcert.Fingerprint(chain[0]),
		AcceptedAt: acceptedAt.UTC().Truncate(time.Millisecond)}
	fields := [][]byte{payload, []byte(c.AcceptedAt.Format(time.RFC3339Nano))}
	for _, one := range chain {
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Raw})
		c.Chain, fields = append(c.Chain, string(text)), append(fields, text)
	}
	c.Digest = Digest(fields...)
	return c
}

// Digest returns the SHA-256 of fields, each after its length in 8 bytes, the most significant first.
func Digest(fields ...[]byte) []byte {
	h := sha256.New()
	for _, field := range fields {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		h.Write(field)
	}
	return h.Sum(nil)
}

// ErrAltered is returned when parts of a proof or of a record do not belong together.
var ErrAltered = errors.New("evidence: what is stored is not what was accepted")

// HasSignature reports whether p has a signature, or any part of one.
func (p Proof) HasSignature() bool {
	return p.Timestamp != "" || p.KeyID != "" || p.Signature != "" || len(p.JWK) > 0
}

// SentAt returns the signed timestamp or, without a signature, the time of the latest event. It is
// zero if the time can't be read.
func (p Proof) SentAt() (at time.Time) {
	if !p.HasSignature() {
		return payment.PeekTime(p.Payload)
	}
	at, _ = signature.TimeOf(p.Timestamp)
	return at
}

// Path returns how the name of an object with that time begins: the hour, as in 2026/01/31/12/, and the time
// in milliseconds, as in 20260131T120000.123Z. It is that of 1970 for a time that has no such form.
func Path(at time.Time) string {
	if at = at.UTC(); at.Year() < 1970 || at.Year() > 9999 {
		at = time.UnixMilli(0).UTC()
	}
	return at.Format("2006/01/02/15/20060102T150405.000Z")
}

// Digest returns the digest of the payload and what it was authenticated by. A delivery that is sent
// again without being signed again has the same digest. The certificate counts, but not when it was
// verified.
func (p Proof) Digest() []byte {
	fingerprint := ""
	if p.Certificate != nil {
		fingerprint = p.Certificate.Fingerprint
	}
	return Digest(p.Payload, []byte(p.Timestamp), []byte(p.KeyID), []byte(p.Signature), p.JWK, []byte(fingerprint))
}

// VerifySignature returns the key of p after it verified the signature with it. Without a
// usable key the error wraps [ErrAltered], and otherwise it is that of [signature.Verify].
func (p Proof) VerifySignature() (*rsa.PublicKey, error) {
	key, err := keys.ParseJWK(p.JWK, p.KeyID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAltered, err)
	}
	return key, signature.Verify(key, p.Payload,
		signature.Parts{Timestamp: p.Timestamp, KeyID: p.KeyID, Signature: p.Signature})
}

// Verify verifies the client's certificate as of the time of acceptance and returns the chain
// that this found, of the truststore and the CAs that are stored. With a truststore of nil, the
// latter are trusted. No certificate of the chain is revoked. The error wraps [ErrAltered] if the
// payload or any part of c is another one.
func (c *Certificate) Verify(payload []byte, trusted *clientcert.Truststore,
	revoked revocation.List) ([]*x509.Certificate, error) {
	var stored []*x509.Certificate
	for _, text := range c.Chain {
		one, err := clientcert.Parse(text)
		if err != nil {
			return nil, err
		}
		stored = append(stored, one)
	}
	if len(stored) == 0 || !reflect.DeepEqual(NewCertificate(payload, stored, c.AcceptedAt), c) {
		return nil, fmt.Errorf("%w: the payload or the certificate", ErrAltered)
	}
	if trusted == nil {
		trusted = clientcert.TruststoreOf(stored...)
	}
	return clientcert.NewVerifier(trusted, clientcert.Policy{Revoked: revoked}).VerifyCertificate(stored[0],
		c.AcceptedAt, stored[1:]...)
}

// Record is what is stored of an accepted delivery. Its JSON members are those of a parked one.
type Record struct {
	DeliveryID string   `json:"deliveryId"`
	EventIDs   []string `json:"eventIds"` // of all events in the payload, in their order, as sent
	Proof
}

// NewRecord returns the record of a delivery with that proof.
func NewRecord(proof Proof) Record {
	deliveryID, eventIDs := payment.PeekIDs(proof.Payload, math.MaxInt)
	return Record{deliveryID, eventIDs, proof}
}

// Prefix begins the keys of all records.
const Prefix = "accepted/"

// Key returns the key of the record's object in S3, such as
// accepted/2026/01/31/12/20260131T120000.123Z-DELIVERYID-DIGEST.json. The time is [Proof.SentAt], the
// deliveryId is in lower case, and DIGEST is half of [Proof.Digest] in hexadecimal.
func (r Record) Key() string {
	return fmt.Sprintf("%s%s-%s-%x.json", Prefix, Path(r.SentAt()), strings.ToLower(r.DeliveryID),
		r.Digest()[:sha256.Size/2])
}

// Encode returns the object of a record. A record has only one encoding.
func (r Record) Encode() ([]byte, error) {
	text, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	return text, nil
}

// ErrDamaged is returned for what [Record.Encode] did not return.
var ErrDamaged = errors.New("evidence: damaged")

// Decode returns the record in an object. The error wraps [ErrDamaged] if the object is not the encoding
// of a record.
func Decode(object []byte) (r Record, err error) {
	err = json.Unmarshal(object, &r, json.RejectUnknownMembers(true))
	if again, encodeErr := r.Encode(); err != nil || encodeErr != nil || !bytes.Equal(again, object) {
		return r, fmt.Errorf("%w: it is not the encoding of a record", ErrDamaged)
	}
	return r, nil
}

// Verify returns nil if the parts of the record belong together: the signature over payload,
// timestamp and key id verifies with the JWK, the payload has the deliveryId and the
// eventIds, and the client certificate was valid when it was accepted. It does not check
// pins and revocations, and compares neither the JWK nor the CAs with another source. It is
// safe for concurrent use.
//
// Nothing protects a certificate's acceptedAt against whoever can write records.
func (r Record) Verify() error {
	if r.HasSignature() {
		key, err := r.VerifySignature()
		if err != nil {
			return err
		}
		if !bytes.Equal(r.JWK, keys.FormatJWK(r.KeyID, key)) {
			return fmt.Errorf("%w: the JWK has other members than the key", ErrAltered)
		}
	} else if r.Certificate == nil {
		return fmt.Errorf("%w: neither a signature nor a certificate", ErrAltered)
	}
	if r.Certificate != nil {
		if _, err := r.Certificate.Verify(r.Payload, nil, nil); err != nil {
			return err
		}
	}
	if want := NewRecord(r.Proof); want.DeliveryID != r.DeliveryID || !slices.Equal(want.EventIDs, r.EventIDs) {
		return fmt.Errorf("%w: the ids are not those of the payload", ErrAltered)
	}
	return nil
}
