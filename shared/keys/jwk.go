package keys

import (
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"strings"

	"encoding/json/jsontext"
	"encoding/json/v2"
)

// Violation names one demand on a key that a JWK does not meet.
type Violation string

// The demands on a key: section 2.6 of the interface, RFC 7517, RFC 7518
// section 6.3, and the sizes that are safe.
const (
	WrongType      Violation = "kty is not RSA"
	WrongAlgorithm Violation = "alg is not RS256"
	WrongUse       Violation = "use is not sig"
	WrongKeyID     Violation = "kid is not the one asked for"
	WrongKeyOps    Violation = "key_ops does not hold verify"
	Private        Violation = "private members are present"
	BadModulus     Violation = "n is not canonical base64url of an odd number"
	WrongSize      Violation = "n is not of 2048 to 4096 bits"
	BadExponent    Violation = "e is not canonical base64url of an exponent that is allowed"
	ROCA           Violation = "n bears the fingerprint of CVE-2017-15361 (ROCA)"
)

// PolicyError says why a JWK is not used: every demand that it does not meet.
// It carries nothing of the key.
type PolicyError struct {
	Violations []Violation
}

func (e *PolicyError) Error() string {
	texts := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		texts[i] = string(v)
	}
	return "keys: key refused: " + strings.Join(texts, "; ")
}

// errNotAJWK: the answer is not JSON, or a member has the wrong JSON type. It
// says more of the one who answered than of the key.
var errNotAJWK = errors.New("not a JWK")

// The sizes of a modulus that are allowed, and so of a signature.
const (
	MinModulusBytes = 2048 / 8
	MaxModulusBytes = 4096 / 8
)

// jwk holds the members that the policy looks at. Others are ignored, as
// RFC 7517, section 4 demands.
type jwk struct {
	Kty    string         `json:"kty"`
	Alg    string         `json:"alg"`
	Use    string         `json:"use"`
	Kid    string         `json:"kid"`
	N      string         `json:"n"`
	E      string         `json:"e"`
	KeyOps *[]string      `json:"key_ops,omitzero"`
	D      jsontext.Value `json:"d,omitzero"`
	P      jsontext.Value `json:"p,omitzero"`
	Q      jsontext.Value `json:"q,omitzero"`
	DP     jsontext.Value `json:"dp,omitzero"`
	DQ     jsontext.Value `json:"dq,omitzero"`
	QI     jsontext.Value `json:"qi,omitzero"`
	Oth    jsontext.Value `json:"oth,omitzero"`
	K      jsontext.Value `json:"k,omitzero"`
}

// ParseJWK returns the RSA public key of a JWK if it is everything that
// section 2.6 of the interface says of a key, is asked for by id, and is of a
// size and kind that is safe; exponents are the public exponents that are
// allowed. Otherwise the error is a [*PolicyError] that names every demand
// that is not met, or says that the text is no JWK at all.
//
// It is safe for concurrent use.
func ParseJWK(text []byte, id string, exponents []int) (*rsa.PublicKey, error) {
	var k jwk
	// Names that occur twice are refused, so that no two readers see two keys.
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("keys: %w", errNotAJWK)
	}
	var violations []Violation
	demand := func(holds bool, v Violation) {
		if !holds {
			violations = append(violations, v)
		}
	}
	demand(k.Kty == "RSA", WrongType)
	demand(k.Alg == "RS256", WrongAlgorithm)
	demand(k.Use == "sig", WrongUse)
	// Both are UUIDs by now, whose case has no meaning (RFC 9562, section 4).
	demand(len(k.Kid) == len(id) && strings.EqualFold(k.Kid, id), WrongKeyID)
	demand(k.KeyOps == nil || slices.Contains(*k.KeyOps, "verify"), WrongKeyOps)
	demand(k.D == nil && k.P == nil && k.Q == nil && k.DP == nil && k.DQ == nil && k.QI == nil && k.Oth == nil && k.K == nil, Private)

	key := &rsa.PublicKey{}
	e, ok := exponent(k.E)
	demand(ok && slices.Contains(exponents, e), BadExponent)
	key.E = e

	// The size is known from the text: a huge number is never computed with.
	if n, err := canonical(k.N, MaxModulusBytes); errors.Is(err, errTooLong) {
		demand(false, WrongSize)
	} else if err != nil || n[len(n)-1]&1 == 0 {
		demand(false, BadModulus)
	} else if len(n) < MinModulusBytes || len(n)*8-bits.LeadingZeros8(n[0]) < MinModulusBytes*8 {
		demand(false, WrongSize)
	} else {
		key.N = new(big.Int).SetBytes(n)
		demand(!hasROCAFingerprint(key.N), ROCA)
	}
	if violations != nil {
		return nil, &PolicyError{violations}
	}
	return key, nil
}

// FormatJWK returns the text of a key as [ParseJWK] reads it, without anything
// else that the service may have sent along.
func FormatJWK(id string, key *rsa.PublicKey) ([]byte, error) {
	encode := base64.RawURLEncoding.EncodeToString
	return json.Marshal(jwk{
		Kty: "RSA", Alg: "RS256", Use: "sig", Kid: id,
		N: encode(key.N.Bytes()),
		E: encode(big.NewInt(int64(key.E)).Bytes()),
	})
}

func exponent(text string) (int, bool) {
	b, err := canonical(text, 4)
	if err != nil {
		return 0, false
	}
	e := 0
	for _, octet := range b {
		e = e<<8 | int(octet)
	}
	return e, e&1 == 1 && e <= 1<<31-1
}

var (
	errTooLong      = errors.New("too long")
	errNotCanonical = errors.New("not canonical base64url")
)

// canonical decodes a Base64urlUInt (RFC 7518, section 2) of at most most
// bytes: no padding, no line breaks, no stray bits, no leading zero octets.
func canonical(text string, most int) ([]byte, error) {
	encoding := base64.RawURLEncoding.Strict()
	if len(text) > encoding.EncodedLen(most) {
		return nil, errTooLong
	}
	b, err := encoding.DecodeString(text)
	if err != nil || len(b) == 0 || b[0] == 0 || encoding.EncodeToString(b) != text {
		return nil, errNotCanonical
	}
	return b, nil
}
