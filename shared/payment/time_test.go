package payment_test

import (
	"cmp"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/payment"
)

// The first five are examples of RFC 3339, section 5.8.
func TestParseTimeReturnsTheTime(t *testing.T) {
	utc := func(year int, month time.Month, day, hour, minute, second, nanosecond int) time.Time {
		return time.Date(year, month, day, hour, minute, second, nanosecond, time.UTC)
	}
	for text, want := range map[string]time.Time{
		"1985-04-12T23:20:50.52Z":      utc(1985, 4, 12, 23, 20, 50, 520e6),
		"1996-12-19T16:39:57-08:00":    utc(1996, 12, 20, 0, 39, 57, 0),
		"1990-12-31T23:59:60Z":         utc(1991, 1, 1, 0, 0, 0, 0),
		"1990-12-31T15:59:60-08:00":    utc(1991, 1, 1, 0, 0, 0, 0),
		"1937-01-01T12:00:27.87+00:20": utc(1937, 1, 1, 11, 40, 27, 870e6),

		"20260131t1200,25\u22120530":  utc(2026, 1, 31, 17, 30, 15, 0),
		"2026-01-31 24:00+02":         utc(2026, 1, 31, 22, 0, 0, 0),
		"2026-01-31T12:00.0000000005": utc(2026, 1, 31, 12, 0, 0, 30),
		"20260131T120000.9999999999z": utc(2026, 1, 31, 12, 0, 0, 999999999),
		"2026-06-30T23:59:60.5":       utc(2026, 7, 1, 0, 0, 0, 500e6),
		"9999-12-31T24:00:00+00:01":   utc(9999, 12, 31, 23, 59, 0, 0),
	} {
		hasZone := strings.ContainsAny(text[10:], "Zz+-\u2212")
		if got, zoned, ok := payment.ParseTime(text); !ok || got != want || zoned != hasZone {
			t.Errorf("%s is %v, %t, %t", text, got, zoned, ok)
		}
	}
}

// Dates, times, fractions and offsets, right and wrong ones, are joined to all date-times.
func TestParseTimeAcceptsEveryDateTimeOfTheGrammarAndNoOther(t *testing.T) {
	edges := strings.Fields("2026-01-31 20260630 2026-07-01 0000-01-01 9999-12-31") // of months and of what is allowed
	dates := append(edges, strings.Fields(`2024-02-29 2000-02-29 20240229 0001-01-01 2026 2026-01 2026-031 2026031
		2026-W05-6 2026W056 2026-0131 202601-31 2026-1-31 2026-01-1 26-01-31 260131 +2026-01-31 12026-01-31 -001-01-31
		+002026-01-31 2026-00-31 2026-13-31 2026-01-00 2026-01-32 2026-04-31 20260431 2026-02-29 1900-02-29 2024-02-30
		２026-01-31`)...)
	times := append(strings.Fields(`12:00:00 120000 12:00 1200 24:00 24:00:00 240000 2400 23:59:59 00:00 23:59:60 235960
		01:59:60 23:58:60 00:00:60 12:00:60 12 2:00:00 2:00 12:0 12:00:0 12000 1200000 012:00 12:0000 1200:00 25:00:00
		12:60:00 12:00:61 -1:00:00 24:00:01 24:01 24:00:60 2401 12:00:0/ 12:00:0:`), "")
	fractions := append(strings.Fields(`.5 ,5 .123 ,123 .000 .000000001 .9999999999 .00000000005 .0000000005 . , .1_0
		.-1 .1.1 ;1 .5:00`), "", "."+strings.Repeat("1", 1000))
	offsets := append(strings.Fields(`Z z +00 -00 +0000 -0000 +00:00 -00:00 +02 -0530 +0530 +02:00 −02:00 −0200 −02
		+23:59 -23:59 +00:01 -00:01 +24:00 +24 +00:60 +0060 +2:00 +2 +020 +02000 +02:0 +02: +02:00Z Z+02:00 + +-02 −-02
		− ‒2 +02:00:00 ZZ GMT`), "", " Z", " 02:00", " 0200", "Z ", "Z\n")
	for _, clock := range times {
		for _, date := range dates {
			for _, separator := range []string{"T", "t", " ", "", "_", "T ", " T"} {
				checkTime(t, date+separator+clock)
				checkTime(t, date+separator+clock+"Z")
			}
		}
		for _, offset := range offsets {
			for _, date := range edges {
				checkTime(t, date+"T"+clock+offset)
			}
			for _, fraction := range fractions {
				checkTime(t, "2026-01-31T"+clock+fraction+offset)
			}
		}
	}
}

// RFC 9557, section 4.1, has the grammar of suffixes, and section 3.4 says which ones agree with the offset.
func TestParseTimeAcceptsASuffixThatDoesNotChangeTheTime(t *testing.T) {
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{"12:00:00Z[UTC]", "12:00:00Z[!UTC]", "12:00:00Z[Etc/UTC]", "12:00:00z[etc/utc]",
		"12:00:00+00:00[UTC]", "12:00:00-00:00[!Etc/UTC]", "12:00:00+00[UTC]", "120000Z[UTC]", "12:00Z[UTC]",
		"12:00:00.000Z[Zulu]", "12:00:00Z[Etc/Zulu]", "12:00:00Z[UCT]", "12:00:00Z[Universal]", "12:00:00Z[GMT]",
		"12:00:00Z[!Etc/GMT]", "12:00:00+0000[Etc/GMT0]", "12:00:00Z[GMT+0]", "12:00:00+00:00[Etc/GMT-0]",
		"12:00:00+00:00[!Greenwich]", "12:00:00Z[+00:00]", "12:00:00+00:00[-00:00]", "12:00:00Z[!+00:00]",
		"13:00:00+01:00[+01:00]", "13:00:00+01[!+01:00]", "06:30:00-0530[-05:30]", "10:00:00\u221202:00[-02:00]",
		"12:00:00Z[Europe/Paris]", "12:00:00Z[America/Argentina/Buenos_Aires]", "12:00:00Z[+02:00]",
		"12:00:00Z[Etc/GMT-14]", "12:00:00Z[UTC][u-ca=iso8601]", "12:00:00Z[u-ca=hebrew]",
		"12:00:00Z[!u-ca=iso8601]", "12:00:00Z[!UTC][!u-ca=gregory]", "13:00:00+01:00[u-ca=islamic-civil]",
		"12:00:00Z[UTC][_foo=bar][x-1=baz-Qux][u-ca=gregory]"} {
		if got, zoned, ok := payment.ParseTime("2026-11-28T" + text); !ok || !zoned || got != noon {
			t.Errorf("%s is %v, %t, %t", text, got, zoned, ok)
		}
	}
	for _, text := range []string{
		// The zone and the offset do not agree, or may not.
		"13:00:00+01:00[UTC]", "13:00:00+01:00[!UTC]", "12:00:00+00:00[+01:00]", "13:00:00+01:00[+02:00]",
		"13:00:00+01:00[-01:00]", "13:00:00+01:00[Europe/Paris]", "12:00:00+00:00[Europe/London]",
		"12:00:00+00:00[Etc/GMT+1]", "12:00:00+00:00[Etc/GMT-14]",
		// What is critical must be understood.
		"12:00:00Z[!Europe/Paris]", "12:00:00Z[!+02:00]", "12:00:00Z[!u-ca=hebrew]", "12:00:00Z[!foo=bar]",
		"12:00:00Z[UTC][u-ca=iso8601][!_x=1]",
		// Not of the grammar.
		"12:00:00[UTC]", "12:00:00[u-ca=iso8601]", "12:00:00Z[]", "12:00:00Z[!]", "12:00:00Z[UTC", "12:00:00ZUTC]",
		"12:00:00Z [UTC]", "12:00:00Z[ UTC]", "12:00:00Z[UTC] ", "12:00:00Z[UTC][UTC]", "12:00:00Z[u-ca=iso8601][UTC]",
		"12:00:00Z[U-CA=iso8601]", "12:00:00Z[u-ca=]", "12:00:00Z[u-ca=iso8601-]", "12:00:00Z[u-ca=iso_8601]",
		"12:00:00Z[1a=b]", "12:00:00Z[+0000]", "12:00:00Z[+00]", "12:00:00[UTC]Z", "12:00:00Z[UTC],", "12:00:00Z[UTC]Z",
		"12:00:00Z(UTC)", "12:00:00Z[\uff35TC]", "12:00:00+00:00[+00:60]", "12:00:00+24:00[UTC]"} {
		if got, zoned, ok := payment.ParseTime("2026-11-28T" + text); ok || zoned || !got.IsZero() {
			t.Errorf("%s is %v, %t, %t", text, got, zoned, ok)
		}
	}
}

// RFC 9110, section 5.6.7: "Recipients ... MUST accept all three HTTP-date formats", and which year two digits mean.
func TestParseTimeAcceptsTheDatesOfHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)))
		noon, rfc := time.Now().UTC(), time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)
		for text, want := range map[string]time.Time{
			"Sun, 06 Nov 1994 08:49:37 GMT": rfc, "Sunday, 06-Nov-94 08:49:37 GMT": rfc,
			"Sun Nov  6 08:49:37 1994":      rfc,
			"Sat, 28 Nov 2026 12:00:00 GMT": noon, "Saturday, 28-Nov-26 12:00:00 GMT": noon,
			"Sat Nov 28 12:00:00 2026": noon, "SATURDAY, 28-NOV-26 12:00:00 GMT": noon,
			"sat nov 28 12:00:00 2026":         noon,
			"Saturday, 28-Nov-26 12:00:00 UTC": noon, "Saturday, 28-Nov-2026 12:00:00 GMT": noon,
			"Sat, 28 Nov 2026 14:00:00 +0200": noon, "Sun, 29 Nov 2026 01:00:00 +1300": noon,
			"Sun Nov 6 08:49:37 1994": rfc, "Sunday, 6-Nov-94 08:49:37 GMT": rfc,
			"Tuesday, 29-Feb-00 00:00:00 GMT":  time.Date(2000, 2, 29, 0, 0, 0, 0, time.UTC),
			"Saturday, 28-Nov-76 12:00:00 GMT": noon.AddDate(50, 0, 0),
			"Monday, 29-Nov-76 12:00:00 GMT":   noon.AddDate(-50, 0, 1),
			"Fri, 31 Dec 9999 00:00:00 GMT":    time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
			"Sat, 01 Jan 0000 00:00:00 GMT":    time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		} {
			if got, zoned, ok := payment.ParseTime(text); !ok || !zoned || got != want {
				t.Errorf("%s is %v, %t, %t", text, got, zoned, ok)
			}
		}
		for _, text := range []string{
			// Another weekday.
			"Sun, 28 Nov 2026 12:00:00 GMT", "Sunday, 28-Nov-26 12:00:00 GMT", "Sun Nov 28 12:00:00 2026",
			"Saturday, 29-Nov-26 12:00:00 GMT", "Monday, 29-Feb-00 00:00:00 GMT",
			"Sunday, 29-Nov-76 12:00:00 GMT",   // more than 50 years ahead
			"Thursday, 01-Jan-70 00:00:00 GMT", // less
			// No date.
			"Mon, 30 Feb 2026 12:00:00 GMT", "Saturday, 31-Nov-26 12:00:00 GMT", "Sat Nov 28 24:00:00 2026",
			"Sat Nov 28 12:00:60 2026", "Sat, 01 Jan 0000 00:00:00 +0100", "Fri, 31 Dec 9999 23:00:00 -0100",
			// Another form.
			"Sat, 28-Nov-26 12:00:00 GMT", "Saturday, 28 Nov 2026 12:00:00 GMT", "Saturday, 28-Nov-26 12:00:00",
			"Saturday, 28-Nov-26 12:00:00 CET", "Saturday, 28-Nov-026 12:00:00 GMT", "Saturday, 28-Nov-6 12:00:00 GMT",
			"Sat Nov 28 12:00:00 26", "Sat Nov 28 12:00:00 GMT 2026", "Sat Nov 28 2026 12:00:00",
			"28-Nov-26 12:00:00 GMT", "Nov 28 12:00:00 2026", "Sat Nov 28 12:00:00 2026 ", " Sat Nov 28 12:00:00 2026",
			"Sat, 28 Nov 2026 12:00:00 Z", "Sat, 28 Nov 26 12:00:00 GMT", "Sat", "-", "20-20-"} {
			if got, zoned, ok := payment.ParseTime(text); ok || zoned || !got.IsZero() {
				t.Errorf("%q is %v, %t, %t", text, got, zoned, ok)
			}
		}
	})
}

// grammar is that of ParseTime. Its groups are those of [rfc3339].
var grammar = regexp.MustCompile(`^(\d{4})(?:-(\d\d)-(\d\d)|(\d\d)(\d\d))[Tt ]` +
	`([01]\d|2[0-4])(?::([0-5]\d)(?::([0-5]\d|60))?|([0-5]\d)([0-5]\d|60)?)(?:[.,](\d+))?` +
	`([Zz]|(?:[+-]|\x{2212})(?:[01]\d|2[0-3])(?::?[0-5]\d)?)?$`)

// rfc3339 writes the groups of a match as a date-time that the standard library parses, with
// 00 for the hour 24, 59 for the second 60, and without the fraction.
func rfc3339(m []string) string {
	offset := strings.NewReplacer("Z", "+0000", "z", "+0000", "\u2212", "-", ":", "").Replace(m[12]) + "00"
	if m[12] == "" {
		offset = "+0000"
	}
	seconds := strings.Replace(cmp.Or(m[8], m[10], "00"), "60", "59", 1)
	return m[1] + "-" + m[2] + m[4] + "-" + m[3] + m[5] + "T" + strings.Replace(m[6], "24", "00", 1) + ":" +
		m[7] + m[9] + ":" + seconds + offset[:3] + ":" + offset[3:5]
}

// dateTime is what begins like a date-time.
var dateTime = regexp.MustCompile(`^\d{4}`)

// FuzzParseTime checks ParseTime against the grammar and the standard library.
func FuzzParseTime(f *testing.F) {
	for _, text := range []string{"2026-01-31T12:00:00.123Z", "20260131T1200,5-0530", "2026-01-31 24:00\u221202",
		"2026-06-30T23:59:60Z", "2026-01-31T12:00:00Z[UTC]", "Saturday, 31-Jan-26 12:00:00 GMT",
		"Sat Jan 31 12:00:00 2026"} {
		f.Add(text)
	}
	f.Fuzz(checkTime)
}

// checkTime compares the result of ParseTime with the grammar and the standard library.
func checkTime(t *testing.T, text string) {
	t.Helper()
	got, zoned, ok := payment.ParseTime(text)
	if ok {
		if again, _, ok := payment.ParseTime(got.Format(time.RFC3339Nano)); !ok || again != got {
			t.Fatalf("%q: %v, again %v, %t", text, got, again, ok)
		}
	}
	if before, _, suffix := strings.Cut(text, "["); suffix {
		if want, _, _ := payment.ParseTime(before); ok && (got != want || !zoned) {
			t.Fatalf("%q: %v; without the suffix: %v", text, got, want)
		}
		return
	}
	if ok && !dateTime.MatchString(text) {
		const withoutYear = "01-02T15:04:05.999999999" // two digits can mean another one in package http
		if want, err := http.ParseTime(text); err == nil && got.Format(withoutYear) != want.Format(withoutYear) {
			t.Fatalf("%q: %v; package http: %v", text, got, want)
		}
		return
	}
	m := grammar.FindStringSubmatch(text)
	var want time.Time
	valid := m != nil
	if valid {
		var wantErr error
		want, wantErr = time.Parse(time.RFC3339, rfc3339(m))
		valid = wantErr == nil
		// A nanosecond is the ninth digit of a second, and six are the tenth of a minute.
		digits, units := 10, time.Duration(6)
		if m[8]+m[10] != "" {
			digits, units = 9, 1
		}
		n, err := strconv.Atoi((m[11] + "0000000000")[:digits])
		if err != nil {
			t.Fatal(err)
		}
		fraction := time.Duration(n) * units
		if want = want.Add(fraction); m[6] == "24" {
			valid = valid && m[7]+m[9] == "00" && strings.Trim(m[8]+m[10], "0") == "" && fraction == 0
			want = want.Add(24 * time.Hour)
		}
		if m[8]+m[10] == "60" { // a leap second, with which a month ends
			want = want.Add(time.Second)
			valid = valid && want.UTC().Format("02T15:04") == "01T00:00"
		}
		valid = valid && want.UTC().Year() >= 0 && want.UTC().Year() <= 9999
	}
	if valid != ok {
		t.Fatalf("%q: %t; want %t", text, ok, valid)
	}
	if valid && (!got.Equal(want) || zoned != (m[12] != "")) {
		t.Fatalf("%q: %v, %t; the standard library: %v", text, got, zoned, want)
	}
}

// All spellings of a key id have one form. Only one of them is a UUID.
func TestUUIDsAndKeyIDs(t *testing.T) {
	const good, canonical = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", "0b7e4c1e3d434f269c0d2f1f6a5b7c8d"
	for text, isUUID := range map[string]bool{good: true, strings.ToUpper(good): true,
		strings.ToUpper(good[:14]) + good[14:]: true, canonical: false, strings.ToUpper(canonical): false} {
		if got, ok := payment.KeyID(text); got != canonical || !ok || payment.IsUUID(text) != isUUID {
			t.Errorf("%q: %q, %t", text, got, ok)
		}
	}
	if !payment.IsUUID("00000000-0000-0000-0000-000000000000") {
		t.Error("zeros are not a UUID")
	}
	for _, text := range []string{"", good[:35], good + "0", " " + good[1:], canonical[:31], canonical + "0",
		"{" + good + "}", "{" + good[1:35] + "}", "urn:uuid:" + good, "{" + canonical + "}", "(" + good + ")",
		"0b7e4c1e03d43-4f26-9c0d-2f1f6a5b7c8d", "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8g",
		"0b7e4c1e3d43-4f26-9c0d-2f1f-6a5b7c8d", "0b7e-4c1e3d434f269c0d2f1f6a5b7c",
		"../../../../v1/keys/aaaa-aaaa-aaaaaa", "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8\n", canonical[:31] + "g",
		canonical[:31] + "\n", " " + canonical, canonical + " ", "0x" + canonical[:30],
		"../../../../v1/keys/aaaaaaaaaaaa"} {
		if _, ok := payment.KeyID(text); ok || payment.IsUUID(text) {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestUnexpectedTypeIsEmptyForJSON(t *testing.T) {
	long := strings.Repeat("a", 64) + "/" + strings.Repeat("b", 62)
	for header, want := range map[string]string{
		"application/json; charset=utf-8": "", "application/jwk+json": "", "text/html": "text/html", "": "none",
		"text/": "malformed", long + "b": "malformed", long: long,
	} {
		if got := payment.UnexpectedType(header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	header := http.Header{}
	if payment.SetHeaders(header); len(header["Accept"])+len(header["User-Agent"]) != 2 {
		t.Errorf("%v", header)
	}
}
