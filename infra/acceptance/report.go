package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"payhook.example/infra/local"
)

// Status is what became of a row.
type Status string

// The statuses of rows.
const (
	Passed Status = "passed"
	Wrong  Status = "wrong"
	// NotShown is the status of a row that the target cannot show. It is not a result.
	NotShown Status = "not shown"
	// Measured is the status of a row that has no expected value.
	Measured Status = "measured"
)

// Row is one row of the report.
type Row struct {
	Topic    string `json:"topic,omitempty"` // the part of the section
	What     string `json:"what"`
	Expected string `json:"expected"`
	Actual   string `json:"actual"`
	Status   Status `json:"status"`
	Reason   string `json:"reason,omitempty"` // why it is not shown
	// Bench is what infra/bench measured of the same, on the machine that ran it.
	Bench string `json:"bench,omitempty"`
}

// Section is a part of the report.
type Section struct {
	Title string `json:"title"`
	About string `json:"about"` // what it shows, for people
	Rows  []Row  `json:"rows"`
}

// count returns how many rows have a status.
func (s Section) count(status Status) (n int) {
	for _, row := range s.Rows {
		if row.Status == status {
			n++
		}
	}
	return n
}

// sameReason returns the reason why no row is shown, if it is one reason for all.
func (s Section) sameReason() string {
	for _, row := range s.Rows {
		if row.Status != NotShown || row.Reason != s.Rows[0].Reason {
			return ""
		}
	}
	return s.Rows[0].Reason
}

// Report is the report of a run.
type Report struct {
	Run      string            `json:"run"`
	Target   string            `json:"target"`
	Account  string            `json:"account"`
	Region   string            `json:"region"`
	Started  time.Time         `json:"started"`
	Ended    time.Time         `json:"ended"`
	Versions map[string]string `json:"versions"`
	Settings map[string]string `json:"settings"` // other than the defaults
	Sections []Section         `json:"sections"`
	Counts   map[Status]int    `json:"counts"`
	// Right is true if everything was done and no row is wrong.
	Right bool `json:"right"`
	// Failure is the error that ended the run early.
	Failure string `json:"failure,omitempty"`
	// Assets are the objects, as bucket/key, that remain in the bucket of the CDK's
	// bootstrap stack.
	Assets []string `json:"assets"`
	Removal
	Kept bool `json:"kept"`
}

func (r *Run) newReport() Report {
	return Report{
		Run: r.ID, Target: r.target.Name, Account: r.target.Account, Region: r.target.AWS.Region,
		Started:  r.start.UTC().Truncate(time.Second),
		Versions: versions(r.opts.Top, r.opts.Version),
		Settings: r.opts.Settings, Sections: []Section{}, Counts: map[Status]int{}, Assets: []string{},
		Removal: Removal{[]string{}, []string{}},
		Kept:    r.opts.Keep,
	}
}

// versions are those of what takes part.
func versions(top, payhook string) map[string]string {
	all := map[string]string{"payhook": payhook, "go": strings.TrimPrefix(runtime.Version(), "go")}
	text, err := os.ReadFile(filepath.Join(top, "infra", "package.json"))
	var npm struct{ Dependencies, DevDependencies map[string]string }
	if err == nil && json.Unmarshal(text, &npm) == nil {
		all["aws-cdk"] = npm.Dependencies["aws-cdk"] + npm.DevDependencies["aws-cdk"]
	}
	return all
}

func (r *Report) add(title, about string, rows []Row) {
	if len(rows) > 0 {
		r.Sections = append(r.Sections, Section{title, about, rows})
	}
}

// finish counts the rows.
func (r *Report) finish() {
	r.Ended = time.Now().UTC().Truncate(time.Second)
	for _, s := range r.Sections {
		for _, status := range []Status{Passed, Wrong, Measured, NotShown} {
			if n := s.count(status); n > 0 {
				r.Counts[status] += n
			}
		}
	}
}

// Conclude sets whether the report is right; err is that of the run.
func (r *Report) Conclude(err error) {
	if err != nil {
		r.Failure = err.Error()
	}
	r.Right = err == nil && r.Counts[Wrong] == 0 && r.Counts[Passed] > 0
}

// rowsOf returns the rows of a part of the table.
func rowsOf(results []local.Result) []Row {
	var rows []Row
	for _, one := range results {
		row := Row{Topic: one.Topic, What: one.What, Expected: one.Expected, Actual: one.Got, Status: Wrong}
		if one.Arrived != nil || one.ExpectedArrived != nil {
			row.Expected += "; behind rules: " + counts(one.ExpectedArrived)
			row.Actual += "; behind rules: " + counts(one.Arrived)
		}
		switch {
		case one.NotShown != "":
			row.Status, row.Reason = NotShown, one.NotShown
		case one.Right:
			row.Status = Passed
		}
		rows = append(rows, row)
	}
	return rows
}

func counts(byRule map[string]int) string {
	if len(byRule) == 0 {
		return "none"
	}
	var parts []string
	for _, rule := range slices.Sorted(maps.Keys(byRule)) {
		parts = append(parts, fmt.Sprintf("%s %d", rule, byRule[rule]))
	}
	return strings.Join(parts, ", ")
}

// WriteFiles writes the report as report.md and report.json to a folder.
func (r Report) WriteFiles(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "report.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, "report.md"))
	if err != nil {
		return err
	}
	defer file.Close()
	return r.Markdown(file)
}

const introduction = `Payhook receives the webhooks of a payment service, verifies that they are authentic, and
publishes each payment event once to an event bus (Amazon EventBridge). This report shows what one deployment of
Payhook did. A program deployed Payhook, a simulated payment service and a consumer of events, sent authentic and
forged webhooks, and compared each result with the expected one.

- **passed**: the actual result is the expected one.
- **wrong**: it is not.
- **measured**: a value without an expectation.
- **not shown**: this target cannot show it. It was not tested, and nothing is claimed. The reason is stated.

## Words

- **webhook, delivery**: an HTTP request of the payment service with one or more payment events, signed with its key.
- **accepted**: answered with 2xx. "200 1 new, 0 known" means that one event was new, and none was received before.
- **behind rules**: how many events arrived in the queue of each rule of the consumer. An event matches a rule if it
  fits its pattern: "released" payments, "euro", "needs-attention". "other-bus" is a second bus, which gets the last.
- **pending, redrive**: an event is pending while it is recorded and not published. Redrive is the function that
  publishes pending events, every minute.
- **parked, replay, settle**: what cannot be published is parked, which means stored until a person decides. A replay
  publishes it. To settle it records that it needs no replay.
- **conflict**: two events with the same id and different content.
- **alarm**: an alarm of Amazon CloudWatch, which notifies people. OK means that it is not raised.
- **p50, p99**: the time that half, or 99 of 100, do not exceed.

`

// abouts are what the sections show, for people who have never seen Payhook.
var abouts = map[string]string{
	"Webhooks, events and tokens": `What is answered to webhooks, what arrives at the consumer, what is parked, and
how the access token for the service's API is renewed. Only authentic webhooks may be accepted, and each event may
arrive once.`,
	"What EventBridge does to the bytes of an event": `Payhook publishes an event byte for byte. EventBridge reads it,
and can write values in another way before a consumer gets it. A value must stay the same; its form may change.`,
	"Numeric patterns of EventBridge": `Whether rules that compare amounts decide as documented, at the limits of
their precision.`,
	"Who can publish": `Only Payhook's functions may publish on its bus. If they cannot publish for a while, no event
may be lost.`,
	"A deployment under load": `A new version is deployed while webhooks arrive. None may fail. What follows uses the
settings of this deployment.`,
	"An event that redrive gave up on": `An event that could not be published often enough is parked. A replay must
publish it.`,
	"Alarms": `Each alarm is raised by what it watches, and must be OK again after its cause has ended. Before its
cause, it must not be raised. On the emulator, the times are those of its CloudWatch, for which the run makes minutes
pass at once.`,
	"The largest event and the largest webhook": `The limits of size of EventBridge and Lambda, as they are.`,
	"A short-lived token": `A schedule must renew the access token before it expires, without a failed call of a
client.`,
	"Times, requests and write units": `How long a webhook takes, by Lambda's and Payhook's own log lines, and what it
uses of the table of events (the ledger). If the run was given a result of make bench, it is beside: times of the same
function on the machine that measured them, where each call of AWS takes a fixed time.`,
	"Dashboard": `The charts of the dashboard, as it is deployed. Each metric must have data from this run, or a
reason to have none.`,
	"The client certificate behind API Gateway": `With client certificates, API Gateway passes on the certificate of
the sender, and Payhook verifies it again.`,
}

// Markdown writes the report for people.
func (r Report) Markdown(to io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "# Payhook: acceptance report\n\n")
	switch {
	case r.Right:
		fmt.Fprintf(&out, "**Result: as expected.** ")
	case r.Failure != "":
		fmt.Fprintf(&out, "**Result: the run failed.** ")
	default:
		fmt.Fprintf(&out, "**Result: not as expected.** ")
	}
	fmt.Fprintf(&out, "%d passed, %d wrong, %d measured, %d not shown.\n\n", r.Counts[Passed], r.Counts[Wrong],
		r.Counts[Measured], r.Counts[NotShown])
	if r.Failure != "" {
		fmt.Fprintf(&out, "The run ended early or is incomplete:\n\n```\n%s\n```\n\n", r.Failure)
	}
	out.WriteString(introduction)
	fmt.Fprintf(&out, "## Summary\n\n| part | passed | wrong | measured | not shown |\n|---|---|---|---|---|\n")
	for _, s := range r.Sections {
		fmt.Fprintf(&out, "| %s | %d | %d | %d | %d |\n", cell(s.Title), s.count(Passed), s.count(Wrong),
			s.count(Measured), s.count(NotShown))
	}
	fmt.Fprintf(&out, "\n## What was deployed\n\n| | |\n|---|---|\n")
	line := func(name, value string) { fmt.Fprintf(&out, "| %s | %s |\n", cell(name), cell(value)) }
	line("run", r.Run)
	line("target", r.Target)
	line("account", r.Account)
	line("region", r.Region)
	line("started", r.Started.Format(time.RFC3339))
	line("ended", r.Ended.Format(time.RFC3339))
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		line("version of "+name, r.Versions[name])
	}
	for _, key := range slices.Sorted(maps.Keys(r.Settings)) {
		line("setting "+key, r.Settings[key])
	}
	if len(r.Settings) == 0 {
		line("settings", "the defaults")
	}
	for _, s := range r.Sections {
		s.markdown(&out)
	}
	fmt.Fprintf(&out, "\n## What remains\n\n")
	switch {
	case r.Kept:
		fmt.Fprintf(&out, "Everything that was deployed remains (--keep). `payhook acceptance --cleanup` removes it.\n")
	case len(r.Left) > 0:
		fmt.Fprintf(&out, "These resources could not be removed:\n\n")
		for _, one := range r.Left {
			fmt.Fprintf(&out, "- `%s`\n", one)
		}
	case r.Failure != "":
		fmt.Fprintf(&out, "If the failure above says that something is left, `payhook acceptance --cleanup` removes "+
			"it.\n")
	default:
		fmt.Fprintf(&out, "The stacks and everything with the tag `%s=%s` were removed.\n", RunTag, r.Run)
	}
	if len(r.Scheduled) > 0 {
		fmt.Fprintf(&out, "\nAWS deletes these keys later, because it deletes no key at once. A key that is pending "+
			"deletion cannot be used and is not billed.\n\n")
		for _, one := range r.Scheduled {
			fmt.Fprintf(&out, "- `%s`\n", one)
		}
	}
	if len(r.Assets) > 0 {
		fmt.Fprintf(&out, "\nThe CDK keeps the uploaded code and templates in the bucket of its bootstrap stack:\n\n")
		for _, one := range r.Assets {
			fmt.Fprintf(&out, "- `%s`\n", one)
		}
	}
	_, err := io.WriteString(to, out.String())
	return err
}

// markdown writes the section: a table for each topic, or a list if no row is shown for one
// reason and nothing is compared with it.
func (s Section) markdown(out *strings.Builder) {
	fmt.Fprintf(out, "\n## %s\n\n", s.Title)
	if s.About != "" {
		fmt.Fprintf(out, "%s\n", s.About)
	}
	compared := slices.ContainsFunc(s.Rows, func(row Row) bool { return row.Bench != "" })
	if reason := s.sameReason(); reason != "" && !compared {
		fmt.Fprintf(out, "\n**Not shown**: %s.\n\n", cell(reason))
		for _, row := range s.Rows {
			fmt.Fprintf(out, "- not shown: %s\n", cell(row.What))
		}
		return
	}
	for i, row := range s.Rows {
		if i == 0 || row.Topic != s.Rows[i-1].Topic {
			if row.Topic != "" {
				fmt.Fprintf(out, "\n### %s\n", row.Topic)
			}
			title, line := "| result | what | expected | actual |", "|---|---|---|---|"
			if compared {
				title, line = title+" make bench |", line+"---|"
			}
			fmt.Fprintf(out, "\n%s\n%s\n", title, line)
		}
		actual := row.Actual
		if row.Status == NotShown {
			actual = "not shown: " + row.Reason
		}
		status := string(row.Status)
		if row.Status == Wrong {
			status = "**wrong**"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |", status, cell(row.What), cell(row.Expected), cell(actual))
		if compared {
			fmt.Fprintf(out, " %s |", cell(row.Bench))
		}
		out.WriteByte('\n')
	}
}

// cell returns text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "\r", " ", "<", "&lt;").Replace(text)
}
