package scenario

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Print prints the report: a table for each topic, a summary of the topics, and each wrong result with
// what was expected. No line is longer than width. If wide is true, the tables show also what is
// expected and milliseconds, and can be wider.
func (r Report) Print(out io.Writer, width int, wide bool) error {
	var text strings.Builder
	summary, failures, wrong, n := [][]string{{"TOPIC", "RESULTS", "WRONG", "TIME"}}, [][]string{}, 0, 0
	for _, t := range r.Parts {
		lines := [][]string{{"", "CHECKED", "RESULT"}}
		tableWidth := width
		if wide {
			lines[0], tableWidth = append(lines[0], "EXPECTED", "MS"), math.MaxInt
		}
		var took time.Duration
		before := wrong
		for _, c := range t.Checks {
			line := []string{c.mark(), c.What, c.Got}
			if wide {
				line = append(line, c.Expected, strconv.FormatInt(c.Milliseconds, 10))
			}
			lines = append(lines, line)
			took += time.Duration(c.Milliseconds) * time.Millisecond
			n++
			if c.Wrong() {
				wrong++
				failures = append(failures, []string{"", ""}, []string{"WRONG", c.What}, []string{"topic", t.Title},
					[]string{"result", c.Got}, []string{"expected", c.Expected})
			}
		}
		fmt.Fprintf(&text, "\n%s\n", t.Title)
		printLines(&text, lines, tableWidth)
		summary = append(summary, []string{t.Title, strconv.Itoa(len(t.Checks)), strconv.Itoa(wrong - before),
			fmt.Sprintf("%.1f s", took.Seconds())})
	}
	fmt.Fprintln(&text)
	printLines(&text, summary, width)
	if wrong > 0 {
		printLines(&text, failures, width)
		fmt.Fprintf(&text, "\n%d of %d results are wrong.\n", wrong, n)
	} else {
		fmt.Fprintf(&text, "\nAll %d results are as expected.\n", n)
	}
	_, err := io.WriteString(out, text.String())
	return err
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
