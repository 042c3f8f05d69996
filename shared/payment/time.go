package payment

import (
	"regexp"
	"strconv"
	"time"
)

// dateTime has the date in the groups 1, 3 and 5, the time in 6, 8 and 10, its fraction in 11, and the offset from 12.
// The separators of the date, 2 and 4, are the same, and so are those of the time, 7 and 9.
var dateTime = regexp.MustCompile(`^(\d{4})(-?)(\d\d)(-?)(\d\d)[Tt ]` +
	`(\d\d)(:?)(\d\d)(?:(:?)(\d\d))?(?:[.,](\d+))?` +
	`([Zz]|([+\-\x{2212}])(\d\d)(?::?(\d\d))?)?$`)

// ParseTime parses a calendar date-time of ISO 8601, as in 2026-01-31T12:00:00.123Z, in every spelling that has one
// meaning:
//   - date and time are extended (2026-01-31, 12:00:00) or basic (20260131, 120000), each on its own;
//   - T, t or a space is between them (RFC 3339, section 5.6, allows a space);
//   - seconds can be absent, and 24:00 is the beginning of the next day;
//   - the last of them can have a fraction after a point or a comma. Digits below a nanosecond
//     are dropped;
//   - the offset is Z, z, ±hh, ±hhmm or ±hh:mm, with hyphen-minus or U+2212 as the minus.
//
// Without an offset, zoned is false and the text is read as UTC. The result is in UTC, in a year from 0 to 9999. Week
// dates, ordinal dates and dates without a time are not accepted.
//
// Second 60 is accepted where a leap second can occur: at 23:59:60 UTC on the last day of a month. It is parsed as the
// following second, because a [time.Time] has no leap seconds. Whether a leap second was announced for that day is not
// checked.
func ParseTime(text string) (t time.Time, zoned, ok bool) {
	m := dateTime.FindStringSubmatch(text)
	if m == nil {
		return t, false, false
	}
	number := func(group int) int { n, _ := strconv.Atoi(m[group]); return n } // of digits, or "" for 0
	duration := func(hours, minutes int) time.Duration {
		return time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	}
	oneForm := m[2] == m[4] && (m[10] == "" || m[7] == m[9]) // extended or basic
	month, day := time.Month(number(3)), number(5)
	hour, minute, second := number(6), number(8), number(10)
	tenBillionths, _ := strconv.Atoi((m[11] + "0000000000")[:10])
	fraction := time.Duration(tenBillionths / 10) // of a second
	if m[10] == "" {
		fraction = time.Duration(6 * tenBillionths) // of a minute
	}
	offset := duration(number(14), number(15))
	if m[13] != "+" {
		offset = -offset
	}
	t = time.Date(number(1), month, day, 0, 0, 0, 0, time.UTC)
	inCalendar := t.Month() == month && t.Day() == day
	sinceMidnight := duration(hour, minute) + time.Duration(second)*time.Second + fraction
	t = t.Add(sinceMidnight - offset)
	monthBegins := t.Day() == 1 && t.Hour() == 0 && t.Minute() == 0
	switch {
	case !oneForm, !inCalendar, minute > 59, second > 60, number(14) > 23, number(15) > 59,
		hour > 23 && sinceMidnight > 24*time.Hour, second == 60 && !monthBegins, t.Year() < 0, t.Year() > 9999:
		return time.Time{}, false, false
	}
	return t, m[12] != "", true
}
