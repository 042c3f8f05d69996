package local

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// section is a part of the table: what was sent to one stack, and what else was
// checked of it.
type section struct {
	title  string
	rows   []*row
	checks []*check
}

// Result is the result of one row or check.
type Result struct {
	Right    bool   `json:"right"`
	What     string `json:"what"`
	Got      string `json:"got"`
	Expected string `json:"expected"`
	// Of a row: how many events arrived behind each rule.
	Arrived         map[string]int `json:"arrived,omitempty"`
	ExpectedArrived map[string]int `json:"expectedArrived,omitempty"`
	// NotShown is the reason why the deployment cannot show it; right is false then.
	NotShown string `json:"notShown,omitempty"`
}

// Part is the results of a section.
type Part struct {
	Title    string   `json:"title,omitempty"`
	Webhooks []Result `json:"webhooks"`
	Checks   []Result `json:"checks"`
}

// report is the results of a run.
type report struct {
	Right bool   `json:"right"` // all of them
	Parts []Part `json:"parts"`
	Note  string `json:"note,omitempty"`
}

func newReport(sections []section, note string) report {
	r := report{Right: true, Note: note}
	for _, s := range sections {
		p := Part{s.title, rowResults(s.rows), checkResults(s.checks)}
		r.Parts = append(r.Parts, p)
		r.Right = r.Right && wrongOf(p.Webhooks)+wrongOf(p.Checks) == 0
	}
	return r
}

func wrongOf(results []Result) (wrong int) {
	for _, r := range results {
		if !r.Right && r.NotShown == "" {
			wrong++
		}
	}
	return wrong
}

// rowResults returns the results of rows. All answers to webhooks that are not
// authentic must have one and the same body.
func rowResults(rows []*row) (results []Result) {
	var refusal string
	for _, r := range rows {
		if r.notShown != "" {
			results = append(results, Result{What: r.sent, Got: "not shown", Expected: strconv.Itoa(r.status),
				NotShown: r.notShown})
			continue
		}
		right := r.right()
		if r.status == http.StatusUnauthorized && r.err == nil {
			if refusal == "" {
				refusal = string(r.got.Body)
			}
			right = right && refusal == string(r.got.Body)
		}
		got, expected := strconv.Itoa(r.got.Status)+summary(r.got.Body), strconv.Itoa(r.status)
		if r.err != nil {
			got = r.err.Error()
		}
		if r.noAnswer {
			if expected = "no connection"; right {
				got = expected
			}
		}
		results = append(results, Result{Right: right, What: r.sent, Got: got, Expected: expected,
			Arrived: r.arrived, ExpectedArrived: r.arrivals})
	}
	return results
}

func checkResults(checks []*check) (results []Result) {
	for _, c := range checks {
		got := c.got
		if c.err != nil {
			got = strings.TrimPrefix(got+", "+c.err.Error(), ", ")
		}
		results = append(results, Result{Right: c.err == nil && c.right, What: c.what, Got: got, Expected: c.must})
	}
	return results
}

// print prints the report. Lines are not longer than width, except those of results
// that are wrong, and all of them if wide is true.
func (r report) print(out io.Writer, width int, wide bool) error {
	var text strings.Builder
	wrong, n := 0, 0
	for _, p := range r.Parts {
		if p.Title != "" {
			fmt.Fprintf(&text, "\n%s\n", p.Title)
		}
		printResults(&text, width, wide, true, p.Webhooks)
		printResults(&text, width, wide, false, p.Checks)
		wrong += wrongOf(p.Webhooks) + wrongOf(p.Checks)
		n += len(p.Webhooks) + len(p.Checks)
	}
	if r.Note != "" {
		fmt.Fprintf(&text, "\n%s\n", r.Note)
	}
	if wrong > 0 {
		fmt.Fprintf(&text, "\n%d of %d results are wrong.\n", wrong, n)
	} else {
		fmt.Fprintf(&text, "\nAll %d results are as expected.\n", n)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// printResults prints results of rows, or of checks. What is expected has columns of
// its own if wide is true, and otherwise a line of its own where a result is wrong.
func printResults(out io.Writer, width int, wide, rows bool, results []Result) {
	header := []string{"", "CHECKED", "RESULT", "EXPECTED"}
	if rows {
		header = []string{"", "SENT", "ANSWERED", "EXPECTED", "ARRIVED BEHIND", "EXPECTED"}
	}
	lines := [][]string{header}
	for _, r := range results {
		mark := "ok"
		if !r.Right {
			mark = "WRONG"
		}
		line := []string{mark, r.What, r.Got, r.Expected}
		if rows {
			line = append(line, counts(r.Arrived), counts(r.ExpectedArrived))
		}
		lines = append(lines, line)
	}
	if !wide {
		for i, line := range lines {
			short := slices.Clone(line[:3])
			if rows {
				short = append(short, line[4])
			}
			lines[i] = short
		}
	}
	columns := fit(lines, width, wide)
	fmt.Fprintln(out)
	for i, line := range lines {
		wrong := i > 0 && !results[i-1].Right
		var text strings.Builder
		for c, cell := range line {
			if !wrong {
				cell = shorten(cell, columns[c])
			}
			text.WriteString(cell + strings.Repeat(" ", max(0, columns[c]-utf8.RuneCountInString(cell))+gap))
		}
		fmt.Fprintln(out, strings.TrimRight(text.String(), " "))
		if wrong && !wide {
			r := results[i-1]
			fmt.Fprintf(out, "%sexpected: %s", strings.Repeat(" ", columns[0]+gap), r.Expected)
			if rows {
				fmt.Fprintf(out, ", behind rules: %s", counts(r.ExpectedArrived))
			}
			fmt.Fprintln(out)
		}
	}
}

const (
	gap       = 2 // between columns
	leastCell = 12
)

// fit returns the widths of the columns. Unless wide is true, the widest ones are made
// narrower until a line fits, but not narrower than leastCell.
func fit(lines [][]string, width int, wide bool) []int {
	columns := make([]int, len(lines[0]))
	total := gap * (len(columns) - 1)
	for c := range columns {
		for _, line := range lines {
			columns[c] = max(columns[c], utf8.RuneCountInString(line[c]))
		}
		total += columns[c]
	}
	for !wide && total > width {
		widest := slices.Index(columns, slices.Max(columns))
		if columns[widest] <= leastCell {
			break
		}
		columns[widest]--
		total--
	}
	return columns
}

// shorten cuts a cell that is longer than its column.
func shorten(cell string, width int) string {
	if utf8.RuneCountInString(cell) <= width {
		return cell
	}
	return string([]rune(cell)[:width-1]) + "…"
}

// summary is what of an answer's body fits into the table.
func summary(body []byte) string {
	var b struct {
		Recorded, Duplicates *int
		Conflicts            int
		Detail, Message      string // Message is AWS's
	}
	if json.Unmarshal(body, &b) != nil {
		return ""
	}
	if b.Recorded != nil && b.Duplicates != nil && b.Detail == "" {
		text := fmt.Sprintf(" %d new, %d known", *b.Recorded, *b.Duplicates)
		if b.Conflicts > 0 {
			text += fmt.Sprintf(", %d in conflict", b.Conflicts)
		}
		return text
	}
	return " " + b.Detail + b.Message
}

func counts(byRule map[string]int) string {
	if len(byRule) == 0 {
		return "-"
	}
	var parts []string
	for _, rule := range slices.Sorted(maps.Keys(byRule)) {
		parts = append(parts, fmt.Sprintf("%s %d", rule, byRule[rule]))
	}
	return strings.Join(parts, ", ")
}
