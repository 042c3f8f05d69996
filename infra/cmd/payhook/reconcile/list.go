package reconcile

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/payment"
)

// entry is one id of a list.
type entry struct {
	id string
	at time.Time // zero without --time-column
}

// format says how a list is read.
type format struct {
	by           identifier
	column, time string // names of columns or members; "" for none
}

// read reads a list: JSON lines if it begins with "{", CSV with a header line if a column is named, otherwise
// one id a line. CSV has commas or semicolons. Each id is returned once, in the order of the list, with the
// latest of its times. Errors name the line.
func (f format) read(from io.Reader) (list []entry, repeated int, err error) {
	text := bufio.NewReaderSize(from, maxLine)
	if bom, _ := text.Peek(3); bytes.Equal(bom, []byte("\xef\xbb\xbf")) { // as spreadsheets write it
		_, _ = text.Discard(3)
	}
	seen := map[string]int{} // the positions in list
	add := func(line int, id, at string) error {
		e := entry{id: strings.TrimSpace(id)}
		if f.by.isUUID {
			if !payment.IsUUID(e.id) {
				return fmt.Errorf("line %d: %q is not a UUID, which %s is", line, shorten(e.id), f.by.name)
			}
			e.id = strings.ToLower(e.id)
		}
		if e.id == "" {
			return fmt.Errorf("line %d: the id is empty", line)
		}
		if f.time != "" {
			if e.at, err = timeOf(at); err != nil {
				return fmt.Errorf("line %d: %w", line, err)
			}
		}
		if n, known := seen[e.id]; known {
			repeated++
			if e.at.After(list[n].at) {
				list[n].at = e.at
			}
			return nil
		}
		seen[e.id] = len(list)
		list = append(list, e)
		return nil
	}
	first, _ := text.Peek(1)
	switch {
	case string(first) == "{":
		err = f.readJSON(text, add)
	case f.column != "":
		err = f.readCSV(text, add)
	case f.time != "":
		err = errors.New("--time-column needs CSV or JSON lines, and for CSV --column")
	default:
		err = eachLine(text, func(line int, id []byte) error {
			if bytes.ContainsAny(id, ",;\t") {
				return fmt.Errorf("line %d: has several columns: for CSV, name that of the id with --column", line)
			}
			return add(line, string(id), "")
		})
	}
	if err == nil && len(list) == 0 {
		err = errors.New("the list is empty")
	}
	return list, repeated, err
}

// maxLine is the maximum length of a line, in bytes.
const maxLine = 1 << 20

// eachLine calls do with each line that is not blank.
func eachLine(text io.Reader, do func(n int, line []byte) error) error {
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			if err := do(n, line); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d: is longer than %d bytes", n, maxLine)
	} else if err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	return nil
}

func (f format) readJSON(text io.Reader, add func(line int, id, at string) error) error {
	column := f.column
	if column == "" {
		column = f.by.name
	}
	return eachLine(text, func(n int, line []byte) error {
		var object map[string]any
		if err := json.Unmarshal(line, &object); err != nil {
			return fmt.Errorf("line %d: must be a JSON object: %w", n, err)
		}
		id, ok := object[column].(string)
		if !ok {
			return fmt.Errorf("line %d: the member %s must be a string; --column names another one", n, column)
		}
		at, _ := object[f.time].(string)
		return add(n, id, at)
	})
}

func (f format) readCSV(text *bufio.Reader, add func(line int, id, at string) error) error {
	rows := csv.NewReader(text)
	start, _ := text.Peek(text.Size()) // the whole header line, or it is longer than maxLine
	if names, _ := csv.NewReader(bytes.NewReader(start)).Read(); !slices.ContainsFunc(names,
		func(text string) bool { return strings.TrimSpace(text) == f.column }) {
		rows.Comma = ';'
	}
	header, err := rows.Read()
	if err != nil {
		return fmt.Errorf("the header line: %w", err)
	}
	position := func(name string) (int, error) {
		n := slices.IndexFunc(header, func(text string) bool { return strings.TrimSpace(text) == name })
		if n < 0 && name != "" {
			return 0, fmt.Errorf("there is no column %q; the header line has %q", name, header)
		}
		return n, nil
	}
	id, errID := position(f.column)
	at, errTime := position(f.time)
	if err := errors.Join(errID, errTime); err != nil {
		return err
	}
	for {
		row, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		line, _ := rows.FieldPos(0)
		text := ""
		if f.time != "" {
			text = row[at]
		}
		if err := add(line, row[id], text); err != nil {
			return err
		}
	}
}

// timeOf reads a time of RFC 3339, or a day.
func timeOf(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return at, fmt.Errorf("the time %q must be as 2026-01-31T12:00:00Z or 2026-01-31", shorten(text))
	}
	return at.Add(24*time.Hour - 1), nil
}

func shorten(text string) string {
	if len(text) > 60 {
		return text[:60] + "…"
	}
	return text
}
