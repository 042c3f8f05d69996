// Package signature tells whether a webhook was signed by the holder of a key.
//
// It guarantees that [Verify] returns nil only for the payload, timestamp and
// key id that were signed, each byte as it was received: section 5.4 of the
// payment service's interface, which is RSASSA-PKCS1-v1_5 with SHA-256
// (RFC 8017, section 8.2). The message is built in one place, so that what
// [Sign] signs is what [Verify] verifies.
//
// A receiver takes the [Proof] out of a request with [Scheme.Extract], checks
// its age with [Window.Check], looks up the key that it names and calls
// [Verify]. A sender calls [Sign] and [Scheme.Attach].
package signature

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// The ways in which a proof can fail. Every error of this package wraps
// exactly one of them; none of them carries anything of the request.
var (
	// ErrMissing: the signature, the timestamp or the key id is not there.
	ErrMissing = errors.New("missing")
	// ErrRepeated: a carrier that must be single came more than once.
	ErrRepeated = errors.New("repeated")
	// ErrMalformed: the signature is not canonical base64url, its length is not
	// the modulus', or the timestamp is in no format that is accepted.
	ErrMalformed = errors.New("malformed")
	// ErrOutsideWindow: the timestamp is too old or too far in the future.
	ErrOutsideWindow = errors.New("outside the window")
	// ErrMismatch: the signature is well formed and is not one of this message
	// by this key.
	ErrMismatch = errors.New("does not verify")
)

// Proof is what travels beside a payload to prove where it comes from. All
// three are texts exactly as received: Timestamp and KeyID are part of the
// signed message.
type Proof struct {
	Timestamp string
	KeyID     string
	Signature string
}

// Sign returns the canonical, unpadded base64url text of the signature over
// payload, timestamp and keyID. It is safe for concurrent use.
func Sign(key *rsa.PrivateKey, payload []byte, timestamp, keyID string) (string, error) {
	digest := digest(payload, timestamp, keyID)
	// PKCS #1 v1.5 signatures are deterministic: no source of randomness is used.
	sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest[:])
	if err != nil {
		return "", fmt.Errorf("signature: sign: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sig), nil
}

// Verify returns nil if proof is a signature over payload by the holder of
// key's private half, an error that wraps [ErrMalformed] if its signature is
// not canonical base64url of the modulus' length, and one that wraps
// [ErrMismatch] otherwise. It keeps and changes nothing, and is safe for
// concurrent use.
//
// Verify says nothing about the key: that key is one to be trusted, and the
// one that proof names, is what package keys answers for.
func Verify(key *rsa.PublicKey, payload []byte, proof Proof) error {
	return verifyDigest(key, digest(payload, proof.Timestamp, proof.KeyID), proof.Signature)
}

// CheckForm returns nil if text can be the signature of an RSA key with a
// modulus of least to most bytes: canonical base64url of that length, as
// [Verify] reads it. Otherwise the error wraps [ErrMalformed]. It tells without a
// key what no key can have signed. It is safe for concurrent use.
func CheckForm(text string, least, most int) error {
	size := encoding.DecodedLen(len(strings.TrimRight(text, "=")))
	if size < least || size > most {
		return fmt.Errorf("signature: %w: not %d to %d bytes in base64url", ErrMalformed, least, most)
	}
	_, err := decode(text, size)
	return err
}

// digest is the SHA-256 of the message of section 5.4: payload, line feed,
// timestamp, line feed, key id. The payload is hashed where it stands.
func digest(payload []byte, timestamp, keyID string) [sha256.Size]byte {
	tail := make([]byte, 0, 128)
	tail = append(tail, '\n')
	tail = append(tail, timestamp...)
	tail = append(tail, '\n')
	tail = append(tail, keyID...)

	h := sha256.New()
	h.Write(payload)
	h.Write(tail)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

func verifyDigest(key *rsa.PublicKey, digest [sha256.Size]byte, text string) error {
	sig, err := decode(text, key.Size())
	if err != nil {
		return err
	}
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], sig); err != nil {
		return fmt.Errorf("signature: %w", ErrMismatch)
	}
	return nil
}

// encoding is base64url (RFC 4648, section 5) that refuses stray bits in the
// last character.
var encoding = base64.RawURLEncoding.Strict()

// decode accepts the one text that encodes a signature of size bytes, with its
// padding or without it. A second text for the same signature would let an
// observer make new, valid deliveries from an old one.
func decode(text string, size int) ([]byte, error) {
	unpadded := text
	if n := encoding.EncodedLen(size); len(text) != n {
		padding := (4 - n%4) % 4
		if len(text) != n+padding || !strings.HasSuffix(text, "=="[:padding]) {
			return nil, fmt.Errorf("signature: %w: not %d bytes in base64url", ErrMalformed, size)
		}
		unpadded = text[:n]
	}
	// The decoder skips line breaks, and the length alone does not rule them
	// out.
	if strings.ContainsAny(unpadded, "\r\n") {
		return nil, fmt.Errorf("signature: %w: not canonical base64url", ErrMalformed)
	}
	sig, err := encoding.DecodeString(unpadded)
	if err != nil || len(sig) != size || encoding.EncodeToString(sig) != unpadded {
		return nil, fmt.Errorf("signature: %w: not canonical base64url", ErrMalformed)
	}
	return sig, nil
}
