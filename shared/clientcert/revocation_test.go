package clientcert_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"payhook.example/shared/clientcert"
)

const keyID = "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60"

func TestEachNameHasOneForm(t *testing.T) {
	sum := sha256.Sum256([]byte("a")) // whose base64 has a slash
	digits := hex.EncodeToString(sum[:])
	colons := strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
	id := strings.ReplaceAll(keyID, "-", "")
	for want, texts := range map[string][]string{
		id: {keyID, id, strings.ToUpper(keyID), strings.ToUpper(id)},
		digits: {digits, strings.ToUpper(digits), colons, strings.ToLower(colons),
			base64.RawURLEncoding.EncodeToString(sum[:]), base64.URLEncoding.EncodeToString(sum[:]),
			base64.StdEncoding.EncodeToString(sum[:])},
	} {
		for _, text := range texts {
			got, err := clientcert.ParseRevocation(text)
			if err != nil || got != want {
				t.Errorf("%s is read as %q, %v", text, got, err)
			}
			if l := (clientcert.Revocations{"other", got}); !l.Has(text) || l.HasSHA256([]byte("a")) != (want == digits) {
				t.Errorf("%s is not in the list", text)
			}
			if l := (clientcert.Revocations{strings.Repeat("0", len(want))}); l.Has(text) || l.HasSHA256([]byte("a")) {
				t.Errorf("%s is in a list without it", text)
			}
		}
	}
}

func TestAMistakeIsAnErrorThatNamesTheForms(t *testing.T) {
	sum := sha256.Sum256([]byte("a"))
	digits, url := hex.EncodeToString(sum[:]), base64.RawURLEncoding.EncodeToString(sum[:])
	for _, text := range []string{"", digits[1:], digits + "00", digits[:40], url[1:], url + "A", url[:42] + "t",
		url + "==", "z" + digits[1:], digits[:32] + "zz", digits[:32] + "=", keyID[1:],
		"{" + keyID + "}", "urn:uuid:" + keyID, strings.Replace(keyID, "-", "", 1),
		strings.ReplaceAll(keyID, "-", ":"), "CN=a", base64.RawURLEncoding.EncodeToString(sum[:16])} {
		got, err := clientcert.ParseRevocation(text)
		if err == nil {
			t.Errorf("%q is read as %s", text, got)
			continue
		}
		for _, form := range []string{"key id", "thumbprint", "SHA-256 of a certificate or of its key"} {
			if !strings.Contains(err.Error(), form) {
				t.Errorf("%v", err)
			}
		}
		if (clientcert.Revocations{""}).Has(text) {
			t.Errorf("%q is in a list", text)
		}
	}
}
