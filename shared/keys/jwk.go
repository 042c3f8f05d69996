package keys

import (
	"cmp"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"payhook.example/shared/payment"
)

// Violation is a requirement on a key that a JWK does not meet.
type Violation string

// The violations of the requirements on a key: section 2.6 of the interface, RFC 7517, RFC 7518 section 6.3, and the
// safe sizes.
const (
	WrongType      Violation = "kty is not RSA"
	WrongAlgorithm Violation = "alg is not RS256"
	WrongUse       Violation = "use is not sig"
	WrongKeyOps    Violation = "key_ops does not contain verify"
	Private        Violation = "private members are present"
	BadModulus     Violation = "n is not an odd number"
	WrongSize      Violation = "n does not have 2048 to 4096 bits"
	BadExponent    Violation = "e is not an odd number from 3 to 2147483647"
	ROCA           Violation = "n has the fingerprint of CVE-2017-15361 (ROCA)"
)

// PolicyError is returned when a JWK must not be used. It lists every requirement that the JWK does not meet, and
// contains no data of the key.
type PolicyError struct {
	Violations []Violation // nil if another cache has seen the JWK
}

func (e *PolicyError) Error() string {
	text, separator := "keys: key rejected", ": "
	for _, v := range e.Violations {
		text, separator = text+separator+string(v), "; "
	}
	return text
}

// ErrNotJWK is returned when a text is not the JWK that was asked for. It says nothing about the key.
var ErrNotJWK = errors.New("keys: not the requested JWK")

// The allowed sizes of a modulus, and so of a signature.
const (
	MinModulusBytes = 2048 / 8
	MaxModulusBytes = 4096 / 8
)

// jwk contains the members that the policy checks. The rest is ignored, as RFC 7517, section 4 requires. A member that
// is null is nil or empty, like one that is absent.
type jwk struct {
	Kty    string   `json:"kty"`
	Alg    *string  `json:"alg"`
	Use    *string  `json:"use"`
	Kid    string   `json:"kid"`
	N      string   `json:"n"`
	E      string   `json:"e"`
	KeyOps []string `json:"key_ops,omitzero"`

	Others map[string]jsontext.Value `json:",embed"`
}

// private reports whether the key has a member of a private or symmetric key.
func (k jwk) private() bool {
	return slices.ContainsFunc([]string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"}, func(name string) bool {
		value, present := k.Others[name]
		return present && value.Kind() != 'n'
	})
}

// ParseJWK returns the RSA public key of a JWK if the JWK meets section 2.6 of the interface, and its size and form are
// safe. Otherwise it returns a [*PolicyError] that lists every violation.
//
// The text must be a JSON object with kty and with id, in any spelling, as its kid, and with n and e in base64url for
// an RSA key. Otherwise the error wraps [ErrNotJWK]: it contains no key, and gateways and maintenance pages also answer
// with status 200 and JSON. The text may begin with a byte order mark.
//
// It is safe for concurrent use.
func ParseJWK(text []byte, id string) (*rsa.PublicKey, error) {
	var k jwk
	// Duplicate names are rejected, so that all readers see the same key.
	if err := json.Unmarshal(payment.WithoutBOM(text), &k); err != nil {
		if wrong, ok := errors.AsType[*json.SemanticError](err); ok && wrong.JSONPointer != "" {
			return nil, fmt.Errorf("%w: its %s has a wrong type", ErrNotJWK, wrong.JSONPointer[1:])
		}
		return nil, fmt.Errorf("%w: it is not a JSON object, or has a name twice", ErrNotJWK)
	}
	switch {
	case k.Kty == "":
		return nil, fmt.Errorf("%w: it has no kty", ErrNotJWK)
	case k.Kid != id && !sameID(k.Kid, id):
		return nil, fmt.Errorf("%w: its kid is not the requested key id", ErrNotJWK)
	}
	n, e := bigInt(k.N), bigInt(k.E)
	if k.Kty == "RSA" && (n == nil || e == nil) {
		return nil, fmt.Errorf("%w: its n or e is not base64url", ErrNotJWK)
	}
	n, e = cmp.Or(n, new(big.Int)), cmp.Or(e, new(big.Int))
	tooLong := len(k.N) > maxNumber
	wrongSize := n.BitLen() < 8*MinModulusBytes || n.BitLen() > 8*MaxModulusBytes
	var violations []Violation
	for _, rule := range []struct {
		violated bool
		is       Violation
	}{
		// RFC 7517 requires neither alg, use nor key_ops.
		{k.Kty != "RSA", WrongType},
		{k.Alg != nil && *k.Alg != "RS256", WrongAlgorithm},
		{k.Use != nil && *k.Use != "sig", WrongUse},
		{len(k.KeyOps) > 0 && !slices.Contains(k.KeyOps, "verify"), WrongKeyOps},
		{k.private(), Private},
		{e.Bit(0) == 0 || e.BitLen() > 31 || e.Int64() < 3, BadExponent}, // with 1, everything verifies
		{n.Bit(0) == 0 && !tooLong, BadModulus},
		{n.Bit(0) == 1 && wrongSize || tooLong, WrongSize},
		{hasROCAFingerprint(n), ROCA},
	} {
		if rule.violated {
			violations = append(violations, rule.is)
		}
	}
	if violations != nil {
		return nil, &PolicyError{violations}
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

// sameID reports whether a and b are spellings of one key id.
func sameID(a, b string) bool {
	one, ok := payment.KeyID(a)
	other, _ := payment.KeyID(b)
	return ok && one == other
}

func encode(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }

// FormatJWK returns the JWK of a key in the form of section 2.6 of the interface. There is one form of a key, whatever
// the form that [ParseJWK] has read. id must be a UUID.
func FormatJWK(id string, key *rsa.PublicKey) []byte {
	text, _ := json.Marshal(jwk{ // which fails only for text that is not UTF-8
		Kty: "RSA", Alg: new("RS256"), Use: new("sig"), Kid: id,
		N: encode(key.N), E: encode(big.NewInt(int64(key.E))),
	})
	return text
}

// Thumbprint returns the JWK thumbprint of a key with SHA-256 (RFC 7638), in base64url without padding. Two people can
// compare it to check that they have the same key. It is safe for concurrent use.
func Thumbprint(key *rsa.PublicKey) string {
	// Section 3: only the required members, in this order, without white space.
	sum := sha256.Sum256([]byte(`{"e":"` + encode(big.NewInt(int64(key.E))) + `","kty":"RSA","n":"` + encode(key.N) +
		`"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// maxNumber limits the text of a number: twice that of the longest modulus, for leading zeros.
const maxNumber = 2 * MaxModulusBytes * 4 / 3

// bigInt decodes a Base64urlUInt (RFC 7518, section 2), also with padding or leading zero octets, which some write
// (section 6.3.1.1). It returns nil for a text that is empty or has other characters, and 0 for one that was cut off.
func bigInt(text string) *big.Int {
	const base64url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" // RFC 4648, section 5
	digits := strings.TrimRight(text, "=")
	if digits == "" || strings.ContainsFunc(digits, func(r rune) bool { return !strings.ContainsRune(base64url, r) }) {
		return nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(digits)
	if err != nil || len(text) > maxNumber {
		b = nil
	}
	return new(big.Int).SetBytes(b)
}

// hasROCAFingerprint reports whether n has the form of a modulus that the library of CVE-2017-15361 generates. Its
// primes are k*M + (65537^a mod M) for a product M of the first primes, so n modulo each of these small primes is a
// power of 65537. A sound modulus has this form with a probability of about 2^-27 (Nemec et al., "The Return of
// Coppersmith's Attack", CCS 2017, section 4).
func hasROCAFingerprint(n *big.Int) bool {
	var residue big.Int
	for _, p := range rocaPrimes {
		r := residue.Mod(n, big.NewInt(p)).Int64()
		power := int64(1)
		for i := int64(1); i < p && power != r; i++ { // the powers repeat after at most p-1
			power = power * 65537 % p
		}
		if power != r {
			return false
		}
	}
	return true
}

// rocaPrimes are the odd primes in M for the smallest keys of that library. They are in M for all its keys.
var rocaPrimes = []int64{
	3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73,
	79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
}
