package acceptance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payhook.example/infra/local/scenario"
)

// Report is the report of a run.
type Report struct {
	Run      string             `json:"run"`
	Target   string             `json:"target"`
	Started  time.Time          `json:"started"`
	Ended    time.Time          `json:"ended"`
	Version  string             `json:"version"`  // the commit of this program
	Settings map[string]string  `json:"settings"` // other than the defaults
	Sections []scenario.Section `json:"sections"`
	// Right is true if everything was done and no result is wrong.
	Right bool `json:"right"`
	// Failure is the error that ended the run early.
	Failure string `json:"failure,omitempty"`
}

func newReport(r *Run) Report {
	return Report{Run: r.ID, Target: r.Target.Name, Started: time.Now().UTC().Truncate(time.Second), Version: version(),
		Settings: r.Values, Sections: []scenario.Section{}}
}

// conclude sets the end and whether the report is right; err is that of the run.
func (r *Report) conclude(err error) {
	r.Ended = time.Now().UTC().Truncate(time.Second)
	r.Right = err == nil && len(r.Sections) > 0 && scenario.NewReport(r.Sections...).Right
	if err != nil {
		r.Failure = err.Error()
	}
}

// Write writes the report as report.md and report.json to a folder.
func (r Report) Write(folder string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "report.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "report.md"), []byte(r.Markdown()), 0o644)
}

// Markdown returns the report for people.
func (r Report) Markdown() string {
	var out strings.Builder
	counts := map[string]int{}
	for _, s := range r.Sections {
		for _, c := range slices.Concat(s.Webhooks, s.Checks) {
			counts[status(c)]++
		}
	}
	result := "as expected"
	if !r.Right {
		result = "not as expected"
	}
	fmt.Fprintf(&out, "# Payhook: acceptance report\n\n"+
		"**Result: %s.** %d passed, %d wrong, %d measured, %d not shown.\n\n"+
		"A result that is *measured* has no expected value. What is *not shown* was not tested, for the reason "+
		"stated.\n",
		result, counts["passed"], counts["**wrong**"], counts["measured"], counts["not shown"])
	if r.Failure != "" {
		fmt.Fprintf(&out, "\nThe run failed:\n\n```\n%s\n```\n", r.Failure)
	}
	fmt.Fprintf(&out, "\n| | |\n|---|---|\n| run | %s |\n| target | %s |\n| version | %s |\n| time | %s to %s |\n",
		r.Run, cell(r.Target), r.Version, r.Started.Format(time.RFC3339), r.Ended.Format(time.RFC3339))
	for _, key := range slices.Sorted(maps.Keys(r.Settings)) {
		fmt.Fprintf(&out, "| setting %s | %s |\n", key, cell(r.Settings[key]))
	}
	for _, s := range r.Sections {
		title := s.Title
		if title == "" {
			title = "Webhooks, events and tokens"
		}
		fmt.Fprintf(&out, "\n## %s\n\n| result | what | expected | actual |\n|---|---|---|---|\n", title)
		for _, c := range slices.Concat(s.Webhooks, s.Checks) {
			expected, got := c.Expected, c.Got
			if len(c.Arrived)+len(c.ExpectedArrived) > 0 {
				expected += "; behind rules: " + scenario.Counts(c.ExpectedArrived)
				got += "; behind rules: " + scenario.Counts(c.Arrived)
			}
			if c.NotShown != "" {
				got = c.NotShown
			}
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", status(c), cell(c.What), cell(expected), cell(got))
		}
	}
	return out.String()
}

// status returns the status of a check in the report.
func status(c *scenario.Check) string {
	switch {
	case c.NotShown != "":
		return "not shown"
	case !c.Right:
		return "**wrong**"
	case c.Measured:
		return "measured"
	}
	return "passed"
}

// cell returns text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "\r", " ", "<", "&lt;").Replace(text)
}
