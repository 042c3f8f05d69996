package commands

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/payment"
)

// open reads the list in a file, or from standard input for "-": CSV with a header line if a column is named, otherwise
// one id a line. Each id is returned once, in the order of the list. Errors name the line.
func (r *reconciler) open(name string) (list []string, err error) {
	var text []byte
	if name == "-" {
		text, err = io.ReadAll(r.In)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	rows, column, err := r.rows(payment.WithoutBOM(text)) // spreadsheets write a byte order mark
	if err != nil {
		return nil, err
	}
	known, repeated := map[string]bool{}, 0
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if len(row) == 1 && strings.TrimSpace(row[0]) == "" {
			continue
		}
		id, err := r.parse(row, column)
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if known[id] {
			repeated++
		} else {
			known[id], list = true, append(list, id)
		}
	}
	if repeated > 0 {
		fmt.Fprintf(r.Err, "%s ignored\n", cli.Counted(repeated, "repeated id", "repeated ids"))
	}
	if len(list) == 0 {
		err = errors.New("the list is empty")
	}
	return list, err
}

// rows returns the rows of a list, and the position of the column. Commas separate columns or, if the column is not
// found like this, semicolons.
func (r *reconciler) rows(text []byte) (rows *csv.Reader, column int, err error) {
	var header []string
	for _, comma := range ",;" {
		rows = csv.NewReader(bytes.NewReader(text))
		rows.Comma, rows.TrimLeadingSpace = comma, true
		if r.column == "" {
			return rows, 0, nil
		}
		if header, err = rows.Read(); err != nil {
			continue
		}
		if column = slices.Index(header, r.column); column >= 0 {
			return rows, column, nil
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the header line: %w", err)
	}
	return nil, 0, fmt.Errorf("there is no column %q; the header line has %q", r.column, header)
}

func (r *reconciler) parse(row []string, column int) (string, error) {
	switch id := strings.TrimSpace(row[column]); {
	case r.column == "" && (len(row) > 1 || strings.ContainsAny(id, ";\t")):
		return "", errors.New("has several columns: for CSV, name that of the id with --column")
	case id == "":
		return "", errors.New("the id is empty")
	case r.by.isUUID && !payment.IsUUID(id):
		return "", fmt.Errorf("%.60q is not a UUID, which %s is", id, r.by.name)
	case r.by.isUUID:
		return strings.ToLower(id), nil
	default:
		return id, nil
	}
}
