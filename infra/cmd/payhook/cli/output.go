package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
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

func (p *Program) table() *tabwriter.Writer { return tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0) }

// Show writes a document: with --json as it is, otherwise pairs of a name and its value, in two columns. Values that
// are zero are left out. [Rows] are a table below their name, and [Lines] are lines.
func (p *Program) Show(document any, pairs ...any) error {
	if p.JSON {
		return p.PrintJSON(document)
	}
	t := p.table()
	for pair := range slices.Chunk(pairs, 2) {
		switch value := pair[1].(type) {
		case Rows:
			if len(value) > 1 {
				fmt.Fprintf(t, "\n%s\n", pair[0])
				p.write(t, value)
			}
		case Lines:
			for i, line := range value {
				if i == 0 {
					fmt.Fprintf(t, "\n%s\n", pair[0])
				}
				fmt.Fprintf(t, "  %s\n", Plain(line))
			}
		default:
			if text := p.text(value); !isZero(text) {
				fmt.Fprintf(t, "%s\t%s\n", Plain(fmt.Sprint(pair[0])), text)
			}
		}
	}
	return t.Flush()
}

// Lines are texts, one on each line.
type Lines []string

// ShowLine writes one of several documents, which follow each other: with --json as it is, otherwise its pairs
// as name=value.
func (p *Program) ShowLine(document any, pairs ...any) error {
	if p.JSON {
		return p.PrintJSON(document)
	}
	var words []string
	for pair := range slices.Chunk(pairs, 2) {
		if text := fmt.Sprint(pair[1]); !isZero(text) {
			words = append(words, Word(fmt.Sprint(pair[0]), text))
		}
	}
	_, err := fmt.Fprintln(p.Out, strings.Join(words, "  "))
	return err
}

// Word is a name and its value as name=value, quoted if that is needed.
func Word(name, value string) string {
	if strings.ContainsAny(value, ` "=`) {
		value = strconv.Quote(value)
	}
	return Plain(name) + "=" + Plain(value)
}

// Rows are the lines of a table. The first has the names of the columns.
type Rows [][]any

// List writes documents: with --json one a line, otherwise their rows, of which there are none without documents.
func List[T any](p *Program, list []T, rows Rows) error {
	if p.JSON {
		for _, document := range list {
			if err := p.PrintJSON(document); err != nil {
				return err
			}
		}
		return nil
	}
	t := p.table()
	if len(list) > 0 {
		p.write(t, rows)
	}
	return t.Flush()
}

func (p *Program) write(to io.Writer, rows Rows) {
	for _, row := range rows {
		var cells []string
		for _, cell := range row {
			cells = append(cells, p.text(cell))
		}
		fmt.Fprintln(to, strings.Join(cells, "\t"))
	}
}

// Pairs are the members of a map, in their order.
func Pairs[V any](name string, of map[string]V) (pairs []any) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		pairs = append(pairs, name+"."+key, of[key])
	}
	return pairs
}

// text is a value for a terminal: a time with how long ago it was, a list with commas.
func (p *Program) text(value any) string {
	switch v := value.(type) {
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return Ago(v, p.Now())
	case []string:
		return Plain(strings.Join(v, ", "))
	}
	return Plain(fmt.Sprint(value))
}

func isZero(text string) bool { return text == "" || text == "0" || text == "false" || text == "[]" }

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
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Readable(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Hour:
		return zero.ReplaceAllString(d.Truncate(time.Second).String(), "$1")
	case d < day:
		return zero.ReplaceAllString(d.Truncate(time.Minute).String(), "$1")
	}
	return zero.ReplaceAllString(fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour), "$1")
}

// zero matches smaller units that are zero.
var zero = regexp.MustCompile(`([dhm])(?:0[hms])+$`)

// Plain is text from outside, quoted if it has control characters, which a terminal
// would interpret.
func Plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// Counter returns a function that adds to a number of what is read, and writes it to Err every three seconds.
func (p *Program) Counter(one, many string) func(more int) {
	n, said := 0, p.Now()
	return func(more int) {
		n += more
		if now := p.Now(); now.Sub(said) >= 3*time.Second {
			said = now
			fmt.Fprintln(p.Err, Counted(n, one, many), "read")
		}
	}
}

// Counted is a number and what is counted.
func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
