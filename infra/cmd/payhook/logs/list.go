package logs

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/payment"
)

// listed is one id of a list.
type listed struct {
	id string
	at time.Time // zero without --time-column
}

// format says how a list is read.
type format struct {
	by                 identifier
	column, timeColumn string // names of columns; "" for none
}

// open reads the list in a file, or from standard input for "-".
func (r *reconciler) open(name string) (list []listed, err error) {
	var text []byte
	if name == "-" {
		text, err = io.ReadAll(r.In)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	list, repeated, err := r.read(payment.WithoutBOM(text)) // spreadsheets write a byte order mark
	if repeated > 0 {
		fmt.Fprintf(r.Err, "%s ignored\n", cli.Counted(repeated, "repeated id", "repeated ids"))
	}
	return list, err
}

// read reads a list: CSV with a header line if a column is named, otherwise one id a line. Each id is returned once,
// in the order of the list, with the latest of its times. Errors name the line.
func (f format) read(text []byte) (list []listed, repeated int, err error) {
	rows, id, at, err := f.rows(text)
	if err != nil {
		return nil, 0, err
	}
	positions := map[string]int{} // in list
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, 0, err
		}
		if len(row) == 1 && strings.TrimSpace(row[0]) == "" {
			continue
		}
		l, err := f.parse(row, id, at)
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, 0, fmt.Errorf("line %d: %w", line, err)
		}
		if n, known := positions[l.id]; known {
			repeated++
			if l.at.After(list[n].at) {
				list[n].at = l.at
			}
			continue
		}
		positions[l.id] = len(list)
		list = append(list, l)
	}
	if len(list) == 0 {
		err = errors.New("the list is empty")
	}
	return list, repeated, err
}

// rows returns the rows of a list, and the positions of the columns; -1 for no time. Commas separate columns or, if
// the columns are not found like this, semicolons.
func (f format) rows(text []byte) (rows *csv.Reader, id, at int, err error) {
	if f.column == "" && f.timeColumn != "" {
		return nil, 0, 0, errors.New("--time-column needs CSV with --column")
	}
	var header []string
	for _, comma := range ",;" {
		rows = csv.NewReader(bytes.NewReader(text))
		rows.Comma, rows.TrimLeadingSpace = comma, true
		if f.column == "" {
			return rows, 0, -1, nil
		}
		if header, err = rows.Read(); err != nil {
			continue
		}
		id, at = slices.Index(header, f.column), slices.Index(header, f.timeColumn)
		if id >= 0 && (at >= 0 || f.timeColumn == "") {
			return rows, id, at, nil
		}
	}
	missing := f.column
	if id >= 0 {
		missing = f.timeColumn
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("the header line: %w", err)
	}
	return nil, 0, 0, fmt.Errorf("there is no column %q; the header line has %q", missing, header)
}

// parse reads a row.
func (f format) parse(row []string, id, at int) (l listed, err error) {
	l.id = strings.TrimSpace(row[id])
	switch {
	case f.column == "" && (len(row) > 1 || strings.ContainsAny(l.id, ";\t")):
		return l, errors.New("has several columns: for CSV, name that of the id with --column")
	case l.id == "":
		return l, errors.New("the id is empty")
	case f.by.isUUID && !payment.IsUUID(l.id):
		return l, fmt.Errorf("%.60q is not a UUID, which %s is", l.id, f.by.name)
	case f.by.isUUID:
		l.id = strings.ToLower(l.id)
	}
	if at >= 0 {
		l.at, err = timeOf(row[at])
	}
	return l, err
}

// timeOf reads a time of RFC 3339, or a day.
func timeOf(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return at, fmt.Errorf("the time %.60q must be as 2026-01-31T12:00:00Z or 2026-01-31", text)
	}
	return at.Add(24*time.Hour - 1), nil
}
