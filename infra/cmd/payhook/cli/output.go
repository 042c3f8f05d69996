package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// PrintJSON writes one document on one line.
func (p *Program) PrintJSON(document any) error {
	e := json.NewEncoder(p.Out)
	e.SetEscapeHTML(false)
	return e.Encode(document)
}

// Fields writes names and values, one pair a line, in two columns. Nothing is
// written before Flush.
type Fields struct{ *tabwriter.Writer }

// Fields returns a writer of names and values to Out.
func (p *Program) Fields() Fields { return Fields{p.Table()} }

// Table returns a writer of columns to Out, which are separated by tabs.
func (p *Program) Table() *tabwriter.Writer { return tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0) }

// Line writes one name and its value.
func (f Fields) Line(name, format string, args ...any) {
	fmt.Fprintf(f, "%s\t%s\n", name, fmt.Sprintf(format, args...))
}

// Stamp is a time as the program writes it.
func Stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// Ago is a time, and how long ago it was.
func Ago(at, now time.Time) string {
	if at.After(now) {
		return fmt.Sprintf("%s (in %s)", Stamp(at), Readable(at.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", Stamp(at), Readable(now.Sub(at)))
}

// Readable writes a duration with two units at most: 2d4h, 3h12m, 12s, 120ms.
func Readable(d time.Duration) string {
	if d < 0 {
		return "-" + Readable(-d)
	}
	const day = 24 * time.Hour
	text := ""
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		text = fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		text = fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		text = fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	return zero.ReplaceAllString(text, "$1")
}

// zero matches a smaller unit that is zero.
var zero = regexp.MustCompile(`^(\d+[mhd])0[smh]$`)

// Plain is text from outside, quoted if it has control characters, which a terminal
// would interpret.
func Plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// Counted is a number and what is counted.
func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
