package status

import (
	"fmt"
	"strings"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
)

// clearScreen moves the cursor of a terminal to the top and clears the screen.
const clearScreen = "\x1b[H\x1b[2J"

// show prints one screen, or one document.
func (c *command) show(h health, name string) error {
	if c.JSON {
		return c.PrintJSON(h)
	}
	var b strings.Builder
	if c.watch && c.Reader {
		b.WriteString(clearScreen)
	}
	n := map[state]int{}
	for _, check := range h.Checks {
		n[check.State]++
	}
	verdict := "healthy"
	switch {
	case n[attention] > 0:
		verdict = fmt.Sprintf("NOT HEALTHY: %d need attention, %d not measured", n[attention], n[notMeasured])
	case n[notMeasured] > 0:
		verdict = fmt.Sprintf("UNKNOWN: %d not measured", n[notMeasured])
	}
	line := func(text string) { fmt.Fprintln(&b, fit(text, c.Width())) }
	line(name + ", " + h.At.Format(time.RFC3339))
	line(verdict)
	for _, check := range h.Checks {
		line(fmt.Sprintf("  %-13s %-13s %s", check.Name, check.State, cli.Plain(check.Text)))
	}
	_, err := fmt.Fprint(c.Out, b.String())
	return err
}

// fit shortens a line to the width.
func fit(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(width-1, 0)]) + "…"
}
