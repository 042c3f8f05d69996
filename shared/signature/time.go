package signature

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/payment"
)

// CheckTime returns nil if text is a timestamp that differs from now by at most tolerance, in either direction, and an
// error that wraps [ErrMalformed] or [ErrOutsideWindow] otherwise. With a tolerance of 0 or less, it accepts every
// timestamp, whatever its text; then only the ledger detects repeated deliveries. It is safe for concurrent use.
func CheckTime(text string, now time.Time, tolerance time.Duration) error {
	if tolerance <= 0 {
		return nil
	}
	at, ok := TimeOf(text)
	if !ok {
		return fmt.Errorf("%w: timestamp", ErrMalformed)
	}
	// Times are compared, not their difference: time.Time.Sub saturates.
	if at.Before(now.Add(-tolerance)) || at.After(now.Add(tolerance)) {
		return fmt.Errorf("%w: timestamp", ErrOutsideWindow)
	}
	return nil
}

// FormatTime returns t in RFC 3339 with milliseconds, which [TimeOf] parses.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// TimeOf parses a timestamp. The interface does not specify its format, so each that says which time it is is accepted:
//   - a date-time with an offset, as [payment.ParseTime] parses it;
//   - the IMF-fixdate of HTTP (RFC 9110, section 5.6.7), as in Wed, 25 Nov 2026 17:28:09 GMT, also
//     with UTC or +0000 as its zone and with a day of one digit. A wrong weekday is not accepted;
//   - Unix time, whose unit the number of digits before a decimal point tells: up to 11 are
//     seconds, up to 14 milliseconds, up to 17 microseconds, 18 and 19 nanoseconds.
//
// The result is in UTC. TimeOf reports false, and the zero time, for every other text.
func TimeOf(text string) (time.Time, bool) {
	if t, zoned, err := payment.ParseTime(text); err == nil {
		if !zoned {
			t = time.Time{}
		}
		return t, zoned
	}
	if t, ok := unixTime(text); ok {
		return t, true
	}
	for _, zone := range []string{"GMT", "UTC", "-0700"} {
		t, err := time.Parse("Mon, 2 Jan 2006 15:04:05 "+zone, text)
		if err == nil && strings.EqualFold(t.Format("Mon"), text[:3]) {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

func unixTime(text string) (time.Time, bool) {
	whole, fraction, point := strings.Cut(text, ".")
	perSecond := uint64(1)
	switch digits := len(whole); {
	case digits > 19: // even if the first are zeros
		return time.Time{}, false
	case digits > 17:
		perSecond = 1e9
	case digits > 14:
		perSecond = 1e6
	case digits > 11:
		perSecond = 1e3
	}
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || point && fraction == "" || strings.Trim(fraction, "0123456789") != "" {
		return time.Time{}, false
	}
	billionths, _ := strconv.ParseUint((fraction + "000000000")[:9], 10, 64) // only digits
	return time.Unix(int64(n/perSecond), int64((n%perSecond*1e9+billionths)/perSecond)).UTC(), true
}
