package payment

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"uuid"
)

// UUIDLength is the number of characters of a UUID's canonical text.
const UUIDLength = 36

// IsUUID reports whether s is a UUID in its canonical text form (RFC 9562, section 4): 32 hexadecimal digits of either
// case in groups of 8, 4, 4, 4 and 12, separated by hyphens. Version and variant are not checked: the interface
// specifies the text form only.
//
// The ids of deliveries and events are UUIDs. Each becomes part of a table key or a log line only after IsUUID accepted
// it.
func IsUUID(s string) bool {
	if len(s) != UUIDLength {
		return false
	}
	// Of the forms that Parse accepts, only the canonical one has this length.
	_, err := uuid.Parse(s)
	return err == nil
}

// KeyID returns the canonical form of a key id, 32 lower-case hexadecimal digits, and false if text is neither a UUID
// as for [IsUUID] nor one without hyphens. All spellings have the same form, in which ids are compared, and are keys of
// maps and tables. The signed message and the URL of the key have the id as it was sent, and only if KeyID accepted it.
func KeyID(text string) (canonical string, ok bool) {
	id, err := uuid.Parse(text)
	return hex.EncodeToString(id[:]), err == nil && (len(text) == UUIDLength || len(text) == 2*len(id))
}

// SetHeaders sets the headers of a call of the service that say what is read and who calls. Some services answer 406 to
// a call that accepts JSON alone, and some gateways answer 403 to the User-Agent of a library.
func SetHeaders(header http.Header) {
	header.Set("Accept", "application/json, */*;q=0.5")
	header.Set("User-Agent", UserAgent(Version()))
}

// UnexpectedType returns the media type of an answer of the service for a log line, or a text that says that it has
// none. It returns "" for JSON: application/json or a type with the suffix +json (RFC 6839, section 3.1). The interface
// promises no type, so the body decides whether an answer is used.
func UnexpectedType(contentType string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	switch {
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		return ""
	case contentType == "":
		return "none"
	case media == "" || len(media) > 127: // RFC 6838, section 4.2
		return "malformed"
	}
	return media
}

// CertificateProblem returns why the TLS certificate of the service was not accepted, or "" for any other error. The
// text contains no data of the certificate, as that of the error does.
func CertificateProblem(err error) string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
		return ""
	}
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case host:
		return "its TLS certificate is for another host"
	case authority:
		return "its TLS certificate is from an unknown CA"
	case invalid.Cert == nil || invalid.Reason != x509.Expired:
		return "its TLS certificate is not valid"
	case invalid.Cert.NotBefore.After(time.Now()):
		return "its TLS certificate, or that of a CA, is not yet valid"
	}
	return "its TLS certificate, or that of a CA, has expired"
}

// WithoutBOM returns text without the UTF-8 byte order mark that it may begin with. RFC 8259, section 8.1, lets readers
// ignore the mark. It is part of what was signed, so a signature is verified with it.
func WithoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\uFEFF")) }

// RetryAfter returns the pause that an answer asks for, in seconds, of which a fraction does not count, or until a date
// (RFC 9110, section 10.2.3); 0 for none.
func RetryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	seconds, err := strconv.ParseFloat(text, 64)
	if strings.Trim(text, "0123456789.") == "" && (err == nil || errors.Is(err, strconv.ErrRange)) {
		return time.Duration(min(seconds, math.MaxUint32)) * time.Second // at most 136 years
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, time.Until(at))
}
