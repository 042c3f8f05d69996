package checks

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print prints the report: for each topic, what was checked and the result. Under a wrong result stands what was
// expected.
func (r Report) Print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		for i, cell := range cells {
			cells[i] = strings.Join(strings.Fields(cell), " ") // line breaks and tabs separate cells
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	wrong := 0
	for _, part := range r.Parts {
		fmt.Fprintf(t, "\n%s\n", part.Title)
		for _, c := range part.Checks {
			if c.Right {
				line("ok", c.What, c.Got)
				continue
			}
			wrong++
			line("WRONG", c.What, c.Got)
			line("", "expected", c.Expected)
		}
	}
	if n := len(all(r.Parts)); wrong > 0 {
		fmt.Fprintf(t, "\n%d of %d results are wrong.\n", wrong, n)
	} else {
		fmt.Fprintf(t, "\nAll %d results are as expected.\n", n)
	}
	return t.Flush()
}
