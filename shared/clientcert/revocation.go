package clientcert

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"payhook.example/shared/payment"
)

// Revocations names the keys that the settings revoke, each as [ParseRevocation] returns it. It is safe for concurrent
// use.
type Revocations []string

// ParseRevocation returns the one form of a text that names a key, in lower-case hexadecimal. The text is a key id, or
// a SHA-256: of a certificate's subject public key info, or of a JWK (its thumbprint, RFC 7638). A key id can have no
// hyphens. A SHA-256 is in hexadecimal, with or without colons, or in base64 of either alphabet.
func ParseRevocation(text string) (string, error) {
	if id, ok := payment.KeyID(text); ok {
		return id, nil
	}
	if sum, ok := parseSHA256(text); ok {
		return sum, nil
	}
	return "", errors.New("must be a key id (UUID), the thumbprint of a JWK (43 characters of base64url), or the " +
		"SHA-256 of the key of a certificate (64 hexadecimal digits)")
}

// ParsePin returns a pin as [PinOf] does. Its text has the forms that [ParseRevocation] reads.
func ParsePin(text string) (string, error) {
	if sum, ok := parseSHA256(text); ok {
		return sum, nil
	}
	return "", errors.New("must be the SHA-256 of a key (64 hexadecimal digits, or 43 characters of base64)")
}

// parseSHA256 returns a SHA-256 in lower-case hexadecimal.
func parseSHA256(text string) (sum string, ok bool) {
	text = strings.TrimSpace(text)
	raw, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil {
		url := strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimSuffix(text, "="))
		raw, err = base64.RawURLEncoding.Strict().DecodeString(url)
	}
	return hex.EncodeToString(raw), err == nil && len(raw) == sha256.Size
}

// Has reports whether l has the key of that name, in any form that [ParseRevocation] reads.
func (l Revocations) Has(name string) bool {
	if len(l) == 0 {
		return false
	}
	parsed, err := ParseRevocation(name)
	return err == nil && slices.Contains(l, parsed)
}

// HasSHA256 reports whether l has the SHA-256 of data.
func (l Revocations) HasSHA256(data []byte) bool {
	return slices.Contains(l, hexSHA256(data))
}
