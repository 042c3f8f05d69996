package keys

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"strings"
)

// Violation is a requirement on a key that a JWK does not meet.
type Violation string

// The violations of the requirements on a key: section 2.6 of the interface, RFC 7517,
// RFC 7518 section 6.3, and the safe sizes.
const (
	WrongType      Violation = "kty is not RSA"
	WrongAlgorithm Violation = "alg is not RS256"
	WrongUse       Violation = "use is not sig"
	WrongKeyOps    Violation = "key_ops does not contain verify"
	Private        Violation = "private members are present"
	BadModulus     Violation = "n is not canonical base64url of an odd number"
	WrongSize      Violation = "n does not have 2048 to 4096 bits"
	BadExponent    Violation = "e is not canonical base64url of an allowed exponent"
	ROCA           Violation = "n has the fingerprint of CVE-2017-15361 (ROCA)"
)

// PolicyError is returned when a JWK must not be used. It lists every requirement
// that the JWK does not meet, and contains no data of the key.
type PolicyError struct {
	Violations []Violation
}

func (e *PolicyError) Error() string {
	texts := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		texts[i] = string(v)
	}
	return "keys: key rejected: " + strings.Join(texts, "; ")
}

// ErrNotJWK is returned when a text is not the JWK that was asked for. It says nothing
// about the key.
var ErrNotJWK = errors.New("keys: not the requested JWK")

// The allowed sizes of a modulus, and so of a signature.
const (
	MinModulusBytes = 2048 / 8
	MaxModulusBytes = 4096 / 8
)

// jwk contains the members that the policy checks. Others are ignored, as RFC 7517,
// section 4 requires.
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

// ParseJWK returns the RSA public key of a JWK if the JWK meets section 2.6 of the
// interface, and its size and form are safe. exponents are the allowed public
// exponents. Otherwise it returns a [*PolicyError] that lists every violation.
//
// The text must be a JSON object with kty and with id as its kid. Otherwise the error
// wraps [ErrNotJWK]: gateways and maintenance pages also answer with status 200 and JSON.
//
// It is safe for concurrent use.
func ParseJWK(text []byte, id string, exponents []int) (*rsa.PublicKey, error) {
	var k jwk
	// Duplicate names are rejected, so that all readers see the same key.
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%w: it is not a JSON object with the members of a JWK", ErrNotJWK)
	}
	switch {
	case k.Kty == "":
		return nil, fmt.Errorf("%w: it has no kty", ErrNotJWK)
	// Both are UUIDs, which are case-insensitive (RFC 9562, section 4).
	case len(k.Kid) != len(id) || !strings.EqualFold(k.Kid, id):
		return nil, fmt.Errorf("%w: its kid is not the requested key id", ErrNotJWK)
	}
	violations := k.violations()
	key := &rsa.PublicKey{}
	e, ok := exponent(k.E)
	if key.E = e; !ok || !slices.Contains(exponents, e) {
		violations = append(violations, BadExponent)
	}

	// The size follows from the text, so no huge number is computed.
	if n, err := canonical(k.N, MaxModulusBytes); errors.Is(err, errTooLong) {
		violations = append(violations, WrongSize)
	} else if err != nil || n[len(n)-1]&1 == 0 {
		violations = append(violations, BadModulus)
	} else if len(n)*8-bits.LeadingZeros8(n[0]) < MinModulusBytes*8 {
		violations = append(violations, WrongSize)
	} else if key.N = new(big.Int).SetBytes(n); hasROCAFingerprint(key.N) {
		violations = append(violations, ROCA)
	}
	if violations != nil {
		return nil, &PolicyError{violations}
	}
	return key, nil
}

// AnyExponent returns exponents with which [ParseJWK] accepts the exponent of a JWK whatever the
// settings allow, unless it is less than 3: everything verifies with 1.
func AnyExponent(text []byte) []int {
	var k jwk
	_ = json.Unmarshal(text, &k) // ParseJWK returns the error
	e, _ := exponent(k.E)
	return []int{max(e, 3)}
}

// violations returns the requirements that the members other than n and e do not meet.
func (k *jwk) violations() (violations []Violation) {
	demand := func(holds bool, v Violation) {
		if !holds {
			violations = append(violations, v)
		}
	}
	demand(k.Kty == "RSA", WrongType)
	demand(k.Alg == "RS256", WrongAlgorithm)
	demand(k.Use == "sig", WrongUse)
	demand(k.KeyOps == nil || slices.Contains(*k.KeyOps, "verify"), WrongKeyOps)
	demand(k.D == nil && k.P == nil && k.Q == nil && k.DP == nil && k.DQ == nil && k.QI == nil && k.Oth == nil &&
		k.K == nil, Private)
	return violations
}

// FormatJWK returns a JWK of a key with the members that [ParseJWK] requires and no
// others. id must be a UUID.
func FormatJWK(id string, key *rsa.PublicKey) []byte {
	encode := base64.RawURLEncoding.EncodeToString
	text, _ := json.Marshal(jwk{ // which fails only for text that is not UTF-8
		Kty: "RSA", Alg: "RS256", Use: "sig", Kid: id,
		N: encode(key.N.Bytes()),
		E: encode(big.NewInt(int64(key.E)).Bytes()),
	})
	return text
}

func exponent(text string) (int, bool) {
	b, _ := canonical(text, 4) // with an error there is none, and 0 is no exponent
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

// canonical decodes a Base64urlUInt (RFC 7518, section 2) of at most limit bytes. It
// accepts no padding, line breaks, nonzero trailing bits or leading zero octets.
func canonical(text string, limit int) ([]byte, error) {
	encoding := base64.RawURLEncoding.Strict()
	if len(text) > encoding.EncodedLen(limit) {
		return nil, errTooLong
	}
	b, err := encoding.DecodeString(text)
	if err != nil || len(b) == 0 || b[0] == 0 || encoding.EncodeToString(b) != text {
		return nil, errNotCanonical
	}
	return b, nil
}
