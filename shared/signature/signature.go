// Package signature signs webhooks and verifies their signatures.
//
// It guarantees that [Verify] returns nil only for the payload, timestamp and key id that were signed, byte for byte as
// received. Section 5.4 of the payment service's interface defines the signature: RSASSA-PKCS1-v1_5 with SHA-256 (RFC
// 8017, section 8.2). [Sign] and [Verify] build the message with the same function.
//
// A receiver reads the [Parts] of a request with [Scheme.Extract], checks its age with [CheckTime], looks up the key
// that it names and calls [Verify]. A sender calls [Sign].
package signature

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"payhook.example/shared/payment"
)

// The errors of a proof. Every error that Extract, Check, CheckForm or Verify returns wraps exactly one of them. The
// texts contain no data of the request.
var (
	// ErrMissing is returned when the signature, the timestamp or the key id is absent.
	ErrMissing = errors.New("signature: missing")
	// ErrRepeated is returned when a request has more than one value of a part.
	ErrRepeated = errors.New("signature: repeated")
	// ErrMalformed is returned when the signature is not canonical base64url, its length is not that of the modulus,
	// the timestamp is in no accepted format, a part contains a control character, or the query string is invalid.
	ErrMalformed = errors.New("signature: malformed")
	// ErrOutsideWindow is returned when the timestamp is too old or too far in the future.
	ErrOutsideWindow = errors.New("signature: the timestamp is outside the window")
	// ErrMismatch is returned when the signature is well formed but not a signature of this message by this key.
	ErrMismatch = errors.New("signature: the signature does not verify")
)

// Parts are what proves the origin of a payload. All three are texts exactly as received. Timestamp and KeyID are part
// of the signed message.
type Parts struct {
	Timestamp string
	KeyID     string
	Signature string
}

// Sign returns the canonical, unpadded base64url text of the signature over payload, timestamp and keyID. It is safe
// for concurrent use.
func Sign(key *rsa.PrivateKey, payload []byte, timestamp, keyID string) (string, error) {
	digest := digest(payload, timestamp, keyID)
	// PKCS #1 v1.5 signatures are deterministic and need no source of randomness.
	sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest[:])
	if err != nil {
		return "", fmt.Errorf("signature: sign: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sig), nil
}

// Verify returns nil if proof contains a signature of payload by the private key of key. It returns an error that wraps
// [ErrMalformed] if the signature is not canonical base64url of the modulus' length or timestamp or key id contain a
// control character, and one that wraps [ErrMismatch] otherwise. It does not retain or change its arguments. It is safe
// for concurrent use.
//
// Verify does not check that key is trusted or that it is the key that proof names. Package keys does.
func Verify(key *rsa.PublicKey, payload []byte, proof Parts) error {
	// With a line feed in them, the same message could be split at another place.
	if strings.ContainsFunc(proof.Timestamp+proof.KeyID, unicode.IsControl) {
		return fmt.Errorf("%w: a control character in the timestamp or key id", ErrMalformed)
	}
	return verifyDigest(key, digest(payload, proof.Timestamp, proof.KeyID), proof.Signature)
}

// CheckForm returns nil if text can be the signature of an RSA key with a modulus of minBytes to maxBytes bytes:
// canonical base64url of that length, as in [Verify]. Otherwise the error wraps [ErrMalformed]. It rejects, without a
// key, texts that no key can have signed. It is safe for concurrent use.
func CheckForm(text string, minBytes, maxBytes int) error {
	size := encoding.DecodedLen(len(strings.TrimRight(text, "=")))
	if size < minBytes || size > maxBytes {
		return fmt.Errorf("%w: the signature is not %d to %d bytes in base64url", ErrMalformed, minBytes, maxBytes)
	}
	_, err := decode(text, size)
	return err
}

// digest returns the SHA-256 of the message of section 5.4: payload, line feed, timestamp, line feed, key id. It does
// not copy the payload.
func digest(payload []byte, timestamp, keyID string) [sha256.Size]byte {
	h := sha256.New()
	h.Write(payload)
	h.Write([]byte("\n" + timestamp + "\n" + keyID))
	return [sha256.Size]byte(h.Sum(nil))
}

func verifyDigest(key *rsa.PublicKey, digest [sha256.Size]byte, text string) error {
	sig, err := decode(text, key.Size())
	if err != nil {
		return err
	}
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], sig); err != nil {
		return ErrMismatch
	}
	return nil
}

// encoding is base64url (RFC 4648, section 5). It rejects nonzero trailing bits in the last character.
var encoding = base64.RawURLEncoding.Strict()

// decode decodes a signature of size bytes. It accepts only the canonical text, with or without padding. If a second
// text of the same signature were accepted, an observer could turn a delivery into another valid one.
func decode(text string, size int) ([]byte, error) {
	unpadded := text
	if n := encoding.EncodedLen(size); len(text) != n {
		padding := (4 - n%4) % 4
		if len(text) != n+padding || !strings.HasSuffix(text, "=="[:padding]) {
			return nil, fmt.Errorf("%w: the signature is not %d bytes in base64url", ErrMalformed, size)
		}
		unpadded = text[:n]
	}
	// The decoder skips line breaks. Neither a text with them nor one that the decoder rejects is what the decoded
	// bytes are encoded as.
	sig, _ := encoding.DecodeString(unpadded)
	if encoding.EncodeToString(sig) != unpadded {
		return nil, fmt.Errorf("%w: the signature is not canonical base64url", ErrMalformed)
	}
	return sig, nil
}

// CheckTime returns nil if text is a timestamp that differs from now by at most tolerance, in either direction, and an
// error that wraps [ErrMalformed] or [ErrOutsideWindow] otherwise. With a tolerance of 0 or less, it accepts every
// timestamp, whatever its text; then only the ledger detects repeated deliveries. It is safe for concurrent use.
func CheckTime(text string, now time.Time, tolerance time.Duration) error {
	if tolerance <= 0 {
		return nil
	}
	at, ok := TimeOf(text)
	if !ok {
		return fmt.Errorf("%w: timestamp", ErrMalformed)
	}
	// Times are compared, not their difference: time.Time.Sub saturates.
	if at.Before(now.Add(-tolerance)) || at.After(now.Add(tolerance)) {
		return ErrOutsideWindow
	}
	return nil
}

// FormatTime returns t in RFC 3339 with milliseconds, which [TimeOf] parses.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// TimeOf parses a timestamp. The interface does not specify its format, so each that says which time it is is accepted:
//   - a date of HTTP, or a date-time with an offset, as [payment.ParseTime] parses them;
//   - Unix time, whose unit the number of digits before a decimal point tells: up to 11 are
//     seconds, up to 14 milliseconds, up to 17 microseconds, 18 and 19 nanoseconds.
//
// The result is in UTC. TimeOf reports false, and the zero time, for every other text.
func TimeOf(text string) (time.Time, bool) {
	if t, zoned, _ := payment.ParseTime(text); zoned {
		return t, true
	}
	return unixTime(text)
}

func unixTime(text string) (time.Time, bool) {
	whole, fraction, point := strings.Cut(text, ".")
	perSecond := uint64(1)
	switch digits := len(whole); {
	case digits > 19: // even if the first are zeros
		return time.Time{}, false
	case digits > 17:
		perSecond = 1e9
	case digits > 14:
		perSecond = 1e6
	case digits > 11:
		perSecond = 1e3
	}
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || point && fraction == "" || strings.Trim(fraction, "0123456789") != "" {
		return time.Time{}, false
	}
	billionths, _ := strconv.ParseUint((fraction + "000000000")[:9], 10, 64) // only digits
	return time.Unix(int64(n/perSecond), int64((n%perSecond*1e9+billionths)/perSecond)).UTC(), true
}
