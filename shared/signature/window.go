package signature

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/payment"
)

// Format is the format of a timestamp. The interface does not specify it, so it
// is a setting. The zero value is like [FormatAuto].
type Format string

// The formats of a timestamp.
const (
	FormatAuto         Format = "auto"              // any of the three below
	FormatRFC3339      Format = "rfc3339"           // 2026-01-31T12:00:00.000Z, as [payment.ParseTime] parses it
	FormatSeconds      Format = "unix-seconds"      // 10 digits today
	FormatMilliseconds Format = "unix-milliseconds" // 13 digits today
)

// ParseFormat parses the name of a format.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case FormatAuto, FormatRFC3339, FormatSeconds, FormatMilliseconds:
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
	digits := strings.Trim(text, "0123456789") == ""
	if f != FormatSeconds && f != FormatMilliseconds {
		if f == FormatRFC3339 || !digits {
			t, zoned, err := payment.ParseTime(text)
			return t, zoned && err == nil
		}
		f = FormatMilliseconds
		if len(text) <= 11 { // seconds until the year 5138, milliseconds until 1973
			f = FormatSeconds
		}
	}
	// With at most 15 digits, no value can overflow.
	n, err := strconv.ParseInt(text, 10, 64)
	if !digits || len(text) > 15 || err != nil {
		return time.Time{}, false
	}
	if f == FormatSeconds {
		return time.Unix(n, 0), true
	}
	return time.UnixMilli(n), true
}
