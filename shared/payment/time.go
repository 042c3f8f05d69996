package payment

import (
	"errors"
	"strings"
	"time"
)

// ErrTime is returned for a text that is not a date-time.
var ErrTime = errors.New("payment: not a timestamp")

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
func ParseTime(text string) (t time.Time, zoned bool, err error) {
	s := scanner{rest: text}
	t = s.date()
	s.failed = s.failed || !s.skip("Tt ")
	hour, minute, second, fraction := s.clock()
	zoned = s.rest != ""
	offset := s.offset()
	sinceMidnight := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute +
		time.Duration(second)*time.Second + fraction
	t = t.Add(sinceMidnight - offset)
	monthBegins := t.Day() == 1 && t.Hour() == 0 && t.Minute() == 0
	if s.failed || s.rest != "" || hour == 24 && sinceMidnight > 24*time.Hour || second == 60 && !monthBegins ||
		t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}, false, ErrTime
	}
	return t, zoned, nil
}

// scanner reads a text from its beginning. After the first error, its results have no meaning.
type scanner struct {
	rest   string
	failed bool
}

// skip skips the next byte if it is one of set.
func (s *scanner) skip(set string) bool {
	if s.rest == "" || strings.IndexByte(set, s.rest[0]) < 0 {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) digit() bool { return s.rest != "" && '0' <= s.rest[0] && s.rest[0] <= '9' }

// number reads a number of so many digits.
func (s *scanner) number(digits, most int) (n int) {
	for range digits {
		if !s.digit() {
			s.failed = true
			return 0
		}
		n = n*10 + int(s.rest[0]-'0')
		s.rest = s.rest[1:]
	}
	s.failed = s.failed || n > most
	return n
}

func (s *scanner) date() time.Time {
	year := s.number(4, 9999)
	extended := s.skip("-")
	month := time.Month(s.number(2, 12))
	s.failed = s.failed || s.skip("-") != extended
	day := s.number(2, 31)
	t := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	s.failed = s.failed || t.Month() != month || t.Day() != day
	return t
}

func (s *scanner) clock() (hour, minute, second int, fraction time.Duration) {
	hour = s.number(2, 24)
	extended := s.skip(":")
	minute = s.number(2, 59)
	unit := time.Minute
	if extended && s.skip(":") || !extended && s.digit() {
		second, unit = s.number(2, 60), time.Second
	}
	if s.skip(".,") {
		s.failed = s.failed || !s.digit()
		for s.digit() {
			unit /= 10
			fraction += unit * time.Duration(s.rest[0]-'0')
			s.rest = s.rest[1:]
		}
	}
	return hour, minute, second, fraction
}

func (s *scanner) offset() time.Duration {
	if s.rest == "" || s.skip("Zz") {
		return 0
	}
	rest, west := strings.CutPrefix(s.rest, "\u2212")
	s.rest = rest
	west = west || s.skip("-")
	s.failed = s.failed || !west && !s.skip("+")
	offset := time.Duration(s.number(2, 23)) * time.Hour
	if s.skip(":") || s.rest != "" {
		offset += time.Duration(s.number(2, 59)) * time.Minute
	}
	if west {
		return -offset
	}
	return offset
}
