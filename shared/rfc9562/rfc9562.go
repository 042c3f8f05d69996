// Package rfc9562 checks the text of a UUID (RFC 9562, section 4). The ids of
// deliveries, events and keys in the payment service's interface are UUIDs.
// Each of them becomes part of a URL, a table key or a log line only after
// [Valid] accepted it.
package rfc9562

import "uuid"

// Length is the number of characters of a UUID's canonical text.
const Length = 36

// Valid reports whether s is a UUID in its canonical text form: 32 hexadecimal
// digits of either case in groups of 8, 4, 4, 4 and 12, separated by hyphens.
// Braces, a urn:uuid: prefix and missing hyphens are not accepted, because the
// interface does not use them. Valid does not check version and variant: the
// interface specifies the text form only.
func Valid(s string) bool {
	if len(s) != Length {
		return false
	}
	// Of the forms that Parse accepts, only the canonical one has this length.
	_, err := uuid.Parse(s)
	return err == nil
}
