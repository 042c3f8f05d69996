// Package uuid knows one thing: what the text of a UUID looks like
// (RFC 9562, section 4). Delivery ids, event ids and key ids of the payment
// service's interface are such texts, and each of them becomes part of a URL,
// a table key or a log line only after [Valid] said yes.
package uuid

import (
	"crypto/rand"
	"encoding/hex"
)

// Length is the number of characters of a UUID's text.
const Length = 36

// Valid reports whether s is a UUID in its canonical textual form: 32
// hexadecimal digits of either case in groups of 8, 4, 4, 4 and 12, joined by
// hyphens. Braces, a urn:uuid: prefix and missing hyphens are not accepted.
// Version and variant are not looked at: the interface promises the format
// only.
func Valid(s string) bool {
	if len(s) != Length {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return false
			}
		}
	}
	return true
}

// New returns a random UUID (version 4, lower case). It is safe for concurrent
// use.
func New() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var s [Length]byte
	hex.Encode(s[0:8], b[0:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:36], b[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}
