package payment

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// dateTime has the date in the groups 1, 3 and 5, the time in 6, 8 and 10, its fraction in 11, the offset from 12, and
// the zone in 17, after a critical flag in 16. The separators of the date, 2 and 4, are the same, and so are those of
// the time, 7 and 9.
var dateTime = regexp.MustCompile(`^(\d{4})(-?)(\d\d)(-?)(\d\d)[Tt ]` +
	`(\d\d)(:?)(\d\d)(?:(:?)(\d\d))?(?:[.,](\d+))?` +
	`(?:([Zz]|([+\-\x{2212}])(\d\d)(?::?(\d\d))?)` +
	`(?:\[(!?)([A-Za-z._][\w./+-]*|[+-]\d\d:\d\d)\])?` +
	`(?:\[(?:!u-ca=(?:iso8601|gregory)|[a-z_][a-z\d_-]*=[A-Za-z\d]+(?:-[A-Za-z\d]+)*)\])*)?$`)

// namesOfUTC are the names of the time zone database for zones that are UTC at all times.
var namesOfUTC = regexp.MustCompile(`^(?i:(?:Etc/)?(?:UTC|UCT|Universal|Zulu|Greenwich|GMT(?:[+-]?0)?))$`)

// ParseTime parses a date of HTTP (RFC 9110, section 5.6.7), of which it accepts the obsolete forms as well, or a
// calendar date-time of ISO 8601, as in 2026-01-31T12:00:00.123Z, in every spelling that has one meaning:
//   - date and time are extended (2026-01-31, 12:00:00) or basic (20260131, 120000), each on its own;
//   - T, t or a space is between them (RFC 3339, section 5.6, allows a space);
//   - seconds can be absent, and 24:00 is the beginning of the next day;
//   - the last of them can have a fraction after a point or a comma. Digits below a nanosecond
//     are dropped;
//   - the offset is Z, z, ±hh, ±hhmm or ±hh:mm, with hyphen-minus or U+2212 as the minus;
//   - a suffix of RFC 9557 can follow the offset, as in Z[UTC], if there is no doubt about the time. The zone is UTC or
//     an offset and agrees with the offset before it, or it follows Z, which says nothing about a zone, and is not
//     critical. Of the tags, only the calendars iso8601 and gregory can be critical.
//
// A date of HTTP must have the right weekday. Its zone is GMT, UTC or, in the first form, an offset; that of asctime
// has none and is in UTC. The day can have one digit, and the seconds a fraction. A year of two digits is the latest
// one that is at most 50 years ahead.
//
// Without an offset, a date-time is read as UTC, and zoned is false. The result is in UTC, in a year from 0 to 9999.
// Week dates, ordinal dates and dates without a time are not accepted.
//
// Second 60 is accepted where a leap second can occur: at 23:59:60 UTC on the last day of a month. It is parsed as the
// following second, because a [time.Time] has no leap seconds. Whether a leap second was announced for that day is not
// checked.
func ParseTime(text string) (t time.Time, zoned, ok bool) {
	m := dateTime.FindStringSubmatch(text)
	if m == nil {
		t, ok = parseHTTPDate(text)
		return t, ok, ok
	}
	number := func(group int) (n int) {
		for _, digit := range m[group] {
			n = 10*n + int(digit-'0')
		}
		return n
	}
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
	case m[17] != "" && !(m[16] == "" && strings.EqualFold(m[12], "Z")) && !isZone(m[17], offset),
		!oneForm, !inCalendar, minute > 59, second > 60, number(14) > 23, number(15) > 59,
		hour > 23 && sinceMidnight > 24*time.Hour, second == 60 && !monthBegins, t.Year() < 0, t.Year() > 9999:
		return time.Time{}, false, false
	}
	return t, m[12] != "", true
}

// isZone reports whether a zone of RFC 9557 is UTC or an offset, and has that offset.
func isZone(zone string, offset time.Duration) bool {
	at, err := time.Parse("-07:00", zone)
	_, seconds := at.Zone() // 0 after an error
	return (err == nil || namesOfUTC.MatchString(zone)) && time.Duration(seconds)*time.Second == offset
}

// httpDates are the layouts of the dates of HTTP, with a year of four digits.
var httpDates = []string{"Mon, 2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 UTC",
	"Mon, 2 Jan 2006 15:04:05 -0700", "Monday, 2-Jan-2006 15:04:05 GMT",
	"Monday, 2-Jan-2006 15:04:05 UTC", "Mon Jan _2 15:04:05 2006"}

// parseHTTPDate parses a date of HTTP.
func parseHTTPDate(text string) (time.Time, bool) {
	year := strings.LastIndexByte(text, '-') + 1 // of two digits
	for _, century := range []string{"", "20", "19"} {
		for _, layout := range httpDates {
			t, err := time.Parse(layout, text[:year]+century+text[year:])
			if err != nil || century == "20" && t.After(time.Now().AddDate(50, 0, 0)) {
				continue
			}
			rightDay := strings.EqualFold(t.Format("Mon"), text[:3])
			if t = t.UTC(); rightDay && t.Year() >= 0 && t.Year() <= 9999 {
				return t, true
			}
			return time.Time{}, false
		}
	}
	return time.Time{}, false
}
