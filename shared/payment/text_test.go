package payment_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/payment"
)

func TestIsUUIDAcceptsOnlyTheCanonicalText(t *testing.T) {
	const good = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"
	for text, want := range map[string]bool{
		good:                                    true,
		strings.ToUpper(good):                   true,
		"00000000-0000-0000-0000-000000000000":  true,
		"":                                      false,
		good[:35]:                               false,
		good + "0":                              false,
		" " + good[1:]:                          false,
		"{" + good[1:35] + "}":                  false,
		"urn:uuid:" + good:                      false,
		strings.ReplaceAll(good, "-", ""):       false,
		"0b7e4c1e03d43-4f26-9c0d-2f1f6a5b7c8d":  false,
		"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8g":  false,
		"../../../../v1/keys/aaaa-aaaa-aaaaaa":  false,
		"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8\n": false,
	} {
		if got := payment.IsUUID(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

func TestParseTimeAcceptsExactlyRFC3339(t *testing.T) {
	utc := func(year int, month time.Month, day, hour, minute, second, nanosecond int) time.Time {
		return time.Date(year, month, day, hour, minute, second, nanosecond, time.UTC)
	}
	for text, want := range map[string]time.Time{
		// RFC 3339, section 5.8.
		"1985-04-12T23:20:50.52Z":      utc(1985, 4, 12, 23, 20, 50, 520e6),
		"1996-12-19T16:39:57-08:00":    utc(1996, 12, 20, 0, 39, 57, 0),
		"1990-12-31T23:59:60Z":         utc(1991, 1, 1, 0, 0, 0, 0),
		"1990-12-31T15:59:60-08:00":    utc(1991, 1, 1, 0, 0, 0, 0),
		"1937-01-01T12:00:27.87+00:20": utc(1937, 1, 1, 11, 40, 27, 870e6),

		"2026-01-31T12:00:00Z":                                   utc(2026, 1, 31, 12, 0, 0, 0),
		"2026-01-31t12:00:00z":                                   utc(2026, 1, 31, 12, 0, 0, 0),
		"2026-01-31T12:00:00.123Z":                               utc(2026, 1, 31, 12, 0, 0, 123e6),
		"2026-01-31T12:00:00.000000001Z":                         utc(2026, 1, 31, 12, 0, 0, 1),
		"2026-01-31T12:00:00.9999999999Z":                        utc(2026, 1, 31, 12, 0, 0, 999999999),
		"2026-01-31T12:00:00." + strings.Repeat("1", 1000) + "Z": utc(2026, 1, 31, 12, 0, 0, 111111111),
		"2026-01-31T12:00:00+00:00":                              utc(2026, 1, 31, 12, 0, 0, 0),
		"2026-01-31T12:00:00-00:00":                              utc(2026, 1, 31, 12, 0, 0, 0),
		"2026-01-31T12:00:00+23:59":                              utc(2026, 1, 30, 12, 1, 0, 0),
		"2026-01-31T12:00:00-23:59":                              utc(2026, 2, 1, 11, 59, 0, 0),
		"2024-02-29T00:00:00Z":                                   utc(2024, 2, 29, 0, 0, 0, 0),
		"2000-02-29T00:00:00Z":                                   utc(2000, 2, 29, 0, 0, 0, 0),
		"0000-01-01T00:00:00Z":                                   utc(0, 1, 1, 0, 0, 0, 0),
		"0001-01-01T00:00:00Z":                                   utc(1, 1, 1, 0, 0, 0, 0),
		"9999-12-31T23:59:59.999Z":                               utc(9999, 12, 31, 23, 59, 59, 999e6),
		"2026-06-30T23:59:60.5Z":                                 utc(2026, 7, 1, 0, 0, 0, 500e6),
		"2026-07-01T01:59:60+02:00":                              utc(2026, 7, 1, 0, 0, 0, 0),
		"2024-02-29T23:59:60Z":                                   utc(2024, 3, 1, 0, 0, 0, 0),
	} {
		got, err := payment.ParseTime(text)
		if err != nil || !got.Equal(want) {
			t.Errorf("%s is %v, %v", text, got, err)
		}
		if _, offset := got.Zone(); (offset == 0) != (got.Location() == time.UTC) {
			t.Errorf("%s is in %v", text, got.Location())
		}
	}
	for _, text := range []string{
		"", "Z", "2026", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31T12:00Z", "12:00:00Z", "20260131T120000Z",
		"2026-01-31 12:00:00Z", "2026-01-31_12:00:00Z", " 2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z ",
		"2026-01-31T12:00:00ZZ",
		"2026-01-31T2:00:00Z", "2026-01-31T2:00:00.5Z", "2026-01-31T2:00:00+02:00", "2026-1-31T12:00:00Z",
		"2026-01-1T12:00:00Z", "26-01-31T12:00:00Z",
		"+2026-01-31T12:00:00Z", "12026-01-31T12:00:00Z", "-001-01-31T12:00:00Z",
		"2026-00-31T12:00:00Z", "2026-13-31T12:00:00Z", "2026-01-00T12:00:00Z", "2026-01-32T12:00:00Z",
		"2026-04-31T12:00:00Z",
		"2026-02-29T12:00:00Z", "1900-02-29T12:00:00Z", "2024-02-30T12:00:00Z",
		"2026-01-31T24:00:00Z", "2026-01-31T12:60:00Z", "2026-01-31T12:00:61Z", "2026-01-31T-1:00:00Z",
		"2026-01-31T12:00:0/Z", "2026-01-31T12:00:0:Z",
		"2026-01-31T12:00:00,123Z", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00.1_0Z", "2026-01-31T12:00:00.-1Z",
		"2026-01-31T12:00:00+24:00", "2026-01-31T12:00:00+00:60", "2026-01-31T12:00:00+0200", "2026-01-31T12:00:00+02",
		"2026-01-31T12:00:00+2:00",
		"2026-01-31T12:00:00+02:0", "2026-01-31T12:00:00+02:00Z", "2026-01-31T12:00:00Z+02:00", "2026-01-31T12:00:00 Z",
		"2026-01-31T12:00:00\u221202:00", "2026-01-31T12:00:00+",
		// A leap second cannot occur at these times.
		"2026-01-31T12:00:60Z", "2026-01-31T23:58:60Z", "2026-01-30T23:59:60Z", "2026-01-31T23:59:60+01:00",
		"2026-06-30T00:00:60Z", "2026-07-01T00:00:60Z",
		// The year in UTC does not have four digits.
		"0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "9999-12-31T23:59:60Z",
		"２026-01-31T12:00:00Z",
	} {
		if got, err := payment.ParseTime(text); !errors.Is(err, payment.ErrTime) || !got.IsZero() {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

// grammar is the date-time of RFC 3339, section 5.6, without leap seconds.
var grammar = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]` +
	`([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// FuzzParseTime checks ParseTime against the grammar and the standard library.
func FuzzParseTime(f *testing.F) {
	for _, text := range []string{
		"2026-01-31T12:00:00.123Z", "2026-01-31t12:00:00z", "1996-12-19T16:39:57-08:00", "2026-06-30T23:59:60Z",
		"2026-01-31T2:00:00Z",
		"2026-01-31T12:00:00+24:00", "2026-01-31T12:00:00,1Z", "2026-02-29T12:00:00Z", "0000-01-01T00:00:00+00:01",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := payment.ParseTime(text)
		if len(text) > 18 && text[17:19] == "60" {
			return // the standard library has no leap seconds
		}
		want, wantErr := time.Parse(time.RFC3339, strings.ToUpper(text))
		valid := grammar.MatchString(text) && wantErr == nil && want.UTC().Year() >= 0 && want.UTC().Year() <= 9999
		if valid != (err == nil) {
			t.Fatalf("%q: %v; the standard library: %v", text, err, wantErr)
		}
		if valid && !got.Equal(want) {
			t.Fatalf("%q: %v; the standard library: %v", text, got, want)
		}
	})
}
