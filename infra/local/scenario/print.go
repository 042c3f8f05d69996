package scenario

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// countWrong returns how many checks are wrong.
func countWrong(checks []*Check) (wrong int) {
	for _, c := range checks {
		if c.Wrong() {
			wrong++
		}
	}
	return wrong
}

// Print prints the report: the table by topics, a summary of the topics, and what is wrong. No
// line is longer than width. If wide is true, the table has all columns and can be wider.
func (r Report) Print(out io.Writer, width int, wide bool) error {
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
			if result.Wrong() {
				result.printInFull(&text, width, t)
			}
		}
		wrong += countWrong(t.results)
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

// topic is consecutive results of one topic.
type topic struct {
	title   string // the stack's, if there are several, and the topic
	rows    bool   // they are webhooks
	results []*Check
}

// topics returns the results by topics.
func (r Report) topics() (all []topic) {
	add := func(stack string, rows bool, results []*Check) {
		for i, result := range results {
			if i == 0 || result.Topic != results[i-1].Topic {
				title := result.Topic
				if stack != "" {
					title = strings.TrimSuffix(stack+": "+strings.ToLower(title), ": ")
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
			line = append(line, Counts(r.Arrived))
		}
		if t.rows && wide {
			line = append(line, Counts(r.ExpectedArrived))
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
		if n := countWrong(t.results); n > 0 {
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

func (c *Check) mark() string {
	switch {
	case c.NotShown != "":
		return "-"
	case c.Right:
		return "ok"
	}
	return "WRONG"
}

// printInFull prints a wrong result with what was expected.
func (c *Check) printInFull(out io.Writer, width int, t topic) {
	lines := [][]string{{"WRONG", c.What}, {"topic", t.title}, {"result", c.Got}, {"expected", c.Expected}}
	if t.rows {
		lines = append(lines, []string{"arrived", Counts(c.Arrived)}, []string{"expected", Counts(c.ExpectedArrived)})
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

// fit returns the widths of the columns with which a line has at most width characters. It
// narrows the widest column, but none below leastCell.
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
		widest := slices.Index(columns, slices.Max(columns))
		if columns[widest] <= leastCell {
			break
		}
		columns[widest]--
	}
	return columns
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

// summary returns a short form of the body of an answer.
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

// Counts returns how many events arrived behind each rule, as text.
func Counts(byRule map[string]int) string {
	if len(byRule) == 0 {
		return "-"
	}
	var parts []string
	for _, rule := range slices.Sorted(maps.Keys(byRule)) {
		parts = append(parts, fmt.Sprintf("%s %d", rule, byRule[rule]))
	}
	return strings.Join(parts, ", ")
}
