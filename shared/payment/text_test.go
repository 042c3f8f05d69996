package payment_test

import (
	"strings"
	"testing"

	"payhook.example/shared/payment"
)

func TestIsUUIDAcceptsOnlyTheCanonicalText(t *testing.T) {
	const good = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"
	for text, want := range map[string]bool{
		good:                                    true,
		strings.ToUpper(good):                   true,
		"00000000-0000-0000-0000-000000000000":  true,
		"":                                      false,
		good[:35]:                               false,
		good + "0":                              false,
		" " + good[1:]:                          false,
		"{" + good[1:35] + "}":                  false,
		"urn:uuid:" + good:                      false,
		strings.ReplaceAll(good, "-", ""):       false,
		"0b7e4c1e03d43-4f26-9c0d-2f1f6a5b7c8d":  false,
		"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8g":  false,
		"../../../../v1/keys/aaaa-aaaa-aaaaaa":  false,
		"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8\n": false,
	} {
		if got := payment.IsUUID(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

func TestKeyIDHasOneFormForAllSpellings(t *testing.T) {
	const good, canonical = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", "0b7e4c1e3d434f269c0d2f1f6a5b7c8d"
	for _, text := range []string{good, canonical, strings.ToUpper(good), strings.ToUpper(canonical),
		strings.ToUpper(good[:14]) + good[14:]} {
		if got, ok := payment.KeyID(text); got != canonical || !ok {
			t.Errorf("%q: %q, %t", text, got, ok)
		}
	}
	for _, text := range []string{"", good[:35], canonical[:31], canonical + "0", "{" + good + "}", "urn:uuid:" + good,
		"{" + canonical + "}", "(" + good + ")", "0b7e4c1e3d43-4f26-9c0d-2f1f-6a5b7c8d",
		"0b7e-4c1e3d434f269c0d2f1f6a5b7c",
		canonical[:31] + "g", canonical[:31] + "\n", " " + canonical, canonical + " ", "0x" + canonical[:30],
		"../../../../v1/keys/aaaaaaaaaaaa"} {
		if _, ok := payment.KeyID(text); ok {
			t.Errorf("%q is a key id", text)
		}
	}
}

func TestUnexpectedTypeIsEmptyForJSON(t *testing.T) {
	for header, want := range map[string]string{
		"application/json; charset=utf-8": "", "application/jwk+json": "", "text/html": "text/html", "": "none",
		"text/": "malformed", strings.Repeat("a", 64) + "/" + strings.Repeat("b", 63): "malformed",
	} {
		if got := payment.UnexpectedType(header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}
