package cli

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Print writes a document: with --json as it is, otherwise a line for each member with the
// names that JSON has. Members that are zero are left out, those of an object within have
// the names of both, and a list of objects is a table below the rest.
func (p *Program) Print(document any) error {
	if p.JSON {
		return p.PrintJSON(document)
	}
	t := p.Table()
	var tables []Member
	for _, m := range Members(encode(document)) {
		switch {
		case m.isTable():
			tables = append(tables, m)
		case !m.Zero():
			fmt.Fprintf(t, "%s\t%s\n", m.Name, m.text(p.Now()))
		}
	}
	for _, m := range tables {
		fmt.Fprintf(t, "\n%s\n", m.Name)
		p.table(t, m.Value)
	}
	return t.Flush()
}

// PrintTable writes a list of objects that have the same members: with --json one object a
// line, otherwise as a table.
func PrintTable[T any](p *Program, list []T) error {
	if p.JSON {
		for _, document := range list {
			if err := p.PrintJSON(document); err != nil {
				return err
			}
		}
		return nil
	}
	t := p.Table()
	p.table(t, encode(list))
	return t.Flush()
}

// PrintLine writes one of several documents, which follow each other: with --json as it is,
// otherwise as words.
func (p *Program) PrintLine(document any) error {
	if p.JSON {
		return p.PrintJSON(document)
	}
	_, err := fmt.Fprintln(p.Out, strings.Join(Words(encode(document)), "  "))
	return err
}

// encode returns the JSON of a document of the program.
func encode(document any) jsontext.Value {
	text, err := json.Marshal(document)
	if err != nil {
		panic(err) // it has a type that JSON does not have
	}
	return text
}

// table writes a JSON array of objects.
func (p *Program) table(t io.Writer, list jsontext.Value) {
	var rows []jsontext.Value
	_ = json.Unmarshal(list, &rows) // nil if it is null
	for i, row := range rows {
		var head, cells []string
		for _, m := range Members(row) {
			head, cells = append(head, strings.ToUpper(m.Name)), append(cells, m.text(p.Now()))
		}
		if i == 0 {
			fmt.Fprintln(t, strings.Join(head, "\t"))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
}

// Member is a member of a JSON object.
type Member struct {
	Name  string // for a member of an object within: outer.inner
	Value jsontext.Value
}

// Members returns the members of a JSON object and of the objects within, in their order. It
// returns nil for another value.
func Members(object jsontext.Value) (all []Member) {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	if token, err := d.ReadToken(); err != nil || token.Kind() != jsontext.KindBeginObject {
		return nil
	}
	for d.PeekKind() == jsontext.KindString {
		token, _ := d.ReadToken()
		name := Plain(token.String())
		value, err := d.ReadValue()
		if err != nil {
			return all
		}
		if value.Kind() != jsontext.KindBeginObject {
			all = append(all, Member{name, value.Clone()})
			continue
		}
		for _, inner := range Members(value) {
			all = append(all, Member{name + "." + inner.Name, inner.Value})
		}
	}
	return all
}

// Words returns the members of a JSON object that are not zero as name=value, without those
// that are hidden.
func Words(object jsontext.Value, hidden ...string) (words []string) {
	for _, m := range Members(object) {
		outer, _, _ := strings.Cut(m.Name, ".")
		if m.Zero() || slices.Contains(hidden, outer) {
			continue
		}
		text := m.Text()
		if m.Value.Kind() == jsontext.KindString && strings.ContainsAny(text, ` "=`) && text[0] != '"' {
			text = strconv.Quote(text)
		}
		words = append(words, m.Name+"="+text)
	}
	return words
}

// Zero reports whether the value is the zero value of its type.
func (m Member) Zero() bool {
	return slices.Contains([]string{"0", "false", "null", "[]", `""`}, string(m.Value))
}

// Text returns the value for a terminal: a string without quotation marks, a list of strings
// with commas.
func (m Member) Text() string {
	var text string
	var list []string
	switch {
	case json.Unmarshal(m.Value, &text) == nil && m.Value.Kind() == jsontext.KindString:
		return Plain(text)
	case json.Unmarshal(m.Value, &list) == nil:
		return Plain(strings.Join(list, ", "))
	}
	return Plain(string(m.Value))
}

// text is Text, with how long ago a time was.
func (m Member) text(now time.Time) string {
	text := m.Text()
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return Ago(at, now)
	}
	return text
}

func (m Member) isTable() bool { return strings.HasPrefix(string(m.Value), "[{") }
