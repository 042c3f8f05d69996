package cli

import (
	"bytes"
	v1 "encoding/json"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// encode encodes a document as package encoding/json does, but without escapes for HTML.
func encode(document any, more ...json.Options) ([]byte, error) {
	return json.Marshal(document, v1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), json.JoinOptions(more...))
}

// PrintJSON writes one document on one line.
func (p *Program) PrintJSON(document any) error {
	text, err := encode(document)
	if err == nil {
		_, err = fmt.Fprintf(p.Out, "%s\n", text)
	}
	return err
}

// Member is one of a document or of an object within it, for people.
type Member struct {
	Name string           // with those of the objects that it is in, as a.b
	Text string           // a list has commas
	list []jsontext.Value // of objects
}

// times adds to a time how long ago it was.
func (p *Program) times() json.Options {
	return json.WithMarshalers(json.MarshalFunc(func(at time.Time) ([]byte, error) {
		if at.IsZero() {
			return []byte(`""`), nil
		}
		return []byte(strconv.Quote(Ago(at, p.Now()))), nil
	}))
}

// members returns the members of an object, in its order, without those that are zero.
func members(prefix string, object jsontext.Value) (all []Member) {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	_, _ = d.ReadToken() // {
	for d.PeekKind() == jsontext.KindString {
		token, _ := d.ReadToken()
		m := Member{Name: prefix + token.String()}
		value, _ := d.ReadValue()
		zero := true
		switch value.Kind() {
		case jsontext.KindBeginObject:
			all = append(all, members(m.Name+".", value)...)
		case jsontext.KindBeginArray:
			var texts []string
			for _, element := range elements(value) {
				texts = append(texts, textOf(element))
				if element.Kind() == jsontext.KindBeginObject {
					m.list = append(m.list, element)
				}
			}
			m.Text = strings.Join(texts, ", ")
			zero = texts == nil // [0] is not
		default:
			m.Text = textOf(value)
			zero = slices.Contains([]string{"", "0", "false", "null"}, m.Text)
		}
		if !zero {
			all = append(all, m)
		}
	}
	return all
}

func elements(array jsontext.Value) (list []jsontext.Value) {
	_ = json.Unmarshal(array, &list) // it is an array
	return list
}

// textOf returns a string without its quotes, and other values as they are.
func textOf(value jsontext.Value) string {
	if text, err := jsontext.AppendUnquote(nil, value); err == nil {
		return string(text)
	}
	return string(value)
}

func (p *Program) table() *tabwriter.Writer { return tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0) }

// Show writes a document: with --json as it is, otherwise its members in two columns. Lists of objects follow, as
// tables below their names.
func (p *Program) Show(document any) error {
	return p.write(document, func(all []Member) error {
		slices.SortStableFunc(all, func(a, b Member) int { return min(1, len(a.list)) - min(1, len(b.list)) })
		t := p.table()
		for _, m := range all {
			if m.list != nil {
				fmt.Fprintf(t, "\n%s\n", m.Name)
				writeRows(t, m.list, nil)
			} else {
				fmt.Fprintf(t, "%s\t%s\n", Plain(m.Name), Plain(m.Text))
			}
		}
		return t.Flush()
	})
}

// ShowLine writes one of several documents, which follow each other: with --json as it is, otherwise its members as
// name=value, quoted if that is needed. change can change a member, and says whether it is shown; nil: all are.
func (p *Program) ShowLine(document any, change func(*Member) bool) error {
	return p.write(document, func(all []Member) error {
		var words []string
		for _, m := range all {
			if change != nil && !change(&m) {
				continue
			}
			if strings.ContainsAny(m.Text, ` "=`) {
				m.Text = strconv.Quote(m.Text)
			}
			words = append(words, Plain(m.Name)+"="+Plain(m.Text))
		}
		_, err := fmt.Fprintln(p.Out, strings.Join(words, "  "))
		return err
	})
}

func (p *Program) write(document any, text func([]Member) error) error {
	if p.JSON {
		return p.PrintJSON(document)
	}
	object, err := encode(document, p.times())
	if err != nil {
		return err
	}
	return text(members("", object))
}

// List writes documents: with --json one a line, otherwise as a table with the members that are named, or else with
// all. A member that no document has is left out.
func List[T any](p *Program, list []T, columns ...string) error {
	if p.JSON {
		for _, document := range list {
			if err := p.PrintJSON(document); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := encode(list, p.times())
	if err != nil || len(list) == 0 {
		return err
	}
	t := p.table()
	writeRows(t, elements(text), columns)
	return t.Flush()
}

func writeRows(to io.Writer, list []jsontext.Value, columns []string) {
	every := columns == nil
	var rows []map[string]string
	for _, document := range list {
		row := map[string]string{}
		for _, m := range members("", document) {
			row[m.Name] = Plain(m.Text)
			if every && !slices.Contains(columns, m.Name) {
				columns = append(columns, m.Name)
			}
		}
		rows = append(rows, row)
	}
	columns = slices.DeleteFunc(slices.Clone(columns), func(name string) bool {
		return !slices.ContainsFunc(rows, func(row map[string]string) bool { return row[name] != "" })
	})
	fmt.Fprintln(to, strings.ToUpper(strings.Join(columns, "\t")))
	for _, row := range rows {
		var cells []string
		for _, name := range columns {
			cells = append(cells, row[name])
		}
		fmt.Fprintln(to, strings.Join(cells, "\t"))
	}
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

// Plain is text from outside, quoted if it has control characters, which a terminal would interpret.
func Plain(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// printable is text, in which everything that is not printed is escaped as in JSON, except lines and tabs: control
// characters, format characters such as those that change the direction, and bytes that are no UTF-8 (as \xff).
func printable(text []byte) (out []byte) {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			out = append(out, text[:n]...)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		text = text[n:]
	}
	return out
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
