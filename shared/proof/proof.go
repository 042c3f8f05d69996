// Package proof has what the service sent and how it was authenticated: the [Proof] of a delivery, with the reason why
// it is stored. It has one encoding and one layout of names. infra/EVIDENCE.md describes it for auditors.
//
// A proof shows that the holder of the private key of its JWK signed the payload. It does not show whose key this
// is: compare the JWK with one from another source. Whoever may write to the prefix of a reason can store a key of
// their own. A delivery by mTLS alone has no signature. Its proof shows which certificate was accepted and whether
// it was valid at that time, not that the client sent this payload. Nothing shows that no proof was withheld.
//
// A rejected webhook was never authenticated: anybody who knows the URL can have sent it.
package proof

import (
	"bytes"
	"crypto/rand"
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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
)

// Reason is why a proof is stored.
type Reason string

// The reasons. Accepted proofs are in the evidence bucket, and the others in the parking bucket.
const (
	Accepted Reason = "accepted" // some of its events are published
	Invalid  Reason = "invalid"  // authentic, without identity: the delivery, or some of its events
	Conflict Reason = "conflict" // has an eventId that was recorded before with different content
	Rejected Reason = "rejected" // rejected before it was found authentic
)

// MaxIDs is the most eventIds and positions that a proof of the reason [Invalid] has.
const MaxIDs = 1000

// Proof is the payload of a delivery and what it was authenticated by.
type Proof struct {
	Reason   Reason    `json:"reason"`
	Cause    string    `json:"cause,omitempty"`   // as in events[3].eventId: must be a UUID
	StoredAt time.Time `json:"storedAt,omitzero"` // zero if it is accepted or rejected

	DeliveryID string `json:"deliveryId,omitempty"` // "" if it could not be read
	// EventIDs are, by reason, those of all events in the payload, in their order, as sent; those of the events
	// at Positions, or all that could be read; those in conflict.
	EventIDs []string `json:"eventIds,omitempty"`
	// Positions are those of the events without identity, of an invalid delivery whose other events were
	// published: from 0, at most the first MaxIDs.
	Positions []int     `json:"positions,omitempty"`
	Contents  []Content `json:"contents,omitempty"` // in conflict

	Payload []byte `json:"payload,omitempty"` // as it was signed
	// The signature and the key that verified it; absent with mTLS alone.
	Timestamp string         `json:"timestamp,omitempty"`
	KeyID     string         `json:"keyId,omitempty"`
	Signature string         `json:"signature,omitempty"`
	JWK       jsontext.Value `json:"jwk,omitzero"`
	// Certificate is nil if no client certificate was required. Without a signature, it is the only proof.
	Certificate *Certificate `json:"certificate,omitempty"`

	Request *RejectedRequest `json:"request,omitempty"` // if it is rejected

	LockDays int `json:"-"` // how long the evidence bucket locks it; in its name alone
}

// Content is an event in conflict.
type Content struct {
	EventID  string `json:"eventId"`
	Digest   []byte `json:"digest"`             // as in the ledger
	Amount   string `json:"amount,omitempty"`   // as sent, if it has at most 128 bytes
	Currency string `json:"currency,omitempty"` // as sent, if it has at most 128 bytes
	First    First  `json:"first,omitzero"`
}

// First is what the ledger had of an event when other content of it arrived.
type First struct {
	DeliveryID string    `json:"deliveryId,omitempty"`
	Digest     []byte    `json:"digest,omitempty"`
	Amount     string    `json:"amount,omitempty"`
	Currency   string    `json:"currency,omitempty"`
	RecordedAt time.Time `json:"recordedAt,omitzero"`
	State      string    `json:"state,omitempty"` // of the ledger
}

// RejectedRequest is a webhook that was rejected before it was found authentic, for a person who finds out why. It
// can be a real webhook, whose payload is payment data.
type RejectedRequest struct {
	ReceivedAt time.Time `json:"receivedAt"`
	RequestID  string    `json:"requestId,omitempty"` // of Lambda, as in the log
	Outcome    string    `json:"outcome"`             // why it was rejected, as in the log
	Method     string    `json:"method"`
	Path       string    `json:"path"`
	// Of RawQuery and Headers, a [RejectedStore] stores all names and some values.
	RawQuery string            `json:"rawQuery"` // without the question mark
	Headers  map[string]string `json:"headers"`
	SenderIP string            `json:"senderIp,omitempty"`
	// PayloadBytes and PayloadSHA256, in hexadecimal, are those of the body. The payload is absent if it
	// has more than MaxRejectedPayload bytes.
	PayloadBytes  int               `json:"payloadBytes"`
	PayloadSHA256 string            `json:"payloadSha256"`
	Settings      map[string]string `json:"settings"` // that rejected it, by their keys
}

// Certificate is the client certificate of a delivery and the time at which it was verified. It is not a signature: a
// certificate is public, so anyone with write access can store it with another payload.
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

// HasSignature reports whether p has a signature, or any part of one.
func (p Proof) HasSignature() bool {
	return p.Timestamp != "" || p.KeyID != "" || p.Signature != "" || len(p.JWK) > 0
}

// SentAt returns the time in the name: the signed timestamp or, without a signature, the time of the latest event;
// of a rejected webhook, when it arrived. It is zero if the time can't be read.
func (p Proof) SentAt() (at time.Time) {
	switch {
	case p.Reason == Rejected && p.Request != nil:
		return p.Request.ReceivedAt
	case !p.HasSignature():
		return payment.PeekTime(p.Payload)
	}
	at, _ = signature.TimeOf(p.Timestamp)
	return at
}

// AsAccepted returns what is stored of p as an accepted delivery: what authenticates it, and the ids in the payload.
func (p Proof) AsAccepted() Proof {
	a := Proof{Reason: Accepted, Payload: p.Payload, Timestamp: p.Timestamp, KeyID: p.KeyID, Signature: p.Signature,
		JWK: p.JWK, Certificate: p.Certificate, LockDays: p.LockDays}
	a.DeliveryID, a.EventIDs = payment.PeekIDs(p.Payload, math.MaxInt)
	return a
}

// ofReason returns p with the members of its reason and no others.
func (p Proof) ofReason() Proof {
	switch p.Reason {
	case Accepted:
		return p.AsAccepted()
	case Rejected:
		if p.Request == nil {
			p.Request = &RejectedRequest{}
		}
		return Proof{Reason: p.Reason, Cause: p.Cause, Payload: p.Payload, Request: p.Request}
	case Invalid:
		p.Contents = nil
	case Conflict:
		p.Cause, p.Positions = "", nil
	}
	p.Request = nil
	return p
}

// Encode returns the object of a proof. A proof has only one encoding.
func (p Proof) Encode() ([]byte, error) {
	text, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("proof: %w", err)
	}
	return text, nil
}

// ErrDamaged is returned for an object that is not the encoding of a proof, or not that of its name.
var ErrDamaged = errors.New("proof: damaged")

// Decode returns the proof in an object. The error wraps [ErrDamaged] if [Proof.Encode] did not make the object, or if
// the proof has members that its reason does not have.
func Decode(object []byte) (p Proof, err error) {
	err = json.Unmarshal(object, &p, json.RejectUnknownMembers(true))
	if again, encodeErr := p.ofReason().Encode(); err != nil || encodeErr != nil || !bytes.Equal(again, object) {
		return p, fmt.Errorf("%w: it is not the encoding of a proof", ErrDamaged)
	}
	return p, nil
}

// The errors of a proof that does not verify, beside those of [signature.Verify].
var (
	ErrAltered         = errors.New("proof: what is stored is not what arrived") // its parts do not belong together
	ErrUnauthenticated = errors.New("proof: it was rejected before it was found authentic")
)

// Verify returns the key that signed p, nil for none, if the parts of p belong together: the signature over payload,
// timestamp and key id verifies with the JWK, the payload has the deliveryId and the eventIds, the client certificate
// was valid when it was accepted, and p has no members that its reason does not have. It does not check pins and
// revocations, and compares neither the JWK nor the CAs with another source. The error is [ErrUnauthenticated] if p is
// rejected. It is safe for concurrent use.
//
// Nothing protects a certificate's acceptedAt and what the ledger had against whoever can write proofs.
func (p Proof) Verify() (key *rsa.PublicKey, err error) {
	switch {
	case p.Reason == Rejected:
		return nil, ErrUnauthenticated
	case p.HasSignature():
		if key, err = p.verifySignature(); err != nil {
			return nil, err
		}
	case p.Certificate == nil:
		return nil, fmt.Errorf("%w: neither a signature nor a certificate", ErrAltered)
	}
	if p.Certificate != nil {
		if _, err := p.Certificate.Verify(p.Payload, nil, nil); err != nil {
			return nil, err
		}
	}
	if p.Reason != Accepted && !p.hasIDs() || !reflect.DeepEqual(p, p.ofReason()) {
		return nil, fmt.Errorf("%w: the ids or other members are not those of the payload and the reason", ErrAltered)
	}
	return key, nil
}

func (p Proof) verifySignature() (*rsa.PublicKey, error) {
	key, err := keys.ParseJWK(p.JWK, p.KeyID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAltered, err)
	}
	if _, ok := payment.KeyID(p.KeyID); !ok { // no receiver accepts it
		return nil, fmt.Errorf("%w: the key id is not a UUID", ErrAltered)
	}
	if !bytes.Equal(p.JWK, keys.FormatJWK(p.KeyID, key)) {
		return nil, fmt.Errorf("%w: the JWK has other members than the key", ErrAltered)
	}
	return key, signature.Verify(key, p.Payload,
		signature.Parts{Timestamp: p.Timestamp, KeyID: p.KeyID, Signature: p.Signature})
}

// hasIDs reports whether the ids of what is parked are in its payload.
func (p Proof) hasIDs() bool {
	// An invalid payload can have several.
	deliveryID, _ := payment.PeekIDs(p.Payload, MaxIDs)
	_, eventIDs := payment.PeekIDs(p.Payload, math.MaxInt)
	if deliveryID != p.DeliveryID {
		return false
	}
	sent := map[string]bool{}
	for _, id := range eventIDs {
		sent[strings.ToLower(id)] = true
	}
	strange := func(id string) bool { return !sent[strings.ToLower(id)] }
	same := func(c Content, id string) bool { return c.EventID == id }
	return !slices.ContainsFunc(p.EventIDs, strange) &&
		(p.Reason == Invalid || p.Reason == Conflict && slices.EqualFunc(p.Contents, p.EventIDs, same))
}

// Verify verifies the client's certificate as of the time of acceptance and returns the chain that this found, of the
// truststore and the CAs that are stored. With a truststore of nil, the latter are trusted. No certificate of the chain
// is revoked. The error wraps [ErrAltered] if the payload or any part of c is another one.
func (c *Certificate) Verify(payload []byte, trusted clientcert.Truststore,
	revoked clientcert.Revocations) ([]*x509.Certificate, error) {
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
		trusted = clientcert.Truststore(stored)
	}
	return clientcert.NewVerifier(trusted, clientcert.Policy{Revoked: revoked}).VerifyCertificate(stored[0],
		c.AcceptedAt, stored[1:]...)
}

// Name is what the name of a proof says. A name is the key of an object:
// REASON/2026/01/31/12/20260131T120000.123Z-DELIVERYID-DIGEST.json. If it is accepted, REASON is accepted/DAYS: DAYS is
// for how many days the evidence bucket locks it, so that a rule of the bucket can delete the proofs of one lock. It
// depends on the content and DAYS alone, and not on when the proof is stored and what the ledger had. The time is
// [Proof.SentAt] in UTC, and 1970-01-01 if it can't be read; the folders are its hour. DELIVERYID is in lower case, and
// [Unknown] if it could not be read. DIGEST is half of a [Digest] in hexadecimal. A rejected webhook has its outcome
// and a random text in base32 instead of both.
type Name struct {
	Reason   Reason
	LockDays int // 0 if it is not accepted
	At       time.Time
	ID       string // the deliveryId, or [Unknown]; of a rejected webhook, its outcome
}

// Unknown is in a name instead of a deliveryId that could not be read.
const Unknown = "unknown"

const timeFormat = "20060102T150405.000Z"

// stem returns the name up to the digest.
func (n Name) stem() string { return toTime(n.Reason.Folder(n.LockDays), n.At) + "-" + n.ID + "-" }

// toTime returns the names in a folder up to their time.
func toTime(folder string, at time.Time) string {
	if at = at.UTC(); at.Year() < 1970 {
		at = time.Unix(0, 0).UTC()
	}
	return folder + at.Format("2006/01/02/15/"+timeFormat)
}

// Folder returns where proofs of a reason are: the beginning of their names. Only those that are accepted have days.
func (r Reason) Folder(lockDays int) string {
	if r == Accepted {
		return fmt.Sprintf("%s/%d/", r, lockDays)
	}
	return string(r) + "/"
}

// After returns the text which the names in a folder with that time or a later one follow, and no others.
func After(folder string, at time.Time) string {
	return toTime(folder, at.Add(time.Millisecond-1)) // a name has milliseconds
}

// ErrName is returned for a text that is not the name of a proof.
var ErrName = errors.New("proof: not a name of the form REASON/YYYY/MM/DD/HH/TIME-ID-DIGEST.json")

// nameForm has the folder in the groups 1 to 3, the time in 4, the id in 5 and the end in 6.
var nameForm = regexp.MustCompile(`^(?:(accepted)/([1-9][0-9]{0,4})|(invalid|conflict|rejected))/[0-9/]{13}/` +
	`([0-9]{8}T[0-9]{6}\.[0-9]{3}Z)-([a-z0-9-]{1,64})-([0-9a-f]{32}|[A-Z2-7]{26})\.json$`)

// ParseName returns what a name says. A name has no characters but ASCII letters, digits, and / - and ., so it can be
// printed, and used in a shell and as a path. The error has nothing of another text.
func ParseName(name string) (n Name, err error) {
	m := nameForm.FindStringSubmatch(name)
	if m == nil {
		return n, ErrName
	}
	n.Reason, n.ID = Reason(m[1]+m[3]), m[5]
	n.LockDays, _ = strconv.Atoi(m[2])
	n.At, err = time.Parse(timeFormat, m[4])
	if err != nil || !strings.HasPrefix(name, n.stem()) || (n.Reason == Rejected) != (len(m[6]) == len(rand.Text())) {
		return Name{}, ErrName
	}
	return n, nil
}

func (p Proof) stem() string {
	n := Name{p.Reason, p.LockDays, p.SentAt(), Unknown}
	switch {
	case p.Reason == Rejected && p.Request != nil:
		n.ID = p.Request.Outcome
	case payment.IsUUID(p.DeliveryID):
		n.ID = strings.ToLower(p.DeliveryID)
	}
	return n.stem()
}

// Name returns the name of p. That of a rejected webhook is another one each time.
//
// The digest is of the payload and what it was authenticated by, and of the events in conflict. A delivery that is
// sent again without being signed again has the same digest. The certificate counts, but not when it was verified.
func (p Proof) Name() string {
	if p.Reason == Rejected {
		return p.stem() + rand.Text() + ".json"
	}
	fingerprint := ""
	if p.Certificate != nil {
		fingerprint = p.Certificate.Fingerprint
	}
	fields := [][]byte{p.Payload, []byte(p.Timestamp), []byte(p.KeyID), []byte(p.Signature), p.JWK, []byte(fingerprint)}
	var contents []string
	for _, c := range p.Contents {
		contents = append(contents, c.EventID+string(c.Digest))
	}
	for _, c := range slices.Sorted(slices.Values(contents)) {
		fields = append(fields, []byte(c))
	}
	return fmt.Sprintf("%s%x.json", p.stem(), Digest(fields...)[:sha256.Size/2])
}

// CheckName returns an error that wraps [ErrDamaged] if name is not that of p, whatever its LockDays.
func (p Proof) CheckName(name string) error {
	n, err := ParseName(name)
	if p.LockDays = n.LockDays; err == nil && (name == p.Name() || p.Reason == Rejected && n.stem() == p.stem()) {
		return nil
	}
	return fmt.Errorf("%w: the name is that of another proof", ErrDamaged)
}
