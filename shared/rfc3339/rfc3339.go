// Package rfc3339 parses timestamps as RFC 3339 defines them.
//
// It guarantees that a text is accepted only if the grammar of section 5.6
// allows it. [time.Parse] differs: it accepts hours of one digit, a comma before
// the fraction, and offsets such as +24:00 and +00:60, and it rejects a
// lower-case t or z and leap seconds.
package rfc3339

import (
	"errors"
	"time"
)

// ErrSyntax is returned for a text that is not a date-time of RFC 3339.
var ErrSyntax = errors.New("rfc3339: not a timestamp")

// Parse parses a date-time of RFC 3339, as in 2026-01-31T12:00:00.123Z.
//
// T and Z may be lower case. A fraction may have any number of digits; digits
// after the ninth are dropped. The result is in UTC if the offset is zero
// (-00:00 included), and otherwise in a zone with that offset. Its year in UTC is
// 0 to 9999.
//
// Second 60 is accepted where a leap second can occur: at 23:59:60 UTC on the
// last day of a month. It is parsed as the following second, because a
// [time.Time] has no leap seconds. Parse does not check whether a leap second was
// announced for that day.
//
// Parse is safe for concurrent use.
func Parse(text string) (time.Time, error) {
	p := parser{text: text, ok: true}
	year := p.number(4, 0, 9999)
	p.literal("-")
	month := time.Month(p.number(2, 1, 12))
	p.literal("-")
	day := p.number(2, 1, 31)
	p.literal("Tt")
	hour := p.number(2, 0, 23)
	p.literal(":")
	minute := p.number(2, 0, 59)
	p.literal(":")
	second := p.number(2, 0, 60)
	nanosecond := p.fraction()
	zone := p.zone()
	if !p.ok || p.text != "" || day > daysIn(year, month) {
		return time.Time{}, ErrSyntax
	}
	t := time.Date(year, month, day, hour, minute, second, nanosecond, zone)
	// time.Date carries second 60 over to the next minute.
	if next := t.UTC(); second == 60 && (next.Day() != 1 || next.Hour() != 0 || next.Minute() != 0) {
		return time.Time{}, ErrSyntax
	}
	if y := t.UTC().Year(); y < 0 || y > 9999 {
		return time.Time{}, ErrSyntax
	}
	return t, nil
}

// daysIn returns the number of days of a month.
func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day() // day 0 is the last day of the month before
}

// parser consumes a text from its beginning. Once ok is false, it stays false.
type parser struct {
	text string
	ok   bool
}

// number consumes the given number of digits and returns their value, which must
// be from low to high.
func (p *parser) number(digits, low, high int) (n int) {
	if len(p.text) < digits {
		p.ok = false
		return 0
	}
	for i := range digits {
		c := p.text[i]
		p.ok = p.ok && '0' <= c && c <= '9'
		n = 10*n + int(c-'0')
	}
	p.text = p.text[digits:]
	p.ok = p.ok && low <= n && n <= high
	return n
}

// literal consumes one character, which must be in set, and returns it.
func (p *parser) literal(set string) byte {
	if p.text != "" {
		c := p.text[0]
		for i := range len(set) {
			if set[i] == c {
				p.text = p.text[1:]
				return c
			}
		}
	}
	p.ok = false
	return 0
}

// fraction consumes the fraction of a second, if there is one, and returns it in
// nanoseconds.
func (p *parser) fraction() (nanoseconds int) {
	if p.text == "" || p.text[0] != '.' {
		return 0
	}
	p.text = p.text[1:]
	digits := 0
	for ; digits < len(p.text) && '0' <= p.text[digits] && p.text[digits] <= '9'; digits++ {
		if digits < 9 {
			nanoseconds = 10*nanoseconds + int(p.text[digits]-'0')
		}
	}
	for i := digits; i < 9; i++ {
		nanoseconds *= 10
	}
	p.ok = p.ok && digits > 0
	p.text = p.text[digits:]
	return nanoseconds
}

// zone consumes the offset and returns its location.
func (p *parser) zone() *time.Location {
	sign := p.literal("Zz+-")
	if sign != '+' && sign != '-' {
		return time.UTC
	}
	seconds := 3600 * p.number(2, 0, 23)
	p.literal(":")
	seconds += 60 * p.number(2, 0, 59)
	switch {
	case seconds == 0:
		return time.UTC
	case sign == '-':
		seconds = -seconds
	}
	return time.FixedZone("", seconds)
}
