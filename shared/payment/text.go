package payment

import (
	"bytes"
	"errors"
	"mime"
	"strings"
	"time"
	"uuid"
)

// UUIDLength is the number of characters of a UUID's canonical text.
const UUIDLength = 36

// IsUUID reports whether s is a UUID in its canonical text form (RFC 9562, section 4): 32
// hexadecimal digits of either case in groups of 8, 4, 4, 4 and 12, separated by hyphens.
// Version and variant are not checked: the interface specifies the text form only.
//
// The ids of deliveries, events and keys are UUIDs. Each becomes part of a URL, a table key
// or a log line only after IsUUID accepted it.
func IsUUID(s string) bool {
	if len(s) != UUIDLength {
		return false
	}
	// Of the forms that Parse accepts, only the canonical one has this length.
	_, err := uuid.Parse(s)
	return err == nil
}

// UnexpectedType returns the media type of an answer of the service for a log line, or a text
// that says that it has none. It returns "" for JSON: application/json or a type with the
// suffix +json (RFC 6839, section 3.1). The interface promises no type, so the body decides
// whether an answer is used.
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

// WithoutBOM returns text without the UTF-8 byte order mark that it may begin with. RFC 8259,
// section 8.1, lets readers ignore the mark. It is part of what was signed, so a signature
// is verified with it.
func WithoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\uFEFF")) }

// ErrTime is returned for a text that is not a date-time of RFC 3339.
var ErrTime = errors.New("payment: not a timestamp")

// ParseTime parses a date-time exactly as the grammar of RFC 3339, section 5.6, allows, as in
// 2026-01-31T12:00:00.123Z. Digits of a fraction after the ninth are dropped. The result is
// in UTC if the offset is zero, -00:00 included. Its year in UTC is 0 to 9999.
//
// Second 60 is accepted where a leap second can occur: at 23:59:60 UTC on the last day of a
// month. It is parsed as the following second, because a [time.Time] has no leap seconds.
// Whether a leap second was announced for that day is not checked.
func ParseTime(text string) (time.Time, error) {
	const date, second = len("2006-01-02"), len("2006-01-02T15:04:")
	b := []byte(text)
	if tooLoose(b) {
		return time.Time{}, ErrTime
	}
	last := len(b) - 1
	// UnmarshalText accepts no lower-case letters and no leap seconds.
	if b[date] == 't' {
		b[date] = 'T'
	}
	if b[last] == 'z' {
		b[last] = 'Z'
	}
	leap := string(b[second:second+2]) == "60"
	if leap {
		copy(b[second:], "59")
	}
	var t time.Time
	if err := t.UnmarshalText(b); err != nil {
		return time.Time{}, ErrTime
	}
	if _, offset := t.Zone(); offset == 0 {
		t = t.UTC()
	}
	if leap {
		t = t.Add(time.Second)
	}
	utc := t.UTC()
	if y := utc.Year(); y < 0 || y > 9999 || leap && (utc.Day() != 1 || utc.Hour() != 0 || utc.Minute() != 0) {
		return time.Time{}, ErrTime
	}
	return t, nil
}

// tooLoose reports whether a text is too short, or one that time.Time accepts and RFC 3339
// does not (https://go.dev/issue/54580): an hour of one digit, a comma before the fraction,
// and an offset such as +24:00 or +00:60.
func tooLoose(b []byte) bool {
	const hour, fraction = len("2006-01-02T15"), len("2006-01-02T15:04:05")
	last := len(b) - 1
	if last < fraction || b[hour] != ':' || b[fraction] == ',' {
		return true
	}
	return b[last] != 'Z' && b[last] != 'z' && (string(b[last-4:last-2]) > "23" || string(b[last-1:]) > "59")
}
