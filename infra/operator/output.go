package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printJSON writes one document on a line of its own.
func printJSON(w io.Writer, document any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(document)
}

// sheet writes names and values, one pair a line.
type sheet struct{ *tabwriter.Writer }

func newSheet(w io.Writer) sheet { return sheet{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (s sheet) line(name, format string, args ...any) {
	fmt.Fprintf(s, "%s\t%s\n", name, fmt.Sprintf(format, args...))
}

// stamp is a time as the program writes it.
func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// ago is a time, and how long ago it was.
func ago(at, now time.Time) string {
	if at.After(now) {
		return fmt.Sprintf("%s (in %s)", stamp(at), readable(at.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", stamp(at), readable(now.Sub(at)))
}

// readable writes a duration with two units at most: 2d4h, 3h12m, 12s, 120ms.
func readable(d time.Duration) string {
	if d < 0 {
		return "-" + readable(-d)
	}
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return units(d, time.Second, "s", 0, "")
	case d < time.Hour:
		return units(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return units(d, time.Hour, "h", time.Minute, "m")
	}
	return units(d, day, "d", time.Hour, "h")
}

func units(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	text := strconv.FormatInt(int64(d/big), 10) + bigName
	if small > 0 && d%big >= small {
		text += strconv.FormatInt(int64(d%big/small), 10) + smallName
	}
	return text
}

// seconds is a duration as JSON has it.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// plain is text of somebody else's, without what a terminal would obey.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

func plainAll(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = plain(text)
	}
	return strings.Join(quoted, ", ")
}

// counted is a number and what is counted.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// progress says on long work how far it is, every two seconds at most.
type progress struct {
	p    *program
	last time.Time
}

func (p *program) progress() *progress { return &progress{p, p.now()} }

func (g *progress) say(format string, args ...any) {
	if now := g.p.now(); now.Sub(g.last) >= 2*time.Second {
		g.last = now
		fmt.Fprintf(g.p.err, format+"\n", args...)
	}
}
