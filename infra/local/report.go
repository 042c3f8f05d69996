package local

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
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
	Topic    string `json:"topic"`
	What     string `json:"what"`
	Got      string `json:"got"`
	Expected string `json:"expected"`
	// Of a row: how many events arrived behind each rule.
	Arrived         map[string]int `json:"arrived,omitempty"`
	ExpectedArrived map[string]int `json:"expectedArrived,omitempty"`
	// Milliseconds is how long the answer or the check took.
	Milliseconds int64 `json:"milliseconds"`
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

func (r Result) wrong() bool { return !r.Right && r.NotShown == "" }

func wrongOf(results []Result) (wrong int) {
	for _, r := range results {
		if r.wrong() {
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
			results = append(results, Result{Topic: r.topic, What: r.sent, Got: "not shown",
				Expected: strconv.Itoa(r.status), NotShown: r.notShown})
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
		results = append(results, Result{Right: right, Topic: r.topic, What: r.sent, Got: got, Expected: expected,
			Arrived: r.arrived, ExpectedArrived: r.arrivals, Milliseconds: r.took.Milliseconds()})
	}
	return results
}

func checkResults(checks []*check) (results []Result) {
	for _, c := range checks {
		got := c.got
		if c.err != nil {
			got = strings.TrimPrefix(got+", "+c.err.Error(), ", ")
		}
		results = append(results, Result{Right: c.err == nil && c.right, Topic: c.topic, What: c.what, Got: got,
			Expected: c.must, Milliseconds: c.took.Milliseconds()})
	}
	return results
}

// print prints the report: the table by topics, a summary of the topics, and what is
// wrong. No line is longer than width. If wide is true, the table has all columns and
// may be wider.
func (r report) print(out io.Writer, width int, wide bool) error {
	var text strings.Builder
	topics := r.topics()
	for _, t := range topics {
		t.print(&text, width, wide)
	}
	printSummary(&text, width, topics)
	if r.Note != "" {
		fmt.Fprintf(&text, "\n%s\n", strings.Join(wrap(r.Note, width), "\n"))
	}
	wrong, n := 0, 0
	for _, t := range topics {
		for _, result := range t.results {
			if result.wrong() {
				result.printInFull(&text, width, t)
			}
		}
		wrong += wrongOf(t.results)
		n += len(t.results)
	}
	if wrong > 0 {
		fmt.Fprintf(&text, "\n%d of %d results are wrong.\n", wrong, n)
	} else {
		fmt.Fprintf(&text, "\nAll %d results are as expected.\n", n)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// topic is results of one topic that follow each other.
type topic struct {
	title   string // the stack's, if there are several, and the topic
	rows    bool   // they are of webhooks
	results []Result
}

// topics returns the results by topics.
func (r report) topics() (all []topic) {
	add := func(stack string, rows bool, results []Result) {
		for i, result := range results {
			if i == 0 || result.Topic != results[i-1].Topic {
				title := result.Topic
				if stack != "" {
					title = stack + ": " + strings.ToLower(title)
				}
				all = append(all, topic{title: title, rows: rows})
			}
			last := &all[len(all)-1]
			last.results = append(last.results, result)
		}
	}
	for _, p := range r.Parts {
		add(p.Title, true, p.Webhooks)
		add(p.Title, false, p.Checks)
	}
	return all
}

// print prints the topic as a table.
func (t topic) print(out io.Writer, width int, wide bool) {
	lines := [][]string{{"", "CHECKED", "RESULT"}}
	if t.rows {
		lines = [][]string{{"", "SENT", "ANSWERED", "ARRIVED"}}
	}
	if wide {
		lines[0] = append(lines[0], "EXPECTED", "MS")
		if t.rows {
			lines[0] = []string{"", "SENT", "ANSWERED", "EXPECTED", "ARRIVED", "EXPECTED", "MS"}
		}
	}
	for _, r := range t.results {
		line := []string{r.mark(), r.What, r.Got}
		if wide {
			line = append(line, r.Expected)
		}
		if t.rows {
			line = append(line, counts(r.Arrived))
		}
		if t.rows && wide {
			line = append(line, counts(r.ExpectedArrived))
		}
		if wide {
			line = append(line, strconv.FormatInt(r.Milliseconds, 10))
		}
		lines = append(lines, line)
	}
	if wide {
		width = math.MaxInt
	}
	fmt.Fprintf(out, "\n%s\n", t.title)
	printLines(out, lines, width)
}

// printSummary prints how many results of each topic there are and how many are wrong.
func printSummary(out io.Writer, width int, topics []topic) {
	lines := [][]string{{"TOPIC", "RESULTS", "WRONG", "TIME"}}
	for _, t := range topics {
		wrong := "-"
		if n := wrongOf(t.results); n > 0 {
			wrong = strconv.Itoa(n)
		}
		var took time.Duration
		for _, r := range t.results {
			took += time.Duration(r.Milliseconds) * time.Millisecond
		}
		lines = append(lines, []string{t.title, strconv.Itoa(len(t.results)), wrong,
			fmt.Sprintf("%.1f s", took.Seconds())})
	}
	fmt.Fprintln(out)
	printLines(out, lines, width)
}

func (r Result) mark() string {
	switch {
	case r.NotShown != "":
		return "-"
	case r.Right:
		return "ok"
	}
	return "WRONG"
}

// printInFull prints a wrong result with what was expected.
func (r Result) printInFull(out io.Writer, width int, t topic) {
	lines := [][]string{{"WRONG", r.What}, {"topic", t.title}, {"result", r.Got}, {"expected", r.Expected}}
	if t.rows {
		lines = append(lines, []string{"arrived", counts(r.Arrived)}, []string{"expected", counts(r.ExpectedArrived)})
	}
	fmt.Fprintln(out)
	printLines(out, lines, width)
}

const (
	gap       = 2 // between columns
	leastCell = 12
)

// printLines prints cells in columns. A cell that is longer than its column takes more
// than one line.
func printLines(out io.Writer, lines [][]string, width int) {
	columns := fit(lines, width)
	for _, line := range lines {
		parts, height := make([][]string, len(line)), 1
		for c, cell := range line {
			parts[c] = wrap(cell, columns[c])
			height = max(height, len(parts[c]))
		}
		for i := range height {
			var text strings.Builder
			for c, part := range parts {
				cell := ""
				if i < len(part) {
					cell = part[i]
				}
				text.WriteString(cell + strings.Repeat(" ", columns[c]-utf8.RuneCountInString(cell)+gap))
			}
			fmt.Fprintln(out, strings.TrimRight(text.String(), " "))
		}
	}
}

// fit returns the widths of the columns with which a line has at most width columns.
// It narrows, step by step, the column that costs the fewest additional lines, but none
// below leastCell.
func fit(lines [][]string, width int) []int {
	columns := make([]int, len(lines[0]))
	total := gap * (len(columns) - 1)
	for c := range columns {
		for _, line := range lines {
			columns[c] = max(columns[c], utf8.RuneCountInString(line[c]))
		}
		total += columns[c]
	}
	for ; total > width; total-- {
		best, least := -1, 0
		for c := range columns {
			if columns[c] <= leastCell {
				continue
			}
			columns[c]--
			cost := height(lines, columns)
			columns[c]++
			if best < 0 || cost < least || cost == least && columns[c] > columns[best] {
				best, least = c, cost
			}
		}
		if best < 0 {
			break
		}
		columns[best]--
	}
	return columns
}

// height is how many lines of a terminal the lines take.
func height(lines [][]string, columns []int) (n int) {
	for _, line := range lines {
		most := 1
		for c, cell := range line {
			most = max(most, len(wrap(cell, columns[c])))
		}
		n += most
	}
	return n
}

// wrap breaks a text into lines of at most width characters, at spaces where it can.
func wrap(text string, width int) (lines []string) {
	if utf8.RuneCountInString(text) <= width && !strings.ContainsAny(text, "\n\t") {
		return []string{text}
	}
	var line []rune
	for field := range strings.FieldsSeq(text) {
		word := []rune(field)
		if len(line) > 0 && len(line)+1+len(word) <= width {
			line = append(append(line, ' '), word...)
			continue
		}
		if len(line) > 0 {
			lines = append(lines, string(line))
		}
		for ; len(word) > width; word = word[width:] {
			lines = append(lines, string(word[:width]))
		}
		line = word
	}
	return append(lines, string(line))
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
