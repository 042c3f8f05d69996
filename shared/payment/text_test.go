package payment_test

import (
	"net/http"
	"strings"
	"testing"

	"payhook.example/shared/payment"
)

// All spellings of a key id have one form. Only one of them is a UUID.
func TestUUIDsAndKeyIDs(t *testing.T) {
	const good, canonical = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", "0b7e4c1e3d434f269c0d2f1f6a5b7c8d"
	for _, text := range []string{good, strings.ToUpper(good), strings.ToUpper(good[:14]) + good[14:]} {
		if got, ok := payment.KeyID(text); got != canonical || !ok || !payment.IsUUID(text) {
			t.Errorf("%q: %q, %t", text, got, ok)
		}
	}
	for _, text := range []string{canonical, strings.ToUpper(canonical)} {
		if got, ok := payment.KeyID(text); got != canonical || !ok || payment.IsUUID(text) {
			t.Errorf("%q: %q, %t", text, got, ok)
		}
	}
	if !payment.IsUUID("00000000-0000-0000-0000-000000000000") {
		t.Error("zeros are not a UUID")
	}
	for _, text := range []string{"", good[:35], good + "0", " " + good[1:], canonical[:31], canonical + "0",
		"{" + good + "}", "{" + good[1:35] + "}", "urn:uuid:" + good, "{" + canonical + "}", "(" + good + ")",
		"0b7e4c1e03d43-4f26-9c0d-2f1f6a5b7c8d", "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8g",
		"0b7e4c1e3d43-4f26-9c0d-2f1f-6a5b7c8d", "0b7e-4c1e3d434f269c0d2f1f6a5b7c",
		"../../../../v1/keys/aaaa-aaaa-aaaaaa", "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8\n", canonical[:31] + "g",
		canonical[:31] + "\n", " " + canonical, canonical + " ", "0x" + canonical[:30],
		"../../../../v1/keys/aaaaaaaaaaaa"} {
		if _, ok := payment.KeyID(text); ok || payment.IsUUID(text) {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestUnexpectedTypeIsEmptyForJSON(t *testing.T) {
	long := strings.Repeat("a", 64) + "/" + strings.Repeat("b", 62)
	for header, want := range map[string]string{
		"application/json; charset=utf-8": "", "application/jwk+json": "", "text/html": "text/html", "": "none",
		"text/": "malformed", long + "b": "malformed", long: long,
	} {
		if got := payment.UnexpectedType(header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	header := http.Header{}
	if payment.SetHeaders(header); len(header["Accept"])+len(header["User-Agent"]) != 2 {
		t.Errorf("%v", header)
	}
}
