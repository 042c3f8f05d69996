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
