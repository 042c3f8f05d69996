package signature

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/payment"
)

// Format is the format of a timestamp. The interface does not specify it, so it
// is a setting. The zero value is [FormatAuto].
type Format string

// The formats of a timestamp.
const (
	FormatAuto         Format = ""                  // any of the three below
	FormatRFC3339      Format = "rfc3339"           // 2026-01-31T12:00:00.000Z, as [payment.ParseTime] parses it
	FormatSeconds      Format = "unix-seconds"      // 10 digits today
	FormatMilliseconds Format = "unix-milliseconds" // 13 digits today
)

// autoName is the name of FormatAuto in a setting.
const autoName = "auto"

// ParseFormat parses the name of a format: auto, rfc3339, unix-seconds or
// unix-milliseconds.
func ParseFormat(name string) (Format, error) {
	if name == autoName {
		return FormatAuto, nil
	}
	formats := []Format{FormatRFC3339, FormatSeconds, FormatMilliseconds}
	if f := Format(name); slices.Contains(formats, f) {
		return f, nil
	}
	return "", errors.New("must be auto, rfc3339, unix-seconds or unix-milliseconds")
}

// Window is the range of accepted timestamps around the current time. A nil
// *Window accepts every timestamp, whatever its text; then only the ledger
// detects repeated deliveries.
type Window struct {
	Format Format
	// Tolerance is the largest accepted difference, in both directions. With zero,
	// only the current time itself is accepted.
	Tolerance time.Duration
}

// Check returns nil if text is a timestamp within the window around now, and
// an error that wraps [ErrMalformed] or [ErrOutsideWindow] otherwise. It is
// safe for concurrent use.
func (w *Window) Check(text string, now time.Time) error {
	if w == nil {
		return nil
	}
	at, ok := w.Format.parse(text)
	if !ok {
		return fmt.Errorf("%w: timestamp", ErrMalformed)
	}
	// Times are compared, not their difference: time.Time.Sub saturates.
	if at.Before(now.Add(-w.Tolerance)) || at.After(now.Add(w.Tolerance)) {
		return fmt.Errorf("%w: timestamp", ErrOutsideWindow)
	}
	return nil
}

// Text returns t in format f. [FormatAuto] gives RFC 3339 with milliseconds.
func (f Format) Text(t time.Time) string {
	switch f {
	case FormatSeconds:
		return strconv.FormatInt(t.Unix(), 10)
	case FormatMilliseconds:
		return strconv.FormatInt(t.UnixMilli(), 10)
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// TimeOf parses a timestamp in any of the formats. It reports false if text has
// none of them.
func TimeOf(text string) (time.Time, bool) { return FormatAuto.parse(text) }

func (f Format) parse(text string) (time.Time, bool) {
	digits := digitsOnly(text)
	switch f {
	case FormatRFC3339:
		return parseRFC3339(text)
	case FormatSeconds:
		return parseUnix(text, digits, time.Unix)
	case FormatMilliseconds:
		return parseUnix(text, digits, fromMilliseconds)
	}
	switch {
	case !digits:
		return parseRFC3339(text)
	case len(text) <= 11: // seconds until the year 5138, milliseconds until 1973
		return parseUnix(text, digits, time.Unix)
	default:
		return parseUnix(text, digits, fromMilliseconds)
	}
}

// digitsOnly reports whether text has no other characters than digits. The empty text has
// none, and is no number.
func digitsOnly(text string) bool { return strings.Trim(text, "0123456789") == "" }

func fromMilliseconds(ms, _ int64) time.Time { return time.UnixMilli(ms) }

// parseUnix limits the number of digits so that no value can overflow.
func parseUnix(text string, digits bool, at func(n, _ int64) time.Time) (time.Time, bool) {
	if !digits || len(text) > 15 {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return at(n, 0), err == nil
}

func parseRFC3339(text string) (time.Time, bool) {
	t, err := payment.ParseTime(text)
	return t, err == nil
}
