package scenario

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// legend explains the column RESULT.
const legend = `RESULT: the status of the answer; in which queues of the sample consumer (events/consumer) how
many events arrived; how many events were new, known, or in conflict (a known eventId with other content).
`

// Print prints the report: a table for each topic, a summary of the topics, and each wrong result with
// what was expected. If wide is true, the tables show also what is expected, and milliseconds.
func (r Report) Print(out io.Writer, wide bool) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		for i, cell := range cells {
			cells[i] = strings.Join(strings.Fields(cell), " ") // line breaks and tabs separate cells
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	fmt.Fprint(t, "\n", legend)
	for _, part := range r.Parts {
		fmt.Fprintf(t, "\n%s\n", part.Title)
		head := []string{"", "CHECKED", "RESULT"}
		if wide {
			head = append(head, "EXPECTED", "MS")
		}
		line(head...)
		for _, c := range part.Checks {
			cells := []string{c.mark(), c.What, c.Got}
			if wide {
				cells = append(cells, c.Expected, strconv.FormatInt(c.Milliseconds, 10))
			}
			line(cells...)
		}
	}
	fmt.Fprintln(t)
	line("TOPIC", "RESULTS", "WRONG", "TIME")
	for _, part := range r.Parts {
		wrong, took := 0, time.Duration(0)
		for _, c := range part.Checks {
			if c.Wrong() {
				wrong++
			}
			took += time.Duration(c.Milliseconds) * time.Millisecond
		}
		line(part.Title, strconv.Itoa(len(part.Checks)), strconv.Itoa(wrong), fmt.Sprintf("%.1f s", took.Seconds()))
	}
	wrong := 0
	for _, part := range r.Parts {
		for _, c := range part.Checks {
			if c.Wrong() {
				wrong++
				fmt.Fprintln(t)
				line("WRONG", c.What)
				line("topic", part.Title)
				line("result", c.Got)
				line("expected", c.Expected)
			}
		}
	}
	if n := len(all(r.Parts)); wrong > 0 {
		fmt.Fprintf(t, "\n%d of %d results are wrong.\n", wrong, n)
	} else {
		fmt.Fprintf(t, "\nAll %d results are as expected.\n", n)
	}
	return t.Flush()
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
